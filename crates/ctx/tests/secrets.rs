//! Secrets of the configuration are masked when a script leaks them.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestServer, TestWorkspace};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;

const SECRET: &str = "hunter2-hunter2";

const LEAK: &str = r#"tool = {
    name = "leak",
    description = "Tells a secret in many ways",
    parameters = { { name = "how", type = "string", required = true }, { name = "note", type = "string" } },
}

function tool.execute(params, context)
    local token = context.config.api_token
    if params.how == "error" then
        log.warn("sending " .. token)
        error("refused with " .. token)
    elseif params.how == "log" then
        log.warn("sending " .. token)
        print("printing", { token })
        context.progress(1, 2, "half of " .. token)
        return "logged"
    elseif params.how == "http" then
        http.get(context.config.url .. "/" .. token .. "?key=" .. token)
    elseif params.how == "environment" then
        error("refused with " .. env.get("OTHER_TOKEN"))
    elseif params.how == "nested" then
        return sdk.tools.leak{ how = "error" }
    end
    return { token = token, note = params.note }
end
"#;

const LEAKY_CONNECTOR: &str = r#"connector = { name = "leaky", description = "Tells a secret" }

function connector.scan(config)
    log.warn("asking with " .. config.api_token)
    emit({ source_id = "1", body = "fine" })
    emit({ source_id = "2", body = "fine", updated_at = config.api_token })
    error("refused with " .. config.api_token)
end
"#;

/// A workspace with scripts that leak; the address that they contact is not listening.
fn leaky() -> TestWorkspace {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    TestWorkspace::empty()
        .config(&format!(
            "[server]\nbind = \"127.0.0.1:0\"\n\
             [tools.script.leak]\npath = \"leak.lua\"\napi_token = \"${{API_TOKEN}}\"\nurl = \"http://{nobody}\"\n\
             [connectors.script.leaky]\npath = \"leaky.lua\"\napi_token = \"${{API_TOKEN}}\"\n"
        ))
        .file("leak.lua", LEAK)
        .file("leaky.lua", LEAKY_CONNECTOR)
        .env("API_TOKEN", SECRET)
        .env("OTHER_TOKEN", "swordfish-swordfish")
}

/// The raw event stream of a call.
fn streamed(server: &TestServer, arguments: &Value) -> String {
    let body = arguments.to_string();
    let headers = [("content-type", "application/json"), ("accept", "text/event-stream")];
    let mut stream = server.connect();
    stream.write_all(server.request_head("POST", "/tools/leak", &headers, body.len()).as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[track_caller]
fn assert_masked(text: &str) {
    assert!(!text.contains(SECRET) && !text.contains("swordfish"), "{text}");
}

#[test]
fn a_secret_is_masked_in_errors_logs_and_runs() {
    let w = leaky();
    let server = w.spawn(["-v", "serve", "mcp"]);
    for (how, part) in [
        ("error", "leak.lua:11: refused with ***"),
        ("http", "/***: "),
        ("environment", "refused with ***"),
        ("nested", "refused with ***"),
    ] {
        let reply = server.post("/tools/leak", &json!({ "how": how }));
        let message = reply.body["error"]["message"].as_str().unwrap();
        assert_eq!((reply.status, message.contains(part)), (500, true), "{how}: {message}");
        assert_masked(&reply.body.to_string());
        let events = streamed(&server, &json!({ "how": how }));
        assert!(events.contains("event: error") && events.contains(part), "{events}");
        assert_masked(&events);
    }
    let logged = server.post("/tools/leak", &json!({"how": "log", "note": SECRET}));
    assert_eq!(logged.status, 200);
    assert_masked(&logged.body.to_string());
    let failed = server.post("/tools/leak", &json!({"how": "error"}));
    assert_eq!(failed.body["logs"][0]["message"], "sending ***");
    let events = streamed(&server, &json!({"how": "log"}));
    assert!(events.contains("half of ***") && events.contains("sending ***"), "{events}");
    assert_masked(&events);
    // The result of a tool is never changed.
    let answered = server.post("/tools/leak", &json!({"how": "answer", "note": SECRET}));
    assert_eq!(answered.body["result"], json!({"token": SECRET, "note": SECRET}));

    let outcome = server.stop().success();
    assert!(outcome.stderr.contains("sending ***"), "{}", outcome.stderr);
    assert_masked(&outcome.stderr);
    let runs = w.ctx("runs --json").success();
    assert!(runs.stdout.contains("refused with ***"), "{}", runs.stdout);
    assert_masked(&runs.stdout);
    for run in runs.json()["runs"].as_array().unwrap() {
        let shown = w.ctx_args(["runs", run["id"].as_str().unwrap(), "--json"]).success();
        assert_masked(&shown.stdout);
    }
    assert_masked(&w.ctx("runs").success().stdout);
    for entry in std::fs::read_dir(w.data("")).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            let kept = std::fs::read(entry.path()).unwrap();
            let found = kept.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
            assert!(!found, "{}", entry.path().display());
        }
    }
}

#[test]
fn a_secret_is_masked_where_scripts_are_tried_and_synced() {
    let w = leaky();
    let tested = w.ctx("tool test leak.lua --param how=error").code(1);
    assert!(tested.stdout.contains("refused with ***"), "{}", tested.stdout);
    assert_masked(&(tested.stdout + &tested.stderr));
    let logged = w.ctx("tool test leak.lua --param how=log").success().stderr_contains("sending ***");
    assert_masked(&(logged.stdout + &logged.stderr));
    w.write("script.luau", "return sdk.tools.leak{ how = 'error' }");
    let executed = w.ctx("exec script.luau").code(1).stderr_contains("refused with ***");
    assert_masked(&(executed.stdout + &executed.stderr));

    let synced = w.ctx("-v sync").code(1).stderr_contains("leaky.lua:7: refused with ***");
    assert_masked(&(synced.stdout + &synced.stderr));
    let scanned = w.ctx("connector test leaky.lua").code(1);
    assert!(scanned.stdout.contains("refused with ***"), "{}", scanned.stdout);
    assert_masked(&(scanned.stdout + &scanned.stderr));
    for command in ["sources", "sources --json", "doctor", "config show", "tool list --json", "stats --json"]
    {
        let told = w.ctx(command);
        assert_masked(&(told.stdout + &told.stderr));
    }

    w.write("leak.lua", "error('loaded with ' .. env.get('API_TOKEN'))");
    let listed = w.ctx("tool list").success().stderr_contains("[tools.script.leak] is left out: ");
    assert_masked(&(listed.stdout + &listed.stderr));
}
