//! A server's life cycle: authentication, graceful shutdown, signals.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{HttpResponse, TestServer, TestWorkspace, ctx_snapshot, signal, wait_until};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;

const CONTINUE: &[u8; 25] = b"HTTP/1.1 100 Continue\r\n\r\n";

fn synced() -> TestWorkspace {
    let workspace = TestWorkspace::new().file("docs/deploy.md", "# Deploy\nPush the button.\n");
    workspace.ctx("sync").success();
    workspace
}

/// Sends a search request up to the middle of its body, once the server has asked for the body.
fn half_a_search(server: &TestServer) -> (TcpStream, Vec<u8>) {
    let body = json!({"query": "button"}).to_string().into_bytes();
    let (first, rest) = body.split_at(body.len() / 2);
    let mut stream = server.connect();
    let headers = [("content-type", "application/json"), ("expect", "100-continue")];
    stream.write_all(server.request_head("POST", "/tools/search", &headers, body.len()).as_bytes()).unwrap();
    stream.write_all(first).unwrap();
    let mut wanted = [0; CONTINUE.len()];
    stream.read_exact(&mut wanted).unwrap();
    assert_eq!(&wanted, CONTINUE);
    (stream, rest.to_vec())
}

/// Waits until the server accepts no connections, which shows that it has received the signal.
fn wait_until_it_drains(server: &TestServer) {
    wait_until("the server takes no more connections", || TcpStream::connect(server.address()).is_err());
}

