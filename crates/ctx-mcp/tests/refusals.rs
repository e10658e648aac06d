//! Invalid requests: they get the errors of the specification, and do no harm to others.

use crate::common::{
    self, REQUEST_BYTES, SESSION_VERSION, STATELESS_VERSION, ServerFixture, TestSession, call, post, request,
    with_timeout,
};
use ctx_testkit::echo;
use serde_json::{Value, json};

const PARSE: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const UNKNOWN_METHOD: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const HEADER_MISMATCH: i64 = -32020;
const UNSUPPORTED_VERSION: i64 = -32022;

fn fixture() -> ServerFixture {
    ServerFixture::with([echo("echo"), echo("create_ticket")])
}

#[tokio::test]
async fn a_client_must_accept_what_is_sent() {
    let fixture = fixture();
    for accepted in ["text/html", "application/json", "text/event-stream"] {
        let refused = fixture.send(call("echo", json!({})).header("accept", accepted)).await;
        assert_eq!(refused.refusal_code().await, (406, INVALID_REQUEST), "{accepted}");
    }
    for anything in
        [call("echo", json!({})).without_header("accept"), call("echo", json!({})).header("accept", "*/*")]
    {
        fixture.send(anything).await.result().await;
    }
}

#[tokio::test]
async fn a_body_must_be_declared_as_json() {
    let fixture = fixture();
    for request in [
        call("echo", json!({})).without_header("content-type"),
        call("echo", json!({})).header("content-type", "text/plain"),
        call("echo", json!({})).header("content-type", "application/x-www-form-urlencoded"),
    ] {
        assert_eq!(fixture.send(request).await.refusal_code().await, (415, INVALID_REQUEST));
    }
    fixture
        .send(call("echo", json!({})).header("content-type", "application/json; charset=utf-8"))
        .await
        .result()
        .await;
}

#[tokio::test]
async fn an_unknown_revision_is_refused_with_those_that_are_known() {
    let fixture = fixture();
    let unknown = call("echo", json!({})).version("v999.0.0").header("mcp-protocol-version", "v999.0.0");
    let refused = fixture.send(unknown).await;
    assert_eq!(refused.status, 400);
    let error = refused.last().await["error"].take();
    assert_eq!(error["code"], UNSUPPORTED_VERSION);
    assert_eq!(error["data"]["requested"], "v999.0.0");
    let supported = error["data"]["supported"].as_array().unwrap();
    assert!(
        supported.contains(&json!(STATELESS_VERSION)) && supported.contains(&json!(SESSION_VERSION)),
        "{supported:?}"
    );
}

#[tokio::test]
async fn headers_must_match_the_body() {
    let fixture = fixture();
    let valid = || call("echo", json!({}));
    for (what, invalid) in [
        ("another revision", valid().version("v999.0.0")),
        ("an older revision", valid().header("mcp-protocol-version", SESSION_VERSION)),
        ("no method", valid().without_header("mcp-method")),
        ("another method", valid().header("mcp-method", "tools/list")),
        ("a method in other case", valid().header("mcp-method", "Tools/Call")),
        ("no name", valid().without_header("mcp-name")),
        ("another name", valid().header("mcp-name", "create_ticket")),
        ("a name in other case", valid().header("mcp-name", "Echo")),
    ] {
        assert_eq!(fixture.send(invalid).await.refusal_code().await, (400, HEADER_MISMATCH), "{what}");
    }
    fixture.assert_no_run().await;
    // Header names are case-insensitive.
    fixture.send(valid().without_header("mcp-name").header("MCP-NAME", "echo")).await.result().await;
}

#[tokio::test]
async fn required_metadata_must_be_present() {
    let fixture = fixture();
    for missing in ["protocolVersion", "clientCapabilities"] {
        let request = request("server/discover").without_meta(&format!("io.modelcontextprotocol/{missing}"));
        assert_eq!(fixture.send(request).await.refusal_code().await, (400, INVALID_PARAMS), "{missing}");
    }
    let unnamed = request("server/discover").without_meta("io.modelcontextprotocol/clientInfo");
    fixture.send(unnamed).await.result().await;
}

