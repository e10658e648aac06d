//! Upstream servers that require sign-in (OAuth).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{
    CommandOutput, HttpResponse, OAUTH_SECRET, OAuthMcpServer, TestServer, TestWorkspace, browse, signal,
    wait_until,
};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

const NEEDED: &str = "up needs you to log in: run `ctx upstream login up`";

/// A workspace with the server as its upstream, and a browser that only records the URL.
fn workspace(server: &OAuthMcpServer) -> TestWorkspace {
    let config = format!(
        "[server]\nbind = \"127.0.0.1:0\"\n[mcp_servers.up]\nurl = \"{}\"\n[connectors.filesystem.docs]\nroot = \"docs\"\n",
        server.url()
    );
    let w = TestWorkspace::empty().config(&config).file("docs/a.md", "# A\n");
    let browser = w.path("browser.sh");
    let w = w.file("browser.sh", "#!/bin/sh\nprintf %s \"$1\" > address.part && mv address.part address\n");
    w.mode("browser.sh", 0o755);
    let state = w.path("state");
    w.env("BROWSER", browser.to_str().unwrap()).env("XDG_STATE_HOME", state.to_str().unwrap())
}

/// Completes a login as a user would.
#[track_caller]
fn log_in(w: &TestWorkspace) -> (Option<i32>, String) {
    let child = w
        .command(["upstream", "login", "up"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let address = w.path("address");
    wait_until("the browser is opened", || address.exists());
    let page = browse(&w.read("address"));
    assert!(page.contains("You can close this window."), "{page}");
    w.remove("address");
    let output = child.wait_with_output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), without_secrets(String::from_utf8(printed).unwrap()))
}

#[track_caller]
fn without_secrets(text: String) -> String {
    assert!(!text.contains(OAUTH_SECRET), "a secret is shown: {text}");
    text
}

#[track_caller]
fn run(w: &TestWorkspace, tool: &str) -> CommandOutput {
    w.write("script.lua", format!("return sdk.up.{tool}{{}}"));
    w.ctx("-v exec script.lua")
}

fn execute(server: &TestServer, tool: &str) -> HttpResponse {
    server.post("/tools/execute", &json!({ "script": format!("return sdk.up.{tool}{{}}") }))
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_login_is_requested_made_and_used_by_a_running_server() {
    let up = OAuthMcpServer::start();
    let w = workspace(&up);
    let server = w.spawn_server();
    assert!(execute(&server, "read").body.to_string().contains(NEEDED));
    run(&w, "read").code(1).stderr_contains(NEEDED);
    assert!(w.ctx("upstream list").success().stdout.contains(NEEDED));
    w.ctx("upstream test up").code(1).stderr_contains(NEEDED);
    let doctor = w.ctx("doctor").code(1).stdout;
    assert!(
        doctor.contains("up needs you to log in") && doctor.contains("ctx upstream login up"),
        "{doctor}"
    );
    let before = up.requests().len();
    for _ in 0..3 {
        assert!(execute(&server, "read").body.to_string().contains(NEEDED));
    }
    assert_eq!(up.requests().len(), before, "a server that lets nobody in is not asked again");

    let (code, printed) = log_in(&w);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("✓ logged in; up has 2 tools"), "{printed}");
    assert_eq!(execute(&server, "read").status, 200, "what runs takes a login up");
    let done = run(&w, "read").success();
    assert!(done.stdout.contains("read with"), "{}", done.stdout);
    assert!(w.ctx("upstream list").success().stdout.contains("2 tools"));
    w.ctx("doctor").success();
    assert_eq!(up.login_count(), 1);

    let folder = w.path("state/ctx");
    assert_eq!(mode(&folder), 0o700);
    let credentials = folder.join("credentials.sqlite");
    assert_eq!(mode(&credentials), 0o600);
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
    server.stop().success();
}

#[test]
fn stored_credentials_are_private_whatever_the_umask() {
    let w = TestWorkspace::new().file("docs/a.md", "harbour").file("docs/b.md", "ship");
    w.shell("umask 000; ctx sync && ctx search harbour && ctx trust && ctx runs").success();
    let mut folders = vec![w.data("")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
                files += 1;
            }
        }
    }
    assert!(files > 5);
    let store = w.data("ctx.sqlite");
    w.mode(w.data("").to_str().unwrap(), 0o755);
    w.ctx("doctor").code(1).stdout_contains("✗ privacy: other users of this machine can access ");
    assert_eq!(mode(&store), 0o600);
}

