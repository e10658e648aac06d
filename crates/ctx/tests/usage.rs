//! Usage errors: the message says what to type instead, and the exit code is 2.
#![cfg(unix)]

use ctx_testkit::{TestWorkspace, ctx_snapshot};
use std::fs;

fn with_a_document() -> TestWorkspace {
    TestWorkspace::new().file("docs/deploy.md", "# Deploy\nPush the button.\n")
}

#[test]
fn a_search_before_any_sync_says_what_to_do() {
    let w = with_a_document();
    ctx_snapshot!(w.ctx("search button"), @r"
    exit_code: 0
    ----- stdout -----

    ----- stderr -----
    nothing is indexed yet; run `ctx sync`
    ");
    assert!(w.ctx("search button --json").success().found_ids().is_empty());
}

#[test]
fn a_folder_that_is_no_workspace_is_told_apart_from_a_file_that_is_missing() {
    let w = TestWorkspace::empty();
    ctx_snapshot!(w.ctx("search button"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: there is no workspace here
    hint: `ctx init` creates one in this folder; `ctx up DIR` creates one in DIR and serves it
    ");
    ctx_snapshot!(w.ctx("-c nowhere.toml sync"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: there is no configuration file nowhere.toml
    ");
    ctx_snapshot!(w.ctx("doctor"), @r"
    exit_code: 1
    ----- stdout -----
    ✗ configuration: there is no workspace here
        hint: `ctx init` creates one in this folder; `ctx up DIR` creates one in DIR and serves it

    ----- stderr -----
    error: 1 of 1 checks failed
    ");
    assert_eq!(fs::read_dir(w.root()).unwrap().count(), 0, "nothing was created");
}

#[test]
fn a_wrong_name_is_answered_with_the_nearest() {
    let w = with_a_document();
    ctx_snapshot!(w.ctx("sync filesystem:dcos"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: no source named `filesystem:dcos`
    hint: did you mean `filesystem:docs`?
    ");
    ctx_snapshot!(w.ctx("search button --source filesystem:doc"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: no source named `filesystem:doc`
    hint: did you mean `filesystem:docs`?
    ");
    ctx_snapshot!(w.ctx("serch button"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: unrecognized subcommand 'serch'

      tip: some similar subcommands exist: 'serve', 'search'

    Usage: ctx [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    ctx_snapshot!(w.ctx("get 00000000-0000-0000-0000-000000000000"), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    error: no document `[ID]`
    hint: `ctx search` shows the paths and ids of what it finds
    ");
}

#[test]
fn what_clap_refuses_is_wrong_usage_too() {
    let w = with_a_document();
    for arguments in
        ["", "search", "frobnicate", "sync --limit many", "sync --since yesterday", "-q -v stats"]
    {
        w.ctx(arguments).code(2);
    }
    w.ctx("--help").success();
    w.ctx("--version").success();
}

#[test]
fn a_source_that_was_typed_wrong_is_refused_before_anything_is_synced() {
    let w = with_a_document();
    w.ctx("sync filesystem:docs git:docs").code(2).stderr_contains("no source named `git:docs`");
    assert_eq!(w.ctx("stats --json").json()["documents"], 0);
    let none = TestWorkspace::new().config("");
    ctx_snapshot!(none.ctx("sync"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: no source is configured
    hint: add a [connectors.filesystem.<name>] section with a `root` to ctx.toml
    ");
    ctx_snapshot!(none.ctx("sources"), @r"
    exit_code: 0
    ----- stdout -----

    ----- stderr -----
    no source is configured; add a [connectors.filesystem.<name>] section to ctx.toml
    ");
}

#[test]
fn a_folder_and_a_configuration_file_exclude_each_other() {
    let w = TestWorkspace::new();
    let refused = w.ctx("-c ctx.toml up docs").code(2);
    assert_eq!(refused.stderr, "error: either a folder or `--config`, not both\n");
    w.ctx("-c ctx.toml init").code(2);
}
