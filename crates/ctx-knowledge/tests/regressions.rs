//! One test for each bug that was found; none may come back.

use crate::common::*;
use ctx_core::Document;
use ctx_knowledge::{SearchQuery, SyncError, SyncOptions, SyncReport};
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const JIRA: &str = "script:jira";

#[tokio::test]
async fn other_chunk_sizes_reach_documents_that_have_not_changed() {
    let workspace = Workspace::new().file("a.txt", "Ships rest in the harbour. ".repeat(40));
    sync(&workspace.open()).await;
    let workspace = workspace.chunking(16, 0);
    let expected = SyncReport { updated: 1, ..report() };
    assert_eq!(sync(&workspace.open()).await, expected);
}

#[tokio::test]
async fn other_tags_reach_documents_that_have_not_changed() {
    let workspace = Workspace::new().file("a.txt", "harbour");
    sync(&workspace.open()).await;
    let workspace = workspace.tags(&["sea"]);
    let expected = SyncReport { updated: 1, ..report() };
    assert_eq!(sync(&workspace.open()).await, expected);
}

#[tokio::test]
async fn a_file_that_turned_binary_just_now_is_no_longer_found() {
    let workspace = Workspace::new().file("a.md", "harbour");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    // Written just now: too fresh for a fingerprint.
    fs::write(workspace.path("a.md"), b"harbour\0\0\0").unwrap();
    assert_eq!(sync(&knowledge).await, SyncReport { skipped: 1, ..report() });
    assert_eq!(hit_names(&knowledge, "harbour"), Vec::<String>::new());
}

#[tokio::test]
async fn ids_are_those_of_documents() {
    let workspace = Workspace::new().file("a.md", "harbour").file("b.png", b"\x89PNG\r\n\x1a\n\0\0\0");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    let ids = knowledge.ids().unwrap();
    assert!(ids.iter().all(|id| knowledge.get(*id).unwrap().is_some()), "{ids:?}");
}

#[tokio::test]
async fn a_sync_restricted_by_time_saves_no_cursor() {
    let jira = ScriptedConnector::new();
    jira.continues([upsert(document_at("old", "harbour", time("2020-01-01T00:00:00Z")))], Some("one"));
    let workspace = Workspace::new().source(JIRA, &jira);
    let knowledge = workspace.open();
    let recent = SyncOptions { since: Some(time("2026-01-01T00:00:00Z")), ..SyncOptions::default() };
    try_sync(&knowledge, &source_name(JIRA), recent).await.unwrap();
    sync_source(&knowledge, JIRA).await.unwrap();
    assert_eq!(jira.cursors(), [None, None]);
}

#[tokio::test]
async fn a_source_may_reset_its_cursor() {
    let jira = ScriptedConnector::new();
    jira.continues([], Some("one"));
    jira.continues([], None);
    let workspace = Workspace::new().source(JIRA, &jira);
    for _ in 0..3 {
        sync_source(&workspace.open(), JIRA).await.unwrap();
    }
    assert_eq!(jira.cursors(), [None, Some("one".to_owned()), None]);
}

#[tokio::test]
async fn a_source_that_hangs_can_be_interrupted() {
    let jira = ScriptedConnector::new();
    jira.waits_after([upsert(document("a", "harbour"))]);
    let workspace = Workspace::new().source(JIRA, &jira);
    let knowledge = workspace.open();
    let cancellation = CancellationToken::new();
    let name = source_name(JIRA);
    let syncing = knowledge.sync(&name, SyncOptions::default(), Arc::new(|_| ()), cancellation.clone());
    let (outcome, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(5), syncing), async {
        jira.wait_until_paused().await;
        cancellation.cancel();
    });
    assert!(matches!(outcome, Ok(Err(SyncError::Interrupted { .. }))), "{outcome:?}");
}

