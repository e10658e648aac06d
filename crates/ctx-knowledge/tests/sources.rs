//! How a sync treats any connector: cursors, deletions, failures and leases.

use crate::common::{
    self, JIRA, ScriptedConnector, Workspace, delete, document, hit_names, stored_names, sync, sync_source,
    try_sync, upsert,
};
use ctx_core::{Change, Document, DocumentContent};
use ctx_knowledge::{StoredDocument, SyncError, SyncOptions, SyncReport, Warning};
use serde_json::json;
use std::collections::HashSet;

/// The expected report of this source's sync, with zeros for the rest.
fn report() -> SyncReport {
    SyncReport { source: JIRA.to_owned(), ..SyncReport::default() }
}

fn unreadable(source_id: &str) -> Change {
    Change::Unreadable { source_id: source_id.to_owned(), reason: "403".to_owned() }
}

#[tokio::test]
async fn all_fields_of_a_document_are_stored() {
    let full_document = Document {
        source_id: "ENG-7".to_owned(),
        source_url: Some("https://example.com/ENG-7".to_owned()),
        title: Some("The harbour is closed".to_owned()),
        author: Some("Ada".to_owned()),
        created_at: Some(common::time("2025-01-01T00:00:00Z")),
        updated_at: Some(common::time("2026-01-01T00:00:00Z")),
        content_type: Some("text/markdown".to_owned()),
        content: DocumentContent::Text("Ships wait.\n# Later\nShips enter.".to_owned()),
        metadata: json!({"status": "open", "votes": [1, 2]}).as_object().unwrap().clone(),
        tags: vec!["bug".to_owned()],
        fingerprint: None,
    };
    let jira = ScriptedConnector::with([full_document]);
    let workspace = Workspace::new().source(JIRA, &jira);
    let knowledge = workspace.open();
    sync_source(&knowledge, JIRA).await.unwrap();
    let id = knowledge.ids().unwrap()[0];
    let chunk = |index, text: &str| ctx_knowledge::Chunk { index, text: text.to_owned() };
    let expected = StoredDocument {
        id,
        source: JIRA.to_owned(),
        source_id: "ENG-7".to_owned(),
        source_url: Some("https://example.com/ENG-7".to_owned()),
        title: Some("The harbour is closed".to_owned()),
        author: Some("Ada".to_owned()),
        created_at: common::time("2025-01-01T00:00:00Z"),
        updated_at: common::time("2026-01-01T00:00:00Z"),
        content_type: "text/markdown".to_owned(),
        body: "Ships wait.\n# Later\nShips enter.".to_owned(),
        metadata: json!({"status": "open", "votes": [1, 2]}).as_object().unwrap().clone(),
        chunks: vec![chunk(0, "Ships wait.\n"), chunk(1, "# Later\nShips enter.")],
        tags: vec!["bug".to_owned()],
    };
    assert_eq!(knowledge.get(id).unwrap(), Some(expected));
}

#[tokio::test]
async fn a_source_that_fails_half_way_keeps_its_documents_and_says_why() {
    let jira = ScriptedConnector::new();
    jira.lists(["a", "b", "c"].map(|name| upsert(document(name, "harbour"))));
    jira.fails_after([upsert(document("a", "lighthouse"))], "the server said 500");
    jira.lists([upsert(document("a", "lighthouse"))]);
    let workspace = Workspace::new().source(JIRA, &jira);
    let knowledge = workspace.open();
    sync_source(&knowledge, JIRA).await.unwrap();

    let error = sync_source(&knowledge, JIRA).await.unwrap_err();
    assert_eq!(error.to_string(), "script:jira: the server said 500");
    assert_eq!(stored_names(&knowledge), ["a", "b", "c"]);
    assert_eq!(hit_names(&knowledge, "lighthouse"), ["a"], "what came before the failure is kept");
    let status = &knowledge.sources().await.unwrap()[1];
    assert_eq!((status.name.as_str(), status.healthy), (JIRA, false));
    assert_eq!(status.last_error.as_deref(), Some("the server said 500"));
    assert!(status.last_sync.is_some());

    let expected = SyncReport { unchanged: 1, deleted: 2, ..report() };
    assert_eq!(sync_source(&knowledge, JIRA).await.unwrap(), expected);
    let status = &knowledge.sources().await.unwrap()[1];
    assert_eq!((status.healthy, status.last_error.as_deref()), (true, None));
}

