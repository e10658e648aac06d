//! Runs the scripts of the published documentation, unchanged.

use crate::Test;
use crate::bench::{Bench, call, catalog_of};
use ctx_core::Limits;
use ctx_testkit::{MockWebServer, http_response};
use serde_json::json;

pub(crate) const TESTS: &[Test] = tests!(contract:
    the_ticket_script_creates_a_ticket,
    the_ticket_script_reports_the_error_of_jira,
    the_ticket_script_with_context_creates_a_ticket,
    the_published_snippets_run_unchanged,
);

const TICKET: &str = include_str!("contract/create-jira-ticket.lua");
const BRIDGE: &str = include_str!("contract/context-bridge.lua");
const WITH_CONTEXT: &str = include_str!("contract/jira-with-context.lua");

/// Searching finds two documents.
fn knowledge() -> std::sync::Arc<dyn ctx_core::Provider> {
    let search = ctx_testkit::tool("search", |arguments, _| {
        Box::pin(async move {
            assert_eq!(arguments["query"], "Fix auth");
            Ok(json!({"results": [
                {"id": "1", "score": 0.9, "title": "Auth", "snippet": "…", "source_url": "https://docs/auth"},
                {"id": "2", "score": 0.5, "title": "Login", "snippet": "…"},
            ]})
            .into())
        })
    });
    ctx_testkit::provider("context", [search])
}

async fn the_ticket_script_creates_a_ticket() {
    let web = MockWebServer::serve(|_| http_response(201, r#"{"key": "ENG-7"}"#));
    let bench = Bench::new();
    let mut settings = bench.script("create_jira_ticket", TICKET);
    settings.config = json!({"url": web.url(""), "email": "bot@company.com", "api_token": "t0p"});
    let tool = bench.scripts.tool(&settings).await.unwrap();
    let schema = tool.spec().input_schema.get();
    assert_eq!(schema["required"], json!(["title", "body"]));
    assert_eq!(schema["properties"]["enrich"]["default"], json!(true));
    let catalog = catalog_of([tool], [], [knowledge()], Limits::default());

    let arguments = json!({"title": "Fix auth", "body": "It breaks."});
    let answer = call(&catalog, "create_jira_ticket", arguments).await.unwrap().value;
    let url = web.url("/browse/ENG-7");
    assert_eq!(
        answer,
        json!({"success": true, "ticket_key": "ENG-7", "url": url, "message": "Created ENG-7: Fix auth"})
    );
    let request = &web.requests()[0];
    assert_eq!(request.line, "POST /rest/api/3/issue HTTP/1.1");
    assert_eq!(request.header("authorization"), Some("Basic Ym90QGNvbXBhbnkuY29tOnQwcA=="));
    let fields = &request.json()["fields"];
    assert_eq!((&fields["project"]["key"], &fields["priority"]["name"]), (&json!("ENG"), &json!("Medium")));
    let text = fields["description"]["content"][0]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("- [Auth](https://docs/auth) (score: 0.90)\n- Login (score: 0.50)"), "{text}");

    let missing = call(&catalog, "create_jira_ticket", json!({"body": "x"})).await.unwrap_err();
    assert_eq!(
        (missing.kind().code(), missing.message()),
        ("bad_request", "missing required parameter: title")
    );
    let other = json!({"title": "a", "body": "b", "priority": "Urgent"});
    let other = call(&catalog, "create_jira_ticket", other).await.unwrap_err();
    assert_eq!(other.kind().code(), "bad_request");
}

async fn the_ticket_script_reports_the_error_of_jira() {
    let web = MockWebServer::serve(|_| http_response(403, "Forbidden"));
    let bench = Bench::new();
    let mut settings = bench.script("create_jira_ticket", TICKET);
    settings.config = json!({"url": web.url(""), "email": "e", "api_token": "t"});
    let catalog = catalog_of([bench.scripts.tool(&settings).await.unwrap()], [], [], Limits::default());
    let arguments = json!({"title": "Fix auth", "body": "It breaks.", "enrich": false});
    let answer = call(&catalog, "create_jira_ticket", arguments).await.unwrap().value;
    assert_eq!(answer, json!({"success": false, "error": "Jira API returned 403", "details": "Forbidden"}));
}

async fn the_ticket_script_with_context_creates_a_ticket() {
    let web = MockWebServer::serve(|_| http_response(201, r#"{"key": "ENG-8"}"#));
    let bench = Bench::new();
    let mut settings = bench.script("create_jira_ticket", WITH_CONTEXT);
    settings.config = json!({"jira_url": web.url(""), "jira_project": "ENG", "jira_token": "t"});
    let tool = bench.scripts.tool(&settings).await.unwrap();
    let catalog = catalog_of([tool], [], [knowledge()], Limits::default());
    let arguments = json!({"title": "Fix auth", "priority": "High"});
    let answer = call(&catalog, "create_jira_ticket", arguments).await.unwrap().value;
    assert_eq!(answer, json!({"key": "ENG-8", "url": web.url("/browse/ENG-8"), "related_docs": 2}));
    let fields = web.requests()[0].json()["fields"].clone();
    assert_eq!(fields["priority"], json!({"name": "High"}));
    assert!(fields["description"].as_str().unwrap().ends_with("- [Login]()\n"));
}

async fn the_published_snippets_run_unchanged() {
    let answering = |name: &'static str, answer: serde_json::Value| {
        ctx_testkit::tool(name, move |_, _| {
            let answer = answer.clone();
            Box::pin(async move { Ok(answer.into()) })
        })
    };
    let hit = json!({"id": "1", "score": 0.92, "title": "Login", "snippet": "…"});
    let source = json!({"name": "filesystem", "configured": true, "healthy": true, "notes": null});
    let context = ctx_testkit::provider(
        "context",
        [
            answering("search", json!({"results": [hit]})),
            answering("get", json!({"id": "1", "title": "Login", "body": "Sign in.", "chunks": []})),
            answering("sources", json!({"sources": [source]})),
        ],
    );
    let bench = Bench::new();
    let mut settings = bench.script("bridge", BRIDGE);
    settings.config = json!({"url": "https://mycompany.atlassian.net", "api_token": "t0p"});
    let tool = bench.scripts.tool(&settings).await.unwrap();
    let expected = json!({"type": "string", "enum": ["low", "medium", "high"]});
    assert_eq!(tool.spec().input_schema.get()["properties"]["priority"], expected);
    let catalog = catalog_of([tool], [], [context], Limits::default());
    let answer = call(&catalog, "bridge", json!({})).await.unwrap().value;
    assert_eq!(answer, json!({"success": true, "message": "Done"}));
}
