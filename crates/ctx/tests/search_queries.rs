//! Any query is valid: no text is a syntax error, and no limit is too large.
#![cfg(unix)]

use ctx_testkit::{TestWorkspace, ctx_snapshot};
use serde_json::json;

fn synced() -> TestWorkspace {
    let workspace = TestWorkspace::new()
        .file("docs/a.md", "AND OR NOT NEAR operators")
        .file("docs/b.md", "the \"quoted\" harbour 🚢");
    workspace.ctx("sync").success();
    workspace
}

#[test]
fn a_limit_is_at_least_one_and_may_be_anything_above() {
    let w = synced();
    ctx_snapshot!(w.ctx("search harbour --limit 0"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: parameter `limit`: its value is less than the minimum of 1
    ");
    ctx_snapshot!(w.ctx("search harbour --limit -1"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: parameter `limit`: its value is less than the minimum of 1
    ");
    assert_eq!(w.ctx("search harbour --limit 1000000000 --json").success().found_ids(), ["b.md"]);
    w.ctx("search harbour --limit 99999999999999999999").code(2);
}

#[test]
fn no_query_is_a_syntax_error() {
    let w = synced();
    let long = "harbour ".repeat(10_000);
    for query in [
        "AND",
        "NOT",
        "\"",
        "NEAR(",
        "*",
        "a OR",
        "(",
        ")",
        "title:",
        "harbour^",
        "-",
        "--",
        "-harbour",
        "\\",
        "'",
        "[a TO",
        "🚢",
        "\u{202e}",
        "%",
        "'; DROP TABLE documents; --",
        "${HOME}",
        "\n",
        &long,
    ] {
        let outcome = w.ctx_args(["search", "--json", "--", query]);
        let expected = if query.trim().is_empty() { 2 } else { 0 };
        assert_eq!(outcome.code, Some(expected), "{query:.40}: {}", outcome.stderr);
    }
    assert_eq!(w.ctx("search NEAR( --json").found_ids(), ["a.md"]);
    assert_eq!(w.ctx_args(["search", "\"quoted", "--json"]).found_ids(), ["b.md"]);
}

#[test]
fn a_query_that_is_nothing_but_space_is_refused() {
    let w = synced();
    ctx_snapshot!(w.ctx_args(["search", "  "]), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: the query is empty
    ");
}

#[test]
fn a_large_query_is_answered_and_a_huge_one_refused() {
    let w = synced();
    let server = w.spawn_server();
    let words = (0..20_000).map(|number| format!("w{number:04} ")).collect::<String>();
    for query in ["harbour ".repeat(12_500), "h".repeat(100_000), words] {
        let reply = server.post("/tools/search", &json!({ "query": query }));
        assert_eq!(reply.status, 200, "{:.80}", reply.body.to_string());
    }
    let reply = server.post("/tools/search", &json!({ "query": "harbour ".repeat(1_000_000) }));
    assert_eq!((reply.status, reply.error_code()), (413, "too_large"));
    assert_eq!(server.post("/tools/search", &json!({"query": "harbour"})).found_ids(), ["b.md"]);
}