#[tokio::test]
async fn a_restored_store_that_is_synced_at_once_gives_right_answers() {
    let workspace = Workspace::new().file("a.md", "harbour");
    sync(&workspace.open()).await;
    fs::copy(workspace.store_path(), workspace.beside("copy")).unwrap();
    workspace.write("b.md", "anchor");
    sync(&workspace.open()).await;
    fs::copy(workspace.beside("copy"), workspace.store_path()).unwrap();
    workspace.remove("b.md");
    workspace.write("c.md", "compass");

    let knowledge = workspace.open();
    assert_eq!(sync(&knowledge).await, SyncReport { added: 1, unchanged: 1, ..report() });
    knowledge.catch_up().unwrap();
    assert_eq!(hit_names(&knowledge, "compass"), ["c.md"]);
    assert_eq!(hit_names(&knowledge, "anchor"), Vec::<String>::new());
}

#[tokio::test]
async fn sources_with_similar_names_have_their_own_locks() {
    let [dash, underscore] =
        [ScriptedConnector::new(), ScriptedConnector::with([document("b", "lighthouse")])];
    dash.waits_after([upsert(document("a", "harbour"))]);
    let workspace = Workspace::new().source("script:team-a", &dash).source("script:team_a", &underscore);
    let knowledge = workspace.open();
    let (first, second) = tokio::join!(sync_source(&knowledge, "script:team-a"), async {
        dash.wait_until_paused().await;
        let second = sync_source(&knowledge, "script:team_a").await;
        dash.release();
        second
    });
    first.unwrap();
    second.unwrap();
}

#[tokio::test]
async fn markdown_that_comes_as_text_has_its_heading_as_title() {
    for content_type in ["text/markdown", "text/markdown; charset=utf-8"] {
        let markdown = Document {
            content_type: Some(content_type.to_owned()),
            ..document("7", "# Harbour\nShips.\n# B\nmore")
        };
        let workspace = Workspace::new().source(JIRA, &ScriptedConnector::with([markdown]));
        let knowledge = workspace.open();
        sync_source(&knowledge, JIRA).await.unwrap();
        assert_eq!(search(&knowledge, "ships")[0].title.as_deref(), Some("Harbour"));
        assert_eq!(knowledge.stats().unwrap().chunks, 2);
    }
}

#[tokio::test]
async fn among_many_equal_hits_the_newest_are_shown() {
    let at = |n: i64| time("2026-01-01T00:00:00Z") + jiff::ToSpan::hours(n);
    let documents = (100..600).map(|n| document_at(&n.to_string(), "harbour", at(n)));
    let workspace = Workspace::new().source(JIRA, &ScriptedConnector::with(documents));
    let knowledge = workspace.open();
    sync_source(&knowledge, JIRA).await.unwrap();
    let hits = knowledge.search(&SearchQuery { limit: 3, ..query("harbour") }).unwrap();
    assert_eq!(names(&hits), ["599", "598", "597"]);
}

#[tokio::test]
async fn a_link_to_itself_is_ignored() {
    let workspace =
        Workspace::new().file("a.md", "harbour").file("b.md", "x").setting("follow_symlinks", true);
    std::os::unix::fs::symlink("itself", workspace.path("itself")).unwrap();
    let knowledge = workspace.open();
    assert_eq!(sync(&knowledge).await, SyncReport { added: 2, ..report() });
    workspace.remove("b.md");
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 1, deleted: 1, ..report() });
}

#[tokio::test]
async fn files_with_names_that_are_not_utf8_are_distinct() {
    use std::os::unix::ffi::OsStrExt;
    let workspace = Workspace::new().file("c\\d.md", "compass").file("c/d.md", "beacon");
    for (name, text) in [(b"a\xff.md", "harbour"), (b"a\xfe.md", "anchor")] {
        fs::write(workspace.path("").join(std::ffi::OsStr::from_bytes(name)), text).unwrap();
    }
    let knowledge = workspace.open();
    assert_eq!(sync(&knowledge).await, SyncReport { added: 4, ..report() });
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 4, ..report() });
}

