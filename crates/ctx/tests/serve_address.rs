//! The listening address of a server: options, a server that already runs, and taken ports.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestWorkspace, ctx_snapshot, signal};
use std::net::TcpListener;

/// Two workspaces of one user, `one` and `two`, without a `[server]` section.
fn two_workspaces() -> TestWorkspace {
    let config = "[connectors.filesystem.docs]\nroot = \"docs\"\n[embedding]\nprovider = \"disabled\"\n";
    TestWorkspace::empty()
        .file("one/ctx.toml", config)
        .file("one/docs/a.md", "harbour")
        .file("two/ctx.toml", config)
        .file("two/docs/b.md", "lighthouse")
}

/// Finds a free port.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_typed_port_and_address_take_the_place_of_the_setting() {
    let w = two_workspaces();
    for command in [&["up", "one"][..], &["-c", "one/ctx.toml", "serve", "mcp"]] {
        let port = free_port();
        let typed = ["--port".to_owned(), port.to_string()];
        let arguments: Vec<String> = command.iter().map(ToString::to_string).chain(typed).collect();
        let server = w.spawn(&arguments);
        assert_eq!(server.address().to_string(), format!("127.0.0.1:{port}"));
        server.stop().success();
        let bind = format!("--bind=127.0.0.2:{port}");
        let server = w.spawn(command.iter().copied().chain([bind.as_str()]));
        assert_eq!(server.address().to_string(), format!("127.0.0.2:{port}"));
        server.stop().success();
    }
    let server = w.spawn(["up", "one", "--bind", "::1", "--port", "0"]);
    assert!(server.address().ip().to_string() == "::1", "{}", server.address());
    let w =
        w.file("api.json", r#"{"openapi": "3.1.0", "info": {"title": "a", "version": "1"}, "paths": {}}"#);
    let server = w.spawn(["run", "empty=api.json", "--port", "0"]);
    assert_eq!(server.get("/health").status, 200);
    let server = w.spawn(["run", "empty=api.json", "--bind", "127.0.0.2:0"]);
    assert_eq!(
        (server.address().ip().to_string(), server.get("/health").status),
        ("127.0.0.2".to_owned(), 200)
    );
    w.ctx("run empty=api.json --bind 0.0.0.0").code(2).stderr_contains("can be reached from outside");
}

#[test]
fn a_typed_address_is_checked_like_the_setting() {
    let w = two_workspaces();
    for command in ["up one", "-c one/ctx.toml serve mcp"] {
        let open = w.ctx(&format!("{command} --bind 0.0.0.0")).code(2);
        open.stderr_contains("`--bind` = \"0.0.0.0:7331\" can be reached from outside")
            .stderr_contains("hint: set `server.token`");
        w.ctx(&format!("{command} --bind 8080")).code(2).stderr_contains("`--port 8080`");
        w.ctx(&format!("{command} --bind 127.0.0.1:1 --port 2"))
            .code(2)
            .stderr_contains("both contain a port");
        w.ctx(&format!("{command} --bind no.such.host.invalid"))
            .code(2)
            .stderr_contains("is not an address and port");
        w.ctx(&format!("{command} --port 70000")).code(2);
    }
    w.ctx("-c one/ctx.toml serve mcp --stdio --port 1").code(2).stderr_contains("cannot be used with");
    w.ctx("run --http=127.0.0.1:0 --bind 127.0.0.1").code(2).stderr_contains("cannot be used with");
}

#[test]
fn an_address_of_a_clone_needs_no_trust_where_another_is_typed() {
    let w = TestWorkspace::empty().config("[server]\nbind = \"0.0.0.0:0\"\n").untrusted();
    let typed = w.spawn(["serve", "mcp", "--bind", "127.0.0.1:0"]).stop().success();
    assert!(!typed.stderr.contains("trusted"), "{}", typed.stderr);
    // A port alone keeps the host of the file, which is not trusted.
    let server = w.spawn(["serve", "mcp", "--port", "0"]);
    assert!(server.address().ip().is_loopback());
    server.stop().success().stderr_contains("is not trusted, so this is left out: server.bind");
}

