//! The hidden provider `admin`: only commands can call or list it.
#![cfg(unix)]

use ctx_testkit::{TestServer, TestWorkspace};
use serde_json::{Value, json};

/// Builds the provider's name at run time, so that no static check can refuse the call, only the catalog.
const CALLS_ADMIN: &str = r#"local provider = "admin"
local ok, problem = pcall(function() return sdk[provider].list_runs({ limit = 1 }) end)
return { ok = ok, problem = tostring(problem) }
"#;

const TOOL: &str = r#"tool = { name = "pry", description = "Pries.", parameters = {} }
function tool.execute(params, context)
    local provider = "admin"
    local ok, problem = pcall(function() return sdk[provider].list_runs({ limit = 1 }) end)
    return { ok = ok, problem = tostring(problem) }
end
"#;

fn workspace() -> TestWorkspace {
    TestWorkspace::empty()
        .config(
            "[connectors.filesystem.docs]\nroot = \"docs\"\n[server]\nbind = \"127.0.0.1:0\"\n\
             [tools.script.pry]\npath = \"pry.lua\"\n",
        )
        .file("docs/a.md", "# A\nText.\n")
        .file("pry.lua", TOOL)
        .file("script.luau", CALLS_ADMIN)
}

#[track_caller]
fn assert_refused(answer: &Value) {
    assert_eq!(answer["ok"], false, "{answer}");
    let problem = answer["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("admin"), "{answer}");
    assert!(!problem.contains("did you mean"), "{answer}");
}

fn post_ok(server: &TestServer, path: &str, body: Value) -> Value {
    let reply = server.post(path, &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.body
}

#[test]
fn http_neither_lists_nor_calls_admin() {
    let w = workspace();
    let server = w.spawn_server();
    for path in [
        "/tools/admin.list_runs",
        "/tools/admin__list_runs",
        "/tools/list_runs",
        "/tools/admin.list_files",
        "/tools/list_files",
    ] {
        let reply = server.post(path, &json!({"limit": 1}));
        assert_eq!((reply.status, reply.error_code()), (404, "not_found"), "{path}");
        assert!(!reply.body.to_string().contains("did you mean"), "{}", reply.body);
    }
    for path in ["/tools/list", "/openapi.json"] {
        let listed = server.get(path);
        assert_eq!(listed.status, 200, "{path}");
        let listed = listed.body.to_string();
        assert!(!listed.contains("list_runs") && !listed.contains("admin"), "{path}: {listed}");
        assert!(!listed.contains("list_files"), "{path}: {listed}");
    }
    for (path, body) in [
        ("/tools/list_functions", json!({})),
        ("/tools/search_docs", json!({"query": "list the recorded runs of the admin provider"})),
    ] {
        let found = post_ok(&server, path, body).to_string();
        assert!(!found.contains("list_runs") && !found.contains("admin."), "{path}: {found}");
    }
}

#[test]
fn scripts_neither_see_nor_call_admin() {
    let w = workspace();
    assert_refused(&w.ctx("exec script.luau --json").success().json()["result"]);
    w.write("named.luau", "return sdk.admin.list_runs({ limit = 1 })\n");
    w.ctx("exec named.luau").code(2).stderr_contains("there is no provider `admin`");
    w.write("named.luau", "return sdk.admin.list_files({ source = \"filesystem:docs\" })\n");
    w.ctx("exec named.luau").code(2).stderr_contains("there is no provider `admin`");

    let server = w.spawn_server();
    assert_refused(&post_ok(&server, "/tools/pry", json!({}))["result"]);
    assert_refused(&post_ok(&server, "/tools/execute", json!({"script": CALLS_ADMIN}))["result"]);
}

#[test]
fn commands_that_only_show_something_leave_no_run() {
    let w = workspace();
    w.ctx("sync").success();
    w.ctx("search text").success();
    let before = w.ctx("runs --json").success().json();
    assert_eq!(before["runs"].as_array().map(Vec::len), Some(1), "{before}");
    let id = before["runs"][0]["id"].as_str().unwrap_or_default();
    w.ctx(&format!("runs {id}")).success();
    for command in ["runs --failed", "runs", "stats", "sources", "config show"] {
        w.ctx(command).success();
    }
    assert_eq!(w.ctx("runs --json").success().json(), before);
}

#[test]
fn commands_that_sync_check_and_connect_leave_no_run_either() {
    let w = workspace();
    w.write(
        "ctx.toml",
        "[connectors.filesystem.docs]\nroot = \"docs\"\n[embedding]\nprovider = \"disabled\"\n",
    );
    w.ctx("sync").success();
    w.ctx("search text").success();
    let before = w.ctx("runs --json").success().json();
    assert_eq!(before["runs"].as_array().map(Vec::len), Some(1), "{before}");
    for command in ["sync", "sync --dry-run", "doctor", "upstream list"] {
        w.ctx(command).success();
    }
    for command in ["sync filesystem:dcos", "sources --forget filesystem:docs", "upstream test files"] {
        w.ctx(command).code(2);
    }
    assert_eq!(w.ctx("runs --json").success().json(), before);
}

#[test]
fn http_calls_no_operation_that_changes_something() {
    let w = workspace();
    let server = w.spawn_server();
    let source = json!({"sources": ["all"], "source": "filesystem:docs", "name": "docs"});
    for operation in ["sync", "forget_source", "accept_upstream", "test_upstream", "doctor"] {
        for path in [format!("/tools/admin.{operation}"), format!("/tools/admin__{operation}")] {
            let reply = server.post(&path, &source);
            assert_eq!((reply.status, reply.error_code()), (404, "not_found"), "{path}");
        }
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_told_by_every_operation_on_it() {
    let w = TestWorkspace::empty().config("[mcp_servers.files]\nurl = \"http://127.0.0.1:1/mcp\"\n");
    let listed = w.ctx("upstream list --json").success().json()["upstreams"][0].take();
    assert_eq!((&listed["kind"], &listed["state"]), (&json!("mcp"), &json!("failed")), "{listed}");
    let reason = listed["reason"].as_str().unwrap_or_default();
    assert!(!reason.is_empty(), "{listed}");
    let tested = w.ctx("upstream test files").code(1);
    tested
        .stderr_contains(&format!("error: files: {reason}"))
        .stderr_contains("hint: check [mcp_servers.files] in ctx.toml");
    w.ctx("doctor").code(1).stdout_contains(&format!("✗ mcp_servers.files: {reason}"));
    w.ctx("upstream accept files").code(1).stderr_contains("the tools of files have not been listed yet");
}
