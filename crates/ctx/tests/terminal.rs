//! Output formats: colour, the style of messages, JSON errors, man pages.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestWorkspace, ctx_snapshot};
use serde_json::{Value, json};
use std::fs;

const ESCAPE: char = '\u{1b}';
const BUTTON: &str = "\u{1b}[1m\u{1b}[33mbutton\u{1b}[0m";
const ERROR: &str = "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m ";

fn synced() -> TestWorkspace {
    let workspace = TestWorkspace::new()
        .file("docs/deploy.md", "# Deploy\nPush the button.\n")
        .file("docs/hostile.md", "# Title\u{1b}[2J\nIt clears the screen.\n");
    workspace.ctx("sync").success();
    workspace
}

/// The output of a command in a terminal.
#[cfg(target_os = "linux")]
fn in_terminal(w: &TestWorkspace, command: &str) -> String {
    w.shell(&format!("TERM=xterm script -qec '{command}' /dev/null")).stdout
}

#[test]
fn words_that_match_are_highlighted_where_colour_is_wanted() {
    let w = synced();
    assert!(!w.ctx("search button").success().stdout.contains(ESCAPE), "a pipe gets none");
    assert!(w.ctx("search button --color always").success().stdout.contains(BUTTON));
    let forced = synced().env("CLICOLOR_FORCE", "1");
    assert!(forced.ctx("search button").success().stdout.contains(BUTTON));
    assert!(!forced.ctx("search button --color=never").success().stdout.contains(ESCAPE));
    let plain = synced().env("NO_COLOR", "1");
    assert!(
        plain.ctx("search button --color=always").success().stdout.contains(BUTTON),
        "the option decides"
    );
    w.ctx("search button --color sometimes").code(2).stderr_contains("possible values: auto, always, never");
}

#[test]
#[cfg(target_os = "linux")]
fn a_terminal_has_colour_unless_it_is_not_wanted() {
    let w = synced();
    assert!(in_terminal(&w, "ctx search button").contains(BUTTON));
    assert!(!in_terminal(&w, "ctx search button --json").contains(ESCAPE));
    assert!(!in_terminal(&w, "ctx --color never search button").contains(ESCAPE));
    assert!(in_terminal(&w, "ctx serch").contains(ESCAPE));
    assert!(!in_terminal(&w, "ctx serch --color never").contains(ESCAPE));
    assert!(!in_terminal(&synced().env("NO_COLOR", "1"), "ctx search button").contains(ESCAPE));
}

#[test]
#[cfg(target_os = "linux")]
fn a_terminal_shows_how_much_of_how_much_is_done() {
    let embedded = "[connectors.filesystem.docs]\nroot = \"docs\"\n[embedding]\nmodel = \"best\"\n";
    let w = TestWorkspace::new().config(embedded);
    for number in 0..60 {
        w.write(&format!("docs/{number}.md"), format!("# Note {number}\nThe crew of ship {number}.\n"));
    }
    let synced = in_terminal(&w, "ctx sync");
    assert!(synced.contains(" of 60 files"), "{synced:?}");
    let embedded = in_terminal(&w, "ctx embed pending");
    assert!(embedded.contains(" of 60 chunks embedded"), "{embedded:?}");
    let quiet = in_terminal(&w, "ctx -q sync --full");
    assert!(!quiet.contains(" of "), "{quiet:?}");
}

#[test]
fn documents_bring_no_colour_of_their_own() {
    let found = synced().ctx("search screen --color always").success().stdout;
    assert!(!found.contains("\u{1b}[2J"), "{found:?}");
    assert!(found.contains('\u{FFFD}'), "{found:?}");
}

