//! `_meta.auth`: credentials that a client sends with a request.

use crate::common::{ServerFixture, TestRequest, TestSession, call, result_text};
use ctx_core::{Call, Catalog, Identifier};
use ctx_testkit::{TestTool, provider, tool};
use serde_json::{Value, json};

const INVALID_PARAMS: i64 = -32602;

/// The length of the token for a provider: it shows that there is one, but not the secret.
fn length(call: &Call, provider: &str) -> Value {
    let credentials = call.auth(&Identifier::sanitize(provider));
    json!(credentials.map(|value| value["token"].as_str().unwrap_or_default().len()))
}

fn report_credentials_tool() -> TestTool {
    tool("looks", |_, call| {
        let seen = json!([length(call, "my-pets"), length(call, "shops"), length(call, "tools")]);
        Box::pin(async move { Ok(seen.into()) })
    })
}

/// A tool that calls `report_credentials_tool`.
fn nested_call_tool() -> TestTool {
    tool("asks", |_, call| {
        Box::pin(async move { Catalog::call("tools.looks", json!({}), call.nested()?).await })
    })
}

fn fixture() -> ServerFixture {
    ServerFixture::of(
        Catalog::builder().provider(provider("tools", [report_credentials_tool(), nested_call_tool()])),
    )
}

fn auth() -> Value {
    json!({"my-pets": {"type": "bearer", "token": "hunter2!"}, "shops": {"type": "bearer", "token": "sekrit"}})
}

fn with_auth(tool: &str, auth: Value) -> TestRequest {
    call(tool, json!({})).meta("auth", auth)
}

#[tokio::test]
async fn a_tool_and_its_nested_calls_see_the_credentials_of_the_request() {
    let fixture = fixture();
    for tool in ["looks", "asks"] {
        let result = fixture.send(with_auth(tool, auth())).await.result().await;
        assert_eq!(result_text(&result), (true, "[8,6,null]".to_owned()), "{tool}");
    }
    let session = TestSession::begin(&fixture, json!({})).await;
    let params = json!({"name": "asks", "arguments": {}, "_meta": {"auth": auth()}});
    let result = session.request(1, "tools/call", params).await.result().await;
    assert_eq!(result_text(&result), (true, "[8,6,null]".to_owned()));
}

#[tokio::test]
async fn credentials_do_not_outlive_their_request() {
    let fixture = fixture();
    let session = TestSession::begin(&fixture, json!({})).await;
    let params = json!({"name": "looks", "arguments": {}, "_meta": {"auth": auth()}});
    session.request(1, "tools/call", params).await.result().await;
    let result = session.call(2, "looks", json!({})).await.result().await;
    assert_eq!(result_text(&result), (true, "[null,null,null]".to_owned()));
    let result = fixture.send(call("looks", json!({}))).await.result().await;
    assert_eq!(result_text(&result), (true, "[null,null,null]".to_owned()));
}

#[tokio::test]
async fn credentials_are_not_recorded() {
    let fixture = fixture();
    fixture.send(with_auth("asks", auth())).await.result().await;
    for tool in ["tools.looks", "tools.asks"] {
        let record = fixture.next_record().await;
        assert!(record.contains(tool), "{record}");
        assert!(!record.contains("hunter2") && !record.contains("sekrit"), "{record}");
    }
}

#[tokio::test]
async fn invalid_credentials_are_refused_without_being_repeated() {
    let fixture = fixture();
    for wrong in [json!("hunter2!"), json!(["hunter2!"]), json!(7), json!(null)] {
        let (_, code, message) = fixture.send(with_auth("looks", wrong)).await.refusal().await;
        assert_eq!(code, INVALID_PARAMS);
        assert_eq!(message, "`_meta.auth` must be an object: credentials by the name of the API");
    }
    fixture.assert_responsive().await;
}
