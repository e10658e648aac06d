//! Error messages for invalid configurations and failing sources.
#![cfg(unix)]

use ctx_testkit::{TestWorkspace, ctx_snapshot};
use std::fs::File;

#[test]
fn unknown_keys_are_told_with_line_and_suggestion() {
    let w = TestWorkspace::new()
        .config("[server]\nbnid = \"127.0.0.1:1\"\n\n[conectors.filesystem.docs]\nroot = \".\"\n");
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: ctx.toml:2: unknown key `server.bnid`; did you mean `bind`?
    error: ctx.toml:4: unknown key `conectors`; did you mean `connectors`?
    ");
    ctx_snapshot!(w.ctx("doctor"), @r"
    exit_code: 1
    ----- stdout -----
    ✗ configuration: ctx.toml:2: unknown key `server.bnid`; did you mean `bind`?
    ✗ configuration: ctx.toml:4: unknown key `conectors`; did you mean `connectors`?

    ----- stderr -----
    error: 2 of 2 checks failed
    ");
}

#[test]
fn a_configuration_that_is_not_toml_is_told_with_its_line() {
    let w = TestWorkspace::new().config("[server\nbind = 1\n");
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: ctx.toml:1: unclosed table, expected `]`
    ");
    let binary = TestWorkspace::new().bytes("ctx.toml", b"\xff\xfe\x00");
    ctx_snapshot!(binary.ctx("sync"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: cannot read [ROOT]/ctx.toml: stream did not contain valid UTF-8
    ");
}

#[test]
fn a_section_with_an_unset_variable_is_left_out_and_the_rest_works() {
    let w = TestWorkspace::new()
        .config(
            "[connectors.filesystem.docs]\nroot = \"docs\"\n\n[connectors.filesystem.team]\nroot = \"${TEAM_DOCS}\"\n",
        )
        .file("docs/a.md", "harbour");
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs: 1 added

    ----- stderr -----
    warning: ctx.toml:5: [connectors.filesystem.team] is left out: `connectors.filesystem.team.root` needs the variable TEAM_DOCS, which is not set
    ");
    ctx_snapshot!(w.ctx("doctor"), @r"
    exit_code: 1
    ----- stdout -----
    ✗ configuration: ctx.toml:5: [connectors.filesystem.team] is left out: `connectors.filesystem.team.root` needs the variable TEAM_DOCS, which is not set
        hint: everything else works without it
    ✓ store: [DATA]/ctx.sqlite
    ✓ keyword index: intact and up to date
    ✓ embeddings: disabled; search is by keywords only
    ✓ filesystem:docs: 1 document, synced [TIME]

    ----- stderr -----
    error: 1 of 5 checks failed
    ");
    let set = w.env("TEAM_DOCS", "docs");
    ctx_snapshot!(set.ctx("sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs: 1 unchanged
    filesystem:team: 1 added

    ----- stderr -----
    ");
}

#[test]
fn an_unset_token_never_means_no_token() {
    let w = TestWorkspace::new().config("[server]\nbind = \"127.0.0.1:0\"\ntoken = \"${CTX_TOKEN}\"\n");
    ctx_snapshot!(w.ctx("serve mcp"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: ctx.toml:3: `server.token` needs the variable CTX_TOKEN, which is not set
    ");
    let empty = w.env("CTX_TOKEN", "");
    ctx_snapshot!(empty.ctx("serve mcp"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: ctx.toml:3: `server.token`: must not be empty
    ");
}

#[test]
fn a_missing_root_fails_its_source_deletes_nothing_and_does_not_stop_the_others() {
    let w = TestWorkspace::new()
        .config("[connectors.filesystem.a]\nroot = \"a\"\n[connectors.filesystem.b]\nroot = \"b\"\n")
        .file("a/a.md", "harbour")
        .file("b/b.md", "anchor");
    w.ctx("sync").success();
    w.remove("a");
    w.write("b/c.md", "anchor and chain");
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 1
    ----- stdout -----
    filesystem:b: 1 added, 1 unchanged

    ----- stderr -----
    error: filesystem:a: cannot read the folder a: no such file or directory
    ");
    assert_eq!(w.ctx("search harbour --json").found_ids(), ["a.md"]);
    ctx_snapshot!(w.ctx("sources"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:a  failing  watched  cannot read the folder a: no such file or directory
    filesystem:b  ok       watched  2 documents, synced [TIME]

    ----- stderr -----
    ");
}

#[test]
fn what_may_not_be_read_is_a_warning_and_stays_known() {
    let w = TestWorkspace::new()
        .unprivileged()
        .file("docs/open.md", "harbour")
        .file("docs/locked.md", "harbour master")
        .file("docs/private/diary.md", "harbour diary");
    w.ctx("sync").success();
    w.mode("docs/locked.md", 0o000);
    w.mode("docs/private", 0o000);
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs: 1 unchanged, 2 warnings

    ----- stderr -----
    warning: filesystem:docs: locked.md: permission denied
    warning: filesystem:docs: private: permission denied
    ");
    let mut found = w.ctx("search harbour --json").found_ids();
    found.sort();
    assert_eq!(found, ["locked.md", "open.md", "private/diary.md"]);
    assert_eq!(w.ctx("sync --json").success().json()["sources"][0]["warning_count"], 2);

    w.mode("docs/locked.md", 0o644);
    w.mode("docs/private", 0o755);
    w.remove("docs/private/diary.md");
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs: 1 deleted, 2 unchanged

    ----- stderr -----
    ");
}

#[test]
fn a_root_that_may_not_be_read_is_an_error_and_nothing_is_deleted() {
    let w = TestWorkspace::new().unprivileged().file("docs/a.md", "harbour");
    w.ctx("sync").success();
    w.mode("docs", 0o000);
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    error: filesystem:docs: cannot read the folder docs: permission denied
    ");
    w.mode("docs", 0o755);
    assert_eq!(w.ctx("search harbour --json").found_ids(), ["a.md"]);
}

#[test]
fn files_that_are_not_utf_8_are_read_if_they_are_text_and_passed_over_if_not() {
    let w = TestWorkspace::new()
        .bytes("docs/latin.txt", b"Caf\xe9 am Hafen, ge\xf6ffnet bis sp\xe4t\n")
        .bytes("docs/photo.jpg", b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x02\x00\x00")
        .bytes("docs/broken.md", b"# Broken\nlighthouse \xff\xfe\xfd keeper\n");
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs: 2 added, 1 without text

    ----- stderr -----
    ");
    assert_eq!(w.ctx("search Café --json").found_ids(), ["latin.txt"]);
    assert_eq!(w.ctx("search lighthouse --json").found_ids(), ["broken.md"]);
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs: 3 unchanged

    ----- stderr -----
    ");
}

#[test]
fn a_file_of_two_gigabytes_is_a_warning() {
    let w = TestWorkspace::new().file("docs/a.md", "harbour");
    // Sparse: uses no disk space, but reading it would take time and memory.
    File::create(w.path("docs/huge.txt")).unwrap().set_len(2 << 30).unwrap();
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs: 1 added, 1 warning

    ----- stderr -----
    warning: filesystem:docs: huge.txt: it has 2147483648 bytes; the limit is 50000000 (limits.document_bytes)
    ");
}

#[test]
fn a_bind_that_others_can_reach_needs_a_token() {
    for bind in ["0.0.0.0:0", "[::]:0", "0:0"] {
        let w = TestWorkspace::new().config(&format!("[server]\nbind = \"{bind}\"\n"));
        w.ctx("serve mcp")
            .code(2)
            .stderr_contains("can be reached from outside")
            .stderr_contains("hint: set `server.token`");
        w.ctx("up").code(2).stderr_contains("can be reached from outside");
        let w = TestWorkspace::new().config(&format!("[server]\nbind = \"{bind}\"\ntoken = \"hunter2\"\n"));
        let short =
            w.ctx("serve mcp").code(2).stderr_contains("`server.token` is shorter than 16 characters");
        short.stderr_contains("hint: set `server.token` to this new one: \"");
    }
    let w = TestWorkspace::new().config("[server]\nbind = \"nonsense\"\n");
    ctx_snapshot!(w.ctx("serve mcp"), @r#"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: `server.bind` = "nonsense" is not an address and port
    hint: write something like "127.0.0.1:[PORT]"
    "#);
}
