//! HTTP servers.

use crate::fixture::{INVISIBLE_SECRET, UpstreamFixture};
use crate::harness::Test;
use ctx_core::ErrorKind;
use ctx_mcp::{Headers, HttpTransportKind, OAuthSettings, Transport, UpstreamState};
use ctx_testkit::{MockWebServer, RecordedRequest, http_response, http_response_with};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![http_servers:
    configured_headers_are_sent,
    a_lost_session_is_reopened,
    a_refusal_of_one_call_ends_no_other,
    an_unauthorized_response_is_reported,
    headers_are_not_sent_to_another_origin,
    an_answer_that_is_too_long_or_unreadable_fails_its_call,
    no_call_overtakes_the_standalone_stream,
    questions_are_bounded_over_all_rounds_of_a_call,
    a_secret_with_invisible_characters_is_redacted_in_a_reason,
    a_web_page_is_reported_in_one_short_line,
    a_multiline_refusal_is_reported_in_one_line,
    a_server_of_the_older_transport_gets_a_hint,
];

/// A server with sessions, which can forget the first of them.
struct SessionServer {
    sessions: AtomicUsize,
    forgets_first_session: bool,
}

impl SessionServer {
    fn answer(&self, request: &RecordedRequest) -> Vec<u8> {
        if !request.line.starts_with("POST") {
            return http_response(405, "");
        }
        let message = request.json();
        let json = [("Content-Type", "application/json")];
        let result = |result: Value| {
            let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
            http_response_with(200, &json, &body.to_string())
        };
        let session = request.header("mcp-session-id").map(ToOwned::to_owned);
        let now = self.sessions.load(Ordering::SeqCst).to_string();
        match message["method"].as_str().unwrap() {
            "initialize" => {
                let session = (self.sessions.fetch_add(1, Ordering::SeqCst) + 1).to_string();
                let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": {
                    "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "web", "version": "1"},
                }});
                http_response_with(200, &[json[0], ("Mcp-Session-Id", &session)], &body.to_string())
            }
            "server/discover" => {
                let error = json!({"code": -32601, "message": "what?"});
                let body = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
                http_response_with(200, &json, &body.to_string())
            }
            "tools/list" => result(json!({"tools": [
                {"name": "greet", "inputSchema": {"type": "object"}},
                {"name": "fail", "inputSchema": {"type": "object"}},
                {"name": "huge", "inputSchema": {"type": "object"}},
                {"name": "huge_event", "inputSchema": {"type": "object"}},
                {"name": "unreadable", "inputSchema": {"type": "object"}},
            ]})),
            "tools/call" if message["params"]["name"] == "fail" => http_response(500, "out of order"),
            "tools/call" if session != Some(now.clone()) || (self.forgets_first_session && now == "1") => {
                // As many servers do for an unknown session: no 404, and an error without an ID.
                let error = json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
                let body = json!({"jsonrpc": "2.0", "id": null, "error": error});
                http_response_with(400, &json, &body.to_string())
            }
            "tools/call" if message["params"]["name"] == "huge" => {
                result(json!({"content": [{"type": "text", "text": "x".repeat(9 << 20)}]}))
            }
            "tools/call" if message["params"]["name"] == "huge_event" => {
                let event = format!("data: {}\n\n", "x".repeat(9 << 20));
                http_response_with(200, &[("Content-Type", "text/event-stream")], &event)
            }
            "tools/call" if message["params"]["name"] == "unreadable" => http_response_with(200, &json, "{"),
            "tools/call" => {
                let text = format!("{} in session {now}", request.header("x-key").unwrap_or("nobody"));
                result(json!({"content": [{"type": "text", "text": text}]}))
            }
            _ => http_response(202, ""),
        }
    }
}

async fn upstream(url: String) -> UpstreamFixture {
    upstream_of(url, HttpTransportKind::Streamable).await
}

async fn upstream_of(url: String, kind: HttpTransportKind) -> UpstreamFixture {
    UpstreamFixture::with("", |settings| {
        let headers = Headers::new([("X-Key", "Ada")]).unwrap();
        settings.transport = Transport::Http { url, headers, kind, oauth: OAuthSettings::default() };
    })
    .await
}

