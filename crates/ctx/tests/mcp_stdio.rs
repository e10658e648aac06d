//! `ctx serve mcp --stdio`, from the view of its MCP client.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails the test it helps")]

use ctx_testkit::{DEADLINE, TestWorkspace, signal, wait_until};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

const OLDER: &str = "2025-11-25";
const NEWER: &str = "2026-07-28";

/// About 900 tokens.
const SURFACE_CHARS_MAX: usize = 3_600;

/// Scripts that print, that never end, and that cannot be loaded.
fn workspace() -> TestWorkspace {
    let script = |name: &str, body: &str| {
        format!(
            "tool = {{ name = \"{name}\", description = \"For a test\", parameters = {{}} }}\n\
             function tool.execute(params, context)\n{body}\nend\n"
        )
    };
    let section = |name: &str| format!("[tools.script.{name}]\npath = \"tools/{name}.lua\"\ntimeout = 600\n");
    TestWorkspace::empty()
        .config(&["loud", "endless", "broken"].map(section).concat())
        .file("tools/loud.lua", &script("loud", "print(\"noise\")\nlog.info(\"heard\")\nreturn \"done\""))
        .file("tools/endless.lua", &script("endless", "log.info(\"begun\")\nwhile true do end"))
        .file("tools/broken.lua", "this is no Lua")
}

/// A client, with the server process that it has started.
struct StdioClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