#[tokio::test]
async fn one_source_that_fails_does_not_touch_another() {
    let jira = ScriptedConnector::new();
    jira.fails_after([], "the server said 500");
    let workspace = Workspace::new().file("a.md", "harbour").source(JIRA, &jira);
    let knowledge = workspace.open();
    assert!(sync_source(&knowledge, JIRA).await.is_err());
    sync(&knowledge).await;
    let healthy: Vec<bool> = knowledge.sources().await.unwrap().iter().map(|status| status.healthy).collect();
    assert_eq!(healthy, [true, false]);
    assert_eq!(hit_names(&knowledge, "harbour"), ["a.md"]);
}

#[tokio::test]
async fn a_partial_listing_deletes_only_what_it_names() {
    let jira = ScriptedConnector::new();
    jira.lists(["a", "b", "c"].map(|name| upsert(document(name, "harbour"))));
    jira.continues([delete("b"), upsert(document("c", "lighthouse")), delete("never was")], None);
    let workspace = Workspace::new().source(JIRA, &jira);
    let knowledge = workspace.open();
    sync_source(&knowledge, JIRA).await.unwrap();

    let dry_run = SyncOptions { dry_run: true, ..SyncOptions::default() };
    let expected = SyncReport { updated: 1, deleted: 1, ..report() };
    jira.continues([delete("b"), upsert(document("c", "lighthouse")), delete("never was")], None);
    let name = common::source_name(JIRA);
    assert_eq!(try_sync(&knowledge, &name, dry_run).await.unwrap(), expected);
    assert_eq!(stored_names(&knowledge), ["a", "b", "c"]);
    assert_eq!(sync_source(&knowledge, JIRA).await.unwrap(), expected);
    assert_eq!(stored_names(&knowledge), ["a", "c"]);
    assert_eq!(hit_names(&knowledge, "harbour"), ["a"]);
}

#[tokio::test]
async fn an_unreadable_document_is_a_warning_and_keeps_its_stored_version() {
    let jira = ScriptedConnector::new();
    jira.lists(["a", "b"].map(|name| upsert(document(name, "harbour"))));
    jira.lists([upsert(document("a", "lighthouse")), unreadable("b"), unreadable("new")]);
    let workspace = Workspace::new().source(JIRA, &jira);
    let knowledge = workspace.open();
    sync_source(&knowledge, JIRA).await.unwrap();
    let warning = |name: &str| Warning { source_id: name.to_owned(), reason: "403".to_owned() };
    let expected =
        SyncReport { updated: 1, warning_count: 2, warnings: vec![warning("b"), warning("new")], ..report() };
    assert_eq!(sync_source(&knowledge, JIRA).await.unwrap(), expected);
    assert_eq!(hit_names(&knowledge, "harbour"), ["b"]);
    assert_eq!(knowledge.sources().await.unwrap()[1].warnings, 2);
}

#[tokio::test]
async fn warnings_beyond_the_limit_are_counted() {
    let jira = ScriptedConnector::new();
    jira.lists((0..250).map(|n| unreadable(&n.to_string())));
    let workspace = Workspace::new().source(JIRA, &jira);
    let knowledge = workspace.open();
    let report = sync_source(&knowledge, JIRA).await.unwrap();
    assert_eq!((report.warning_count, report.warnings.len()), (250, 100));
}

#[tokio::test]
async fn a_cursor_is_kept_until_there_is_a_new_one() {
    let jira = ScriptedConnector::new();
    jira.continues([upsert(document("a", "harbour"))], Some("one"));
    jira.continues([], Some("two"));
    let workspace = Workspace::new().source(JIRA, &jira);
    for _ in 0..3 {
        sync_source(&workspace.open(), JIRA).await.unwrap();
    }
    assert_eq!(jira.cursors(), [None, Some("one".to_owned()), Some("two".to_owned())]);
}

#[tokio::test]
async fn a_cursor_is_saved_only_by_a_complete_sync() {
    let jira = ScriptedConnector::new();
    let both = |text: &str| ["a", "b"].map(|name| upsert(document(name, text)));
    jira.continues([], Some("one"));
    jira.fails_after(both("harbour"), "the server said 500");
    jira.continues(both("harbour"), Some("of a dry run"));
    jira.continues(both("lighthouse"), Some("of a limited run"));
    jira.continues(both("lighthouse"), Some("two"));
    let workspace = Workspace::new().source(JIRA, &jira);
    let knowledge = workspace.open();
    let name = common::source_name(JIRA);
    let run = |options| try_sync(&knowledge, &name, options);

    run(SyncOptions::default()).await.unwrap();
    assert!(run(SyncOptions::default()).await.is_err());
    run(SyncOptions { dry_run: true, ..SyncOptions::default() }).await.unwrap();
    run(SyncOptions { limit: Some(1), ..SyncOptions::default() }).await.unwrap();
    run(SyncOptions::default()).await.unwrap();
    run(SyncOptions { full: true, ..SyncOptions::default() }).await.unwrap();
    let [none, one] = [None, Some("one".to_owned())];
    assert_eq!(jira.cursors(), [none.clone(), one.clone(), one.clone(), one.clone(), one, none]);
}

