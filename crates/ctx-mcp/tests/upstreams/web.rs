//! HTTP servers.

use crate::harness::Test;
use crate::world::{INVISIBLE_SECRET, World};
use ctx_core::ErrorKind;
use ctx_mcp::{Headers, HttpKind, OAuthSettings, Transport, UpstreamState};
use ctx_testkit::{Asked, Web, reply, reply_with};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![web:
    a_server_is_called_with_the_headers_it_wants,
    a_session_that_is_gone_is_made_anew,
    a_refusal_of_one_call_ends_no_other,
    one_that_lets_nobody_in_is_told,
    headers_are_sent_to_nobody_else,
    an_answer_that_is_too_long_or_unreadable_fails_its_call,
    no_call_overtakes_the_standalone_stream,
    questions_are_bounded_over_all_rounds_of_a_call,
    a_secret_with_invisible_characters_is_redacted_in_a_reason,
    a_web_page_is_told_in_one_short_line,
    a_refusal_of_many_lines_is_told_in_one,
    one_of_the_older_transport_is_told_which_setting_helps,
];

/// A server with sessions, which can forget the first of them.
struct Server {
    sessions: AtomicUsize,
    forgets: bool,
}

impl Server {
    fn answer(&self, asked: &Asked) -> Vec<u8> {
        if !asked.line.starts_with("POST") {
            return reply(405, "");
        }
        let message = asked.json();
        let json = [("Content-Type", "application/json")];
        let result = |result: Value| {
            let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
            reply_with(200, &json, &body.to_string())
        };
        let session = asked.header("mcp-session-id").map(ToOwned::to_owned);
        let now = self.sessions.load(Ordering::SeqCst).to_string();
        match message["method"].as_str().unwrap() {
            "initialize" => {
                let session = (self.sessions.fetch_add(1, Ordering::SeqCst) + 1).to_string();
                let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": {
                    "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "web", "version": "1"},
                }});
                reply_with(200, &[json[0], ("Mcp-Session-Id", &session)], &body.to_string())
            }
            "server/discover" => {
                let error = json!({"code": -32601, "message": "what?"});
                let body = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
                reply_with(200, &json, &body.to_string())
            }
            "tools/list" => result(json!({"tools": [
                {"name": "greet", "inputSchema": {"type": "object"}},
                {"name": "fail", "inputSchema": {"type": "object"}},
                {"name": "huge", "inputSchema": {"type": "object"}},
                {"name": "huge_event", "inputSchema": {"type": "object"}},
                {"name": "unreadable", "inputSchema": {"type": "object"}},
            ]})),
            "tools/call" if message["params"]["name"] == "fail" => reply(500, "out of order"),
            "tools/call" if session != Some(now.clone()) || (self.forgets && now == "1") => {
                // As many servers do for an unknown session: no 404, and an error without an ID.
                let error = json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
                let body = json!({"jsonrpc": "2.0", "id": null, "error": error});
                reply_with(400, &json, &body.to_string())
            }
            "tools/call" if message["params"]["name"] == "huge" => {
                result(json!({"content": [{"type": "text", "text": "x".repeat(9 << 20)}]}))
            }
            "tools/call" if message["params"]["name"] == "huge_event" => {
                let event = format!("data: {}\n\n", "x".repeat(9 << 20));
                reply_with(200, &[("Content-Type", "text/event-stream")], &event)
            }
            "tools/call" if message["params"]["name"] == "unreadable" => reply_with(200, &json, "{"),
            "tools/call" => {
                let text = format!("{} in session {now}", asked.header("x-key").unwrap_or("nobody"));
                result(json!({"content": [{"type": "text", "text": text}]}))
            }
            _ => reply(202, ""),
        }
    }
}

async fn upstream(url: String) -> World {
    upstream_of(url, HttpKind::Streamable).await
}

