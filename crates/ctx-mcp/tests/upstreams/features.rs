//! Resources and prompts of servers, and notifications about their changes.

use crate::fixture::{UpstreamFixture, until};
use crate::harness::Test;
use crate::server_features::DATA;
use ctx_core::{
    AgentSource, Call, Caller, Catalog, CompletionRequest, CompletionTarget, Completions, ErrorKind,
    Resource, ResourceChange, ResourceContent, Resources,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;

pub(crate) const TESTS: &[Test] = tests![features:
    resources_are_listed_page_by_page_under_the_name_of_their_server,
    lists_are_bounded,
    a_server_that_does_not_list_delays_nobody_for_long,
    a_resource_is_read_under_the_name_of_its_server,
    prompts_are_agents,
    arguments_are_completed_by_the_server,
    results_point_to_resources_that_can_be_read,
    a_subscription_is_made_once_and_again_after_a_reconnect,
    changed_prompts_are_listed_again,
];

fn origin(fixture: &UpstreamFixture) -> Arc<dyn Resources> {
    fixture.catalog().resources()[0].clone()
}

/// All pages, each with at most `most` entries.
async fn list_pages(fixture: &UpstreamFixture, most: usize) -> Vec<Vec<Resource>> {
    let (catalog, origin) = (fixture.catalog(), origin(fixture));
    let (mut pages, mut from): (Vec<Vec<Resource>>, Option<String>) = (Vec::new(), None);
    loop {
        let page = origin.list(from.as_deref(), most, &catalog).await.unwrap();
        pages.push(page.resources);
        match page.next {
            Some(next) => from = Some(next),
            None => return pages,
        }
    }
}

fn uris(page: &[Resource]) -> Vec<&str> {
    page.iter().map(|resource| resource.uri.as_str()).collect()
}

async fn resources_are_listed_page_by_page_under_the_name_of_their_server() {
    let fixture = UpstreamFixture::of("good").await;
    let pages = list_pages(&fixture, 200).await;
    assert_eq!(
        pages.iter().map(|page| uris(page)).collect::<Vec<_>>(),
        [vec!["mcp://up/file:///data.json", "mcp://up/file:///a b"], vec!["mcp://up/file:///second"],]
    );
    let metadata = json!({"annotations": {"priority": 0.5}, "_meta": {"kept": true}});
    let data = &pages[0][0];
    assert_eq!((data.title.as_deref(), data.size, json!(data.more)), (Some("Data"), Some(2), metadata));
    let templates = origin(&fixture).templates();
    let forms: Vec<&str> = templates.iter().map(|template| template.uri_template.as_str()).collect();
    assert_eq!(forms, ["mcp://up/file:///{path}"]);
    assert_eq!(list_pages(&fixture, 1).await.len(), 3);
    let nowhere = origin(&fixture).list(Some("-1 0 -"), 1, &fixture.catalog()).await.unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::BadRequest);
}

async fn lists_are_bounded() {
    let fixture = UpstreamFixture::of("crowded").await;
    let pages = list_pages(&fixture, 200).await;
    assert_eq!((pages.len(), pages.concat().len()), (50, 10_000));
    let fixture = UpstreamFixture::of("endless_resources").await;
    assert_eq!(list_pages(&fixture, 200).await.len(), 500);
}

async fn a_server_that_does_not_list_delays_nobody_for_long() {
    let fixture =
        UpstreamFixture::with("lists_nothing", |settings| settings.limits.start = Duration::from_secs(60));
    let fixture = tokio::time::timeout(Duration::from_secs(30), fixture).await.unwrap();
    assert_eq!(list_pages(&fixture, 200).await, [Vec::new()]);
    // The server is not asked again for a while.
    let again = tokio::time::timeout(Duration::from_secs(1), list_pages(&fixture, 200)).await.unwrap();
    assert_eq!(again, [Vec::new()]);
    assert_eq!(fixture.call("echo", json!({"text": "on"})).await.unwrap().into_data(), json!("on"));
    let fixture = UpstreamFixture::of("dies").await;
    assert_eq!(list_pages(&fixture, 200).await, [Vec::new()]);
}

async fn read(fixture: &UpstreamFixture, uri: &str) -> Result<Vec<ResourceContent>, (ErrorKind, String)> {
    let read = Catalog::read(uri, Call::new(fixture.catalog(), Caller::Cli)).await;
    read.map_err(|error| (error.kind(), error.message().to_owned()))
}

async fn a_resource_is_read_under_the_name_of_its_server() {
    let fixture = UpstreamFixture::of("good").await;
    let contents = read(&fixture, "mcp://up/file:///data.json").await.unwrap();
    assert_eq!(
        json!(contents),
        json!([
            {"uri": "mcp://up/file:///data.json", "mimeType": "application/json", "text": "{}",
             "_meta": {"page": 1}},
            {"uri": "mcp://up/file:///picture", "mimeType": "image/png", "blob": "AA=="},
        ])
    );
    for uri in ["mcp://up/file:///gone", "mcp://up/", "mcp://up/a\nb"] {
        let (kind, message) = read(&fixture, uri).await.unwrap_err();
        assert_eq!(kind, ErrorKind::NotFound, "{message}");
    }
}

