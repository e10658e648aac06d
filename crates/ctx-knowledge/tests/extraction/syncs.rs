//! Syncs whose documents are extracted by workers.

use crate::Test;
use crate::common::{Workspace, hit_names, notes, stored_names, sync, try_sync};
use crate::hostile::hostile_files;
use crate::{WORKER, extraction, settings};
use ctx_knowledge::{Extraction, SyncOptions};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = tests!(syncs:
    every_format_is_read_by_a_worker_and_plain_text_is_not,
    a_worker_killed_while_it_reads_costs_its_file_a_warning,
    a_sync_that_is_cancelled_kills_its_worker,
    an_invalid_worker_program_costs_each_file_a_warning,
    hostile_files_are_read_cut_short_or_refused,
);

/// The child processes of this one, with their CPU time in ticks.
pub(crate) fn children() -> Vec<(u32, u64)> {
    let ids = fs::read_dir("/proc").unwrap();
    let ids = ids.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
    let child = |id: u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let is_ours = fields.get(1)?.parse::<u32>().ok()? == std::process::id() && fields[0] != "Z";
        let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        is_ours.then_some((id, ticks))
    };
    ids.filter_map(child).collect()
}

async fn until<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = find() {
            return value;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A page that takes seconds to read.
fn slow_page() -> String {
    "<p>word <b>word</b> &amp; word</p>\n".repeat((3 << 20) / 35)
}

async fn every_format_is_read_by_a_worker_and_plain_text_is_not() {
    let extraction = extraction();
    let workspace = Workspace::new()
        .file("a.md", "# Lighthouse\n\nkeeper")
        .file("b.csv", "name,length\nketch,12\n")
        .file("c.rs", "fn sail() {}")
        .file("d.txt", "anchor")
        .extraction(extraction.clone());
    let knowledge = workspace.open();
    assert_eq!((sync(&knowledge).await.added, extraction.pool_stats()), (4, None), "nothing was started");

    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../ctx-extract/tests/fixtures");
    for name in
        ["sample.docx", "sample.pptx", "sample.xlsx", "sample.odt", "sample.ods", "sample.epub", "sample.pdf"]
    {
        workspace.write(name, fs::read(format!("{folder}/{name}")).unwrap());
    }
    workspace.write("e.html", "<title>Buoy</title><p>barnacle");
    workspace.write("f.ipynb", r#"{"cells":[{"cell_type":"markdown","source":["kelp"]}]}"#);
    let report = sync(&knowledge).await;
    assert_eq!((report.added, report.warning_count), (9, 0), "{report:?}");
    assert_eq!(hit_names(&knowledge, "barnacle"), ["e.html"]);
    assert_eq!(hit_names(&knowledge, "kelp"), ["f.ipynb"]);
    assert_eq!(hit_names(&knowledge, "pilots").len(), 2, "docx and odt");
    assert_eq!(extraction.pool_stats().unwrap().workers, 1, "one worker reads one document after the other");

    // The texts are the same as without workers.
    let plain = workspace.extraction(Extraction::in_process());
    let in_process = plain.open();
    let report = try_sync(&in_process, &notes(), SyncOptions { full: true, ..SyncOptions::default() }).await;
    let report = report.unwrap();
    assert_eq!((report.updated, report.unchanged), (0, 13), "{report:?}");
    extraction.shutdown().await;
    until("the worker is gone", || children().is_empty().then_some(())).await;
}

async fn a_worker_killed_while_it_reads_costs_its_file_a_warning() {
    let workspace = Workspace::new()
        .file("aa.html", "<p>lighthouse")
        .file("mm.html", slow_page())
        .file("zz.html", "<p>harbour");
    let workspace = workspace.document_bytes_max(50 << 20).extraction(extraction());
    let knowledge = workspace.open();
    let kill = async {
        let (busy, _) =
            until("a worker is busy", || children().into_iter().find(|(_, ticks)| *ticks > 30)).await;
        assert!(Command::new("kill").arg("-KILL").arg(busy.to_string()).status().unwrap().success());
    };
    let (report, ()) = tokio::join!(sync(&knowledge), kill);
    assert_eq!((report.added, report.warning_count), (2, 1), "{report:?}");
    assert_eq!(report.warnings[0].source_id, "mm.html");
    assert_eq!(report.warnings[0].reason, "the extraction worker was killed");
    assert_eq!(hit_names(&knowledge, "harbour"), ["zz.html"]);
    // The document may not be the cause, so the next sync tries again.
    let report = sync(&knowledge).await;
    assert_eq!((report.added, report.warning_count), (1, 0), "{report:?}");
}

async fn a_sync_that_is_cancelled_kills_its_worker() {
    let workspace = Workspace::new().file("slow.html", slow_page());
    let workspace = workspace.document_bytes_max(50 << 20).extraction(extraction());
    let knowledge = workspace.open();
    let cancellation = tokio_util::sync::CancellationToken::new();
    let name = notes();
    let syncing =
        knowledge.sync(&name, SyncOptions::default(), std::sync::Arc::new(|_| ()), cancellation.clone());
    let cancel = async {
        let busy =
            until("a worker is busy", || children().into_iter().find(|(_, ticks)| *ticks > 10)).await.0;
        cancellation.cancel();
        busy
    };
    let (ended, busy) = tokio::join!(syncing, cancel);
    assert!(ended.is_err());
    until("it is gone", || children().iter().all(|(id, _)| *id != busy).then_some(())).await;
}

async fn an_invalid_worker_program_costs_each_file_a_warning() {
    let mut settings = settings(WORKER);
    settings.program = "/bin/true".into();
    let workspace =
        Workspace::new().file("a.html", "<p>a").file("b.pdf", "%PDF-1.7").file("c.md", "lighthouse");
    let workspace = workspace.extraction(Extraction::confined(settings));
    let knowledge = workspace.open();
    let report = sync(&knowledge).await;
    assert_eq!((report.added, report.warning_count), (1, 2), "{report:?}");
    for warning in &report.warnings {
        assert!(warning.reason.starts_with("no extraction worker is available: "), "{}", warning.reason);
    }
    assert_eq!(hit_names(&knowledge, "lighthouse"), ["c.md"]);
}

async fn hostile_files_are_read_cut_short_or_refused() {
    let files = hostile_files();
    let workspace =
        files.iter().fold(Workspace::new(), |workspace, file| workspace.file(&file.name, &file.bytes));
    let workspace = workspace
        .file("zz-fine.md", "# Lighthouse\n\nIt can be found.")
        .document_bytes_max(50 << 20)
        .extraction(extraction());
    let knowledge = workspace.open();
    let report = sync(&knowledge).await;
    println!(
        "{} hostile files: {} stored, {} skipped, {} warnings",
        files.len(),
        report.added,
        report.skipped,
        report.warning_count
    );
    for warning in &report.warnings {
        println!("  {}: {}", warning.source_id, warning.reason);
        // They crash no worker either.
        assert!(!warning.reason.contains("panicked") && !warning.reason.contains("process"), "{warning:?}");
    }
    assert_eq!(hit_names(&knowledge, "lighthouse"), ["zz-fine.md"]);
    let seen = report.added + report.skipped + report.warning_count;
    assert!(seen as usize > files.len(), "{report:?}");
    assert!(stored_names(&knowledge).len() > files.len() / 3, "{report:?}");
    let again = sync(&knowledge).await;
    assert_eq!((again.added, again.updated), (0, 0), "all of it is known");
}
