//! Hostile repositories, cloned and not trusted: every command runs in each of them under `strace`. Starting a program,
//! opening a connection, or opening a file outside of the workspace and the user's own `ctx` folders fails the test.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a helper fails the test it helps; counts are printed"
)]

mod repositories;
mod tracer;

use ctx_testkit::{TestWorkspace, signal};
use repositories::{REPOSITORIES, Repository};
use serde_json::json;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use tracer::{AllowList, under_strace, violations};

/// A secret in the user's environment and in files outside of the workspace. It must never appear in any output.
pub(crate) const CANARY: &str = "canary-4f1d9a7be2c04458";

/// Every command that takes a workspace, with arguments that exercise as much of it as possible.
const COMMANDS: &[&str] = &[
    "agent list",
    "completions bash",
    "config show",
    "connect cursor",
    "docs --search anything",
    "doctor",
    "embed pending",
    "eval questions.jsonl",
    "exec script.luau",
    "export",
    "generate petstore.yaml -o generated",
    "get nothing",
    "init",
    "man",
    "run --mcp none=http://127.0.0.1:1/mcp",
    "runs",
    "search harbour",
    "sources",
    "--config ctx.toml sources",
    "stats",
    "sync",
    "tool list",
    "trust --show",
    "upstream list",
    "serve mcp --stdio",
    // Last, since it adds a section to `ctx.toml`.
    "connector init mine",
];
/// Commands that [`try_server`] covers.
const SERVER_COMMANDS: &[&str] = &["up"];
/// Commands that may connect to the server on their command line, since the user typed its address.
const CONNECTING_COMMANDS: &[&str] = &["run"];

#[test]
fn nothing_of_a_repository_that_was_only_cloned_is_run_reached_or_read() {
    // Runs a single repository, for debugging: CTX_HOSTILE='a server for everybody'.
    #[allow(clippy::disallowed_methods, reason = "selects one repository to debug")]
    let only = std::env::var("CTX_HOSTILE").ok();
    let chosen = REPOSITORIES.iter().filter(|one| only.as_ref().is_none_or(|only| one.name == only));
    let chosen: Vec<&Repository> = chosen.collect();
    // Two threads: each mostly waits for child processes.
    let (some, others) = chosen.split_at(chosen.len() / 2);
    let try_all =
        |part: &[&Repository]| -> usize { part.iter().map(|one| try_commands(one) + try_server(one)).sum() };
    let runs = thread::scope(|scope| {
        let (some, others) = (scope.spawn(|| try_all(some)), scope.spawn(|| try_all(others)));
        some.join().unwrap() + others.join().unwrap()
    });
    let count = chosen.len();
    assert!(only.is_some() || count >= 25);
    println!("{count} hostile repositories, {runs} runs, none ran, reached or read anything");
}

#[test]
fn every_command_is_tried() {
    let help = TestWorkspace::empty().ctx("--help").success().stdout;
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let is_name = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let names: Vec<&str> = listed.filter(is_name).filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names.into_iter().filter(|name| *name != "help") {
        let is_tried = |command: &&str| command.split(' ').any(|word| word == name);
        assert!(COMMANDS.iter().chain(SERVER_COMMANDS).any(is_tried), "`ctx {name}` is not tried");
    }
}

fn workspace(repository: &Repository) -> TestWorkspace {
    let w = TestWorkspace::empty()
        .untrusted()
        .env("AWS_SECRET_ACCESS_KEY", CANARY)
        .env("AWS_ACCESS_KEY_ID", "AKIACANARY")
        .env("GIT_TERMINAL_PROMPT", "0")
        .file("docs/readme.md", "# Harbour\nShips come in here.\n")
        .file("questions.jsonl", "{\"query\": \"ships\", \"relevant\": [\"readme.md\"]}\n")
        .file("script.luau", "return 1\n")
        .file("petstore.yaml", "openapi: 3.0.0\ninfo: {title: x, version: '1'}\npaths: {}\n");
    for (path, text) in [
        (".ssh/id_rsa", format!("-----BEGIN PRIVATE KEY-----\n{CANARY}\n")),
        (".aws/credentials", format!("[default]\naws_secret_access_key = {CANARY}\n")),
        ("secrets.toml", format!("# {CANARY}\n[server]\nbind = \"127.0.0.1:0\"\n")),
        // The user's own configuration: any free port, and no model to load.
        (
            ".config/ctx/config.toml",
            "[server]\nbind = \"127.0.0.1:0\"\n[embedding]\nprovider = \"disabled\"\n".to_owned(),
        ),
    ] {
        w.write(w.home().join(path).to_str().unwrap(), text);
    }
    (repository.plant)(&w);
    w
}

