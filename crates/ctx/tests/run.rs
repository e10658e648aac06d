//! `ctx run` and `--mcp`: upstream servers on the command line.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestWorkspace, official_server, wait_until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

/// A workspace with one tool, to be the upstream of another workspace.
fn other() -> TestWorkspace {
    TestWorkspace::empty().config("[tools.script.greet]\npath = \"greet.lua\"\n").file(
        "greet.lua",
        "tool = { name = \"greet\", description = \"Greets.\", parameters = {\n\
         { name = \"name\", type = \"string\", required = true } } }\n\
         function tool.execute(params) return { text = \"hello \" .. params.name } end\n",
    )
}

/// The upstream in the form of the command line.
fn typed(name: &str, other: &TestWorkspace) -> String {
    format!("{name}=ctx --trust --config '{}' serve mcp --stdio", other.path("ctx.toml").display())
}

/// The results of these requests, sent in sequence by one client.
fn session(w: &TestWorkspace, arguments: &[&str], requests: &[(&str, Value)]) -> Vec<Value> {
    session_until(w, arguments, requests, None)
}

/// Like [`session`]; with `awaited`, waits for that notification and appends its parameters.
fn session_until(
    w: &TestWorkspace,
    arguments: &[&str],
    requests: &[(&str, Value)],
    awaited: Option<&str>,
) -> Vec<Value> {
    let mut command = w.command(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut answers = Vec::new();
    let client = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let begin = ("initialize", client);
    for (id, (method, params)) in std::iter::once(&begin).chain(requests).enumerate() {
        writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .unwrap();
        answers.push(loop {
            let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if line["id"] == id {
                break line["result"].clone();
            }
        });
        if id == 0 {
            writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
        }
    }
    if let Some(awaited) = awaited {
        answers.push(loop {
            let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if line["method"] == awaited {
                break line["params"].clone();
            }
        });
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
    answers
}

#[test]
fn servers_are_one_server_without_any_file() {
    let other = other();
    let w = TestWorkspace::empty();
    let (one, two) = (typed("one", &other), typed("the-second", &other));
    let script = "local a = one.greet{ name = \"Ada\" }\n\
                  return { a:await().text, sdk.the_second.greet{ name = \"Bob\" }.text }";
    let answers = session(
        &w,
        &["run", "--mcp", &one, "--mcp", &two],
        &[
            ("tools/call", json!({"name": "execute", "arguments": {"script": script}})),
            ("tools/list", json!({})),
        ],
    );
    assert_eq!(answers[1]["content"][0]["text"], "[\"hello Ada\",\"hello Bob\"]", "{answers:?}");
    let names: Vec<&str> =
        answers[2]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    // There are no documents, so there is no search.
    assert_eq!(names, ["execute", "get_function_docs", "list_functions", "search_docs"]);
    let described = |answer: &Value| {
        let tools = answer["tools"].as_array().unwrap();
        let execute = tools.iter().find(|tool| tool["name"] == "execute").unwrap();
        execute["description"].as_str().unwrap().to_owned()
    };
    let description = described(&answers[2]);
    assert!(description.contains("sdk.<provider>") && !description.contains("context."), "{description}");
    let documents = TestWorkspace::new();
    let listed = session(&documents, &["serve", "mcp", "--stdio"], &[("tools/list", json!({}))]);
    assert!(described(&listed[1]).contains("`context.search(query)` searches"), "{listed:?}");
    assert!(!answers[0]["instructions"].as_str().unwrap().contains("`search`"));
    assert_eq!(std::fs::read_dir(w.root()).unwrap().count(), 0, "nothing is written where it runs");
}

#[test]
fn a_workspace_that_merely_lies_there_is_not_run() {
    let w = TestWorkspace::empty().config("[mcp_servers.evil]\ncommand = \"touch\"\nargs = [\"started\"]\n");
    w.ctx("run").code(2).stderr_contains("there is nothing to serve");
    assert!(!w.path("started").exists());
}

#[test]
fn what_cannot_be_a_server_is_told_before_anything_starts() {
    let w = TestWorkspace::empty();
    w.ctx("run").code(2).stderr_contains("or a server: ctx run --mcp files=");
    w.ctx_args(["run", "--mcp", "npx"]).code(2).stderr_contains("write name=COMMAND or name=URL");
    w.ctx_args(["run", "--mcp", "a='npx"])
        .code(2)
        .stderr_contains("a quote in the command line is not closed");
    w.ctx_args(["run", "--mcp", "ctx=npx"]).code(2).stderr_contains("the name `ctx` is reserved");
}

#[test]
fn what_cannot_be_an_api_is_told_before_anything_starts() {
    let w = TestWorkspace::empty().file("petstore.yaml", "{}").file("openapi.yaml", "{}");
    w.ctx("run")
        .code(2)
        .stderr_contains("hint: name an API by its OpenAPI description: ctx run petstore.yaml, or");
    w.ctx("run gone.yaml").code(2).stderr_contains("there is no file /");
    w.ctx("run openapi.yaml")
        .code(2)
        .stderr_contains("no name can be derived from it: write name=PATH or name=URL");
    w.ctx("run ctx=openapi.yaml").code(2).stderr_contains("the name `ctx` is reserved");
    w.ctx("run petstore.yaml --auth petstore")
        .code(2)
        .stderr_contains("write name:VARIABLE or name.scheme:VARIABLE");
    w.ctx("run petstore.yaml --auth petsore:HOME").code(2).stderr_contains("did you mean `petstore`?");
    w.ctx("run petstore.yaml --auth petstore:NO_SUCH_VARIABLE")
        .code(2)
        .stderr_contains("NO_SUCH_VARIABLE is not set");
    w.ctx("run petstore.yaml --mcp petstore=npx")
        .code(2)
        .stderr_contains("has the same name in scripts as [mcp_servers.petstore]");
}

#[test]
fn a_typed_server_takes_the_place_of_a_written_one_and_needs_no_trust() {
    let other = other();
    let w = TestWorkspace::empty().config(
        "[server]\nbind = \"127.0.0.1:0\"\n\
         [mcp_servers.other]\ncommand = \"touch\"\nargs = [\"started\"]\nenv = { A = \"b\" }\n",
    );
    let server = w.spawn(["serve", "mcp", "--mcp", &typed("other", &other)]);
    let script = json!({"script": "return sdk.other.greet{ name = \"Ada\" }.text"});
    assert_eq!(server.post("/tools/execute", &script).body["result"], "hello Ada");
    server.stop().success();
    assert!(!w.path("started").exists());
}

#[test]
fn they_are_served_at_an_address_too() {
    let other = other();
    let w = TestWorkspace::empty();
    let server = w.spawn(["run", "--http=127.0.0.1:0", "--mcp", &typed("other", &other)]);
    let listed = || server.post("/tools/list_functions", &json!({})).body["result"].to_string();
    wait_until("its functions are known", || listed().contains("other – "));
    server.stop().success();
}

#[test]
fn whoever_looks_for_functions_is_told_of_servers_that_cannot_be_reached() {
    let w = TestWorkspace::empty();
    let server = w.spawn(["run", "--http=127.0.0.1:0", "--mcp", "gone=http://127.0.0.1:1/mcp"]);
    let ask = |tool: &str, arguments: Value| {
        let reply = server.post(&format!("/tools/{tool}"), &arguments).body;
        reply["result"].as_str().or(reply["error"]["message"].as_str()).unwrap().to_owned()
    };
    wait_until("it has been tried", || {
        ask("list_functions", json!({})).contains("gone – cannot be reached: ")
    });
    for (tool, arguments) in [
        ("list_functions", json!({"provider": "gone"})),
        ("search_docs", json!({"query": "anything", "provider": "gone"})),
        ("get_function_docs", json!({"name": "gone.greet"})),
    ] {
        let told = ask(tool, arguments);
        // The message contains the root cause, not only that the request failed.
        assert!(told.starts_with("gone cannot be reached: ") && told.contains("refused"), "{tool}: {told}");
    }
    let told = ask("search_docs", json!({"query": "run a script"}));
    assert!(
        told.starts_with("not searched, since their functions are not known yet: gone\nsdk.ctx."),
        "{told}"
    );
    server.stop().success();
}

#[test]
fn a_change_at_a_server_is_told_to_the_client_that_follows_it() {
    let w = TestWorkspace::empty();
    let everything = format!("everything=node '{}' stdio", official_server("server-everything").display());
    let uri = "mcp://everything/demo://resource/dynamic/text/1";
    // A call waits until the server is connected and its tools are known.
    let script = "return sdk.everything.toggle_subscriber_updates()";
    let answers = session_until(
        &w,
        &["run", "--mcp", &everything],
        &[
            ("tools/call", json!({"name": "execute", "arguments": {"script": script}})),
            ("resources/subscribe", json!({"uri": uri})),
            ("resources/read", json!({"uri": uri})),
        ],
        Some("notifications/resources/updated"),
    );
    assert_eq!(answers[3]["contents"][0]["uri"], uri, "{answers:?}");
    assert_eq!(answers[4]["uri"], uri, "{answers:?}");
}
