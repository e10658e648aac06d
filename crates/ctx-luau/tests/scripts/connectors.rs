//! Connectors: emitted items, deletions and failures.

use crate::Test;
use crate::bench::{Bench, SHORT};
use ctx_core::{
    Change, Cursor, DocumentContent, KnownDocuments, Listing, PullResult, Redactor, Secret, Sink, SourceError,
};
use ctx_luau::{ScriptLimits, ScriptSettings};
use ctx_testkit::{MockWebServer, http_response};
use serde_json::json;
use std::sync::Arc;

pub(crate) const TESTS: &[Test] = tests!(connectors:
    items_become_documents,
    items_stream_with_back_pressure,
    many_items_may_be_returned_at_once,
    a_cursor_comes_back_at_the_next_scan,
    only_a_complete_scan_deletes_unlisted_documents,
    invalid_items_are_skipped_and_reported,
    a_scan_that_fails_says_why,
    a_scan_has_bounds,
    a_sync_that_has_ended_ends_the_scan,
    forbidden_apis_are_refused,
    a_connector_is_checked_without_a_scan,
);

struct Nothing;

impl KnownDocuments for Nothing {
    fn is_current(&self, _: &str, _: &str) -> bool {
        false
    }
}

fn source(body: &str) -> String {
    format!(
        "connector = {{ name = 'x', description = 'Reads.' }}\nfunction connector.scan(config, cursor) {body} end"
    )
}

async fn pull_script(
    bench: &Bench,
    settings: &ScriptSettings,
    cursor: Option<Cursor>,
) -> (Vec<Change>, Result<PullResult, SourceError>) {
    let connector = bench.scripts.connector(settings).await.unwrap();
    let (sink, mut changes) = Sink::channel(2, Arc::new(Nothing));
    let pulling = tokio::spawn(async move { connector.pull(cursor.as_ref(), &sink).await });
    let mut seen = Vec::new();
    while let Some(change) = changes.recv().await {
        seen.push(change);
    }
    (seen, pulling.await.unwrap())
}

async fn pull(body: &str, cursor: Option<Cursor>) -> (Vec<Change>, Result<PullResult, SourceError>) {
    let bench = Bench::new();
    let mut settings = bench.script("x", &source(body));
    settings.config = json!({"project": "ENG"});
    pull_script(&bench, &settings, cursor).await
}

fn ids(changes: &[Change]) -> Vec<String> {
    let id = |change: &Change| match change {
        Change::Upsert(document) => format!("+{}", document.source_id),
        Change::Delete { source_id } => format!("-{source_id}"),
        Change::Unreadable { source_id, reason } => format!("?{source_id}: {reason}"),
    };
    changes.iter().map(id).collect()
}

async fn items_become_documents() {
    let body = "return { { source_id = config.project .. '-1', title = 'One', body = 'Text', tags = { 't' },
        metadata = { status = 'open' }, created_at = '2026-01-31T12:00:00Z', updated_at = 1769860800 } }";
    let (changes, pulled) = pull(body, None).await;
    assert_eq!(pulled.unwrap(), PullResult { cursor: None, listing: Listing::Complete });
    let Change::Upsert(document) = &changes[0] else { panic!("{changes:?}") };
    assert_eq!((document.source_id.as_str(), document.title.as_deref()), ("ENG-1", Some("One")));
    assert_eq!(
        (&document.content, &document.tags),
        (&DocumentContent::Text("Text".to_owned()), &vec!["t".to_owned()])
    );
    assert_eq!(document.metadata["status"], "open");
    assert_eq!(document.created_at, document.updated_at);
}

async fn items_stream_with_back_pressure() {
    let body = "for i = 1, 100 do emit({ source_id = i, body = string.rep('x', 1000) }) end";
    let (changes, pulled) = pull(body, None).await;
    assert_eq!((changes.len(), pulled.unwrap().listing), (100, Listing::Complete));
    assert_eq!(ids(&changes)[99], "+100");
}

