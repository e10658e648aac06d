//! Lists and their pagination, and notifications about changes to them.

#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use crate::common::{ServerFixture, TestRequest, TestSession, call, request, resources, result_text};
use async_trait::async_trait;
use ctx_core::{
    Agent, AgentArgument, AgentSource, AgentSpec, Annotations, Call, Catalog, ErrorKind, Identifier, LogLine,
    Message, Output, Prompt, Provider, ResourceChange, Role, Tool, ToolError, ToolSpec,
};
use ctx_testkit::{echo, provider, tool};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The names in a list, from all of its pages, and the number of pages.
async fn list_all(fixture: &ServerFixture, method: &str, list: &str, name: &str) -> (Vec<String>, usize) {
    let (mut names, mut pages, mut list_request) = (Vec::new(), 0, request(method));
    loop {
        let page = fixture.send(list_request).await.result().await;
        pages += 1;
        names.extend(
            page[list].as_array().unwrap().iter().map(|entry| entry[name].as_str().unwrap().to_owned()),
        );
        match page.get("nextCursor") {
            None => return (names, pages),
            Some(cursor) => list_request = request(method).param("cursor", cursor.clone()),
        }
    }
}

#[tokio::test]
async fn every_tool_is_listed_once_however_many_there_are() {
    let tools: [_; 450] = std::array::from_fn(|number| echo(&format!("tool_{number:03}")));
    let fixture = ServerFixture::with(tools);
    let (names, pages) = list_all(&fixture, "tools/list", "tools", "name").await;
    let expected: Vec<String> = (0..450).map(|number| format!("tool_{number:03}")).collect();
    assert_eq!((names, pages), (expected, 3));
}

#[tokio::test]
async fn every_resource_is_listed_once_however_many_there_are() {
    for count in [0, 1, 199, 200, 201, 400] {
        let fixture = ServerFixture::of(Catalog::builder().provider(resources(count).0));
        let (uris, _) = list_all(&fixture, "resources/list", "resources", "uri").await;
        let expected: Vec<String> = (0..count).map(|number| format!("book://{number}")).collect();
        assert_eq!(uris, expected);
    }
}

fn tools(names: [&str; 1]) -> ctx_core::CatalogBuilder {
    Catalog::builder().provider(provider("tools", names.map(echo)))
}