#[tokio::test]
async fn an_unknown_method_is_not_found_and_its_id_is_echoed() {
    let fixture = fixture();
    for method in [
        "unknown/method",
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    ] {
        let reply = fixture.send(request(method).id(json!("mine"))).await;
        assert_eq!(reply.status, 404, "{method}");
        let answer = reply.last().await;
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(UNKNOWN_METHOD), &json!("mine")),
            "{method}"
        );
    }
    let session = TestSession::begin(&fixture, json!({})).await;
    assert_eq!(
        session.request(1, "unknown/method", json!({})).await.refusal_code().await,
        (200, UNKNOWN_METHOD)
    );
}

#[tokio::test]
async fn an_unknown_tool_is_refused_with_the_nearest_name() {
    let fixture = fixture();
    let (_, code, message) = fixture.send(call("create_tiket", json!({}))).await.refusal().await;
    assert_eq!(code, INVALID_PARAMS);
    assert!(message.contains("did you mean `create_ticket`?"), "{message}");
    let session = TestSession::begin(&fixture, json!({})).await;
    assert_eq!(session.call(1, "create_tiket", json!({})).await.refusal().await.2, message);
    let (_, _, message) = fixture.send(call(&"x".repeat(5_000), json!({}))).await.refusal().await;
    assert!(message.len() < 300, "{message}");
}

#[tokio::test]
async fn invalid_json_and_duplicate_keys_are_malformed() {
    let fixture = fixture();
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for body in [
        String::new(),
        "{".to_owned(),
        "\u{feff}{}".to_owned(),
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}{}".to_owned(),
        call("echo", json!({})).body().to_string().replacen("\"id\":1", "\"id\":1,\"id\":2", 1),
        call("echo", json!({})).body().to_string().replacen(
            "\"name\":\"echo\"",
            "\"name\":\"echo\",\"name\":\"x\"",
            1,
        ),
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{deep}}}"),
    ] {
        let shown: String = body.chars().take(80).collect();
        let reply = fixture.answer(call("echo", json!({})).with_body(body)).await;
        assert_eq!(reply.refusal_code().await, (400, PARSE), "{shown}");
    }
    let not_text = fixture.answer(call("echo", json!({})).with_body(&b"{\"jsonrpc\":\"\xff\"}"[..])).await;
    assert_eq!(not_text.refusal_code().await, (400, PARSE));
    fixture.assert_no_run().await;
}

#[tokio::test]
async fn ids_of_odd_types_and_batches_are_no_requests() {
    let fixture = fixture();
    for id in [json!(null), json!(1.5), json!(true), json!([1]), json!({"a": 1})] {
        let refused = fixture.send(call("echo", json!({})).id(id.clone())).await.refusal_code().await;
        assert_eq!(refused, (400, INVALID_REQUEST), "{id}");
    }
    let batch = json!([call("echo", json!({})).body()]).to_string();
    let refused = fixture.answer(call("echo", json!({})).with_body(batch)).await;
    assert_eq!(refused.refusal_code().await, (400, INVALID_REQUEST));
    let session = TestSession::begin(&fixture, json!({})).await;
    let batch = json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]);
    assert_eq!(
        fixture.answer(post(Some(&session.id), &batch)).await.refusal_code().await,
        (400, INVALID_REQUEST)
    );
    fixture.assert_no_run().await;
}