async fn many_items_may_be_returned_at_once() {
    // More in total than the limit of a result or of one conversion.
    let body = "local items = {}
        for i = 1, 3000 do items[i] = { source_id = i, body = string.rep('x', 1000), metadata = table.create(50, i) } end
        for _, item in items do item.metadata = { list = item.metadata } end
        return items";
    let (changes, pulled) = pull(body, None).await;
    assert_eq!((changes.len(), pulled.unwrap().listing), (3000, Listing::Complete));
}

async fn a_cursor_comes_back_at_the_next_scan() {
    let body = "local page = if cursor then cursor.page else 1
        return { { source_id = page, body = '' }, { deleted = { 'old' } } }, { page = page + 1 }";
    let (changes, first) = pull(body, None).await;
    let first = first.unwrap();
    assert_eq!((ids(&changes), first.listing), (vec!["+1".to_owned(), "-old".to_owned()], Listing::Partial));
    let (changes, second) = pull(body, first.cursor).await;
    assert_eq!(
        (ids(&changes)[0].as_str(), second.unwrap().cursor.unwrap().0.as_str()),
        ("+2", "{\"page\":3}")
    );
    // A cursor of ours is returned unchanged; an unreadable one counts as none.
    let (_, pulled) = pull("return {}, (cursor or '') .. 'a'", None).await;
    let (_, pulled) = pull("return {}, (cursor or '') .. 'a'", pulled.unwrap().cursor).await;
    assert_eq!(pulled.unwrap().cursor.unwrap().0, "\"aa\"");
    let (_, pulled) = pull("return {}, (cursor or '') .. 'a'", Some(Cursor("{".to_owned()))).await;
    assert_eq!(pulled.unwrap().cursor.unwrap().0, "\"a\"");
}

async fn only_a_complete_scan_deletes_unlisted_documents() {
    let item = "{ source_id = 'a', body = '' }";
    for (body, cursor, listing) in [
        (format!("return {{ {item} }}"), None, Listing::Complete),
        (format!("log.warn('so so') emit({item})"), None, Listing::Complete),
        ("return { { source_id = 'a' } }".to_owned(), None, Listing::Complete),
        ("return {}".to_owned(), None, Listing::Partial),
        ("".to_owned(), None, Listing::Partial),
        (format!("log.error('HTTP 500') return {{ {item} }}"), None, Listing::Partial),
        (format!("return {{ {item}, {{ body = 'whose?' }} }}"), None, Listing::Partial),
        (format!("return {{ {item} }}, 'next'"), None, Listing::Partial),
        (format!("return {{ {item} }}"), Some(Cursor("\"next\"".to_owned())), Listing::Partial),
        (format!("connector.complete = true return {{ {item} }}"), None, Listing::Complete),
    ] {
        let (_, pulled) = pull(&body, cursor).await;
        assert_eq!(pulled.unwrap().listing, listing, "{body}");
    }
    let bench = Bench::new();
    let recent =
        source(&format!("return {{ {item} }}")).replace("name = 'x',", "name = 'x', complete = false,");
    let (_, pulled) = pull_script(&bench, &bench.script("x", &recent), None).await;
    assert_eq!(pulled.unwrap().listing, Listing::Partial);
}

async fn invalid_items_are_skipped_and_reported() {
    let body = "return {
        { source_id = 'a', body = 'fine' },
        { source_id = 'b' },
        { body = 'x' },
        'text',
        { source_id = 'c', body = '\\255' },
        { source_id = 'd', body = 'x', updated_at = 'soon' },
        { source_id = 'e', body = 'fine' } }";
    let (changes, pulled) = pull(body, None).await;
    pulled.unwrap();
    let reported = ids(&changes);
    assert_eq!((reported[0].as_str(), reported[6].as_str(), reported.len()), ("+a", "+e", 7));
    for (reported, start) in reported[1..6].iter().zip([
        "?b: `body` is missing",
        "?(item 3): `source_id` is missing",
        "?(item 4): an item must be a table, it is a string",
        "?c: items[5].body: not UTF-8",
        "?d: `updated_at` must be a date",
    ]) {
        assert!(reported.starts_with(start), "{reported}");
    }
}

