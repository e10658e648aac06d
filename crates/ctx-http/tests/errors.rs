//! Every failure is sent as `{"error":{"code","message"}}`, with the status of its code.

use crate::common::documents::serving_documents;
use crate::common::{
    self, ApiServer, ServerBuilder, TestRequest, echo, get, post, provider, returning, standard_tools,
};
use ctx_core::{ErrorKind, ToolError};
use serde_json::{Value, json};
use std::time::Duration;

async fn server() -> ApiServer {
    ServerBuilder::with(standard_tools()).start().await
}

/// A body that claims to be JSON.
fn body(text: impl Into<Vec<u8>>) -> TestRequest {
    post("/tools/echo").body("application/json", text)
}

fn bad_request(message: &str) -> (u16, String, String) {
    (400, "bad_request".to_owned(), message.to_owned())
}

fn not_found(message: &str) -> (u16, String, String) {
    (404, "not_found".to_owned(), message.to_owned())
}

#[tokio::test]
async fn an_unknown_route_is_not_found() {
    let server = server().await;
    for target in
        ["/", "/nope", "/tools", "/tools/", "/tools/echo/", "/tools/a/b", "//tools/list", "/health/"]
    {
        for method in ["GET", "POST", "DELETE"] {
            let response = server.send(TestRequest::new(method, target)).await;
            assert_eq!(response.error(), not_found("no such route; see /openapi.json"), "{method} {target}");
        }
    }
}

#[tokio::test]
async fn a_wrong_method_is_refused_and_told_the_right_one() {
    let server = server().await;
    let message = "this method is not allowed here; see /openapi.json".to_owned();
    for (method, target, allowed) in [
        ("POST", "/health", "GET,HEAD"),
        ("DELETE", "/openapi.json", "GET,HEAD"),
        ("PUT", "/tools/sources", "GET,HEAD,POST"),
        ("GET", "/tools/echo", "POST"),
        ("OPTIONS", "/tools/echo", "POST"),
        ("BREW", "/tools/echo", "POST"),
        ("GET", "/tools/nope", "POST"),
        ("POST", "/openapi.json", "GET,HEAD"),
    ] {
        let response = server.send(TestRequest::new(method, target)).await;
        assert_eq!(response.error(), (405, "bad_request".to_owned(), message.clone()), "{method} {target}");
        assert_eq!(response.header("allow"), Some(allowed), "{method} {target}");
    }
}

#[tokio::test]
async fn a_body_that_is_not_json_by_its_type_is_refused() {
    let server = server().await;
    let message = "the request body must be JSON; send `Content-Type: application/json`";
    let expected = (415, "bad_request".to_owned(), message.to_owned());
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp", "json"] {
        let request = post("/tools/echo").body(content_type, "{}");
        assert_eq!(server.send(request).await.error(), expected, "{content_type}");
    }
    let untyped = post("/tools/echo").header("Content-Length", "2");
    let untyped: Vec<u8> = [Vec::from(untyped), b"{}".to_vec()].concat();
    assert_eq!(server.send(untyped).await.error(), expected);
}

