//! Documents as MCP resources: listing, reading, and notifications of changes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails the test it helps")]

use crate::common::{
    JIRA, ScriptedConnector, Workspace, delete, document, source_name, sync, sync_source, upsert,
    workspace_with,
};
use ctx_core::{
    Call, Caller, Catalog, Change, Document, ErrorKind, Limits, Provider, Resource, ResourceChange,
    ResourceContent, Resources, ToolError,
};
use ctx_knowledge::{ContextProvider, Knowledge};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

fn origin(knowledge: &Arc<Knowledge>) -> Arc<dyn Resources> {
    ContextProvider::new(knowledge.clone()).resources().unwrap()
}

/// Reads a resource through the catalog.
async fn read_within(
    knowledge: &Arc<Knowledge>,
    uri: &str,
    limits: Limits,
) -> Result<Vec<ResourceContent>, ToolError> {
    let provider = Arc::new(ContextProvider::new(knowledge.clone()));
    let catalog = Catalog::builder().provider(provider).limits(limits).build();
    Catalog::read(uri, Call::new(catalog, Caller::Cli)).await
}

async fn read(knowledge: &Arc<Knowledge>, uri: &str) -> Result<Vec<ResourceContent>, ToolError> {
    read_within(knowledge, uri, Limits::default()).await
}

/// All pages of this size, each with its documents.
async fn pages(origin: &Arc<dyn Resources>, most: usize) -> Vec<Vec<Resource>> {
    let mut pages = Vec::new();
    let mut from = None;
    loop {
        let page = origin.list(from.as_deref(), most, &Catalog::builder().build()).await.unwrap();
        pages.push(page.resources);
        match page.next {
            Some(next) => from = Some(next),
            None => return pages,
        }
    }
}

/// The URIs of documents by their names in their sources.
async fn uris(knowledge: &Arc<Knowledge>) -> HashMap<String, String> {
    let listed = pages(&origin(knowledge), 100).await.concat();
    listed.into_iter().map(|resource| (resource.name, resource.uri)).collect()
}

fn numbered(numbers: impl IntoIterator<Item = usize>) -> Vec<Document> {
    numbers.into_iter().map(|number| document(&format!("T-{number}"), &format!("text {number}"))).collect()
}

fn content(uri: &str) -> ResourceChange {
    ResourceChange::Content { uri: uri.to_owned() }
}