#[test]
fn json_has_no_colour() {
    let w = synced().env("CLICOLOR_FORCE", "1");
    for command in ["search button", "doctor", "sources", "stats", "get deploy.md"] {
        let outcome = w.ctx(&format!("{command} --json --color always")).success();
        assert!(!outcome.stdout.contains(ESCAPE), "{command}: {:?}", outcome.stdout);
        outcome.json();
    }
    let failed = w.ctx("get nowhere --json --color always").code(1);
    assert!(!failed.stderr.contains(ESCAPE), "{:?}", failed.stderr);
    let failed = w.ctx("get --json --color always").code(2);
    assert!(!failed.stderr.contains(ESCAPE), "{:?}", failed.stderr);
}

#[test]
fn errors_and_states_have_colour() {
    let w = synced();
    let failed = w.ctx("get nowhere --color always").code(1);
    assert!(failed.stderr.starts_with(ERROR), "{:?}", failed.stderr);
    assert!(failed.stderr.contains("\u{1b}[36mhint:\u{1b}[0m "), "{:?}", failed.stderr);
    assert!(
        w.ctx("doctor --color always").success().stdout.starts_with("\u{1b}[32m✓\u{1b}[0m configuration")
    );
    assert!(w.ctx("sources --color always").success().stdout.contains("  \u{1b}[32mok\u{1b}[0m  "));
    // clap's own output obeys the option, too.
    assert!(w.ctx("serch --color always").code(2).stderr.contains(ESCAPE));
}

#[test]
fn the_log_looks_like_everything_else_that_is_said() {
    let w = TestWorkspace::new().bytes("docs/broken.pdf", b"%PDF-1.4 and nothing more");
    let stderr = w.ctx("-v sync --color always").success().stderr;
    let (debug, warning) = ("\u{1b}[2mdebug:\u{1b}[0m ", "\u{1b}[1m\u{1b}[33mwarning:\u{1b}[0m ");
    assert!(stderr.lines().any(|line| line.starts_with(debug)), "{stderr:?}");
    assert!(stderr.lines().any(|line| line.starts_with(warning)), "{stderr:?}");
    let stderr = w.ctx("-v sync --full").success().stderr;
    let mut lines: Vec<&str> = stderr.lines().map(|line| line.split(": ").next().unwrap()).collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines, ["debug", "warning"], "{stderr}");
}

/// The single line of JSON that an error prints.
fn error(w: &TestWorkspace, arguments: &str, code: i32) -> Value {
    let outcome = w.ctx(arguments).code(code);
    let line = outcome.stderr.lines().last().unwrap_or_default();
    let error: Value = serde_json::from_str(line).unwrap_or_default();
    let fields: Vec<&String> = error.as_object().into_iter().flat_map(|object| object.keys()).collect();
    assert_eq!(fields, ["error"], "not an error in JSON: {outcome:?}");
    error["error"].clone()
}

#[test]
fn with_json_an_error_is_an_object() {
    let w = synced();
    assert_eq!(
        error(&w, "sync filesystem:dosc --json", 2),
        json!({
            "code": "bad_request",
            "message": "no source named `filesystem:dosc`",
            "hint": "did you mean `filesystem:docs`?",
        })
    );
    assert_eq!(error(&w, "get nowhere --json", 1)["code"], "not_found");
    assert_eq!(error(&w, "--json search button --mode semantic", 1)["code"], "embeddings_disabled");
    assert_eq!(error(&w, "search button --limit 0 --json", 2)["code"], "bad_request");
    assert_eq!(error(&TestWorkspace::empty(), "stats --json", 2)["code"], "not_configured");
    assert_eq!(
        error(&TestWorkspace::new().config("nonsense = 1\n"), "stats --json", 2)["code"],
        "not_configured"
    );
    let missing = TestWorkspace::new();
    assert_eq!(error(&missing, "sync --json", 1)["code"], "failed");
    assert_eq!(missing.ctx("sync --json").json(), json!({"sources": []}), "stdout is still JSON");
}