#[tokio::test]
async fn a_sync_repairs_a_damaged_index() {
    let workspace = Workspace::new().file("a.md", "harbour").file("b.md", "anchor");
    sync(&workspace.open()).await;
    let whole = workspace.beside("whole");
    copy_folder(&workspace.data(), &whole);
    let mut wrong = Vec::new();
    for file in workspace.index_files().into_keys() {
        copy_folder(&whole, &workspace.data());
        fs::write(workspace.index_folder().unwrap().join(&file), b"").unwrap();
        workspace.write("a.md", format!("beacon {file}"));
        let knowledge = workspace.open();
        if let Err(error) = try_sync(&knowledge, &notes(), SyncOptions::default()).await {
            wrong.push(format!("{file}: {error:?}"));
        }
        assert_eq!(hit_names(&knowledge, "beacon"), ["a.md"]);
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[tokio::test]
async fn a_store_that_is_deleted_while_open_is_not_created_empty() {
    let workspace = Workspace::new().file("a.md", "harbour");
    let knowledge = workspace.open();
    fs::remove_file(workspace.store_path()).unwrap();
    let _ = knowledge.stats();
    assert!(!workspace.store_path().exists());
}

#[tokio::test]
async fn a_dropped_sync_releases_the_index() {
    let jira = ScriptedConnector::new();
    jira.waits_after((0..300).map(|n| upsert(document(&n.to_string(), "harbour"))));
    let workspace = Workspace::new().source(JIRA, &jira);
    let (one, other) = (workspace.open(), workspace.open());
    tokio::select! {
        _ = sync_source(&one, JIRA) => unreachable!(),
        () = jira.wait_until_paused() => {}
    }
    for _ in 0..100 {
        other.catch_up().unwrap();
        // Until then the answer is that the index is being built.
        if other.search(&query("harbour")).is_ok_and(|hits| !hits.is_empty()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    unreachable!("the index is locked by a sync that is gone");
}

#[tokio::test]
async fn a_dropped_sync_of_files_writes_nothing_more() {
    let workspace = Workspace::new();
    (0..1500).for_each(|n| workspace.write(&format!("{n}.md"), "harbour"));
    let knowledge = workspace.open();
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let progress = Arc::new(move |_| sender.send(()).unwrap_or_default());
    let name = notes();
    tokio::select! {
        _ = knowledge.sync(&name, SyncOptions::default(), progress, CancellationToken::new()) => unreachable!(),
        _ = seen.recv() => {}
    }
    tokio::time::sleep(Duration::from_millis(1000)).await;
    let count = stored_names(&knowledge).len();
    assert!(count < 100, "{count}");
}

#[tokio::test]
async fn a_limit_of_zero_writes_nothing() {
    let workspace = Workspace::new().file("a.md", "harbour");
    let options = SyncOptions { limit: Some(0), ..SyncOptions::default() };
    assert_eq!(sync_with(&workspace.open(), options).await, report());
}

#[test]
fn a_store_that_is_a_folder_cannot_be_opened() {
    let workspace = Workspace::new();
    fs::create_dir_all(workspace.store_path()).unwrap();
    let error = workspace.try_open().err().unwrap();
    assert!(matches!(&error, ctx_knowledge::StoreError::Open { .. }), "{error:?}");
}

#[tokio::test]
async fn a_long_document_does_not_hide_others_from_a_small_limit() {
    let sections: String =
        (0..300).map(|n| format!("## Harbour {n}\n\nharbour harbour harbour {n}\n\n")).collect();
    let long = Document { content_type: Some("text/markdown".to_owned()), ..document("long", &sections) };
    let short = document("short", &format!("{} harbour", "other words ".repeat(30)));
    let workspace = Workspace::new().source(JIRA, &ScriptedConnector::with([long, short]));
    let knowledge = workspace.open();
    sync_source(&knowledge, JIRA).await.unwrap();
    let hits = knowledge.search(&SearchQuery { limit: 2, ..query("harbour") }).unwrap();
    assert_eq!(names(&hits), ["long", "short"]);
}