#[test]
fn a_server_tells_where_it_is_that_it_is_well_and_what_it_knows() {
    let w = synced();
    let server = w.spawn_server();
    let health = server.get("/health");
    assert_eq!((health.status, &health.body["status"]), (200, &json!("ok")));
    assert_eq!(server.post("/tools/search", &json!({"query": "button"})).found_ids(), ["deploy.md"]);
    let stopped = server.stop().success();
    assert_eq!(stopped.stdout, "");
    ctx_snapshot!(stopped, @r"
    exit_code: 0
    ----- stdout -----

    ----- stderr -----
    serving http://127.0.0.1:[PORT]
    ");
    let runs = w.ctx("runs --json").success().json();
    assert_eq!(runs["runs"][0]["caller"], "http", "what was called over HTTP is recorded when it stops");
}

#[test]
fn a_server_that_has_just_told_its_address_can_be_stopped() {
    let w = synced();
    for _ in 0..10 {
        w.spawn_server().stop().success();
    }
}

#[test]
fn a_request_in_flight_is_answered_before_a_server_ends() {
    for name in ["TERM", "INT"] {
        let w = synced();
        let server = w.spawn_server();
        let (mut stream, rest) = half_a_search(&server);
        signal(server.id(), name);
        wait_until_it_drains(&server);
        stream.write_all(&rest).unwrap();
        let reply = HttpResponse::read(&stream);
        assert_eq!((reply.status, reply.found_ids()), (200, vec!["deploy.md".to_owned()]), "SIG{name}");
        server.wait().success();
    }
}

#[test]
fn a_second_signal_ends_a_server_at_once() {
    let w = synced();
    let server = w.spawn_server();
    let (_stream, _rest) = half_a_search(&server);
    signal(server.id(), "INT");
    wait_until_it_drains(&server);
    signal(server.id(), "INT");
    ctx_snapshot!(server.wait(), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    serving http://127.0.0.1:[PORT]
    error: stopped before requests in flight had finished
    ");
}

#[test]
fn a_request_that_never_ends_does_not_keep_a_server_from_ending() {
    let w = synced().config("[server]\nbind = \"127.0.0.1:0\"\n\n[limits]\ndrain_timeout = 1\n");
    let server = w.spawn_server();
    let (_stream, _rest) = half_a_search(&server);
    ctx_snapshot!(server.stop(), @r"
    exit_code: 0
    ----- stdout -----

    ----- stderr -----
    serving http://127.0.0.1:[PORT]
    warning: requests still in flight after [DURATION] are cut off
    ");
}

#[test]
fn a_connection_that_only_waits_does_not_hold_up_the_end() {
    let w = synced();
    let server = w.spawn_server();
    let (idle, mut used) = (server.connect(), server.connect());
    used.write_all(format!("GET /health HTTP/1.1\r\nhost: {}\r\n\r\n", server.address()).as_bytes()).unwrap();
    assert_eq!(HttpResponse::read(&used).status, 200);
    let stopped = server.stop().success();
    assert!(!stopped.stderr.contains("cut off"), "{}", stopped.stderr);
    drop((idle, used));
}

#[test]
fn a_token_is_needed_for_everything_but_health() {
    let w = synced()
        .config("[server]\nbind = \"127.0.0.1:0\"\ntoken = \"${CTX_TOKEN}\"\n")
        .env("CTX_TOKEN", "correct-horse-battery");
    let server = w.spawn_server();
    assert_eq!(server.get("/health").status, 200);
    for path in ["/tools/list", "/tools/sources", "/openapi.json", "/nowhere", "/health/"] {
        let reply = server.get(path);
        assert_eq!((reply.status, reply.error_code()), (401, "unauthorized"), "{path}");
    }
    let refused = server.post("/tools/search", &json!({"query": "button"}));
    assert_eq!((refused.status, refused.headers["www-authenticate"].as_str()), (401, "Bearer"));
    let with = |token: &str| server.send("GET", "/tools/list", &[("authorization", token)], b"").status;
    assert_eq!(with("Bearer correct-horse-battery"), 200);
    assert_eq!(with("Bearer correct-horse-batterx"), 401);
    assert_eq!(with("Bearer "), 401);
    let outcome = server.stop().success();
    assert!(!outcome.stderr.contains("correct-horse"), "{}", outcome.stderr);
}

#[test]
fn a_second_server_on_the_same_port_is_refused_with_a_hint() {
    let w = synced();
    let server = w.spawn_server();
    let other = TestWorkspace::new().config(&format!("[server]\nbind = \"{}\"\n", server.address()));
    ctx_snapshot!(other.ctx("serve mcp"), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    error: 127.0.0.1:[PORT] is in use by another program
    hint: stop it, or take another port: `--port PORT`, or `server.bind` (port 0 takes any that is free)
    ");
    other.ctx("up").code(1).stderr_contains("is in use by another program");
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn up_syncs_and_serves_in_one_step() {
    let w = TestWorkspace::empty().file("project/docs/deploy.md", "# Deploy\nPush the button.\n").file(
        "project/ctx.toml",
        "[connectors.filesystem.docs]\nroot = \"docs\"\n[server]\nbind = \"127.0.0.1:0\"\n",
    );
    let server = w.spawn(["up", "project"]);
    assert_eq!(server.post("/tools/search", &json!({"query": "button"})).found_ids(), ["deploy.md"]);
    let mut ended = server.stop();
    let program = w.command(["up"]).get_program().to_string_lossy().into_owned();
    ended.stderr = ended.stderr.replace(&program, "[PROGRAM]");
    ctx_snapshot!(ended, @r#"
    exit_code: 0
    ----- stdout -----

    ----- stderr -----
    filesystem:docs: 1 added
    1 document in 1 chunk ready to be searched

    serving http://127.0.0.1:[PORT]

      Claude Code  claude mcp add --scope user ctx-project -- [PROGRAM] --config [ROOT]/project/ctx.toml serve mcp --stdio
      Cursor       ctx connect cursor --write -c [ROOT]/project/ctx.toml
      others       ctx connect --help

      search       curl -s http://127.0.0.1:[PORT]/tools/search -H 'Content-Type: application/json' \
                     -d '{"query": "how do I roll back a release?"}'
      tools        curl -s http://127.0.0.1:[PORT]/tools/list
      schema       http://127.0.0.1:[PORT]/openapi.json

    Ctrl-C stops.
    "#);
    assert!(!w.path("project/.ctx").exists(), "the store lies with the user");
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_may_open_as_many_files_as_may_be_had() {
    let workspace = TestWorkspace::new().file("docs/a.md", "A.\n");
    let told = workspace.shell(
        "ulimit -Sn 64; ulimit -Hn 512
         ctx serve mcp 2>log &
         until grep -q serving log; do sleep 0.05; done
         grep 'open files' /proc/$!/limits
         kill $!; wait $!",
    );
    let figures: Vec<&str> = told.stdout.split_whitespace().collect();
    assert_eq!(figures[..5], ["Max", "open", "files", "512", "512"]);
}