async fn prompts_are_agents() {
    let fixture = UpstreamFixture::of("good").await;
    let catalog = fixture.catalog();
    let agents: Vec<_> = catalog.agents().collect();
    let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["up/a/b", "up/greet"]);
    assert_eq!((agents[1].source, agents[1].title.as_deref()), (AgentSource::Mcp, Some("Greeting")));
    let prompt = async |name: &str, arguments: Value| {
        Catalog::prompt(name, arguments, Call::new(catalog.clone(), Caller::Cli)).await
    };
    let greeting = prompt("up/greet", json!({"who": "Ada"})).await.unwrap();
    assert_eq!(
        json!(greeting.messages),
        json!([
            {"role": "user", "content": "greet Ada"},
            {"role": "assistant", "content":
                {"type": "resource", "resource": {"uri": "mcp://up/file:///data.json", "text": "{}"}}},
            {"role": "user", "content": {"type": "image", "data": "AA==", "mimeType": "image/png"}},
        ])
    );
    let slash = prompt("up/a/b", json!({"who": 7})).await.unwrap();
    assert_eq!(json!(slash.messages[0].content), json!([{"type": "text", "text": "a/b 7"}]));
    let error = prompt("up/greet", json!({})).await.unwrap_err();
    assert_eq!(error.message(), "missing required parameter: who");
}

async fn arguments_are_completed_by_the_server() {
    let fixture = UpstreamFixture::of("good").await;
    for (of, name) in [
        (CompletionTarget::Agent("up/greet".to_owned()), "greet"),
        (CompletionTarget::Template("mcp://up/file:///{path}".to_owned()), "file:///{path}"),
    ] {
        let (argument, typed) = ("who".to_owned(), "A".to_owned());
        let completing = CompletionRequest { target: of, argument, typed, context: Default::default() };
        let call = Call::new(fixture.catalog(), Caller::Cli);
        let completions = Catalog::complete(&completing, call).await.unwrap();
        let values = vec![format!("{name} \"who\" \"A\"")];
        assert_eq!(completions, Completions { values, total: Some(7), has_more: true });
    }
}

async fn results_point_to_resources_that_can_be_read() {
    let fixture = UpstreamFixture::of("good").await;
    let data = fixture.call("links", json!({})).await.unwrap().into_data();
    let renamed = "mcp://up/file:///data.json";
    assert_eq!(
        data,
        json!([
            {"type": "resource_link", "uri": renamed, "name": "data"},
            {"type": "resource", "resource": {"uri": renamed, "text": DATA}},
            {"type": "resource", "resource": {"uri": "mcp://up/mcp://inner/file:///x", "blob": "AA=="}},
            DATA,
        ])
    );
    assert!(read(&fixture, renamed).await.is_ok());
}

/// Waits for this change; skips others, as that of a new connection may come at any time.
async fn wait_for_change(changes: &mut Receiver<ResourceChange>, expected: &ResourceChange) {
    while changes.recv().await.unwrap() != *expected {}
}

async fn a_subscription_is_made_once_and_again_after_a_reconnect() {
    let fixture = UpstreamFixture::of("good").await;
    let origin = origin(&fixture);
    let mut changes = origin.changes().unwrap();
    let uri = "mcp://up/file:///data.json";
    let (subscribed, unsubscribed) =
        (format!("resources/subscribe {DATA}"), format!("resources/unsubscribe {DATA}"));
    let one = origin.subscribe(uri).await.unwrap();
    let two = origin.subscribe(uri).await.unwrap();
    assert_eq!(fixture.count_noted(&subscribed), 1);
    fixture.call("touch", json!({})).await.unwrap();
    let touched = ResourceChange::Content { uri: uri.to_owned() };
    wait_for_change(&mut changes, &touched).await;
    drop(one);
    fixture.call("crash_once", json!({})).await.unwrap();
    until("it is followed again", || fixture.count_noted(&subscribed) == 2).await;
    // Stands for all changes during the interruption.
    wait_for_change(&mut changes, &ResourceChange::List).await;
    fixture.call("touch", json!({})).await.unwrap();
    wait_for_change(&mut changes, &touched).await;
    assert_eq!(fixture.count_noted(&unsubscribed), 0);
    drop(two);
    until("it is followed no more", || fixture.count_noted(&unsubscribed) == 1).await;
}

async fn changed_prompts_are_listed_again() {
    let fixture = UpstreamFixture::of("good").await;
    let mut changes = origin(&fixture).changes().unwrap();
    fixture.call("grow_prompts", json!({})).await.unwrap();
    until("the change is told", || fixture.changes.load(Ordering::SeqCst) == 2).await;
    assert!(fixture.catalog().agents().any(|agent| agent.name == "up/late"));
    wait_for_change(&mut changes, &ResourceChange::List).await;
}
