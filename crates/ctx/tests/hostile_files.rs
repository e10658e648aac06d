//! A running server syncs hostile files: it stays up, answers requests meanwhile, reads them in confined processes, stops
//! within the drain timeout, and skips a file that has crashed it twice.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]
#![allow(clippy::print_stdout, reason = "counts, latency and memory are printed")]

#[path = "../../ctx-knowledge/tests/hostile/mod.rs"]
mod hostile;

use ctx_testkit::{TestServer, TestWorkspace, signal, wait_until};
use hostile::hostile_files;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often `/health` is polled.
const HEALTH_EVERY: Duration = Duration::from_millis(50);
/// Timeout for the whole sync.
const SYNC_MAX: Duration = Duration::from_secs(600);
/// Bound on the server's peak memory.
const MEMORY_MAX_KB: u64 = 1 << 20;
/// The drain timeout, and some leeway for a busy machine.
const DRAIN: Duration = Duration::from_secs(10);
const LEEWAY: Duration = Duration::from_secs(15);

/// A workspace whose server syncs as soon as it serves.
fn synced_by_server() -> TestWorkspace {
    TestWorkspace::empty().config(
        "[server]\nbind = \"127.0.0.1:0\"\n[connectors.filesystem.docs]\nroot = \"docs\"\nevery = \"1h\"\n",
    )
}

/// Peak resident memory of a process.
fn peak_kb(process_id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process_id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn finds(server: &TestServer, query: &str, name: &str) -> bool {
    let reply = server.post("/tools/search", &json!({"query": query}));
    // Until there is an index, a search fails with a status that asks for a retry.
    reply.status == 200 && reply.found_ids() == [name]
}

/// Polls `/health` until `done`; returns the number of requests and the slowest response.
fn poll_health(server: &TestServer, done: &AtomicBool) -> (usize, Duration) {
    let (mut asked, mut slowest) = (0, Duration::ZERO);
    while !done.load(Ordering::SeqCst) {
        let started = Instant::now();
        assert_eq!(server.get("/health").status, 200);
        slowest = slowest.max(started.elapsed());
        asked += 1;
        thread::sleep(HEALTH_EVERY);
    }
    (asked, slowest)
}

#[test]
fn a_server_stays_well_while_it_syncs_hostile_files() {
    let files = hostile_files();
    let w = synced_by_server().file("docs/aa-fine.md", "quixotic");
    files.iter().for_each(|file| w.write(&format!("docs/harm/{}", file.name), &file.bytes));
    // Sorted last, so that it is read after the hostile files.
    w.write("docs/zz-fine.md", "zanzibar");
    let server = w.spawn_server();
    let done = AtomicBool::new(false);
    let (asked, slowest) = thread::scope(|scope| {
        let polling = scope.spawn(|| poll_health(&server, &done));
        let started = Instant::now();
        let is_found = || finds(&server, "zanzibar", "zz-fine.md");
        while !is_found() && started.elapsed() < SYNC_MAX && !polling.is_finished() {
            thread::sleep(HEALTH_EVERY * 4);
        }
        done.store(true, Ordering::SeqCst);
        polling.join().unwrap()
    });
    assert!(asked > 0);
    assert!(finds(&server, "zanzibar", "zz-fine.md"), "the sync does not end");
    assert!(finds(&server, "quixotic", "aa-fine.md"));
    let peak = peak_kb(server.id());
    println!(
        "{} hostile files synced; /health answered {asked} times, in {slowest:?} at most; {} MB used at most",
        files.len(),
        peak >> 10
    );
    assert!(peak < MEMORY_MAX_KB, "{peak} kB");
    server.stop().success();
}

/// A page that is slow to extract, and slower to store.
fn slow_page(megabytes: usize) -> String {
    "<p>word <b>word</b> &amp; word</p>\n".repeat((megabytes << 20) / 35)
}

#[test]
fn a_server_that_syncs_large_files_ends_in_time() {
    let w = synced_by_server();
    for number in 0..3 {
        w.write(&format!("docs/{number}.md"), "word ".repeat(4 << 20));
        w.write(&format!("docs/{number}.html"), slow_page(20));
    }
    let server = w.spawn_server();
    wait_until("a document is being read", || journal_entry(&w).is_some());
    let started = Instant::now();
    server.stop().success();
    let took = started.elapsed();
    println!("SIGTERM during a sync of large files took {took:?}");
    assert!(took < DRAIN + LEEWAY, "{took:?}");
}

/// A process that extracts documents for this one and has used a third of a second of CPU time.
fn busy_extractor(parent: u32) -> Option<u32> {
    const BUSY_TICKS: u64 = 33;
    let ids = fs::read_dir("/proc").ok()?.flatten();
    let mut ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.find(|id| {
        let arguments = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(1);
        let fields: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
        let is_child = fields.first() == Some(&u64::from(parent));
        is_child
            && arguments.ends_with("\0__extract\0")
            && fields.get(10).is_some_and(|ticks| *ticks > BUSY_TICKS)
    })
}

#[test]
fn documents_are_read_outside_of_the_serving_process() {
    let w = synced_by_server().file("docs/aa-fine.html", "<p>quixotic");
    w.write("docs/mm-slow.html", slow_page(20));
    w.write("docs/zz-fine.html", "<p>zanzibar");
    let server = w.spawn_server();
    let mut worker = None;
    wait_until("a worker reads the large file", || {
        worker = busy_extractor(server.id());
        worker.is_some()
    });
    let worker = worker.unwrap();
    let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
    for confined in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(confined), "{status}");
    }
    signal(worker, "KILL");
    wait_until("the others are read", || finds(&server, "zanzibar", "zz-fine.html"));
    assert!(finds(&server, "quixotic", "aa-fine.html"));
    assert_eq!(server.get("/health").status, 200);
    server.stop().success();
}

/// The document that the sync journal records as being read, and the number of suspects.
fn journal_entry(w: &TestWorkspace) -> Option<(String, usize)> {
    let journal = find_file(w.root().parent().unwrap(), "reading.json")?;
    let text = fs::read_to_string(journal).ok()?;
    let journal: serde_json::Value = serde_json::from_str(text.lines().next()?).ok()?;
    let source_id = journal["reading"]["source_id"].as_str()?.to_owned();
    Some((source_id, journal["suspects"].as_array()?.len()))
}

fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    entries.map(|entry| entry.path()).find_map(|path| match path.is_dir() {
        true => find_file(&path, name),
        false => path.file_name().is_some_and(|file| file == name).then_some(path),
    })
}

#[test]
fn a_file_that_brings_the_process_down_is_skipped_the_third_time() {
    let w = TestWorkspace::new().file("docs/fine.md", "harbour");
    w.write("docs/harm.html", slow_page(20));
    for crashes in 0..2 {
        let mut command = w.command(["sync"]);
        let mut syncing = command.spawn().unwrap();
        wait_until("the file is being read", || journal_entry(&w) == Some(("harm.html".to_owned(), crashes)));
        // Like the out-of-memory killer.
        signal(syncing.id(), "KILL");
        syncing.wait().unwrap();
    }
    let outcome = w.ctx("sync").success();
    assert!(
        outcome.stderr.contains("ctx crashed twice while reading it; it is skipped until it changes"),
        "{outcome:?}"
    );
    assert_eq!(w.ctx("search harbour --json").found_ids(), ["fine.md"]);
    w.write("docs/harm.html", "<p>lighthouse");
    w.ctx("sync").success();
    assert_eq!(w.ctx("search lighthouse --json").found_ids(), ["harm.html"]);
}
