//! A sync of hostile files: each is read, truncated or refused, and other documents are found.

#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]
#![allow(clippy::print_stdout, reason = "counts and duration are printed")]

use crate::common::{Workspace, hit_names, stored_names, sync};
use crate::hostile;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn hostile_files_are_read_cut_short_or_refused() {
    let files = hostile::hostile_files();
    let workspace =
        files.iter().fold(Workspace::new(), |workspace, file| workspace.file(&file.name, &file.bytes));
    let workspace =
        workspace.file("zz-fine.md", "# Lighthouse\n\nIt can be found.").document_bytes_max(50 << 20);
    let knowledge = workspace.open();
    let started = Instant::now();
    let report = sync(&knowledge).await;
    println!(
        "{} hostile files in {:.1} s: {} stored, {} skipped, {} warnings",
        files.len(),
        started.elapsed().as_secs_f64(),
        report.added,
        report.skipped,
        report.warning_count
    );
    for warning in &report.warnings {
        println!("  {}: {}", warning.source_id, warning.reason);
        assert!(!warning.reason.contains("panicked"), "{}: {}", warning.source_id, warning.reason);
    }
    assert_eq!(hit_names(&knowledge, "lighthouse"), ["zz-fine.md"]);
    // Every file is stored, skipped, or reported with a warning.
    let seen = report.added + report.skipped + report.warning_count;
    assert!(seen as usize > files.len(), "{report:?}");
    // Many have no text at all, and are skipped.
    let read = stored_names(&knowledge).len() as u64 + report.skipped;
    assert!(read as usize > files.len() / 2, "{report:?}");
    assert!(stored_names(&knowledge).len() > files.len() / 3, "{report:?}");
    let again = sync(&knowledge).await;
    assert_eq!((again.added, again.updated), (0, 0), "all of it is known");
}
