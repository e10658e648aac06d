//! Retrieval quality on the example workspace: questions find the page that answers them.
#![cfg(unix)]

use ctx_testkit::{TestWorkspace, ctx_snapshot};
use std::path::Path;

fn handbook() -> TestWorkspace {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workspace");
    let workspace = TestWorkspace::copy_of(&examples);
    workspace.ctx("sync").success();
    workspace
}

#[test]
fn questions_find_the_page_that_answers_them() {
    let w = handbook();
    for (question, page) in [
        ("FW-17 contracting migration", "runbooks/roll-back-a-release.md"),
        ("verify webhook signature", "api/webhooks.md"),
        ("replication slot filled the disk", "postmortems/2026-01-22-database-disk-full.md"),
        ("cargo bike minimum width cobbles", "adr/0004-own-bicycle-routing-engine.md"),
        ("how do I roll back a release?", "runbooks/roll-back-a-release.md"),
        ("why did we choose nomad over kubernetes", "adr/0001-nomad-instead-of-kubernetes.md"),
        ("how long do we keep personal data", "policies/data-retention.md"),
    ] {
        let found = w.ctx_args(["search", question, "--json"]).success().found_ids();
        assert_eq!(found.first().map(String::as_str), Some(page), "{question}: {found:?}");
    }
}

#[test]
fn vague_questions_have_their_page_among_the_first_three() {
    let w = handbook();
    for (question, page) in [
        ("who is on call at the weekend", "policies/on-call.md"),
        ("429 too many requests", "api/rate-limits.md"),
        ("certificate expired", "runbooks/certificate-renewal.md"),
        ("my first day", "onboarding/first-week.md"),
        ("promote the standby", "runbooks/database-failover.md"),
    ] {
        let found = w.ctx_args(["search", question, "--limit", "3", "--json"]).success().found_ids();
        assert!(found.iter().any(|name| name == page), "{question}: {found:?}");
    }
}

#[test]
fn the_whole_handbook_is_read_and_nothing_is_wrong_with_it() {
    let w = handbook();
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:handbook: 30 unchanged

    ----- stderr -----
    embeddings of builtin-best-1 are missing for 30 documents: a running server computes them, `ctx embed pending` does so now
    ");
    w.ctx("doctor").success();
    let tagged = w.ctx("search release --tag handbook --json").success().found_ids();
    assert!(!tagged.is_empty());
    assert!(w.ctx("search release --tag elsewhere --json").success().found_ids().is_empty());
}

#[test]
fn the_questions_of_the_handbook_are_measured_and_all_name_pages_that_exist() {
    let w = handbook();
    let report = w.ctx("eval eval.jsonl --json").success().json();
    assert!(report["questions"].as_u64().unwrap() >= 60);
    assert_eq!(report["unknown"], serde_json::json!([]));
    let keyword = &report["modes"][0];
    assert_eq!(keyword["mode"], "keyword");
    for figure in ["ndcg_10", "recall_5", "recall_10", "mrr_10"] {
        let value = keyword["figures"][figure].as_f64().unwrap();
        assert!(value > 0.0 && value <= 1.0, "{figure}: {value}");
    }
}

#[test]
fn the_better_model_finds_more_of_what_the_questions_are_about() {
    let w = handbook();
    w.ctx("embed pending").success();
    let report = w.ctx("eval eval.jsonl --json").success().json();
    let recall = |mode: usize| report["modes"][mode]["figures"]["recall_5"].as_f64().unwrap();
    let [keyword, semantic, hybrid] = [0, 1, 2].map(recall);
    assert!(hybrid >= 0.95, "{hybrid}");
    assert!(hybrid > semantic && semantic > keyword, "{hybrid} {semantic} {keyword}");
}