#[tokio::test]
async fn ids_are_echoed_with_their_type() {
    let fixture = fixture();
    for id in [json!("1"), json!(1), json!(0), json!(-7), json!(""), json!(i64::MAX)] {
        assert_eq!(fixture.send(call("echo", json!({})).id(id.clone())).await.last().await["id"], id);
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let fixture = fixture();
    let large = "x".repeat(REQUEST_BYTES);
    let refused = fixture.send(call("echo", json!({"text": large}))).await;
    assert_eq!(refused.refusal_code().await, (413, INVALID_REQUEST));
    fixture.assert_responsive().await;
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_the_tools_failure_and_not_the_requests() {
    let schema =
        json!({"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]});
    let fixture = ServerFixture::with([echo("create_ticket").schema(schema)]);
    let result = fixture.send(call("create_ticket", json!({"title": 7}))).await.result().await;
    let (ok, text) = common::result_text(&result);
    assert!(!ok && text.contains("title"), "{text}");
}

#[tokio::test]
async fn invalid_parameters_are_distinguished_from_unknown_methods() {
    let fixture = fixture();
    let session = TestSession::begin(&fixture, json!({})).await;
    for (method, field, value) in [
        ("tools/call", "arguments", json!("text")),
        ("tools/call", "arguments", json!([1])),
        ("prompts/get", "arguments", json!(7)),
        ("completion/complete", "ref", json!({"type": "ref/nothing"})),
        ("resources/read", "inputResponses", json!("text")),
    ] {
        let invalid = request(method).named("echo").param(field, value.clone());
        let (_, code) = fixture.send(invalid).await.refusal_code().await;
        assert_eq!(code, INVALID_PARAMS, "{method} {value}");
        let older = session.request(1, method, json!({"name": "echo", "uri": "echo", field: value})).await;
        assert_eq!(older.refusal_code().await, (200, INVALID_PARAMS), "{method} {value}");
    }
    for method in ["logging/setLevel", "resources/subscribe", "resources/unsubscribe"] {
        assert_eq!(
            session.request(1, method, json!({})).await.refusal_code().await,
            (200, INVALID_PARAMS),
            "{method}"
        );
    }
}

#[tokio::test]
async fn unknown_cursors_are_refused() {
    let (books, _) = common::resources(3);
    let fixture = ServerFixture::of(ctx_core::Catalog::builder().provider(books));
    let session = TestSession::begin(&fixture, json!({})).await;
    // The last three can be decoded: as the empty text, as an unknown origin, and as an unknown cursor of a
    // known origin.
    for cursor in ["?", "bm9uc2Vuc2U", "", "OSA", "MCBub3doZXJl"] {
        for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            let list_request = request(method).param("cursor", json!(cursor));
            let (_, code) = fixture.send(list_request).await.refusal_code().await;
            assert_eq!(code, INVALID_PARAMS, "{method} {cursor}");
            let older = session.request(1, method, json!({"cursor": cursor})).await;
            assert_eq!(older.refusal_code().await, (200, INVALID_PARAMS), "{method} {cursor}");
        }
    }
}

#[tokio::test]
async fn an_unknown_resource_is_refused_with_its_uri() {
    let (books, _) = common::resources(1);
    let fixture = ServerFixture::of(ctx_core::Catalog::builder().provider(books));
    for uri in ["book://9", "nowhere://x", "", "book://../../etc/passwd"] {
        let answer = fixture.send(request("resources/read").named(uri)).await.last().await;
        assert_eq!(answer["error"]["code"], INVALID_PARAMS, "{answer}");
        assert_eq!(answer["error"]["data"]["uri"], uri);
    }
}

#[tokio::test]
async fn methods_that_are_not_served_are_named() {
    let fixture = fixture();
    let put = http::Request::put("/mcp").header("host", "localhost").body(bytes::Bytes::new()).unwrap();
    let refused = fixture.answer(put).await;
    assert_eq!(refused.header("allow"), Some("GET, POST, DELETE"));
    assert_eq!(refused.refusal_code().await.0, 405);
    // The newest revision has no standalone stream.
    let get = http::Request::get("/mcp")
        .header("host", "localhost")
        .header("accept", "text/event-stream")
        .header("mcp-protocol-version", STATELESS_VERSION);
    assert_eq!(fixture.answer(get.body(bytes::Bytes::new()).unwrap()).await.refusal_code().await.0, 405);
}

#[tokio::test]
async fn arbitrary_messages_are_answered_and_the_server_stays_well() {
    let fixture = fixture();
    let session = TestSession::begin(&fixture, json!({"elicitation": {}})).await;
    let odd: [Value; 8] = [
        json!({"jsonrpc": "2.0", "id": 7, "result": {}}),
        json!({"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "no"}}),
        json!({"jsonrpc": "2.0", "id": 7, "error": "no"}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}),
        json!({"jsonrpc": "2.0", "method": "notifications/unknown", "params": {"a": 1}}),
        json!({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "echo"}}),
        json!({"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": null}),
        json!({"jsonrpc": "2.0", "id": 9}),
    ];
    for message in odd {
        let reply = with_timeout("an answer", fixture.answer(post(Some(&session.id), &message))).await;
        assert!(reply.status < 500, "{message}: {}", reply.status);
    }
    session.call(10, "echo", json!({})).await.result().await;
    fixture.assert_responsive().await;
}
