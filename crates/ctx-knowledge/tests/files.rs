//! Which files of a source are indexed, and why the others are not.

#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use crate::common::{Workspace, notes, report, sync};
use ctx_knowledge::{Knowledge, SyncReport};
use ctx_store::{FileState, RawConnection};

fn workspace() -> Workspace {
    Workspace::new()
        .file("a.md", "harbour")
        .file("damaged.pdf", "%PDF-1.7\nno more")
        .file("empty.md", "")
        .file("picture.png", "\u{0}\u{1}\u{2}")
}

/// The files by name, with a word for the state of each.
fn list_states(knowledge: &Knowledge) -> Vec<(String, &'static str)> {
    let files = knowledge.files(&notes(), None, 100).unwrap();
    let state = |state: &FileState| match state {
        FileState::Indexed => "indexed",
        FileState::Partial { .. } => "partial",
        FileState::Empty => "empty",
        FileState::Unreadable { has_earlier_text: true, .. } => "outdated",
        FileState::Unreadable { has_earlier_text: false, .. } => "unreadable",
    };
    files.iter().map(|file| (file.source_id.clone().unwrap_or_default(), state(&file.state))).collect()
}

fn expected<const N: usize>(files: [(&str, &'static str); N]) -> Vec<(String, &'static str)> {
    files.into_iter().map(|(name, state)| (name.to_owned(), state)).collect()
}

#[tokio::test]
async fn each_file_is_listed_with_its_state_and_the_reason() {
    let workspace = workspace();
    let knowledge = workspace.open();
    let synced = sync(&knowledge).await;
    let all =
        [("a.md", "indexed"), ("damaged.pdf", "unreadable"), ("empty.md", "empty"), ("picture.png", "empty")];
    assert_eq!(list_states(&knowledge), expected(all));
    let damaged = knowledge.files(&notes(), None, 100).unwrap().remove(1);
    let reason = synced.warnings[0].reason.clone();
    assert_eq!(damaged.state, FileState::Unreadable { reason, has_earlier_text: false });

    workspace.write("damaged.pdf", "%PDF-1.7\nstill no more");
    workspace.write("picture.png", "text");
    workspace.remove("empty.md");
    sync(&knowledge).await;
    let all = [("a.md", "indexed"), ("damaged.pdf", "unreadable"), ("picture.png", "indexed")];
    assert_eq!(list_states(&knowledge), expected(all));
}

#[tokio::test]
async fn names_that_an_earlier_version_did_not_store_come_with_the_next_sync() {
    let workspace = workspace();
    sync(&workspace.open()).await;
    let store = RawConnection::open(&workspace.store_path()).unwrap();
    store.execute("UPDATE passed_over SET source_id = NULL, read_at = NULL").unwrap();
    let knowledge = workspace.open();
    let before = list_states(&knowledge);
    assert_eq!(before.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a.md", "", "", ""]);

    let unchanged = sync(&knowledge).await;
    assert_eq!(
        unchanged,
        SyncReport { unchanged: 3, warning_count: 1, warnings: unchanged.warnings.clone(), ..report() }
    );
    let all =
        [("a.md", "indexed"), ("damaged.pdf", "unreadable"), ("empty.md", "empty"), ("picture.png", "empty")];
    assert_eq!(list_states(&knowledge), expected(all));
    let is_dated = |name: &str| {
        let files = knowledge.files(&notes(), None, 100).unwrap();
        files.iter().find(|file| file.source_id.as_deref() == Some(name)).unwrap().read_at.is_some()
    };
    assert!(is_dated("a.md") && !is_dated("picture.png"), "it was not read again");
}
