//! `_meta.auth`: credentials that a client sends with a request.

use crate::common::{Request, Session, Site, call, told};
use ctx_core::{Call, Catalog, Identifier};
use ctx_testkit::{TestTool, provider, tool};
use serde_json::{Value, json};

const INVALID_PARAMS: i64 = -32602;

/// The length of the token for a provider: it shows that there is one, but not the secret.
fn length(call: &Call, provider: &str) -> Value {
    let brought = call.auth(&Identifier::sanitize(provider));
    json!(brought.map(|value| value["token"].as_str().unwrap_or_default().len()))
}

fn looks() -> TestTool {
    tool("looks", |_, call| {
        let seen = json!([length(call, "my-pets"), length(call, "shops"), length(call, "tools")]);
        Box::pin(async move { Ok(seen.into()) })
    })
}

/// A tool that calls `looks`.
fn asks() -> TestTool {
    tool("asks", |_, call| {
        Box::pin(async move { Catalog::call("tools.looks", json!({}), call.nested()?).await })
    })
}

fn site() -> Site {
    Site::of(Catalog::builder().provider(provider("tools", [looks(), asks()])))
}

fn auth() -> Value {
    json!({"my-pets": {"type": "bearer", "token": "hunter2!"}, "shops": {"type": "bearer", "token": "sekrit"}})
}

fn with_auth(tool: &str, auth: Value) -> Request {
    call(tool, json!({})).meta("auth", auth)
}

#[tokio::test]
async fn a_tool_and_those_inside_of_it_see_what_is_brought_for_them() {
    let site = site();
    for tool in ["looks", "asks"] {
        let result = site.send(with_auth(tool, auth())).await.result().await;
        assert_eq!(told(&result), (true, "[8,6,null]".to_owned()), "{tool}");
    }
    let session = Session::begin(&site, json!({})).await;
    let params = json!({"name": "asks", "arguments": {}, "_meta": {"auth": auth()}});
    let result = session.request(1, "tools/call", params).await.result().await;
    assert_eq!(told(&result), (true, "[8,6,null]".to_owned()));
}

#[tokio::test]
async fn the_next_request_has_none_of_it() {
    let site = site();
    let session = Session::begin(&site, json!({})).await;
    let params = json!({"name": "looks", "arguments": {}, "_meta": {"auth": auth()}});
    session.request(1, "tools/call", params).await.result().await;
    let result = session.call(2, "looks", json!({})).await.result().await;
    assert_eq!(told(&result), (true, "[null,null,null]".to_owned()));
    let result = site.send(call("looks", json!({}))).await.result().await;
    assert_eq!(told(&result), (true, "[null,null,null]".to_owned()));
}

#[tokio::test]
async fn nothing_of_it_is_recorded() {
    let site = site();
    site.send(with_auth("asks", auth())).await.result().await;
    for tool in ["tools.looks", "tools.asks"] {
        let record = site.next_record().await;
        assert!(record.contains(tool), "{record}");
        assert!(!record.contains("hunter2") && !record.contains("sekrit"), "{record}");
    }
}

#[tokio::test]
async fn what_is_no_table_is_refused_without_being_repeated() {
    let site = site();
    for wrong in [json!("hunter2!"), json!(["hunter2!"]), json!(7), json!(null)] {
        let (_, code, message) = site.send(with_auth("looks", wrong)).await.refusal().await;
        assert_eq!(code, INVALID_PARAMS);
        assert_eq!(message, "`_meta.auth` must be an object: credentials by the name of the API");
    }
    site.is_well().await;
}