#[test]
fn what_clap_refuses_is_an_object_too() {
    let w = synced();
    assert_eq!(
        error(&w, "serch button --json", 2),
        json!({
            "code": "bad_request",
            "message": "unrecognized subcommand 'serch'",
            "hint": "some similar subcommands exist: 'serve', 'search'; Usage: ctx [OPTIONS] <COMMAND>",
        })
    );
    assert_eq!(error(&w, "--json", 2)["message"], "a command is missing");
    let invalid = error(&w, "--json sync --limit many", 2);
    assert_eq!(
        invalid["message"],
        "invalid value 'many' for '--limit <COUNT>': invalid digit found in string"
    );
    // After `--` it is an ordinary argument.
    assert!(serde_json::from_str::<Value>(&w.ctx("serch -- --json").code(2).stderr).is_err());
}

#[test]
fn a_document_is_got_by_path_name_or_the_beginning_of_its_id() {
    let w = synced();
    let id = w.ctx("search push --json").json()["results"][0]["id"].as_str().unwrap().to_owned();
    let absolute = w.path("docs/deploy.md");
    let short = &id[..8];
    for name in
        ["deploy.md", "docs/deploy.md", "./docs/../docs/deploy.md", "filesystem:docs:deploy.md", short, &id]
    {
        assert_eq!(w.ctx_args(["get", name, "--json"]).success().json()["id"], id, "{name}");
    }
    assert_eq!(w.ctx_args(["get".as_ref(), absolute.as_os_str(), "--json".as_ref()]).json()["id"], id);
    let inside = w.shell("cd docs && ctx get ./deploy.md --json").success();
    assert_eq!(inside.json()["id"], id);
    ctx_snapshot!(w.ctx("get docs/deplyo.md"), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    error: no document `docs/deplyo.md`
    hint: did you mean `deploy.md`?
    ");
    ctx_snapshot!(w.ctx("get elsewhere/hostile"), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    error: no document `elsewhere/hostile`
    hint: did you mean `hostile.md`?
    ");
}

#[test]
fn what_may_be_several_documents_is_answered_with_all_of_them() {
    let two = "[connectors.filesystem.a]\nroot = \"a\"\n[connectors.filesystem.b]\nroot = \"b\"\n";
    let w = TestWorkspace::new().config(two).file("a/same.md", "harbour").file("b/same.md", "anchor");
    w.ctx("sync").success();
    ctx_snapshot!(w.ctx("get same.md"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: `same.md` is ambiguous: 2 documents match
    hint: [ID]  filesystem:a:same.md
    hint: [ID]  filesystem:b:same.md
    ");
    assert_eq!(w.ctx("get a/same.md --json").success().json()["body"], "harbour");
    assert_eq!(error(&w, "get same.md --json", 2)["code"], "bad_request");

    // IDs are derived from names, so these share a prefix on every machine.
    let w = TestWorkspace::new().file("docs/note-99.md", "harbour").file("docs/note-168.md", "anchor");
    w.ctx("sync").success();
    let several =
        w.ctx("get d6e1").code(2).stderr_contains("error: `d6e1` is ambiguous: 2 documents match\n");
    assert!(
        several.stderr.contains("hint: d6e1577c-7a6b-5762-a1e2-14b50409a38b  filesystem:docs:note-168.md\n"),
        "{}",
        several.stderr
    );
    assert_eq!(w.ctx("get d6e1577c --json").success().json()["body"], "anchor");
}

#[test]
fn man_pages_are_written_for_every_command() {
    let w = TestWorkspace::empty();
    let page = w.ctx("man").success().stdout;
    assert!(page.contains(".TH ctx 1"), "{page:.200}");
    w.ctx("man pages/man1").success().stdout_contains(" pages to pages/man1\n");
    let mut names: Vec<String> = fs::read_dir(w.path("pages/man1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    for page in ["ctx.1", "ctx-search.1", "ctx-tool-test.1", "ctx-man.1"] {
        assert!(names.contains(&page.to_owned()), "{page} is missing: {names:?}");
    }
    assert!(names.iter().all(|name| !name.contains("help") && !name.contains("__")), "{names:?}");
    assert!(w.read("pages/man1/ctx-search.1").contains("ctx\\-search \\- Search documents"));
}
