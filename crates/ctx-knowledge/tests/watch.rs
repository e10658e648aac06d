//! Signals of a watched folder, with the system's own watcher and real files.

use crate::common::{self, Workspace, notes, stored_names, sync};
use ctx_core::Watch;
use ctx_knowledge::{Knowledge, SyncOptions};
use std::fs;
use std::time::Duration;

/// Timeout, reached only if no signal ever arrives.
const DEADLINE: Duration = Duration::from_secs(60);
/// Longer than any signal takes to arrive.
const LONG_ENOUGH: Duration = Duration::from_secs(2);

/// Syncs at every signal until the documents are these. One change may cause several signals.
async fn wait_for(knowledge: &Knowledge, watch: &mut Watch, expected: &[&str]) {
    let changes = async {
        while stored_names(knowledge) != expected {
            assert!(watch.changed().await, "it is still watched");
            // The folder may be gone for the moment.
            common::try_sync(knowledge, &notes(), SyncOptions::default()).await.ok();
        }
    };
    let waited = tokio::time::timeout(DEADLINE, changes).await;
    assert!(waited.is_ok(), "waited for {expected:?}, got {:?}", stored_names(knowledge));
}

#[tokio::test]
async fn new_changed_moved_and_deleted_files_are_signalled() {
    let workspace = Workspace::new().file("a.md", "harbour");
    let knowledge = workspace.open();
    let mut watch = knowledge.watch(&notes()).unwrap();
    wait_for(&knowledge, &mut watch, &["a.md"]).await;

    workspace.write("b.md", "anchor");
    wait_for(&knowledge, &mut watch, &["a.md", "b.md"]).await;
    fs::rename(workspace.path("b.md"), workspace.path("c.md")).unwrap();
    wait_for(&knowledge, &mut watch, &["a.md", "c.md"]).await;
    fs::rename(workspace.path("c.md"), workspace.path("C.md")).unwrap();
    wait_for(&knowledge, &mut watch, &["C.md", "a.md"]).await;
    workspace.remove("a.md");
    wait_for(&knowledge, &mut watch, &["C.md"]).await;
}

#[tokio::test]
async fn new_moved_and_returning_folders_are_watched_recursively() {
    let workspace = Workspace::new();
    let knowledge = workspace.open();
    let mut watch = knowledge.watch(&notes()).unwrap();
    assert!(watch.changed().await);

    workspace.write("one/two/a.md", "harbour");
    wait_for(&knowledge, &mut watch, &["one/two/a.md"]).await;
    workspace.write("one/two/b.md", "anchor");
    wait_for(&knowledge, &mut watch, &["one/two/a.md", "one/two/b.md"]).await;
    fs::rename(workspace.path("one"), workspace.path("uno")).unwrap();
    wait_for(&knowledge, &mut watch, &["uno/two/a.md", "uno/two/b.md"]).await;
    workspace.remove("uno/two/a.md");
    wait_for(&knowledge, &mut watch, &["uno/two/b.md"]).await;
    fs::remove_dir_all(workspace.path("uno")).unwrap();
    wait_for(&knowledge, &mut watch, &[]).await;
    workspace.write("uno/two/c.md", "chain");
    wait_for(&knowledge, &mut watch, &["uno/two/c.md"]).await;
    workspace.write("uno/two/d.md", "chain");
    wait_for(&knowledge, &mut watch, &["uno/two/c.md", "uno/two/d.md"]).await;
}

#[tokio::test]
async fn a_root_that_vanishes_and_comes_back_is_watched_again() {
    let workspace = Workspace::new().file("a.md", "harbour");
    let knowledge = workspace.open();
    let mut watch = knowledge.watch(&notes()).unwrap();
    wait_for(&knowledge, &mut watch, &["a.md"]).await;

    fs::rename(workspace.path(""), workspace.beside("away")).unwrap();
    let signalled = async {
        loop {
            assert!(watch.changed().await);
            if common::try_sync(&knowledge, &notes(), SyncOptions::default()).await.is_err() {
                break;
            }
        }
    };
    tokio::time::timeout(DEADLINE, signalled).await.unwrap();
    assert_eq!(stored_names(&knowledge), ["a.md"], "what cannot be listed is not deleted");

    workspace.write("b.md", "anchor");
    wait_for(&knowledge, &mut watch, &["b.md"]).await;
    workspace.write("c.md", "chain");
    wait_for(&knowledge, &mut watch, &["b.md", "c.md"]).await;
}

#[tokio::test]
async fn own_files_are_neither_read_nor_signalled() {
    // The store is below the root and not hidden.
    let workspace = Workspace::new().setting("root", ".").file("a.md", "harbour");
    let knowledge = workspace.open();
    let mut watch = knowledge.watch(&notes()).unwrap();
    assert!(watch.changed().await);
    let report = sync(&knowledge).await;
    assert_eq!((report.added, report.skipped), (1, 0), "the store is not read");
    for _ in 0..3 {
        common::sync_with(&knowledge, SyncOptions { full: true, ..SyncOptions::default() }).await;
    }
    let signal = tokio::time::timeout(LONG_ENOUGH, watch.changed()).await;
    assert!(signal.is_err(), "a sync leads to another");
    workspace.write("b.md", "anchor");
    assert!(watch.changed().await);
}

#[tokio::test]
async fn a_source_without_a_watcher_is_not_watched() {
    let workspace = Workspace::new().source(common::JIRA, &common::ScriptedConnector::new());
    let knowledge = workspace.open();
    let jira = common::source_name(common::JIRA);
    assert!(!knowledge.can_watch(&jira) && knowledge.watch(&jira).is_none());
    assert!(knowledge.can_watch(&notes()));
}