#[tokio::test]
async fn clients_of_both_eras_are_notified_of_changed_tools() {
    let fixture = ServerFixture::of(tools(["before"]));
    let session = TestSession::begin(&fixture, json!({})).await;
    let mut older = session.listen().await;
    let mut newer = fixture.send(listen(json!({"toolsListChanged": true}))).await;
    newer.expect("notifications/subscriptions/acknowledged").await;
    let mut prompts_only = fixture.send(listen(json!({"promptsListChanged": true}))).await;
    prompts_only.expect("notifications/subscriptions/acknowledged").await;

    fixture.swap(tools(["after"]));
    older.expect("notifications/tools/list_changed").await;
    let notification = newer.expect("notifications/tools/list_changed").await;
    assert_eq!(notification["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    let listed = session.request(1, "tools/list", json!({})).await.result().await;
    assert_eq!(listed["tools"][0]["name"], "after");

    // A catalog with the same tools is no change, and clients get only the notifications that they asked for.
    fixture.swap(tools(["after"]));
    fixture.swap(tools(["after"]).provider(Arc::new(GuideProvider)));
    prompts_only.expect("notifications/prompts/list_changed").await;
    older.expect("notifications/prompts/list_changed").await;
}

#[tokio::test]
async fn subscribers_are_notified_of_a_changed_resource() {
    let (books, changes) = resources(3);
    let fixture = ServerFixture::of(Catalog::builder().provider(books.clone()));
    let session = TestSession::begin(&fixture, json!({})).await;
    let mut older = session.listen().await;
    session.request(1, "resources/subscribe", json!({"uri": "book://1"})).await.result().await;
    let mut newer = fixture.send(listen(json!({"resourceSubscriptions": ["book://1"]}))).await;
    newer.expect("notifications/subscriptions/acknowledged").await;

    let change = |uri: &str| {
        changes.send(ResourceChange::Content { uri: uri.to_owned() }).unwrap();
    };
    change("book://0");
    change("book://1");
    assert_eq!(newer.expect("notifications/resources/updated").await["params"]["uri"], "book://1");
    assert_eq!(older.expect("notifications/resources/updated").await["params"]["uri"], "book://1");

    session.request(2, "resources/unsubscribe", json!({"uri": "book://1"})).await.result().await;
    change("book://1");
    changes.send(ResourceChange::List).unwrap();
    assert_eq!(newer.expect("notifications/resources/updated").await["params"]["uri"], "book://1");
    older.expect("notifications/resources/list_changed").await;
}

#[tokio::test]
async fn no_change_is_lost_while_the_catalog_is_replaced() {
    let (books, changes) = resources(1);
    let fixture = ServerFixture::of(Catalog::builder().provider(books.clone()));
    let mut stream = fixture.send(listen(json!({"resourceSubscriptions": ["book://0"]}))).await;
    stream.expect("notifications/subscriptions/acknowledged").await;
    for _ in 0..100 {
        // This change reaches the subscription to the old catalog, which has had no turn to forward it since.
        fixture.swap(Catalog::builder().provider(books.clone()));
        changes.send(ResourceChange::Content { uri: "book://0".to_owned() }).unwrap();
        stream.expect("notifications/resources/updated").await;
    }
}

#[tokio::test]
async fn a_prompt_begins_with_its_instructions() {
    let fixture = ServerFixture::of(Catalog::builder().provider(Arc::new(GuideProvider)));
    let prompt_request = request("prompts/get").named("guide").param("arguments", json!({"tone": "kind"}));
    let messages = fixture.send(prompt_request).await.result().await["messages"].take();
    let texts: Vec<_> =
        messages.as_array().unwrap().iter().map(|message| &message["content"]["text"]).collect();
    assert_eq!(texts, ["Stay calm.", "Be kind"]);
    let (_, code) = fixture.send(request("prompts/get").named("nobody")).await.refusal_code().await;
    assert_eq!(code, -32602);
}

#[tokio::test]
async fn arguments_are_completed_from_the_choices() {
    let fixture = ServerFixture::of(Catalog::builder().provider(Arc::new(GuideProvider)));
    let session = TestSession::begin(&fixture, json!({})).await;
    let complete = async |name: &str, argument: &str, typed: &str| {
        let params = json!({
            "ref": {"type": "ref/prompt", "name": name},
            "argument": {"name": argument, "value": typed},
        });
        let newer = request("completion/complete")
            .param("ref", params["ref"].clone())
            .param("argument", params["argument"].clone());
        let newer = fixture.send(newer).await.last().await;
        let older = session.request(1, "completion/complete", params).await.last().await;
        assert_eq!(newer["result"]["completion"], older["result"]["completion"]);
        older
    };
    let values = |answer: Value| answer["result"]["completion"]["values"].clone();
    assert_eq!(values(complete("guide", "tone", "K").await), json!(["kind", "keen"]));
    assert_eq!(values(complete("guide", "tone", "").await), json!(["kind", "keen", "strict"]));
    assert_eq!(values(complete("guide", "other", "k").await), json!([]));
    assert_eq!(complete("nobody", "tone", "k").await["error"]["code"], -32602);
}

#[tokio::test]
async fn a_tool_is_listed_with_its_output_schema_and_annotations() {
    let fixture = ServerFixture::of(Catalog::builder().provider(Arc::new(OutputSchemaProvider)));
    let listed = fixture.send(request("tools/list")).await.result().await;
    let shown = &listed["tools"][0];
    assert_eq!(shown["outputSchema"]["required"], json!(["total"]));
    assert_eq!(shown["annotations"], json!({"readOnlyHint": true}));
    assert_eq!(shown["title"], "Count");
    let result = fixture.send(call("count", json!({}))).await.result().await;
    assert_eq!(result["structuredContent"], json!({"total": 3}));
}

#[tokio::test]
async fn results_and_failures_contain_the_logs() {
    let failing = tool("fail", |_, _| {
        Box::pin(async {
            let logs = vec![LogLine { level: tracing::Level::INFO, message: "halfway".to_owned() }];
            Err(ToolError::new(ErrorKind::Tool, "no such field `titel` (did you mean `title`?)")
                .with_logs(logs))
        })
    });
    let logging = tool("log", |_, _| {
        Box::pin(async {
            let logs = vec![LogLine { level: tracing::Level::WARN, message: "odd".to_owned() }];
            Ok(Output { logs, ..Output::from(json!("fine")) })
        })
    });
    let fixture = ServerFixture::with([failing, logging]);
    let failed = fixture.send(call("fail", json!({}))).await.result().await;
    let expected = "no such field `titel` (did you mean `title`?)|logs:\n[INFO] halfway";
    assert_eq!(result_text(&failed), (false, expected.to_owned()));
    let fine = fixture.send(call("log", json!({}))).await.result().await;
    assert_eq!(result_text(&fine), (true, "fine|logs:\n[WARN] odd".to_owned()));
}

fn listen(notifications: Value) -> TestRequest {
    request("subscriptions/listen").param("notifications", notifications)
}

/// A provider of one agent, whose argument has choices.
struct GuideProvider;

impl Provider for GuideProvider {
    fn name(&self) -> Identifier {
        Identifier::sanitize("agents")
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    fn agents(&self) -> Vec<Arc<dyn Agent>> {
        vec![Arc::new(GuideAgent)]
    }
}

struct GuideAgent;

#[async_trait]
impl Agent for GuideAgent {
    fn spec(&self) -> Arc<AgentSpec> {
        let choices = ["kind", "keen", "strict"].map(str::to_owned).into();
        let tone = AgentArgument {
            name: "tone".to_owned(),
            description: "How it speaks".to_owned(),
            required: true,
            choices,
        };
        Arc::new(AgentSpec {
            name: "guide".to_owned(),
            title: None,
            description: "Guides".to_owned(),
            tools: Vec::new(),
            source: AgentSource::Rust,
            arguments: vec![tone],
        })
    }

    async fn resolve(&self, arguments: Map<String, Value>, _: &Call) -> Result<Prompt, ToolError> {
        let texts = format!("Be {}", arguments["tone"].as_str().unwrap_or_default());
        let messages = vec![Message::text(Role::User, texts)];
        Ok(Prompt { system: "Stay calm.".to_owned(), tools: Vec::new(), messages })
    }
}

/// A provider of one tool, whose spec has all optional fields.
struct OutputSchemaProvider;

impl Provider for OutputSchemaProvider {
    fn name(&self) -> Identifier {
        Identifier::sanitize("tools")
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![Arc::new(Self)]
    }
}

#[async_trait]
impl Tool for OutputSchemaProvider {
    fn spec(&self) -> Arc<ToolSpec> {
        let mut spec = ToolSpec::new("count", "Counts.", json!({"type": "object", "properties": {}}));
        spec.title = Some("Count".to_owned());
        spec.output_schema = Some(
            json!({
                "type": "object",
                "properties": {"total": {"type": "integer"}},
                "required": ["total"],
            })
            .into(),
        );
        spec.annotations = Annotations { read_only: Some(true), ..Annotations::default() };
        Arc::new(spec)
    }

    async fn run(&self, _: Map<String, Value>, _: &Call) -> Result<Output, ToolError> {
        Ok(json!({"total": 3}).into())
    }
}
