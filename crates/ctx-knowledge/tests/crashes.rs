//! The crash journal: documents that crash the process are read exclusively, then skipped until they change.

#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use crate::common::{Workspace, hit_names, notes, sync};
use ctx_knowledge::{SyncReport, cache_path};
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const SKIPPED: &str = "ctx crashed twice while reading it; it is skipped until it changes";

fn journal(workspace: &Workspace) -> PathBuf {
    cache_path(&workspace.store_path(), &notes()).join("reading.json")
}

/// Writes the journal of a process that crashed while it read this document, after `before` earlier crashes.
fn crash_while_reading(workspace: &Workspace, source_id: &str, content: &str, before: u32) {
    let content = blake3::hash(content.as_bytes()).to_hex()[..32].to_owned();
    let left = json!({
        "program": format!("{} 3", env!("CARGO_PKG_VERSION")),
        "reading": {"source_id": source_id, "content": content},
        "suspects": (0..before.min(1))
            .map(|_| json!({"source_id": source_id, "content": content, "ends": before}))
            .collect::<Vec<_>>(),
    });
    fs::create_dir_all(journal(workspace).parent().unwrap()).unwrap();
    fs::write(journal(workspace), left.to_string()).unwrap();
}

#[track_caller]
fn assert_skipped(report: &SyncReport) {
    assert_eq!((report.added, report.updated, report.warning_count), (0, 0, 1), "{report:?}");
    assert_eq!(report.warnings[0].reason, SKIPPED);
}

#[tokio::test]
async fn a_file_that_crashed_the_process_once_is_tried_again() {
    let workspace = Workspace::new().file("unlucky.html", "<p>lighthouse").file("good.md", "harbour");
    crash_while_reading(&workspace, "unlucky.html", "<p>lighthouse", 0);
    let knowledge = workspace.open();
    let report = sync(&knowledge).await;
    assert_eq!((report.added, report.warning_count), (2, 0));
    assert_eq!(hit_names(&knowledge, "lighthouse"), ["unlucky.html"]);
    assert!(!journal(&workspace).exists(), "nothing is left to remember");
}

#[tokio::test]
async fn a_file_that_crashed_the_process_twice_is_skipped_until_it_changes() {
    let workspace = Workspace::new().file("bad.html", "<p>harm").file("good.md", "harbour");
    crash_while_reading(&workspace, "bad.html", "<p>harm", 1);
    let knowledge = workspace.open();
    let report = sync(&knowledge).await;
    assert_eq!((report.added, report.warning_count), (1, 1), "{report:?}");
    assert_eq!(report.warnings[0].reason, SKIPPED);
    assert_eq!(hit_names(&knowledge, "harbour"), ["good.md"]);

    assert_skipped(&sync(&knowledge).await);
    workspace.touch("bad.html", "2026-01-02T12:00:00Z");
    assert_skipped(&sync(&knowledge).await);
    drop(knowledge);
    let knowledge = workspace.open();
    workspace.touch("bad.html", "2026-01-03T12:00:00Z");
    assert_skipped(&sync(&knowledge).await);

    workspace.write("bad.html", "<p>repaired");
    let report = sync(&knowledge).await;
    assert_eq!((report.added, report.warning_count), (1, 0), "{report:?}");
    assert!(!journal(&workspace).exists(), "nothing is left to remember");
}

#[tokio::test]
async fn a_sync_leaves_no_journal_behind() {
    let workspace = Workspace::new().file("a.md", "harbour");
    sync(&workspace.open()).await;
    assert!(!journal(&workspace).exists());
}

#[tokio::test]
async fn a_deleted_document_is_no_longer_a_suspect() {
    let workspace = Workspace::new().file("a.md", "harbour");
    crash_while_reading(&workspace, "gone.html", "<p>harm", 1);
    let report = sync(&workspace.open()).await;
    assert_eq!((report.added, report.warning_count), (1, 0), "{report:?}");
    assert!(!journal(&workspace).exists());
}

#[tokio::test]
async fn a_document_that_is_being_stored_is_not_blamed_for_a_crash() {
    let workspace = Workspace::new().file("a.md", "harbour");
    let knowledge = workspace.open();
    // Keeps the sync from storing what it has read.
    let other = ctx_store::RawConnection::open(&workspace.store_path()).unwrap();
    other.execute("BEGIN IMMEDIATE").unwrap();
    let watch = async {
        let is_read =
            || fs::read_to_string(journal(&workspace)).is_ok_and(|text| text.contains("\"reading\":null"));
        for _ in 0..500 {
            if is_read() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let is_read = is_read();
        other.execute("ROLLBACK").unwrap();
        is_read
    };
    let (report, is_read) = tokio::join!(sync(&knowledge), watch);
    assert!(is_read, "the journal still names the document");
    assert_eq!(report.added, 1);
}
