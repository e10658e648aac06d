//! MCP over Streamable HTTP at `/mcp`: whole sessions of protocol revisions with and without sessions.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestServer, TestWorkspace, wait_until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

const OLDER: &str = "2025-11-25";
const NEWER: &str = "2026-07-28";

/// A tool with every declaration that a script can make.
const COUNT: &str = r#"tool = {
    name = "count",
    description = "Counts",
    parameters = { { name = "upto", type = "integer", required = true, description = "How far" } },
    annotations = { read_only = true },
    output_schema = {
        type = "object",
        properties = { total = { type = "integer" } },
        required = { "total" },
    },
}
function tool.execute(params)
    return { total = params.upto }
end
"#;

/// A tool that logs once and never ends.
const ENDLESS: &str = r#"tool = { name = "endless", description = "Never ends", parameters = {} }
function tool.execute(params, context)
    log.info("begun")
    while true do end
end
"#;

fn workspace() -> TestWorkspace {
    let section = |name: &str| format!("[tools.script.{name}]\npath = \"tools/{name}.lua\"\ntimeout = 600\n");
    let scripts = ["count", "endless"].map(section).concat();
    let config =
        format!("[connectors.filesystem.docs]\nroot = \"docs\"\n[server]\nbind = \"127.0.0.1:0\"\n{scripts}");
    let workspace = TestWorkspace::empty()
        .config(&config)
        .file("docs/deploy.md", "# Deploy\nPush the button.\n")
        .file("tools/count.lua", COUNT)
        .file("tools/endless.lua", ENDLESS);
    workspace.ctx("sync").success();
    workspace
}

/// A response, possibly a stream.
struct McpResponse {
    status: u16,
    session: Option<String>,
    lines: BufReader<TcpStream>,
}