fn allow_list(w: &TestWorkspace) -> AllowList {
    let binary = PathBuf::from(w.command(["x"; 0]).get_program());
    let folders = [".local/state/ctx", ".config/ctx"].map(|folder| w.home().join(folder));
    let folders = folders.into_iter().chain([w.root().to_owned(), binary.clone()]).collect();
    AllowList { programs: vec![binary], folders }
}

/// Asserts that a command made no forbidden system call, and that its output has no secret and no panic.
#[track_caller]
fn check(repository: &Repository, w: &TestWorkspace, what: &str, violations: &[String], output: &str) {
    let name = repository.name;
    assert_eq!(violations, [""; 0], "{name}: {what} did this; its output:\n{output}");
    assert!(!output.contains(CANARY), "{name}: {what} showed a secret:\n{output}");
    assert!(!output.contains("panicked"), "{name}: {what}:\n{output}");
    for mark in ["ran", "workspace/ran", "home/ran"] {
        assert!(!w.path("..").join(mark).exists(), "{name}: {what} ran something");
    }
    (repository.check)(w);
}

fn try_commands(repository: &Repository) -> usize {
    let w = workspace(repository);
    for command in COMMANDS {
        let log = w.path("../trace");
        let mut traced = under_strace(&w.command(command.split(' ')), &log);
        // An MCP client that disconnects at once.
        let child =
            traced.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let id = child.id();
        let output = child.wait_with_output().unwrap();
        let printed =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        let mut found = violations(&log, id, &allow_list(&w));
        if CONNECTING_COMMANDS.iter().any(|name| command.starts_with(name)) {
            found.retain(|line| !line.contains("sin_port=htons(1), sin_addr=inet_addr(\"127.0.0.1\")"));
        }
        check(repository, &w, command, &found, &printed);
    }
    COMMANDS.len()
}

/// Serves the repository, and sends every kind of request that a client can.
fn try_server(repository: &Repository) -> usize {
    let w = workspace(repository);
    let log = w.path("../trace");
    if repository.is_refused {
        return 0;
    }
    let server = w.spawn_command(under_strace(&w.command(["up", "."]), &log));
    let id = server.id();
    assert!(server.address().ip().is_loopback(), "{}: it serves others", repository.name);
    let page = server.send("GET", "/tools/list", &[("origin", "https://evil.example")], b"");
    assert_eq!(page.status, 403, "{}: a web page is answered", repository.name);
    let mut responses = String::new();
    for path in ["/tools/sources", "/tools/list", "/agents/list", "/openapi.json"] {
        responses += &server.get(path).body.to_string();
    }
    for (path, body) in [
        ("/tools/search", json!({"query": "private key"})),
        ("/tools/search", json!({"query": CANARY})),
        ("/tools/search", json!({"query": "harbour"})),
        ("/tools/execute", json!({"script": "return sdk.context.search{query = 'key'}"})),
        ("/tools/list_functions", json!({})),
        ("/agents/leak/prompt", json!({})),
    ] {
        let answer = server.post(path, &body).body.to_string();
        responses += &answer.replace(&body.to_string(), "");
    }
    // Responses repeat the query.
    let responses = responses.replace(&format!("\"query\":\"{CANARY}\""), "");
    signal(id, "TERM");
    let ended = server.wait();
    check(
        repository,
        &w,
        "up",
        &violations(&log, id, &allow_list(&w)),
        &(responses + &ended.stdout + &ended.stderr),
    );
    1
}