async fn upstream_of(url: String, kind: HttpKind) -> World {
    World::with("", |settings| {
        let headers = Headers::new([("X-Key", "Ada")]).unwrap();
        settings.transport = Transport::Http { url, headers, kind, oauth: OAuthSettings::default() };
    })
    .await
}

fn serve(forgets: bool) -> Web {
    let server = Arc::new(Server { sessions: AtomicUsize::new(0), forgets });
    Web::serve(move |asked| server.answer(asked))
}

async fn a_server_is_called_with_the_headers_it_wants() {
    let web = serve(false);
    let world = upstream(web.url("/mcp")).await;
    assert_eq!(world.call("greet", json!({})).await.unwrap().into_data(), json!("Ada in session 1"));
    assert!(web.asked().iter().all(|asked| asked.header("x-key") == Some("Ada")));
}

async fn a_session_that_is_gone_is_made_anew() {
    let web = serve(true);
    let world = upstream(web.url("/mcp")).await;
    assert_eq!(world.call("greet", json!({})).await.unwrap().into_data(), json!("Ada in session 2"));
}

async fn a_refusal_of_one_call_ends_no_other() {
    let web = serve(false);
    let world = upstream(web.url("/mcp")).await;
    let error = world.call("fail", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tool);
    assert!(error.message().contains("500"), "{error}");
    assert_eq!(world.call("greet", json!({})).await.unwrap().into_data(), json!("Ada in session 1"));
}

async fn one_that_lets_nobody_in_is_told() {
    let web = Web::serve(|_| reply(401, "who are you?"));
    let world = upstream(web.url("/mcp")).await;
    assert!(world.reason().contains("401"), "{}", world.reason());
}

async fn headers_are_sent_to_nobody_else() {
    let elsewhere = serve(false);
    let url = elsewhere.url("/mcp");
    let web = Web::serve(move |_| reply_with(307, &[("Location", &url)], ""));
    let world = upstream(web.url("/mcp")).await;
    assert!(matches!(world.state(), UpstreamState::Failed { .. }), "{:?}", world.state());
    assert!(elsewhere.asked().is_empty());
}

async fn an_answer_that_is_too_long_or_unreadable_fails_its_call() {
    let web = serve(false);
    let world = upstream(web.url("/mcp")).await;
    for tool in ["huge", "huge_event"] {
        let error = world.call(tool, json!({})).await.unwrap_err();
        assert_eq!(error.message(), "up: its answer is longer than 8388608 bytes", "{tool}");
    }
    let error = world.call("unreadable", json!({})).await.unwrap_err();
    assert!(error.message().starts_with("up: its answer cannot be read"), "{error}");
    assert_eq!(world.call("greet", json!({})).await.unwrap().into_data(), json!("Ada in session 1"));
}

async fn no_call_overtakes_the_standalone_stream() {
    let server = Server { sessions: AtomicUsize::new(0), forgets: false };
    let events = Arc::new(Mutex::new(Vec::new()));
    let noted = events.clone();
    let web = Web::stream(move |asked, stream| {
        let is_stream = asked.line.starts_with("GET");
        if is_stream {
            // A slow network.
            std::thread::sleep(Duration::from_millis(300));
        }
        let is_message = asked.line.starts_with("POST");
        let event =
            if is_message { asked.json()["method"].clone() } else { json!(asked.line.split(' ').next()) };
        noted.lock().unwrap().push(event);
        stream.write_all(&server.answer(asked)).ok();
    });
    let world = upstream(web.url("/mcp")).await;
    assert_eq!(world.call("greet", json!({})).await.unwrap().into_data(), json!("Ada in session 1"));
    let events = events.lock().unwrap().clone();
    let position = |event: &str| events.iter().position(|noted| noted == event);
    assert!(position("GET").is_some() && position("GET") < position("tools/call"), "{events:?}");
}