/// Starts the server with piped stdin, stdout and stderr.
fn spawn(workspace: &TestWorkspace) -> Child {
    let mut command = workspace.command(["serve", "mcp", "--stdio"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

impl StdioClient {
    fn start(workspace: &TestWorkspace) -> Self {
        let mut child = spawn(workspace);
        let stdout = child.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                // The test may have ended.
                sender.send(line.unwrap()).ok();
            }
        });
        Self { stdin: child.stdin.take(), child, lines }
    }

    /// An initialised client of the older revision.
    fn start_initialized(workspace: &TestWorkspace) -> Self {
        let mut client = Self::start(workspace);
        client.initialize();
        client
    }

    fn initialize(&mut self) {
        let params = json!({
            "protocolVersion": OLDER,
            "capabilities": {},
            "clientInfo": {"name": "older", "version": "1"},
        });
        self.request(0, "initialize", params);
        assert_eq!(self.response(0)["result"]["protocolVersion"], OLDER);
        self.line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
    }

    fn line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).unwrap();
        stdin.write_all(b"\n").unwrap();
    }

    fn request(&mut self, id: i64, method: &str, params: Value) {
        self.line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
    }

    fn call(&mut self, id: i64, tool: &str) {
        self.request(id, "tools/call", json!({"name": tool, "arguments": {}}));
    }

    /// The next message; every line must be one. `None` at the end.
    fn next(&self) -> Option<Value> {
        let line = match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the server said nothing"),
        };
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        Some(message)
    }

    /// The response with this ID; skips other messages.
    fn response(&self, id: i64) -> Value {
        loop {
            let message = self.next().unwrap_or_else(|| panic!("the server ended before answer {id}"));
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Waits until a script logs this.
    fn wait_for_log(&self, line: &str) {
        while self.next().unwrap()["params"]["data"] != line {}
    }

    /// The child processes of the server.
    fn workers(&self) -> Vec<u32> {
        let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
        let numbers = entries.filter_map(|name| name.to_str()?.parse::<u32>().ok());
        let is_child = |id: &u32| {
            // The process may have ended meanwhile.
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
            parent == Some(&self.child.id().to_string())
        };
        numbers.filter(is_child).collect()
    }

    /// Waits for a successful exit that leaves no worker; returns the stderr.
    fn wait_for_clean_exit(mut self, workers: &[u32]) -> String {
        let mut status = None;
        wait_until("the server has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(0));
        while self.next().is_some() {}
        wait_until("the workers have ended", || {
            workers.iter().all(|id| !fs::exists(format!("/proc/{id}")).unwrap())
        });
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        stderr
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The `_meta` of a request of the newest revision.
fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": NEWER,
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// Tool and outcome of the latest run.
fn latest_run(workspace: &TestWorkspace) -> (String, String) {
    let mut runs = workspace.ctx("runs --json").success().json();
    let run = runs["runs"][0].take();
    (run["tool"].as_str().unwrap().to_owned(), run["outcome"]["code"].as_str().unwrap_or("ok").to_owned())
}

#[test]
fn a_second_request_with_the_id_of_an_open_one_is_refused() {
    let workspace = workspace();
    let mut client = StdioClient::start_initialized(&workspace);
    client.call(7, "endless");
    client.wait_for_log("begun");
    client.call(7, "loud");
    assert_eq!(client.response(7)["error"]["code"], -32600);
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    client.line(&cancelled.to_string());
    client.call(8, "loud");
    assert!(client.response(8)["error"].is_null());
}

#[test]
fn stdout_carries_messages_and_nothing_else() {
    let w = workspace();
    let mut client = StdioClient::start_initialized(&w);
    client.call(1, "loud");
    client.wait_for_log("heard");
    assert_eq!(client.response(1)["result"]["content"][0]["text"], "done");
    client.request(2, "tools/call", json!({"name": "execute", "arguments": {"script": "print(1) return 2"}}));
    assert_ne!(client.response(2)["result"]["isError"], true);
    drop(client.stdin.take());
    let stderr = client.wait_for_clean_exit(&[]);
    assert!(stderr.contains("broken"), "what went wrong at the start is told on stderr: {stderr}");
}

#[test]
fn lines_that_are_no_messages_do_no_harm() {
    let w = workspace();
    let mut client = StdioClient::start(&w);
    for garbage in ["garbage", "{", "", "\u{0}\u{1}", "[]", "7", r#"{"jsonrpc":"2.0"}"#] {
        client.line(garbage);
    }
    // Ignored before the first request.
    client.line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    client.line(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    client.line(&"x".repeat(5 << 20));
    let large =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"x": "x".repeat(5 << 20)}});
    client.line(&large.to_string());
    client.initialize();
    client.line("garbage");
    client.request(2, "tools/list", json!({}));
    assert!(client.response(2)["result"]["tools"].as_array().unwrap().len() > 2);
    drop(client.stdin.take());
    client.wait_for_clean_exit(&[]);
}

#[test]
fn requests_that_are_piped_in_are_answered_before_the_end() {
    let w = workspace();
    let mut client = StdioClient::start_initialized(&w);
    client.request(1, "tools/list", json!({}));
    client.call(2, "loud");
    drop(client.stdin.take());
    let mut answered: Vec<i64> =
        std::iter::from_fn(|| client.next()).filter_map(|it| it["id"].as_i64()).collect();
    answered.sort_unstable();
    assert_eq!(answered, [1, 2]);
    client.wait_for_clean_exit(&[]);
}

#[test]
fn a_client_that_disconnects_during_a_call_ends_the_call_and_the_server() {
    let w = workspace();
    let mut client = StdioClient::start_initialized(&w);
    client.call(1, "endless");
    client.wait_for_log("begun");
    let workers = client.workers();
    assert!(!workers.is_empty());
    drop(client.stdin.take());
    client.wait_for_clean_exit(&workers);
    assert_eq!(latest_run(&w), ("tools.endless".to_owned(), "cancelled".to_owned()));
}

#[test]
fn a_client_that_does_not_read_can_leave_all_the_same() {
    let w = workspace();
    let mut child = spawn(&w);
    let stdout = child.stdout.take().unwrap();
    let stdin = child.stdin.take().unwrap();
    // More responses than a pipe's buffer holds, and none is read.
    let (_, lines) = mpsc::channel();
    let mut client = StdioClient { child, stdin: Some(stdin), lines };
    for id in 0..200 {
        client.request(id, "tools/list", json!({"_meta": meta()}));
    }
    drop(client.stdin.take());
    client.wait_for_clean_exit(&[]);
    drop(stdout);
}

#[test]
fn a_server_that_is_told_to_end_during_a_call_ends() {
    let w = workspace();
    for name in ["TERM", "INT"] {
        let mut client = StdioClient::start_initialized(&w);
        client.call(1, "endless");
        client.wait_for_log("begun");
        let workers = client.workers();
        signal(client.child.id(), name);
        client.wait_for_clean_exit(&workers);
        assert_eq!(latest_run(&w), ("tools.endless".to_owned(), "cancelled".to_owned()), "SIG{name}");
    }
}

#[test]
fn a_cancelled_call_ends_and_others_continue() {
    let w = workspace();
    let mut client = StdioClient::start_initialized(&w);
    client.call(1, "endless");
    client.wait_for_log("begun");
    client.line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    client.call(2, "loud");
    assert_eq!(client.response(2)["result"]["content"][0]["text"], "done");
    wait_until("the run is recorded as cancelled", || {
        let runs = w.ctx("runs --json").success().json();
        runs["runs"].as_array().unwrap().iter().any(|run| run["outcome"]["code"] == "cancelled")
    });
}

#[test]
fn a_client_of_the_newest_revision_needs_no_beginning() {
    let w = workspace();
    let mut client = StdioClient::start(&w);
    client.request(1, "tools/call", json!({"name": "loud", "arguments": {}, "_meta": meta()}));
    let response = client.response(1);
    assert_eq!(response["result"]["resultType"], "complete", "{response}");
    client.request(2, "tools/call", json!({"name": "lowd", "arguments": {}, "_meta": meta()}));
    assert!(client.response(2)["error"]["message"].as_str().unwrap().contains("did you mean `loud`?"));
}

#[test]
fn finding_and_calling_functions_costs_a_client_few_tokens() {
    let w = workspace();
    let mut client = StdioClient::start(&w);
    let params = json!({
        "protocolVersion": OLDER,
        "capabilities": {},
        "clientInfo": {"name": "older", "version": "1"},
    });
    client.request(0, "initialize", params);
    let begun = client.response(0);
    let instructions = begun["result"]["instructions"].as_str().unwrap();
    client.line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
    client.request(1, "tools/list", json!({}));
    let listed = client.response(1);
    let surface = ["execute", "list_functions", "search_docs", "get_function_docs"];
    let is_surface = |tool: &&Value| surface.contains(&tool["name"].as_str().unwrap());
    let tools: Vec<String> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter(is_surface)
        .map(Value::to_string)
        .collect();
    assert_eq!(tools.len(), surface.len());
    let chars: usize =
        tools.iter().map(|tool| tool.chars().count()).sum::<usize>() + instructions.chars().count();
    assert!(chars <= SURFACE_CHARS_MAX, "{chars} characters: {tools:#?}");
}

/// The schemas inside a schema whose `type` is an array.
fn lists_of_types(schema: &Value) -> Vec<&Value> {
    let inside: Vec<&Value> = match schema {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    let own = Some(schema).filter(|schema| schema["type"].is_array());
    own.into_iter().chain(inside.into_iter().flat_map(lists_of_types)).collect()
}

#[test]
fn schemas_of_our_own_tools_have_one_type_for_each_value_and_null_is_still_taken() {
    let w = workspace();
    let mut client = StdioClient::start_initialized(&w);
    client.request(1, "tools/list", json!({}));
    let listed = client.response(1);
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "search"), "{listed}");
    for tool in tools {
        for schema in [&tool["inputSchema"], &tool["outputSchema"]] {
            assert_eq!(lists_of_types(schema), Vec::<&Value>::new(), "{}", tool["name"]);
        }
    }
    let nulls = json!({"query": "x", "mode": null, "filters": {"source": null, "tags": null, "since": null}});
    for arguments in [nulls, json!({"query": "x", "filters": null})] {
        client.request(2, "tools/call", json!({"name": "search", "arguments": arguments}));
        let result = client.response(2)["result"].take();
        assert!(result["isError"] != true && result["structuredContent"]["results"].is_array(), "{result}");
    }
}

#[test]
fn a_result_too_large_for_an_answer_is_read_in_parts() {
    let w = workspace();
    let mut client = StdioClient::start_initialized(&w);
    let execute = |script: &str| json!({"name": "execute", "arguments": {"script": script}});
    let script = "local list = {} for n = 1, 20000 do list[n] = { n = n } end return { list = list }";
    client.request(1, "tools/call", execute(script));
    let response = client.response(1);
    let kept = &response["result"]["structuredContent"]["kept"];
    assert_eq!(kept["shape"], "{ list: [ 20000 × { n: number } ] }", "{response}");
    assert!(response.to_string().len() < 10_000, "{response}");

    let id = kept["id"].as_str().unwrap();
    client.request(
        2,
        "tools/call",
        execute(&format!("return sdk.ctx.result{{ id = '{id}', path = 'list[20000].n' }}")),
    );
    assert_eq!(client.response(2)["result"]["content"][0]["text"], "20000");
    client.request(3, "resources/read", json!({"uri": kept["uri"]}));
    let contents = client.response(3)["result"]["contents"][0].take();
    assert_eq!(contents["mimeType"], "application/json");
    assert!(contents["text"].as_str().unwrap().ends_with(r#"{"n":20000}]}"#));
    client.request(4, "resources/read", json!({"uri": "ctx://result/gone"}));
    assert!(client.response(4)["error"]["message"].as_str().unwrap().contains("no result is kept"));
    client.request(5, "tools/list", json!({}));
    let listed = client.response(5);
    assert!(!listed.to_string().contains(r#""name":"result""#), "{listed}");

    // On the command line the result is printed in full.
    let whole = w.file("many.luau", script).ctx("exec many.luau --json").success().json();
    assert_eq!(whole["result"]["list"][19_999]["n"], 20_000);
}

#[test]
fn an_answer_tells_what_was_called_inside_also_when_it_failed() {
    let w = workspace();
    let mut client = StdioClient::start_initialized(&w);
    let execute = |script: &str| json!({"name": "execute", "arguments": {"script": script}});
    client.request(1, "tools/call", execute("local _ = sdk.tools.loud() .. sdk.tools.loud() return 7"));
    let result = client.response(1)["result"].take();
    // Two results `"done"` with quotes, minus the `7` that is returned.
    assert_eq!(result["_meta"], json!({"ctx/calls": 2, "ctx/bytes_kept": 11}), "{result}");
    client.request(2, "tools/call", execute("sdk.tools.loud() error('no')"));
    let result = client.response(2)["result"].take();
    assert_eq!((&result["isError"], &result["_meta"]["ctx/calls"]), (&json!(true), &json!(1)), "{result}");
    client.request(3, "tools/call", execute("return 7"));
    assert_eq!(client.response(3)["result"]["_meta"], Value::Null);
}
