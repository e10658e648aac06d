//! All HTTP statuses of calls of a Lua tool.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{HttpResponse, MockWebServer, TestWorkspace, http_response};
use serde_json::{Value, json};
use std::sync::{Mutex, mpsc};
use std::thread;

/// A script with `last` on line 42.
fn script(last: &str) -> String {
    let mut lines = vec![
        "tool = {".to_owned(),
        "    name = \"x\",".to_owned(),
        "    description = \"Does something\",".to_owned(),
        "    parameters = { { name = \"title\", type = \"string\", required = true } },".to_owned(),
        "}".to_owned(),
        "function tool.execute(params, context)".to_owned(),
    ];
    lines.resize(41, String::new());
    lines.push(last.to_owned());
    lines.push("end\n".to_owned());
    lines.join("\n")
}

fn with_script(last: &str, config: &str) -> TestWorkspace {
    TestWorkspace::empty()
        .config(&format!(
            "[server]\nbind = \"127.0.0.1:0\"\n[tools.script.x]\npath = \"tools/x.lua\"\n{config}"
        ))
        .file("tools/x.lua", &script(last))
}

/// Status, code and message of an error.
fn status_and_error(reply: &HttpResponse) -> (u16, &str, &str) {
    (reply.status, reply.error_code(), reply.body["error"]["message"].as_str().unwrap())
}

/// The response to a call of a tool with this line.
fn call_with_script(last: &str, config: &str, arguments: &Value) -> HttpResponse {
    let w = with_script(last, config);
    let server = w.spawn_server();
    let reply = server.post("/tools/x", arguments);
    server.stop().success();
    reply
}

#[test]
fn a_result_is_200() {
    let reply = call_with_script("return { title = params.title }", "", &json!({"title": "a"}));
    assert_eq!((reply.status, reply.body), (200, json!({"result": {"title": "a"}})));
}

#[test]
fn a_failure_that_the_script_dealt_with_is_200() {
    let reply = call_with_script("return { error = 'no such project' }", "", &json!({"title": "a"}));
    assert_eq!((reply.status, reply.body), (200, json!({"result": {"error": "no such project"}})));
}

#[test]
fn arguments_that_do_not_fit_are_400() {
    let w = with_script("return 1", "");
    let server = w.spawn_server();
    let missing = server.post("/tools/x", &json!({}));
    assert_eq!(status_and_error(&missing), (400, "bad_request", "missing required parameter: title"));
    let wrong = server.post("/tools/x", &json!({"title": 7}));
    assert_eq!(status_and_error(&wrong).0, 400);
    for body in ["", "[]", "{", "\"text\""] {
        let reply = server.send("POST", "/tools/x", &[("content-type", "application/json")], body.as_bytes());
        assert_eq!((reply.status, reply.error_code()), (400, "bad_request"), "{body}: {:?}", reply.body);
    }
    server.stop().success();
}

#[test]
fn a_tool_that_is_not_there_is_404() {
    let w = with_script("return 1", "");
    let server = w.spawn_server();
    let reply = server.post("/tools/foo", &json!({}));
    assert_eq!(status_and_error(&reply), (404, "not_found", "no tool registered with name: foo"));
    server.stop().success();
}

#[test]
fn time_that_is_over_is_408() {
    let spin = "while true do pcall(function() while true do end end) end";
    let reply = call_with_script(spin, "timeout = 2\n", &json!({"title": "a"}));
    assert_eq!(status_and_error(&reply), (408, "timeout", "tool 'x' timed out after 2 seconds"));
    let reply = call_with_script("sleep(60)", "timeout = 2\n", &json!({"title": "a"}));
    assert_eq!(status_and_error(&reply), (408, "timeout", "tool 'x' timed out after 2 seconds"));
}

#[test]
fn an_error_of_the_script_is_500_with_its_line() {
    let reply = call_with_script("return params.missing.b", "", &json!({"title": "a"}));
    assert_eq!(
        status_and_error(&reply),
        (500, "tool_error", "tools/x.lua:42: attempt to index nil with 'b'")
    );
    let reply = call_with_script("return string.rep('x', 2e6)", "", &json!({"title": "a"}));
    let (status, code, message) = status_and_error(&reply);
    assert_eq!((status, code), (500, "tool_error"), "{message}");
}

#[test]
fn a_body_that_is_too_large_is_413() {
    let limits = "[limits]\nhttp_body_bytes = 1000\n";
    let reply = call_with_script("return 1", limits, &json!({"title": "a".repeat(1_000)}));
    assert_eq!((reply.status, reply.error_code()), (413, "too_large"), "{:?}", reply.body);
}

#[test]
fn calls_beyond_the_rate_are_429_with_the_time_to_wait() {
    let w = with_script("return 1", "rate_limit = \"2/m\"\n");
    let server = w.spawn_server();
    let call = || server.post("/tools/x", &json!({"title": "a"}));
    assert_eq!((call().status, call().status), (200, 200));
    let refused = call();
    assert_eq!((refused.status, refused.error_code()), (429, "rate_limited"), "{:?}", refused.body);
    let wait: u64 = refused.headers["retry-after"].parse().unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
    server.stop().success();
}

#[test]
fn a_call_that_finds_no_worker_in_time_is_503() {
    let (begun, begins) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (begun, released) = (Mutex::new(begun), Mutex::new(released));
    let web = MockWebServer::serve(move |_| {
        begun.lock().unwrap().send(()).unwrap();
        released.lock().unwrap().recv().unwrap();
        http_response(200, "done")
    });
    let config = format!(
        "url = \"{}\"\n[tools.script.quick]\npath = \"tools/quick.lua\"\ntimeout = 1\n[limits]\nscript_workers = 1\n",
        web.url("/")
    );
    let w = with_script("return http.get(context.config.url).body", &config).file(
        "tools/quick.lua",
        "tool = { name = \"quick\", description = \"Does nothing\", parameters = {} }\n\
         function tool.execute() return 1 end\n",
    );
    let server = w.spawn_server();
    thread::scope(|scope| {
        let slow = scope.spawn(|| server.post("/tools/x", &json!({"title": "a"})));
        begins.recv().unwrap();
        let refused = server.post("/tools/quick", &json!({}));
        assert_eq!((refused.status, refused.error_code()), (503, "overloaded"), "{:?}", refused.body);
        assert_eq!(refused.headers["retry-after"], "1");
        assert_eq!(server.get("/health").status, 200);
        release.send(()).unwrap();
        assert_eq!(slow.join().unwrap().body["result"], "done");
        assert_eq!(server.post("/tools/quick", &json!({})).status, 200);
    });
    server.stop().success();
}
