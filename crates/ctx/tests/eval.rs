//! `ctx eval`: retrieval quality, and the changes since the last run.
#![cfg(unix)]

use ctx_testkit::{TestWorkspace, ctx_snapshot};
use serde_json::{Value, json};

fn synced() -> TestWorkspace {
    let workspace = TestWorkspace::new()
        .file("docs/harbour.md", "The harbour is closed at night.")
        .file("docs/quay.md", "The quay beside the harbour has a crane.")
        .file("docs/winch.md", "A winch lifts the anchor.")
        .file(
            "eval.jsonl",
            r#"{"query": "when is the harbour closed?", "expect": ["harbour.md"]}
{"query": "crane", "expect": {"filesystem:docs:quay.md": 2, "harbour.md": 1}}

{"query": "who lifts the anchor", "expect": "winch.md"}
"#,
        );
    workspace.ctx("sync").success();
    workspace
}

/// The figures of the first mode, `keyword`.
fn keyword(report: &Value) -> &Value {
    let first = &report["modes"][0];
    assert_eq!(first["mode"], "keyword");
    first
}

#[test]
fn figures_are_told_for_every_mode_and_what_is_unavailable_says_why() {
    let w = synced();
    ctx_snapshot!(w.ctx("eval eval.jsonl"), @r#"
    exit_code: 0
    ----- stdout -----
    3 questions in eval.jsonl

    mode     nDCG@10  recall@5  recall@10  MRR@10
    keyword  0.920    0.833     0.833      1.000
    semantic is unavailable: semantic search needs embeddings, and this workspace has none; use mode "keyword"
    hybrid is unavailable: hybrid search needs embeddings, and this workspace has none; use mode "keyword"

    ----- stderr -----
    "#);
}

#[test]
fn the_second_run_tells_what_changed_since_the_first() {
    let w = synced();
    w.ctx("eval eval.jsonl").success();
    w.write("docs/winch.md", "Nothing of the kind.");
    w.write("docs/harbour.md", "The harbour is closed at night. Its crane rests.");
    w.ctx("sync").success();
    ctx_snapshot!(w.ctx("eval eval.jsonl --mode keyword --no-save"), @r"
    exit_code: 0
    ----- stdout -----
    3 questions in eval.jsonl

    mode     nDCG@10         recall@5        recall@10       MRR@10
    keyword  0.667 (-0.253)  0.667 (-0.167)  0.667 (-0.167)  0.667 (-0.333)

    keyword since [TIME]: 1 better, 1 worse

    better:
      0.76 -> 1.00  crane

    worse:
      1.00 -> 0.00  who lifts the anchor

    ----- stderr -----
    ");
    // That run was not saved, so this one is also compared with the first.
    let report = w.ctx("eval eval.jsonl --json").success().json();
    assert_eq!(keyword(&report)["change"]["worse"][0]["query"], "who lifts the anchor");
    let report = w.ctx("eval eval.jsonl --json").success().json();
    assert_eq!(keyword(&report)["change"]["worse"], json!([]));
    assert_eq!(keyword(&report)["change"]["questions"], 3);
}

#[test]
fn results_are_kept_by_file_and_found_from_any_folder() {
    let w = synced();
    w.ctx("eval eval.jsonl").success();
    w.write("other.jsonl", w.read("eval.jsonl"));
    let other = w.ctx("eval other.jsonl --json").success().json();
    assert_eq!(keyword(&other)["change"], Value::Null);
    let from_below = w.shell("cd docs && ctx eval ../eval.jsonl --json").success().json();
    assert_eq!(keyword(&from_below)["change"]["questions"], 3);
    assert_eq!(std::fs::read_dir(w.data("eval")).unwrap().count(), 2);
}

#[test]
fn results_that_cannot_be_read_are_as_good_as_none() {
    let w = synced();
    w.ctx("eval eval.jsonl").success();
    let kept = std::fs::read_dir(w.data("eval")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&kept, "{").unwrap();
    let outcome = w.ctx("eval eval.jsonl").success();
    assert!(outcome.stderr.contains("warning: cannot read the last results"), "{}", outcome.stderr);
    w.ctx("eval eval.jsonl --quiet").success();
}

#[test]
fn an_expected_document_that_is_not_stored_is_named_and_counts_as_missed() {
    let w = synced();
    w.write("eval.jsonl", r#"{"query": "harbour closed", "expect": ["harbour.md", "gone.md"]}"#);
    ctx_snapshot!(w.ctx("eval eval.jsonl --mode keyword --misses"), @r"
    exit_code: 0
    ----- stdout -----
    1 question in eval.jsonl

    mode     nDCG@10  recall@5  recall@10  MRR@10
    keyword  0.613    0.500     0.500      1.000

    not indexed, so never found:
      eval.jsonl:1  gone.md

    keyword, expected documents not all in the top 5: 1
      eval.jsonl:1  harbour closed
        expected  gone.md, harbour.md
        found     harbour.md, quay.md

    ----- stderr -----
    ");
}

#[test]
fn a_document_may_be_expected_by_its_id() {
    let w = synced();
    let id = w.ctx("search winch --json").json()["results"][0]["id"].clone();
    let question = json!({"query": "winch", "expect": [id, "winch.md", "filesystem:docs:winch.md"]});
    w.write("eval.jsonl", question.to_string());
    let report = w.ctx("eval eval.jsonl --json").success().json();
    assert_eq!(keyword(&report)["figures"]["ndcg_10"], 1.0);
}

#[test]
fn wrong_lines_are_told_all_at_once() {
    let w = synced();
    w.write(
        "eval.jsonl",
        "{\"query\": \"harbour\"}\n\n{\"query\": \"quay\", \"expect\": []}\nharbour -> harbour.md\n",
    );
    ctx_snapshot!(w.ctx("eval eval.jsonl"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: eval.jsonl:1: missing field `expect` (column 20)
    error: eval.jsonl:3: `expect` names no document
    error: eval.jsonl:4: expected value (column 1)
    ");
}

#[test]
fn a_name_that_several_sources_have_must_say_which() {
    let w = TestWorkspace::empty()
        .config("[connectors.filesystem.new]\nroot = \"new\"\n[connectors.filesystem.old]\nroot = \"old\"\n")
        .file("new/a.md", "harbour")
        .file("old/a.md", "harbour")
        .file("eval.jsonl", r#"{"query": "harbour", "expect": ["a.md"]}"#);
    w.ctx("sync").success();
    ctx_snapshot!(w.ctx("eval eval.jsonl"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: eval.jsonl:1: `a.md` is ambiguous: `filesystem:new:a.md` or `filesystem:old:a.md`; use the full name
    ");
}

#[test]
fn a_file_without_questions_and_a_store_without_documents_are_refused() {
    let w = TestWorkspace::new().file("docs/a.md", "harbour").file("empty.jsonl", "\n");
    w.ctx("eval missing.jsonl").code(2).stderr_contains("cannot read missing.jsonl");
    w.ctx("eval empty.jsonl").code(2).stderr_contains("empty.jsonl has no questions");
    w.write("eval.jsonl", r#"{"query": "harbour", "expect": "a.md"}"#);
    w.ctx("eval eval.jsonl").code(1).stderr_contains("nothing is indexed yet");
    w.ctx("eval eval.jsonl --mode fuzzy").code(2).stderr_contains("write `keyword`, `semantic` or `hybrid`");
}

#[test]
fn questions_of_a_measurement_are_not_among_the_recorded_runs() {
    let w = synced();
    w.ctx("search harbour").success();
    w.ctx("eval eval.jsonl").success();
    assert_eq!(w.ctx("runs --json").success().json()["runs"].as_array().unwrap().len(), 1);
}