#[test]
fn tokens_are_shown_nowhere() {
    let up = OAuthMcpServer::start();
    let w = workspace(&up);
    let server = w.spawn_server();
    log_in(&w);
    up.revoke_access_tokens();
    w.write("script.lua", "error(sdk.up.read{})");
    let failed = w.ctx("-v -v exec script.lua").code(1);
    without_secrets(failed.stdout);
    let printed = without_secrets(failed.stderr);
    assert!(printed.contains("read with ***"), "{printed}");
    without_secrets(w.ctx("config show").success().stdout);
    without_secrets(w.ctx("runs list --json").stdout);
    execute(&server, "read");
    without_secrets(server.stop().success().stderr);
}

#[test]
fn a_token_that_has_ended_is_renewed_once_for_all() {
    let up = OAuthMcpServer::start();
    let w = workspace(&up);
    log_in(&w);
    let server = w.spawn_server();
    assert_eq!(execute(&server, "read").status, 200);
    for round in 1..=3 {
        up.revoke_access_tokens();
        std::thread::scope(|scope| {
            let calls: Vec<_> = (0..8).map(|_| scope.spawn(|| execute(&server, "read"))).collect();
            for call in calls {
                let reply = call.join().unwrap();
                assert_eq!(reply.status, 200, "{}", reply.body);
            }
        });
        assert_eq!(up.refresh_count(), round);
    }
    run(&w, "read").success();
    assert_eq!((up.refresh_count(), up.login_count()), (3, 1), "another process has the last token");
    up.revoke_access_tokens();
    let start = || w.command(["exec", "script.lua"]).stdout(Stdio::null()).spawn().unwrap();
    let processes: Vec<_> = (0..4).map(|_| start()).collect();
    assert_eq!(execute(&server, "read").status, 200);
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    assert_eq!(up.refresh_count(), 4, "for all processes, too");
    server.stop().success();
}

#[test]
fn missing_scopes_are_requested_in_another_login() {
    let up = OAuthMcpServer::start();
    let w = workspace(&up);
    log_in(&w);
    let server = w.spawn_server();
    let refused = execute(&server, "write").body.to_string();
    let needed = "up needs you to log in again and to grant `write`: run `ctx upstream login up`";
    assert!(refused.contains(needed), "{refused}");
    assert_eq!(execute(&server, "read").status, 200, "the rest works");
    assert_eq!(log_in(&w).0, Some(0));
    assert_eq!(execute(&server, "write").status, 200);
    assert_eq!(execute(&server, "read").status, 200, "what was granted before is granted still");
    server.stop().success();
}

#[test]
fn a_login_that_has_ended_or_was_forgotten_is_asked_for_again() {
    let up = OAuthMcpServer::start();
    let w = workspace(&up);
    w.ctx("upstream logout up").success();
    log_in(&w);
    let server = w.spawn_server();
    assert_eq!(execute(&server, "read").status, 200);
    up.revoke_all_tokens();
    assert!(execute(&server, "read").body.to_string().contains(NEEDED));
    assert_eq!(log_in(&w).0, Some(0));
    assert_eq!(execute(&server, "read").status, 200);
    let told = w.ctx("upstream logout up").success().stdout;
    assert!(told.contains("logged out of"), "{told}");
    run(&w, "read").code(1).stderr_contains(NEEDED);
    wait_until("what runs knows of that", || execute(&server, "read").body.to_string().contains(NEEDED));
    // Its functions stay listed, in a running server and in new processes.
    let listed = server.post("/tools/list_functions", &json!({"provider": "up"})).body.to_string();
    assert!(listed.contains("up.read("), "{listed}");
    let listed = w.ctx("docs up.read").success().stdout;
    assert!(listed.contains("function sdk.up.read("), "{listed}");
    w.ctx("upstream logout other").code(2).stderr_contains("there is no server `other`");
    server.stop().success();
}

#[test]
fn a_login_can_be_given_up() {
    let up = OAuthMcpServer::start();
    let w = workspace(&up);
    let child = w.command(["upstream", "login", "up"]).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the browser is opened", || w.path("address").exists());
    signal(child.id(), "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cancelled; nothing was changed"));
    run(&w, "read").code(1).stderr_contains(NEEDED);
}

#[test]
fn a_server_with_a_header_of_its_own_is_not_logged_in_at() {
    let up = OAuthMcpServer::start();
    let w = TestWorkspace::empty().config(&format!(
        "[mcp_servers.up]\nurl = \"{}\"\nheaders = {{ Authorization = \"Bearer wrong\" }}\n",
        up.url()
    ));
    assert!(w.ctx("upstream list").success().stdout.contains("failed"));
    w.ctx("upstream login up").code(1).stderr_contains("up is not an upstream with OAuth login");
}