#[tokio::test]
async fn every_spelling_of_the_json_media_type_is_accepted() {
    let server = server().await;
    for content_type in [
        "application/json",
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "application/problem+json",
    ] {
        let request = post("/tools/echo").body(content_type, r#"{"a":1}"#);
        assert_eq!(server.send(request).await.success(), json!({"result": {"a": 1}}), "{content_type}");
    }
}

#[tokio::test]
async fn malformed_json_is_refused_with_its_position() {
    let server = server().await;
    let expected = bad_request("malformed JSON: expected value at line 1 column 6");
    assert_eq!(server.send(body(r#"{"a":}"#)).await.error(), expected);
    let wrong: [&[u8]; 10] = [
        b"{",
        b"   ",
        b"{} {}",
        b"{'a': 1}",
        b"{\"a\": NaN}",
        b"{\"a\": 1e400}",
        b"{\"a\": \"\\ud800\"}",
        b"{\"a\": \"\xff\"}",
        b"\xef\xbb\xbf{}",
        b"\0",
    ];
    for bytes in wrong {
        let (status, code, message) = server.send(body(bytes)).await.error();
        assert_eq!((status, code.as_str()), (400, "bad_request"), "{message}");
        assert!(message.starts_with("malformed JSON: "), "{message}");
    }
}

#[tokio::test]
async fn duplicate_keys_are_refused_at_any_depth() {
    let server = server().await;
    for (text, key) in [
        (r#"{"a":1,"a":2}"#, "a"),
        (r#"{"a":{"b":[{"name":1,"nam\u0065":1}]}}"#, "name"),
        (r#"{"x":null,"y":{"":1,"":2}}"#, ""),
    ] {
        for request in [body(text), post("/agents/none/prompt").body("application/json", text)] {
            let (status, code, message) = server.send(request).await.error();
            assert_eq!((status, code.as_str()), (400, "bad_request"), "{message}");
            assert!(message.contains(&format!("an object has the key `{key}` twice")), "{message}");
        }
    }
    let fine = r#"{"a":{"k":1},"b":[{"k":2},{"k":3}]}"#;
    assert_eq!(server.send(body(fine)).await.status, 200);
}

#[tokio::test]
async fn json_that_is_no_object_is_refused() {
    let server = server().await;
    for text in ["[]", "[{}]", "null", "1", "\"{}\"", "true"] {
        let expected = bad_request("the request body must be a JSON object");
        assert_eq!(server.send(body(text)).await.error(), expected, "{text}");
    }
}

#[tokio::test]
async fn no_body_is_an_empty_object() {
    let server = server().await;
    let requests = [
        post("/tools/echo"),
        post("/tools/echo").header("Content-Length", "0"),
        post("/tools/echo").body("application/x-www-form-urlencoded", ""),
        post("/tools/echo").chunked(b"", 1),
    ];
    for request in requests {
        assert_eq!(server.send(request).await.success(), json!({"result": {}}));
    }
}

#[tokio::test]
async fn json_nested_too_deep_is_refused() {
    let server = server().await;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = format!("{{\"a\":{}1{}}}", open.repeat(10_000), close.repeat(10_000));
        let (status, code, message) = server.send(body(nested)).await.error();
        assert_eq!((status, code.as_str()), (400, "bad_request"));
        assert!(message.starts_with("malformed JSON: recursion limit exceeded"), "{message}");
    }
}

#[tokio::test]
async fn a_missing_parameter_is_named() {
    let expected = bad_request("missing required parameter: title");
    assert_eq!(server().await.refusal("create_ticket", json!({})).await, expected);
    assert_eq!(server().await.send(post("/tools/create_ticket")).await.error(), expected);
}

#[tokio::test]
async fn a_wrong_parameter_is_named_and_its_value_is_not_repeated() {
    let server = server().await;
    assert_eq!(
        server.refusal("create_ticket", json!({"title": ["hunter2"]})).await,
        bad_request(r#"parameter `title`: its value is not of type "string""#)
    );
    assert_eq!(
        server.refusal("create_ticket", json!({"title": "x", "priority": "hunter2"})).await,
        bad_request(r#"parameter `priority`: its value is not one of "low" or "high""#)
    );
}

#[tokio::test]
async fn an_unknown_tool_is_not_found_by_its_name() {
    let server = server().await;
    let expected = not_found("no tool registered with name: foo");
    assert_eq!(server.refusal("foo", json!({})).await, expected);
    // A tool is unknown whatever the arguments, and under its full name, too.
    let expected = not_found("no tool registered with name: tools.echo");
    assert_eq!(server.refusal("tools.echo", json!({})).await, expected);
    let expected = not_found("no tool registered with name: Echo");
    assert_eq!(server.refusal("Echo", json!({})).await, expected);
}

#[tokio::test]
async fn a_tool_that_is_not_exposed_cannot_be_called() {
    let server = ServerBuilder::new().provider(provider("hidden", [echo("secret")])).start().await;
    for name in ["hidden__secret", "hidden.secret", "secret"] {
        let expected = not_found(&format!("no tool registered with name: {name}"));
        assert_eq!(server.refusal(name, json!({})).await, expected);
    }
    assert_eq!(server.send(get("/tools/list")).await.success(), json!({"tools": []}));
}

#[tokio::test]
async fn sources_are_not_found_where_there_is_no_knowledge() {
    let server = server().await;
    let expected = not_found("no tool registered with name: sources");
    assert_eq!(server.send(get("/tools/sources")).await.error(), expected);
}

#[tokio::test]
async fn percent_encoding_in_a_tools_name_is_read() {
    let server = server().await;
    assert_eq!(server.send(post("/tools/%65cho")).await.success(), json!({"result": {}}));
    for (target, name) in [
        ("/tools/a%2Fb", "a/b"),
        ("/tools/%2e%2e%2fhealth", "../health"),
        ("/tools/%00", "\0"),
        ("/tools/caf%C3%A9", "café"),
        ("/tools/%zz", "%zz"),
        ("/tools/echo%", "echo%"),
        ("/tools/..", ".."),
    ] {
        let expected = not_found(&format!("no tool registered with name: {name}"));
        assert_eq!(server.send(post(target)).await.error(), expected, "{target}");
    }
}

#[tokio::test]
async fn a_tools_name_that_is_not_utf8_is_refused() {
    let server = server().await;
    for target in ["/tools/%FF", "/tools/%C3", "/tools/echo%ff"] {
        let (status, code, message) = server.send(post(target)).await.error();
        assert_eq!((status, code.as_str()), (400, "bad_request"), "{target}: {message}");
    }
}

#[tokio::test]
async fn a_query_string_changes_nothing() {
    let server = server().await;
    assert_eq!(server.send(post("/tools/echo?a=1")).await.success(), json!({"result": {}}));
}

#[tokio::test]
async fn a_tool_that_takes_too_long_is_a_timeout() {
    let message = "tool 'slow' timed out after 0.1 seconds".to_owned();
    assert_eq!(server().await.refusal("slow", json!({})).await, (408, "timeout".to_owned(), message));
}

#[tokio::test]
async fn a_tool_that_fails_is_a_tool_error_in_its_own_words() {
    let message = "tools/failing.lua:42: attempt to index nil value".to_owned();
    assert_eq!(server().await.refusal("failing", json!({})).await, (500, "tool_error".to_owned(), message));
}

#[tokio::test]
async fn a_tool_that_panics_fails_alone_and_without_details() {
    let server = server().await;
    let expected = (500, "internal".to_owned(), "the tool panicked".to_owned());
    assert_eq!(server.refusal("panicking", json!({})).await, expected);

    let mut client = server.connect().await;
    client.send(post("/tools/panicking")).await;
    assert_eq!(client.read_response().await.error(), expected);
    client.send(post("/tools/echo")).await;
    assert_eq!(client.read_response().await.success(), json!({"result": {}}));
}

#[tokio::test]
async fn a_rate_limited_tool_sends_retry_after() {
    let server = server().await;
    for _ in 0..2 {
        server.call("limited", json!({})).await;
    }
    let response = server.send(post("/tools/limited")).await;
    let (status, code, message) = response.error();
    assert_eq!((status, code.as_str()), (429, "rate_limited"), "{message}");
    let seconds: u64 = response.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=1_800).contains(&seconds), "{seconds}");
    assert_eq!(message, format!("the rate limit of limited is exceeded; try again in {seconds} s"));
}

#[tokio::test]
async fn a_result_over_the_limit_is_too_large() {
    let tool = returning("large", Value::String("x".repeat(1_000)));
    let server = ServerBuilder::with([tool]).result_bytes(1_000).start().await;
    let message = "the result is 1002 bytes; the limit is 1000".to_owned();
    assert_eq!(server.refusal("large", json!({})).await, (413, "too_large".to_owned(), message));
}

#[tokio::test]
async fn every_kind_a_tool_fails_with_keeps_its_code_and_status() {
    for (kind, status) in [
        (ErrorKind::BadRequest, 400),
        (ErrorKind::EmbeddingsDisabled, 400),
        (ErrorKind::NotConfigured, 400),
        (ErrorKind::Forbidden, 403),
        (ErrorKind::NotFound, 404),
        (ErrorKind::Timeout, 408),
        (ErrorKind::TooLarge, 413),
        (ErrorKind::RateLimited, 429),
        (ErrorKind::Tool, 500),
        (ErrorKind::Internal, 500),
        (ErrorKind::Overloaded, 503),
    ] {
        let tool = common::tool("any", move |_, _| async move { Err(ToolError::new(kind, "so it is")) });
        let server = ServerBuilder::with([tool]).start().await;
        let expected = (status, kind.code().to_owned(), "so it is".to_owned());
        assert_eq!(server.refusal("any", json!({})).await, expected);
    }
}

#[tokio::test]
async fn an_overloaded_tool_sends_retry_after() {
    for kind in [ErrorKind::Overloaded, ErrorKind::RateLimited] {
        let full = common::tool("full", move |_, _| async move { Err(ToolError::new(kind, "no room")) });
        let server = ServerBuilder::with([full]).start().await;
        assert_eq!(server.send(post("/tools/full")).await.header("retry-after"), Some("1"), "{kind:?}");
        let patient = common::tool("full", move |_, _| async move {
            Err(ToolError::new(kind, "no room").with_retry_after(Duration::from_millis(1_001)))
        });
        let server = ServerBuilder::with([patient]).start().await;
        assert_eq!(server.send(post("/tools/full")).await.header("retry-after"), Some("2"), "{kind:?}");
    }
}

#[tokio::test]
async fn a_search_for_nothing_is_refused() {
    let (server, _folder) = serving_documents().await;
    let expected = bad_request("missing required parameter: query");
    assert_eq!(server.send(post("/tools/search")).await.error(), expected);
    for query in ["", " ", "\t\n\u{a0}"] {
        let (status, code, message) = server.refusal("search", json!({"query": query})).await;
        assert_eq!((status, code.as_str()), (400, "bad_request"), "{query:?}: {message}");
    }
}

#[tokio::test]
async fn a_search_by_meaning_without_embeddings_is_refused_and_the_default_falls_back() {
    let (server, _folder) = serving_documents().await;
    for mode in ["semantic", "hybrid"] {
        let (status, code, message) = server.refusal("search", json!({"query": "green", "mode": mode})).await;
        assert_eq!((status, code.as_str()), (400, "embeddings_disabled"), "{message}");
    }
    let response = server.call("search", json!({"query": "green"})).await;
    assert_eq!(response["results"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_limit_that_is_no_count_is_refused() {
    let (server, _folder) = serving_documents().await;
    let minimum = bad_request("parameter `limit`: its value is less than the minimum of 1");
    let kind = bad_request(r#"parameter `limit`: its value is not of type "integer""#);
    for (limit, expected) in [
        (json!(0), &minimum),
        (json!(-1), &minimum),
        (json!("x"), &kind),
        (json!(1.5), &kind),
        (json!(null), &kind),
    ] {
        let refusal = server.refusal("search", json!({"query": "green", "limit": limit})).await;
        assert_eq!(&refusal, expected, "{limit}");
    }
}

#[tokio::test]
async fn a_search_with_unknown_parameters_is_refused() {
    let (server, _folder) = serving_documents().await;
    for (arguments, name) in [
        (json!({"query": "green", "mode": "fuzzy"}), "mode"),
        (json!({"query": "green", "querry": 1}), "querry"),
        (json!({"query": "green", "filters": {"since": "yesterday"}}), "filters.since"),
        (json!({"query": "green", "filters": {"tags": "a"}}), "filters.tags"),
    ] {
        let (status, code, message) = server.refusal("search", arguments).await;
        assert_eq!((status, code.as_str()), (400, "bad_request"), "{message}");
        assert!(message.contains(name), "{message}");
    }
}

#[tokio::test]
async fn a_document_id_is_checked_before_it_is_looked_up() {
    let (server, _folder) = serving_documents().await;
    let expected = bad_request("missing required parameter: id");
    assert_eq!(server.refusal("get", json!({})).await, expected);
    for id in ["", "deploy.md", "../../etc/passwd", "00000000-0000-0000-0000-00000000000"] {
        let expected = bad_request("parameter `id`: its value is not a UUID");
        assert_eq!(server.refusal("get", json!({"id": id})).await, expected, "{id}");
    }
    let id = "00000000-0000-4000-8000-000000000000";
    let expected = not_found(&format!("no document with id: {id}"));
    assert_eq!(server.refusal("get", json!({"id": id})).await, expected);
}

#[tokio::test]
async fn sources_take_no_parameters() {
    let (server, _folder) = serving_documents().await;
    let expected = bad_request("unknown parameter: name");
    assert_eq!(server.refusal("sources", json!({"name": "x"})).await, expected);
}