#[test]
fn a_second_up_says_where_the_first_one_runs() {
    let w = two_workspaces();
    let server = w.spawn(["up", "one", "--port", "0"]);
    let mut again = w.ctx("up one").success();
    again.stdout = again.stdout.replace(&server.id().to_string(), "[PROCESS]");
    let program = w.command(["up"]).get_program().to_string_lossy().into_owned();
    again.stdout = again.stdout.replace(&program, "[PROGRAM]");
    ctx_snapshot!(again, @r#"
    exit_code: 0
    ----- stdout -----
    already running at http://127.0.0.1:[PORT] (MCP at http://127.0.0.1:[PORT]/mcp, process [PROCESS])

      Claude Code  claude mcp add --scope user ctx-one -- [PROGRAM] --config [ROOT]/one/ctx.toml serve mcp --stdio
      Cursor       ctx connect cursor --write -c [ROOT]/one/ctx.toml
      others       ctx connect --help

      search       curl -s http://127.0.0.1:[PORT]/tools/search -H 'Content-Type: application/json' \
                     -d '{"query": "how do I roll back a release?"}'
      tools        curl -s http://127.0.0.1:[PORT]/tools/list
      schema       http://127.0.0.1:[PORT]/openapi.json

    ----- stderr -----
    "#);
    let url = format!("http://{}", server.address());
    let answer = w.ctx("up one/ctx.toml --json").success().json();
    assert_eq!((&answer["url"], &answer["process"]), (&url.into(), &server.id().into()));
    // A different port would start a second server.
    w.ctx(&format!("up one --port {}", free_port())).code(1).stderr_contains("is served already");
    assert_eq!(server.get("/health").status, 200);
    server.stop().success();

    // A killed process leaves a record, which must not block the next server.
    let server = w.spawn(["up", "one", "--port", "0"]);
    signal(server.id(), "KILL");
    server.wait();
    w.spawn(["up", "one", "--port", "0"]).stop().success();
}

#[test]
fn a_port_that_another_workspace_has_is_told_with_its_name() {
    let w = two_workspaces();
    let port = free_port();
    let server = w.spawn(["up", "one", "--port", &port.to_string()]);
    let held = format!("127.0.0.1:{port} is in use by ctx, which serves {}", w.path("one").display());
    w.ctx(&format!("up two --port {port}")).code(1).stderr_contains(&held).stderr_contains("`--port PORT`");
    w.ctx(&format!("-c one/ctx.toml serve mcp --port {port}")).code(1).stderr_contains(&held);
    drop(server);
    let _other = TcpListener::bind(("127.0.0.1", port)).unwrap();
    w.ctx(&format!("up two --port {port}"))
        .code(1)
        .stderr_contains("is in use by another program")
        .stderr_contains("`--port PORT`");
}

#[test]
fn up_takes_a_configuration_file_and_says_what_to_do_with_others() {
    let w = two_workspaces();
    let server = w.spawn(["up", "one/ctx.toml", "--port", "0"]);
    assert_eq!(server.get("/health").status, 200);
    server.stop().success().stderr_contains("1 document in 1 chunk");
    ctx_snapshot!(w.ctx("up two/docs/b.md"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: two/docs/b.md is a file, and a workspace is a folder
    hint: name its folder, two/docs, or a configuration with `--config`
    ");
    assert!(!w.path("two/docs/ctx.toml").exists());
    ctx_snapshot!(w.ctx("up nowhere"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: there is no folder nowhere
    hint: name an existing folder; the default is the working directory
    ");
    w.ctx("up nowhere/ctx.toml").code(2).stderr_contains("there is no configuration file nowhere/ctx.toml");
}