#[tokio::test]
async fn a_source_is_synced_by_one_process_at_a_time() {
    let jira = ScriptedConnector::new();
    jira.waits_after([upsert(document("a", "harbour"))]);
    let workspace = Workspace::new().file("b.md", "lighthouse").source(JIRA, &jira);
    let (knowledge, other_process) = (workspace.open(), workspace.open());
    let (first, ()) = tokio::join!(sync_source(&knowledge, JIRA), async {
        jira.wait_until_paused().await;
        for refused in [&knowledge, &other_process] {
            let error = sync_source(refused, JIRA).await.unwrap_err();
            assert!(matches!(&error, SyncError::Busy { source_name } if source_name == JIRA), "{error:?}");
        }
        // Another source is free.
        sync(&other_process).await;
        jira.release();
    });
    assert_eq!(first.unwrap(), SyncReport { added: 1, ..report() });
    assert_eq!(stored_names(&knowledge), ["a", "b.md"]);
    for text in ["harbour", "lighthouse"] {
        assert_eq!(hit_names(&knowledge, text), hit_names(&other_process, text));
        assert_eq!(hit_names(&knowledge, text).len(), 1, "{text}");
    }
    jira.release();
    assert_eq!(sync_source(&other_process, JIRA).await.unwrap(), SyncReport { unchanged: 1, ..report() });
}

#[tokio::test]
async fn sources_of_one_store_do_not_share_names() {
    let [jira, wiki] = ["harbour", "lighthouse"].map(|text| ScriptedConnector::with([document("a", text)]));
    let workspace = Workspace::new().source(JIRA, &jira).source("script:wiki", &wiki);
    let knowledge = workspace.open();
    sync_source(&knowledge, JIRA).await.unwrap();
    sync_source(&knowledge, "script:wiki").await.unwrap();
    assert_eq!(stored_names(&knowledge), ["a", "a"]);
    let hit = |text: &str| common::search(&knowledge, text)[0].source.clone();
    assert_eq!([hit("harbour"), hit("lighthouse")], [JIRA, "script:wiki"]);
}

#[tokio::test]
async fn a_source_that_is_not_configured_any_more_is_remembered() {
    let jira = ScriptedConnector::with([document("a", "harbour")]);
    let workspace = Workspace::new().source(JIRA, &jira);
    sync_source(&workspace.open(), JIRA).await.unwrap();
    let forgotten = Workspace::new();
    common::copy_folder(&workspace.data(), &forgotten.data());

    let knowledge = forgotten.open();
    let statuses = knowledge.sources().await.unwrap();
    let shown: Vec<_> =
        statuses.iter().map(|status| (status.name.as_str(), status.configured, status.documents)).collect();
    assert_eq!(shown, [("filesystem:notes", true, 0), (JIRA, false, 1)]);
    assert_eq!(statuses[0].notes.as_deref(), Some("never synced; run `ctx sync`"));
    assert_eq!(statuses[1].notes.as_deref(), Some("no longer configured; 1 document"));
    assert_eq!(hit_names(&knowledge, "harbour"), ["a"]);
}

#[tokio::test]
async fn a_document_is_named_by_its_id_its_full_name_or_its_source_id() {
    let jira = ScriptedConnector::with([document("ENG-7", "harbour"), document("a.md", "quay")]);
    let workspace = Workspace::new().file("a.md", "ships").source(JIRA, &jira);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    sync_source(&knowledge, JIRA).await.unwrap();
    let id = common::search(&knowledge, "harbour")[0].id.to_string();
    let full_name = format!("{JIRA}:ENG-7");
    let names = HashSet::from([id.as_str(), full_name.as_str(), "ENG-7", "a.md", "eng-7", JIRA]);
    let meant = knowledge.documents_by_name(&names).unwrap();
    for name in [&id, &full_name, "ENG-7"] {
        assert_eq!(meant[name].len(), 1, "{name}");
        assert_eq!((meant[name][0].id.to_string(), &meant[name][0].full_name), (id.clone(), &full_name));
    }
    let several: Vec<&str> = meant["a.md"].iter().map(|named| named.full_name.as_str()).collect();
    assert_eq!(several, ["filesystem:notes:a.md", &format!("{JIRA}:a.md")]);
    assert_eq!(meant.len(), 4, "{meant:?}");
}