fn serve(forgets_first_session: bool) -> MockWebServer {
    let server = Arc::new(SessionServer { sessions: AtomicUsize::new(0), forgets_first_session });
    MockWebServer::serve(move |request| server.answer(request))
}

async fn configured_headers_are_sent() {
    let web = serve(false);
    let fixture = upstream(web.url("/mcp")).await;
    assert_eq!(fixture.call("greet", json!({})).await.unwrap().into_data(), json!("Ada in session 1"));
    assert!(web.requests().iter().all(|request| request.header("x-key") == Some("Ada")));
}

async fn a_lost_session_is_reopened() {
    let web = serve(true);
    let fixture = upstream(web.url("/mcp")).await;
    assert_eq!(fixture.call("greet", json!({})).await.unwrap().into_data(), json!("Ada in session 2"));
}

async fn a_refusal_of_one_call_ends_no_other() {
    let web = serve(false);
    let fixture = upstream(web.url("/mcp")).await;
    let error = fixture.call("fail", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tool);
    assert!(error.message().contains("500"), "{error}");
    assert_eq!(fixture.call("greet", json!({})).await.unwrap().into_data(), json!("Ada in session 1"));
}

async fn an_unauthorized_response_is_reported() {
    let web = MockWebServer::serve(|_| http_response(401, "who are you?"));
    let fixture = upstream(web.url("/mcp")).await;
    assert!(fixture.reason().contains("401"), "{}", fixture.reason());
}

async fn headers_are_not_sent_to_another_origin() {
    let elsewhere = serve(false);
    let url = elsewhere.url("/mcp");
    let web = MockWebServer::serve(move |_| http_response_with(307, &[("Location", &url)], ""));
    let fixture = upstream(web.url("/mcp")).await;
    assert!(matches!(fixture.state(), UpstreamState::Failed { .. }), "{:?}", fixture.state());
    assert!(elsewhere.requests().is_empty());
}

async fn an_answer_that_is_too_long_or_unreadable_fails_its_call() {
    let web = serve(false);
    let fixture = upstream(web.url("/mcp")).await;
    for tool in ["huge", "huge_event"] {
        let error = fixture.call(tool, json!({})).await.unwrap_err();
        assert_eq!(error.message(), "up: its answer is longer than 8388608 bytes", "{tool}");
    }
    let error = fixture.call("unreadable", json!({})).await.unwrap_err();
    assert!(error.message().starts_with("up: its answer cannot be read"), "{error}");
    assert_eq!(fixture.call("greet", json!({})).await.unwrap().into_data(), json!("Ada in session 1"));
}

async fn no_call_overtakes_the_standalone_stream() {
    let server = SessionServer { sessions: AtomicUsize::new(0), forgets_first_session: false };
    let events = Arc::new(Mutex::new(Vec::new()));
    let count_noted = events.clone();
    let web = MockWebServer::stream(move |request, stream| {
        let is_stream = request.line.starts_with("GET");
        if is_stream {
            // A slow network.
            std::thread::sleep(Duration::from_millis(300));
        }
        let is_message = request.line.starts_with("POST");
        let event =
            if is_message { request.json()["method"].clone() } else { json!(request.line.split(' ').next()) };
        count_noted.lock().unwrap().push(event);
        stream.write_all(&server.answer(request)).ok();
    });
    let fixture = upstream(web.url("/mcp")).await;
    assert_eq!(fixture.call("greet", json!({})).await.unwrap().into_data(), json!("Ada in session 1"));
    let events = events.lock().unwrap().clone();
    let position = |event: &str| events.iter().position(|count_noted| count_noted == event);
    assert!(position("GET").is_some() && position("GET") < position("tools/call"), "{events:?}");
}