/// All notifications so far.
fn take_changes(receiver: &mut Receiver<ResourceChange>) -> Vec<ResourceChange> {
    let mut changes = Vec::new();
    loop {
        match receiver.try_recv() {
            Ok(change) => changes.push(change),
            Err(TryRecvError::Empty) => return changes,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A source of these documents, and two programs that have opened its store.
async fn two_programs(
    documents: Vec<Document>,
) -> (Workspace, Arc<ScriptedConnector>, Arc<Knowledge>, Knowledge) {
    let source = ScriptedConnector::with(documents);
    let workspace = Workspace::new().source(JIRA, &source);
    let (ours, theirs) = (Arc::new(workspace.open()), workspace.open());
    sync_source(&ours, JIRA).await.unwrap();
    (workspace, source, ours, theirs)
}

/// Syncs these changes of the source.
async fn change(
    source: &ScriptedConnector,
    knowledge: &Knowledge,
    changes: impl IntoIterator<Item = Change>,
) {
    source.continues(changes, None);
    // The first sync repeats the last step, the second one reports the changes.
    sync_source(knowledge, JIRA).await.unwrap();
    sync_source(knowledge, JIRA).await.unwrap();
}

#[tokio::test]
async fn every_document_is_on_exactly_one_page() {
    for count in [0, 1, 4, 5, 8, 9] {
        let (_workspace, knowledge) = workspace_with(numbered(0..count)).await;
        let pages = pages(&origin(&Arc::new(knowledge)), 4).await;
        let sizes: Vec<usize> = pages.iter().map(Vec::len).collect();
        assert_eq!(sizes.len(), count.div_ceil(4).max(1), "{count}: {sizes:?}");
        let names: Vec<String> = pages.concat().into_iter().map(|resource| resource.name).collect();
        let expected: Vec<String> = (0..count).map(|number| format!("T-{number}")).collect();
        assert_eq!(names, expected);
    }
}

#[tokio::test]
async fn the_page_size_is_clamped() {
    let (_workspace, knowledge) = workspace_with(numbered(0..1003)).await;
    let origin = origin(&Arc::new(knowledge));
    let page = async |most| origin.list(None, most, &Catalog::builder().build()).await.unwrap();
    assert_eq!(page(0).await.resources.len(), 1);
    let longest = page(usize::MAX).await;
    assert_eq!((longest.resources.len(), longest.next.is_some()), (1000, true));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn pages_are_complete_and_without_duplicates_while_documents_come_change_and_go(
        most in 1..6_usize,
        steps in prop::collection::vec((0..20_usize, any::<bool>()), 1..8),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        runtime.block_on(async {
            let source = ScriptedConnector::with(numbered(0..10));
            let workspace = Workspace::new().source(JIRA, &source);
            let knowledge = Arc::new(workspace.open());
            sync_source(&knowledge, JIRA).await.unwrap();
            let origin = origin(&knowledge);
            let (mut names, mut touched) = (Vec::new(), BTreeSet::new());
            let (mut from, mut steps) = (None, steps.into_iter().enumerate());
            loop {
                let page = origin.list(from.as_deref(), most, &Catalog::builder().build()).await.unwrap();
                names.extend(page.resources.into_iter().map(|resource| resource.name));
                let Some(next) = page.next else { break };
                from = Some(next);
                if let Some((step, (number, deletes))) = steps.next() {
                    let name = format!("T-{number}");
                    let text = format!("{name} in step {step}");
                    let step = if deletes { delete(&name) } else { upsert(document(&name, &text)) };
                    change(&source, &knowledge, [step]).await;
                    touched.extend(deletes.then_some(name));
                }
            }
            let listed: BTreeSet<&String> = names.iter().collect();
            // Only a document that was deleted and added again may appear twice.
            for name in &listed {
                let times = names.iter().filter(|other| other == name).count();
                assert!(times == 1 || touched.contains(*name), "{name}: {names:?}");
            }
            for resource in pages(&origin, 100).await.concat() {
                let name = resource.name;
                assert!(listed.contains(&name) || touched.contains(&name), "{name}: {names:?}");
            }
        });
    }

    #[test]
    fn whatever_is_given_for_a_cursor_is_refused_or_is_one(from in "(-|\\+|0)?[0-9]{0,20}|.{0,20}") {
        let workspace = Workspace::new();
        let knowledge = Arc::new(workspace.open());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let listed = runtime.block_on(origin(&knowledge).list(Some(&from), 3, &Catalog::builder().build()));
        match from.parse::<i64>() {
            Ok(place) if place >= 0 && place.to_string() == from => prop_assert!(listed.is_ok()),
            _ => prop_assert_eq!(listed.unwrap_err().kind(), ErrorKind::BadRequest),
        }
    }
}

#[tokio::test]
async fn a_resource_describes_its_document() {
    let workspace = Workspace::new().file("guides/größe.md", "# Über Größe\n\nGroß.\n");
    let knowledge = Arc::new(workspace.open());
    sync(&knowledge).await;
    let listed = pages(&origin(&knowledge), 10).await.concat();
    let id = knowledge.ids().unwrap()[0];
    let expected = Resource {
        uri: format!("ctx://document/{id}"),
        name: "größe.md".to_owned(),
        title: Some("Über Größe".to_owned()),
        description: Some("filesystem:notes: guides/größe.md".to_owned()),
        mime_type: Some("text/markdown".to_owned()),
        size: Some("# Über Größe\n\nGroß.\n".len() as u64),
        ..Resource::default()
    };
    assert_eq!(listed, [expected]);
}

#[tokio::test]
async fn a_long_name_is_truncated_and_a_missing_one_is_replaced() {
    let titled = Document { title: Some("Minutes".to_owned()), ..document("minutes/", "text") };
    let (_workspace, knowledge) = workspace_with([document(&"ü".repeat(1000), "text"), titled]).await;
    let listed = pages(&origin(&Arc::new(knowledge)), 10).await.concat();
    assert_eq!(listed[0].name, format!("{}…", "ü".repeat(150)));
    assert!(listed[0].description.as_ref().unwrap().len() < 310);
    assert_eq!(listed[1].name, "Minutes");
}

#[tokio::test]
async fn a_document_is_read_as_its_stored_text() {
    let workspace = Workspace::new()
        .file("page.html", "<!doctype html><h1>Tugs</h1><p>First.</p>")
        .file("tugs.py", "print('tugs')\n");
    let knowledge = Arc::new(workspace.open());
    sync(&knowledge).await;
    let uris = uris(&knowledge).await;
    for (name, mime_type, text) in [
        ("page.html", "text/markdown", "# Tugs\n\nFirst.\n"),
        ("tugs.py", "text/x-python", "print('tugs')\n"),
    ] {
        let expected = ResourceContent {
            uri: uris[name].clone(),
            mime_type: Some(mime_type.to_owned()),
            text: Some(text.to_owned()),
            ..ResourceContent::default()
        };
        assert_eq!(read(&knowledge, &uris[name]).await.unwrap(), [expected]);
    }
}

#[tokio::test]
async fn an_invalid_media_type_of_a_source_is_not_passed_on() {
    let of_type = |name: &str, content_type: &str| Document {
        content_type: Some(content_type.to_owned()),
        ..document(name, "text")
    };
    let (_workspace, knowledge) = workspace_with([
        of_type("a", "nonsense"),
        of_type("b", "text/x-odd\n"),
        of_type("c", "text/x-own; a=b"),
    ])
    .await;
    let listed = pages(&origin(&Arc::new(knowledge)), 10).await.concat();
    let types: Vec<&str> = listed.iter().map(|resource| resource.mime_type.as_deref().unwrap()).collect();
    assert_eq!(types, ["text/plain", "text/plain", "text/x-own; a=b"]);
}

#[tokio::test]
async fn a_uri_of_no_document_is_not_found() {
    let (_workspace, knowledge) = workspace_with(numbered(0..1)).await;
    let knowledge = Arc::new(knowledge);
    let id = knowledge.ids().unwrap()[0];
    for name in [
        "",
        "T-0",
        "00000000-0000-0000-0000-000000000000",
        &id.simple().to_string(),
        &id.to_string().to_uppercase(),
        &format!("{id}/"),
        &"ü".repeat(1000),
    ] {
        let error = read(&knowledge, &format!("ctx://document/{name}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.message().starts_with("no document has the URI ctx://document/"), "{error}");
        assert!(error.message().len() < 400, "{error}");
    }
}

#[tokio::test]
async fn a_text_over_the_limit_is_refused_with_what_to_do_instead() {
    let (plain, escaped) = ("x".repeat(1000), "\u{1}".repeat(500));
    let (_workspace, knowledge) =
        workspace_with([document("plain", &plain), document("escaped", &escaped)]).await;
    let knowledge = Arc::new(knowledge);
    let uris = uris(&knowledge).await;
    for (name, bytes) in [("plain", 1000), ("escaped", 3000)] {
        let limits = Limits { result_bytes: 999, ..Limits::default() };
        let error = read_within(&knowledge, &uris[name], limits).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let reported_bytes: u64 = error.message().split(' ').nth(3).unwrap().parse().unwrap();
        assert!((bytes..bytes + 150).contains(&reported_bytes), "{error}");
        assert!(error.message().ends_with(
            "bytes; the limit is 999 (limits.result_bytes): `search` finds parts of it, `ctx export` writes it whole"
        ));
        let limits = Limits { result_bytes: 3200, ..limits };
        assert!(read_within(&knowledge, &uris[name], limits).await.is_ok());
    }
}

#[tokio::test]
async fn a_sync_publishes_what_it_changed() {
    let (_workspace, source, ours, _) = two_programs(numbered(0..3)).await;
    let uris = uris(&ours).await;
    let mut receiver = origin(&ours).changes().unwrap();
    sync_source(&ours, JIRA).await.unwrap();
    assert_eq!(take_changes(&mut receiver), []);
    let changes = [delete("T-2"), upsert(document("T-0", "new")), upsert(document("T-9", "new"))];
    change(&source, &ours, changes).await;
    let expected = [content(&uris["T-2"]), content(&uris["T-0"]), ResourceChange::List];
    assert_eq!(take_changes(&mut receiver), expected);
}

#[tokio::test]
async fn a_failed_sync_publishes_what_it_changed_before() {
    let (_workspace, source, ours, _) = two_programs(numbered(0..1)).await;
    let uris = uris(&ours).await;
    let mut receiver = origin(&ours).changes().unwrap();
    source.fails_after([upsert(document("T-0", "new"))], "the line is dead");
    sync_source(&ours, JIRA).await.unwrap();
    assert!(sync_source(&ours, JIRA).await.is_err());
    assert_eq!(take_changes(&mut receiver), [content(&uris["T-0"])]);
}

#[tokio::test]
async fn a_change_of_another_process_is_published_by_tend() {
    let (_workspace, source, ours, theirs) = two_programs(numbered(0..3)).await;
    let uris = uris(&ours).await;
    let mut receiver = origin(&ours).changes().unwrap();
    let steps = [
        (upsert(document("T-1", "text 1")), vec![]),
        (upsert(document("T-1", "new")), vec![content(&uris["T-1"])]),
        (upsert(document("T-3", "new")), vec![ResourceChange::List]),
        (delete("T-0"), vec![content(&uris["T-0"]), ResourceChange::List]),
    ];
    for (step, expected) in steps {
        change(&source, &theirs, [step]).await;
        assert_eq!(take_changes(&mut receiver), []);
        ours.catch_up().unwrap();
        assert_eq!(take_changes(&mut receiver), expected);
        ours.catch_up().unwrap();
        assert_eq!(take_changes(&mut receiver), []);
    }
}

#[tokio::test]
async fn a_deleted_and_recreated_document_is_published_as_changed() {
    let (_workspace, source, ours, theirs) = two_programs(numbered(0..2)).await;
    let uris = uris(&ours).await;
    let mut receiver = origin(&ours).changes().unwrap();
    change(&source, &theirs, [delete("T-0"), upsert(document("T-0", "new"))]).await;
    ours.catch_up().unwrap();
    assert_eq!(take_changes(&mut receiver), [content(&uris["T-0"]), ResourceChange::List]);
}

#[tokio::test]
async fn a_new_subscriber_gets_only_later_changes() {
    let (_workspace, source, ours, theirs) = two_programs(numbered(0..2)).await;
    let uris = uris(&ours).await;
    drop(origin(&ours).changes());
    ours.catch_up().unwrap();
    change(&source, &theirs, [upsert(document("T-0", "new"))]).await;
    let mut receiver = origin(&ours).changes().unwrap();
    change(&source, &theirs, [upsert(document("T-1", "new"))]).await;
    ours.catch_up().unwrap();
    assert_eq!(take_changes(&mut receiver), [content(&uris["T-1"])]);
}

#[tokio::test]
async fn subscribers_learn_of_a_forgotten_source() {
    let (_workspace, _, ours, _) = two_programs(numbered(0..1)).await;
    let uris = uris(&ours).await;
    let mut receiver = origin(&ours).changes().unwrap();
    ours.forget(&source_name(JIRA)).unwrap();
    assert_eq!(take_changes(&mut receiver), [content(&uris["T-0"]), ResourceChange::List]);
}

#[tokio::test]
async fn very_many_changes_are_published_as_a_changed_list() {
    const NAMED_MAX: usize = 512;
    let (_workspace, source, ours, theirs) = two_programs(numbered(0..=NAMED_MAX)).await;
    let mut receiver = origin(&ours).changes().unwrap();
    let rewritten = |count: usize, text: &'static str| {
        (0..count).map(move |number| upsert(document(&format!("T-{number}"), text)))
    };
    change(&source, &theirs, rewritten(NAMED_MAX, "once")).await;
    ours.catch_up().unwrap();
    let named = take_changes(&mut receiver);
    assert_eq!(named.len(), NAMED_MAX);
    assert!(!named.contains(&ResourceChange::List));
    change(&source, &theirs, rewritten(NAMED_MAX + 1, "twice")).await;
    ours.catch_up().unwrap();
    assert_eq!(take_changes(&mut receiver), [ResourceChange::List]);
}

#[tokio::test]
async fn a_restored_store_publishes_a_changed_list() {
    let (workspace, _, ours, _) = two_programs(numbered(0..3)).await;
    let mut receiver = origin(&ours).changes().unwrap();
    let store = ctx_store::RawConnection::open(&workspace.store_path()).unwrap();
    store.execute("UPDATE meta SET generation = generation - 1").unwrap();
    ours.catch_up().unwrap();
    assert_eq!(take_changes(&mut receiver), [ResourceChange::List]);
}

#[tokio::test]
async fn deletions_that_the_store_has_forgotten_publish_a_changed_list() {
    let (workspace, source, ours, theirs) = two_programs(numbered(0..3)).await;
    let mut receiver = origin(&ours).changes().unwrap();
    change(&source, &theirs, [delete("T-0")]).await;
    let store = ctx_store::RawConnection::open(&workspace.store_path()).unwrap();
    store.execute("DELETE FROM deletions; UPDATE meta SET forgotten = generation").unwrap();
    ours.catch_up().unwrap();
    assert_eq!(take_changes(&mut receiver), [ResourceChange::List]);
}