impl McpResponse {
    fn send(server: &TestServer, method: &str, headers: &[(&str, &str)], body: &str) -> Self {
        let mut stream = server.connect();
        stream.write_all(server.request_head(method, "/mcp", headers, body.len()).as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut response = Self { status: 0, session: None, lines: BufReader::new(stream) };
        let first = response.line().unwrap();
        response.status = first.split(' ').nth(1).unwrap().parse().unwrap();
        while let Some(header) = response.line().filter(|line| !line.is_empty()) {
            if let Some(id) = header.strip_prefix("mcp-session-id: ") {
                response.session = Some(id.to_owned());
            }
        }
        response
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line).unwrap();
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// The next message, from a JSON body or an SSE event; `None` at the end.
    fn next(&mut self) -> Option<Value> {
        loop {
            let line = self.line()?;
            let data = line.strip_prefix("data:").unwrap_or(&line).trim();
            if data.starts_with('{') {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }

    /// The next message with this method.
    fn wait_for_method(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().unwrap_or_else(|| panic!("the answer ended before a {method}"));
            if message["method"] == method {
                return message;
            }
        }
    }

    fn result(mut self) -> Value {
        loop {
            let mut message = self.next().unwrap_or_else(|| panic!("the answer ended without a result"));
            assert!(message.get("error").is_none(), "{message}");
            if message.get("result").is_some() {
                return message["result"].take();
            }
        }
    }
}

/// A request of the stateless revision.
fn stateless_request(server: &TestServer, method: &str, mut params: Value) -> McpResponse {
    let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default().to_owned();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": NEWER,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/logLevel": "info",
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let mut headers = vec![
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", NEWER),
        ("mcp-method", method),
    ];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    McpResponse::send(server, "POST", &headers, &body)
}

/// A session of the older revision.
struct McpSession<'a> {
    server: &'a TestServer,
    id: String,
}

impl<'a> McpSession<'a> {
    fn initialize(server: &'a TestServer) -> Self {
        let mut session = Self { server, id: String::new() };
        let params = json!({
            "protocolVersion": OLDER,
            "capabilities": {},
            "clientInfo": {"name": "older", "version": "1"},
        });
        let response =
            session.post(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
        session.id = response.session.unwrap();
        let initialized = session.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(initialized.status, 202);
        session
    }

    fn post(&self, body: &Value) -> McpResponse {
        let mut headers =
            vec![("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        if !self.id.is_empty() {
            headers.extend([("mcp-session-id", self.id.as_str()), ("mcp-protocol-version", OLDER)]);
        }
        McpResponse::send(self.server, "POST", &headers, &body.to_string())
    }

    fn request(&self, id: i64, method: &str, params: Value) -> McpResponse {
        self.post(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    }

    fn listen(&self) -> McpResponse {
        let headers = [
            ("accept", "text/event-stream"),
            ("mcp-session-id", self.id.as_str()),
            ("mcp-protocol-version", OLDER),
        ];
        McpResponse::send(self.server, "GET", &headers, "")
    }
}

fn assert_calls_work(server: &TestServer) {
    let counted =
        stateless_request(server, "tools/call", json!({"name": "count", "arguments": {"upto": 3}})).result();
    assert_eq!(counted["structuredContent"], json!({"total": 3}));
}

#[test]
fn strangers_and_bodies_that_are_too_large_are_refused_and_others_are_served() {
    let w = workspace();
    let server = w.spawn_server();
    let json = ("content-type", "application/json");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let origin = server.send("POST", "/mcp", &[json, ("origin", "http://evil.example")], body.as_bytes());
    assert_eq!(origin.status, 403);
    let mut stream = server.connect();
    let head = server.request_head("POST", "/mcp", &[json], body.len());
    let head = head.replace(&format!("host: {}", server.address()), "host: evil.example");
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    assert_eq!(ctx_testkit::HttpResponse::read(&stream).status, 403);
    let large = "x".repeat(5 << 20);
    assert_eq!(server.send("POST", "/mcp", &[json], large.as_bytes()).status, 413);
    assert_calls_work(&server);
    server.stop().success();
}

#[test]
fn a_script_is_cancelled_when_its_client_of_the_newest_revision_hangs_up() {
    let w = workspace();
    let server = w.spawn_server();
    let mut response = stateless_request(&server, "tools/call", json!({"name": "endless", "arguments": {}}));
    response.wait_for_method("notifications/message");
    drop(response);
    wait_until("the run is recorded as cancelled", || {
        let runs = w.ctx("runs --json").success().json();
        let run = &runs["runs"][0];
        run["tool"] == "tools.endless" && run["outcome"]["code"] == "cancelled"
    });
    assert_calls_work(&server);
    server.stop().success();
}

#[test]
fn tool_changes_are_notified_to_clients_of_both_revisions() {
    let w = workspace();
    let server = w.spawn_server();
    let session = McpSession::initialize(&server);
    let mut older = session.listen();
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let mut newer = stateless_request(&server, "subscriptions/listen", wanted);
    newer.wait_for_method("notifications/subscriptions/acknowledged");
    w.write("tools/count.lua", COUNT.replace("\"Counts\"", "\"Counts anew\""));
    older.wait_for_method("notifications/tools/list_changed");
    newer.wait_for_method("notifications/tools/list_changed");
    let listed = session.request(1, "tools/list", json!({})).result();
    assert!(listed.to_string().contains("Counts anew"), "{listed}");
    server.stop().success();
}

#[test]
fn resource_updates_are_notified_to_subscribers() {
    let w = workspace();
    let server = w.spawn_server();
    let session = McpSession::initialize(&server);
    let mut older = session.listen();
    let listed = session.request(1, "resources/list", json!({})).result();
    let uri = listed["resources"][0]["uri"].clone();
    session.request(2, "resources/subscribe", json!({"uri": uri})).result();
    let mut newer = stateless_request(
        &server,
        "subscriptions/listen",
        json!({"notifications": {"resourceSubscriptions": [uri]}}),
    );
    newer.wait_for_method("notifications/subscriptions/acknowledged");
    w.write("docs/deploy.md", "# Deploy\nPull the lever.\n");
    w.ctx("sync").success();
    assert_eq!(older.wait_for_method("notifications/resources/updated")["params"]["uri"], uri);
    assert_eq!(newer.wait_for_method("notifications/resources/updated")["params"]["uri"], uri);
    let read = session.request(3, "resources/read", json!({"uri": uri})).result();
    assert!(read["contents"][0]["text"].as_str().unwrap().contains("lever"), "{read}");
    server.stop().success();
}

#[test]
fn a_server_ends_while_streams_are_open() {
    let w = workspace();
    let server = w.spawn_server();
    let session = McpSession::initialize(&server);
    let mut older = session.listen();
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let mut newer = stateless_request(&server, "subscriptions/listen", wanted);
    newer.wait_for_method("notifications/subscriptions/acknowledged");
    let stopped = server.stop().success();
    assert!(!stopped.stderr.contains("cut off"), "{}", stopped.stderr);
    while older.next().is_some() {}
    while newer.next().is_some() {}
}

#[test]
fn a_script_is_shown_with_what_it_promises_and_its_failures_can_be_mended() {
    let w = workspace();
    let server = w.spawn_server();
    let listed = stateless_request(&server, "tools/list", json!({})).result();
    let tools = listed["tools"].as_array().unwrap();
    let count = tools.iter().find(|tool| tool["name"] == "count").unwrap();
    assert_eq!(count["outputSchema"]["required"], json!(["total"]));
    assert_eq!(count["annotations"]["readOnlyHint"], true);
    assert_calls_work(&server);

    let failed =
        stateless_request(&server, "tools/call", json!({"name": "count", "arguments": {"up_to": 3}}))
            .result();
    assert_eq!(failed["isError"], true);
    assert!(failed["content"][0]["text"].as_str().unwrap().contains("upto"), "{failed}");

    let script = "log.warn('odd') print('noise') return 7";
    let executed =
        stateless_request(&server, "tools/call", json!({"name": "execute", "arguments": {"script": script}}))
            .result();
    let blocks = executed["content"].as_array().unwrap();
    assert_eq!(blocks[0]["text"], "7");
    assert!(blocks[1]["text"].as_str().unwrap().contains("odd"), "{executed}");
    server.stop().success();
}

#[test]
fn the_hidden_provider_is_neither_listed_nor_called() {
    let w = workspace();
    let server = w.spawn_server();
    let listed = stateless_request(&server, "tools/list", json!({})).result().to_string();
    assert!(!listed.contains("list_runs") && !listed.contains("admin"), "{listed}");
    for name in ["admin.list_runs", "admin__list_runs", "list_runs"] {
        let call = json!({"name": name, "arguments": {"limit": 1}});
        let response = stateless_request(&server, "tools/call", call).next().unwrap().to_string();
        assert!(!response.contains("\"runs\"") && !response.contains("did you mean"), "{response}");
        assert!(response.contains("error") || response.contains("isError"), "{response}");
    }
}