async fn questions_are_bounded_over_all_rounds_of_a_call() {
    let web = MockWebServer::serve(|request| {
        if !request.line.starts_with("POST") {
            return http_response(405, "");
        }
        let message = request.json();
        let result = match message["method"].as_str().unwrap_or_default() {
            "server/discover" => json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}),
            "tools/list" => json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                "tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}),
            "tools/call" => {
                let requests = (0..16).map(|key| (format!("q{key}"), json!({"method": "roots/list"})));
                let requests: serde_json::Map<_, _> = requests.collect();
                json!({"resultType": "input_required", "inputRequests": requests, "requestState": "s"})
            }
            _ => return http_response(405, ""),
        };
        let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        http_response_with(200, &[("Content-Type", "application/json")], &body.to_string())
    });
    let fixture = upstream(web.url("/mcp")).await;
    let error = fixture.call("ask", json!({})).await.unwrap_err();
    assert_eq!(error.message(), "up: it asked more than 100 questions");
}

async fn a_secret_with_invisible_characters_is_redacted_in_a_reason() {
    let web = MockWebServer::serve(|request| {
        if !request.line.starts_with("POST") {
            return http_response(405, "");
        }
        let error = json!({"code": -32601, "message": format!("no {INVISIBLE_SECRET}\u{200b}")});
        let body = json!({"jsonrpc": "2.0", "id": request.json()["id"], "error": error});
        http_response_with(200, &[("Content-Type", "application/json")], &body.to_string())
    });
    let fixture = upstream(web.url("/mcp")).await;
    assert_eq!(fixture.reason(), "it refused the MCP handshake: no ***\\u{200b}");
}

/// A web page, as a server sends it at a URL that is no MCP endpoint.
fn page(status: u16, title: &str) -> Vec<u8> {
    let style = "body {\n  margin: 0;\n}\n".repeat(200);
    let page = format!(
        "\n<!DOCTYPE html>\n<html>\n<head><title>{title}</title><style>{style}</style></head>\n</html>\n"
    );
    http_response_with(status, &[("Content-Type", "text/html; charset=utf-8")], &page)
}

async fn a_web_page_is_reported_in_one_short_line() {
    for (status, reason) in [
        (200, "HTTP 200 OK: it responded with a web page (text/html) instead of MCP"),
        (404, "HTTP 404 Not Found: it responded with a web page (text/html) instead of MCP"),
        (403, "HTTP 403 Forbidden: it responded with a web page (text/html) instead of MCP"),
    ] {
        let web = MockWebServer::serve(move |_| page(status, "Sign in"));
        let fixture = upstream(web.url("/mcp")).await;
        assert_eq!(fixture.reason(), reason);
        let sse = upstream_of(web.url("/events"), HttpTransportKind::Sse).await;
        assert_eq!(sse.reason(), reason.replace("instead of MCP", "instead of an event stream"));
    }
}

async fn a_multiline_refusal_is_reported_in_one_line() {
    let web = MockWebServer::serve(|_| http_response(404, &format!("no\r\n\tsuch {}", "page ".repeat(500))));
    let reason = upstream(web.url("/mcp")).await.reason();
    assert!(reason.starts_with("HTTP 404 Not Found: no such page page "), "{reason}");
    assert!(reason.ends_with('…') && reason.chars().count() < 400, "{reason}");
}

async fn a_server_of_the_older_transport_gets_a_hint() {
    let hint = "; it seems to be a server of the older HTTP+SSE transport: set `transport = \"sse\"`";
    let events = [("Content-Type", "text/event-stream")];
    for status in [400, 404, 405] {
        let web = MockWebServer::serve(move |request| match request.line.starts_with("GET") {
            true => http_response_with(200, &events, "event: endpoint\ndata: /messages\n\n"),
            false => http_response(status, "no"),
        });
        let reason = upstream(web.url("/mcp")).await.reason();
        assert!(reason.ends_with(hint), "{status}: {reason}");
    }
    // The hint follows from the URL alone.
    let web = MockWebServer::serve(|_| page(404, "Nothing here"));
    let reason = upstream(web.url("/v1/sse")).await.reason();
    assert_eq!(
        reason,
        format!("HTTP 404 Not Found: it responded with a web page (text/html) instead of MCP{hint}")
    );
    // A refusal that says nothing about the transport.
    let web = MockWebServer::serve(|request| match request.line.starts_with("GET") {
        true => http_response_with(200, &[("Content-Type", "text/event-stream")], ""),
        false => http_response(402, "pay first"),
    });
    let reason = upstream(web.url("/mcp")).await.reason();
    assert_eq!(reason, "HTTP 402 Payment Required: pay first");
}