async fn questions_are_bounded_over_all_rounds_of_a_call() {
    let web = Web::serve(|asked| {
        if !asked.line.starts_with("POST") {
            return reply(405, "");
        }
        let message = asked.json();
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
            _ => return reply(405, ""),
        };
        let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        reply_with(200, &[("Content-Type", "application/json")], &body.to_string())
    });
    let world = upstream(web.url("/mcp")).await;
    let error = world.call("ask", json!({})).await.unwrap_err();
    assert_eq!(error.message(), "up: it asked more than 100 questions");
}

async fn a_secret_with_invisible_characters_is_redacted_in_a_reason() {
    let web = Web::serve(|asked| {
        if !asked.line.starts_with("POST") {
            return reply(405, "");
        }
        let error = json!({"code": -32601, "message": format!("no {INVISIBLE_SECRET}\u{200b}")});
        let body = json!({"jsonrpc": "2.0", "id": asked.json()["id"], "error": error});
        reply_with(200, &[("Content-Type", "application/json")], &body.to_string())
    });
    let world = upstream(web.url("/mcp")).await;
    assert_eq!(world.reason(), "it refused to begin: no ***\\u{200b}");
}

/// A web page, as a server sends it at a URL that is no MCP endpoint.
fn page(status: u16, title: &str) -> Vec<u8> {
    let style = "body {\n  margin: 0;\n}\n".repeat(200);
    let page = format!(
        "\n<!DOCTYPE html>\n<html>\n<head><title>{title}</title><style>{style}</style></head>\n</html>\n"
    );
    reply_with(status, &[("Content-Type", "text/html; charset=utf-8")], &page)
}

async fn a_web_page_is_told_in_one_short_line() {
    for (status, reason) in [
        (200, "HTTP 200 OK: it answers with a web page (text/html), not with MCP"),
        (404, "HTTP 404 Not Found: it answers with a web page (text/html), not with MCP"),
        (403, "HTTP 403 Forbidden: it answers with a web page (text/html), not with MCP"),
    ] {
        let web = Web::serve(move |_| page(status, "Sign in"));
        let world = upstream(web.url("/mcp")).await;
        assert_eq!(world.reason(), reason);
        let sse = upstream_of(web.url("/events"), HttpKind::Sse).await;
        assert_eq!(sse.reason(), reason.replace("with MCP", "with a stream of events"));
    }
}

async fn a_refusal_of_many_lines_is_told_in_one() {
    let web = Web::serve(|_| reply(404, &format!("no\r\n\tsuch {}", "page ".repeat(500))));
    let reason = upstream(web.url("/mcp")).await.reason();
    assert!(reason.starts_with("HTTP 404 Not Found: no such page page "), "{reason}");
    assert!(reason.ends_with('…') && reason.chars().count() < 400, "{reason}");
}

async fn one_of_the_older_transport_is_told_which_setting_helps() {
    let hint = "; it seems to be a server of the older HTTP+SSE transport: set `transport = \"sse\"`";
    let events = [("Content-Type", "text/event-stream")];
    for status in [400, 404, 405] {
        let web = Web::serve(move |asked| match asked.line.starts_with("GET") {
            true => reply_with(200, &events, "event: endpoint\ndata: /messages\n\n"),
            false => reply(status, "no"),
        });
        let reason = upstream(web.url("/mcp")).await.reason();
        assert!(reason.ends_with(hint), "{status}: {reason}");
    }
    // The hint follows from the URL alone.
    let web = Web::serve(|_| page(404, "Nothing here"));
    let reason = upstream(web.url("/v1/sse")).await.reason();
    assert_eq!(
        reason,
        format!("HTTP 404 Not Found: it answers with a web page (text/html), not with MCP{hint}")
    );
    // A refusal that says nothing about the transport.
    let web = Web::serve(|asked| match asked.line.starts_with("GET") {
        true => reply_with(200, &[("Content-Type", "text/event-stream")], ""),
        false => reply(402, "pay first"),
    });
    let reason = upstream(web.url("/mcp")).await.reason();
    assert_eq!(reason, "HTTP 402 Payment Required: pay first");
}