async fn a_scan_that_fails_says_why() {
    let (changes, pulled) = pull("emit({ source_id = 'a', body = '' })\nerror('HTTP 500')", None).await;
    assert_eq!(ids(&changes), ["+a"]);
    assert_eq!(pulled.unwrap_err().to_string(), "tools/x.lua:3: HTTP 500");
    let (_, pulled) = pull("return 'text'", None).await;
    assert!(pulled.unwrap_err().to_string().starts_with("tools/x.lua: connector.scan must return a list"));
    // Variables of the environment are masked.
    let (_, pulled) = pull("error(env.get('SECRET_VARIABLE'))", None).await;
    assert_eq!(pulled.unwrap_err().to_string(), "tools/x.lua:2: ***");
    // Secrets of the configuration are masked as well.
    let mut bench = Bench::new();
    bench.scripts = bench.scripts.clone().with_redactor(Redactor::new([Secret::new("hunter2!")]));
    let settings = bench.script("x", &source("error('hunter2!')"));
    let (_, pulled) = pull_script(&bench, &settings, None).await;
    assert_eq!(pulled.unwrap_err().to_string(), "tools/x.lua:2: ***");
}

async fn a_scan_has_bounds() {
    let web = MockWebServer::serve(|_| http_response(200, ""));
    let bench =
        Bench::with(ScriptLimits { connector_requests: 2, document_bytes: 10, ..ScriptLimits::default() });
    let scan = format!("for i = 1, 3 do http.get('{}') end", web.url("/"));
    let (_, pulled) = pull_script(&bench, &bench.script("x", &source(&scan)), None).await;
    assert!(pulled.unwrap_err().to_string().ends_with("a scan may make at most 2 requests"));
    assert_eq!(web.requests().len(), 2);
    let large = bench.script("x", &source("emit({ source_id = 'a', body = string.rep('x', 11) })"));
    let (changes, _) = pull_script(&bench, &large, None).await;
    assert_eq!(ids(&changes), ["?a: `body` is 11 bytes; the limit is 10"]);
    let mut slow = bench.script("x", &source("while true do end"));
    slow.timeout = Some(SHORT);
    let (_, pulled) = pull_script(&bench, &slow, None).await;
    assert_eq!(pulled.unwrap_err().to_string(), "tools/x.lua: the scan timed out after 0.3 seconds");
}

async fn a_sync_that_has_ended_ends_the_scan() {
    let bench = Bench::new();
    let settings =
        bench.script("x", &source("for i = 1, 1000 do pcall(emit, { source_id = i, body = '' }) end"));
    let connector = bench.scripts.connector(&settings).await.unwrap();
    let (sink, changes) = Sink::channel(1, Arc::new(Nothing));
    drop(changes);
    assert!(matches!(connector.pull(None, &sink).await, Err(SourceError::Closed(_))));
}

async fn forbidden_apis_are_refused() {
    for api in ["context", "sdk", "result", "parallel"] {
        let (_, pulled) = pull(&format!("return {api}.x"), None).await;
        assert!(pulled.unwrap_err().to_string().contains("attempt to index nil"), "{api}");
    }
}

async fn a_connector_is_checked_without_a_scan() {
    let bench = Bench::new();
    let settings = bench.script("x", &source("error('never')"));
    let connector = bench.scripts.connector(&settings).await.unwrap();
    connector.check().await.unwrap();
    std::fs::write(&settings.path, "connector = 5").unwrap();
    let message = connector.check().await.unwrap_err().to_string();
    assert!(message.starts_with("tools/x.lua: "), "{message}");
}
