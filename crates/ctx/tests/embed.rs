//! `ctx embed` and embedding settings: pending vectors, rebuilding, waiting in a sync, and errors.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestWorkspace, ctx_snapshot, signal, wait_until};
use serde_json::{Value, json};
use std::process::Stdio;

const KEY: &str = "correct-horse-battery";

fn with(embedding: &str) -> TestWorkspace {
    TestWorkspace::new()
        .config(&format!("[connectors.filesystem.docs]\nroot = \"docs\"\n\n[embedding]\n{embedding}"))
        .file("docs/a.md", "# Harbour\nShips lie at anchor.\n")
        .file("docs/b.md", "# Bread\nFlour, water and salt.\n")
}

fn vectors(w: &TestWorkspace) -> Value {
    w.ctx("stats --json").success().json()["vectors"].clone()
}

/// Expected figures of the built-in model: its vectors, and documents that lack some.
fn best(vectors: u64, pending: u64) -> Value {
    json!({
        "model": "builtin-best-1", "vectors": vectors, "pending_documents": pending,
        "unreadable_chunks": 0, "unreadable": [],
    })
}

/// The model that scored the best hit.
fn model(w: &TestWorkspace, query: &str) -> Value {
    let answer = w.ctx(&format!("search {query} --explain --json")).success().json();
    answer["results"][0]["explain"]["model"].clone()
}

#[test]
fn vectors_that_are_missing_are_made_when_asked_for_and_made_anew_when_asked_for() {
    let w = with("");
    w.ctx("sync").success().stderr_contains("embeddings of builtin-best-1 are missing for 2 documents");
    assert_eq!(vectors(&w), best(0, 2));
    assert_eq!(w.ctx("embed pending --json").success().json(), json!({"made": 2, "complete": true}));
    assert_eq!(vectors(&w), best(2, 0));
    ctx_snapshot!(w.ctx("embed pending"), @r"
    exit_code: 0
    ----- stdout -----
    computed 0 embeddings; every document is embedded

    ----- stderr -----
    ");
    assert_eq!(w.ctx("embed rebuild --json").success().json(), json!({"made": 2, "complete": true}));
    assert_eq!(vectors(&w)["vectors"], 2);
    assert_eq!(w.ctx("search boats --json").success().found_ids()[0], "a.md");
    w.write("docs/c.md", "# Wind\nSails.\n");
    w.ctx("sync").success().stderr_contains("are missing for 1 document");
    assert_eq!(w.ctx("embed pending --json").success().json()["made"], 1);
}

/// The semantic search results with their scores.
fn semantic_results(w: &TestWorkspace, query: &str) -> Vec<Value> {
    let answer = w.ctx_args(["search", query, "--mode", "semantic", "--explain", "--json"]).success().json();
    let hits = answer["results"].as_array().unwrap().iter();
    hits.map(|hit| json!([hit["source_id"], hit["score"], hit["explain"]["model"]])).collect()
}

#[test]
fn vectors_that_find_no_space_are_an_error_and_made_when_there_is_some() {
    const NOTES: usize = 150;
    let notes = |settings: &str| {
        let w = with(settings);
        for number in 0..NOTES {
            let text = format!("# Note {number}\nThe crew of ship {number} has {} sailors.\n", number * 7);
            w.write(&format!("docs/{number}.md"), text);
        }
        w
    };
    let w = notes("");
    w.ctx("sync").success();
    let undisturbed = TestWorkspace::copy_of(w.root());
    undisturbed.ctx("sync").success();
    undisturbed.ctx("embed pending").success();

    // File size limits in blocks of 512 bytes: too small for anything, for a few batches, for many.
    let mut most = 0;
    for (command, blocks) in [
        ("pending", 8),
        ("pending", 100),
        ("rebuild", 100),
        ("pending", 300),
        ("rebuild", 300),
        ("pending", 400),
    ] {
        let outcome = w.shell(&format!("trap '' XFSZ; ulimit -f {blocks}; exec ctx embed {command}"));
        assert_eq!(outcome.code, Some(1), "{command} {blocks}: {outcome:?}");
        // On a full disk runs cannot be recorded either; that warning is printed first.
        let first = outcome.stderr.lines().find(|line| !line.starts_with("warning: runs are not recorded"));
        assert!(
            first.is_some_and(|line| line.starts_with("error: ")),
            "{command} {blocks}: {}",
            outcome.stderr
        );
        assert!(
            outcome.stderr.contains("the store "),
            "{command} {blocks}: {}",
            outcome.stderr.lines().next().unwrap()
        );
        most = most.max(vectors(&w)["vectors"].as_u64().unwrap());
        assert!(!w.ctx("search sailors --json").success().found_ids().is_empty(), "words are enough");
        w.ctx("doctor").success();
    }
    assert!(most > 0, "some were made before there was no space left");

    w.ctx("embed pending").success();
    assert_eq!(vectors(&w), vectors(&undisturbed));
    assert_eq!(vectors(&w)["pending_documents"], 0);
    for query in ["how many people work on ship 17", "baking"] {
        assert_eq!(semantic_results(&w, query), semantic_results(&undisturbed, query), "{query}");
    }

    // Also while a sync computes the vectors.
    let w = notes("fill = \"wait\"\n");
    let outcome = w.shell("trap '' XFSZ; ulimit -f 400; exec ctx sync");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("the store "), "{}", outcome.stderr.lines().next().unwrap());
    w.ctx("sync").success();
    assert_eq!(vectors(&w), vectors(&undisturbed));
    w.ctx("doctor").success();
}

#[test]
fn an_interrupted_embedding_says_so_keeps_what_was_made_and_can_go_on() {
    const NOTES: u64 = 120;
    let w = with("");
    for number in 0..NOTES {
        let text: String = (0..40).map(|word| format!("ship{number} crew{} ", word * 7)).collect();
        w.write(&format!("docs/{number}.md"), text);
    }
    w.ctx("sync").success();
    let child =
        w.command(["embed", "pending"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("some vectors are made", || vectors(&w)["vectors"].as_u64().unwrap() > 0);
    signal(child.id(), "INT");
    let ended = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(130), b"".as_slice()), "{stderr}");
    let made = vectors(&w);
    let (count, pending) = (made["vectors"].as_u64().unwrap(), made["pending_documents"].as_u64().unwrap());
    assert!(count > 0 && pending > 0, "{made}");
    let expected = format!(
        "error: interrupted; {count} embeddings computed and stored\n\
         hint: `ctx embed pending` continues from here\n"
    );
    // On a slow machine a line of progress may come first.
    assert!(stderr.ends_with(&expected), "{stderr}");
    let rest = w.ctx("embed pending --json").success().json();
    assert_eq!(rest["complete"], true);
    assert!(rest["made"].as_u64().unwrap() > 0, "{rest}");
    assert_eq!(vectors(&w)["vectors"].as_u64().unwrap(), count + rest["made"].as_u64().unwrap());
}

#[test]
fn a_sync_can_wait_for_the_vectors() {
    let w = with("fill = \"wait\"\n");
    w.ctx("sync").success().stderr_contains("computed 2 embeddings");
    assert_eq!(vectors(&w)["pending_documents"], 0);
    let unchanged = w.ctx("sync").success();
    assert!(!unchanged.stderr.contains("vector"), "{}", unchanged.stderr);
}

#[test]
fn nonsense_is_answered_with_nothing_and_a_next_step() {
    let w = with("");
    w.ctx("sync").success();
    w.ctx("embed pending").success();
    ctx_snapshot!(w.ctx("search xyzzy qwertz blorp"), @r"
    exit_code: 0
    ----- stdout -----

    ----- stderr -----
    nothing relevant found
    hint: try other words; `ctx sources` shows what is indexed
    ");
    w.ctx("search qwertz --source filesystem").success().stderr_contains("hint: try it without a filter");
    assert_eq!(w.ctx("search xyzzy qwertz blorp --json").success().json(), json!({"results": []}));
    let config = w.read("ctx.toml") + "[retrieval]\nmin_cosine = -1\n";
    w.write("ctx.toml", &config);
    assert_eq!(w.ctx("search xyzzy qwertz blorp --json").success().found_ids().len(), 2, "all that is there");
    w.write("ctx.toml", config.replace("-1", "1.5"));
    w.ctx("search boats")
        .code(2)
        .stderr_contains("retrieval.min_cosine")
        .stderr_contains("must be between -1 and 1");
}

#[test]
fn without_embeddings_there_is_nothing_to_make() {
    let w = with("provider = \"disabled\"\n");
    w.ctx("sync").success();
    ctx_snapshot!(w.ctx("embed pending"), @r#"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: embeddings are disabled here
    hint: set `embedding.provider` to "builtin" in ctx.toml
    "#);
    ctx_snapshot!(w.ctx("doctor"), @r"
    exit_code: 0
    ----- stdout -----
    ✓ configuration: [ROOT]/ctx.toml
    ✓ store: [DATA]/ctx.sqlite
    ✓ keyword index: intact and up to date
    ✓ embeddings: disabled; search is by keywords only
    ✓ filesystem:docs: 2 documents, synced [TIME]

    ----- stderr -----
    ");
}

#[test]
fn settings_that_cannot_work_are_told_before_anything_is_done() {
    let error = |embedding: &str| w_error(&with(embedding));
    assert_eq!(
        error("provider = \"opnai\"\n"),
        "error: in [embedding]: provider: `opnai` is none of builtin, local, openai, ollama, disabled\n"
    );
    assert_eq!(
        error("provider = \"openai\"\n"),
        "error: in [embedding]: model: `openai` needs one, like \"text-embedding-3-small\"\n"
    );
    assert_eq!(
        error("provider = \"local\"\n"),
        "error: in [embedding]: path: `local` needs the folder of a model, relative to the workspace, like \
         \"models/all-MiniLM-L6-v2\"\n"
    );
    let nowhere = with("provider = \"local\"\npath = \"models/none\"\n");
    let folder = nowhere.root().join("models/none");
    assert_eq!(
        w_error(&nowhere),
        format!("error: in [embedding]: path: {} is not a folder\n", folder.display())
    );
    assert_eq!(
        error("provider = \"ollama\"\nmodel = \"m\"\nurl = \"localhost:11434\"\n"),
        "error: in [embedding]: url: it must begin with http:// or https://; write it like http://127.0.0.1:8080/v1\n"
    );
    ctx_snapshot!(with("provider = \"openai\"\n").ctx("doctor"), @r#"
    exit_code: 1
    ----- stdout -----
    ✗ configuration: in [embedding]: model: `openai` needs one, like "text-embedding-3-small"

    ----- stderr -----
    error: 1 of 1 checks failed
    "#);
}

fn w_error(w: &TestWorkspace) -> String {
    w.ctx("sync").code(2).stderr
}

#[test]
fn a_model_that_is_down_is_told_and_everything_else_works() {
    // Port 1 refuses connections.
    let w = with(
        "provider = \"openai\"\nmodel = \"m\"\nurl = \"http://127.0.0.1:1/v1\"\napi_key = \"${MODEL_KEY}\"\n",
    )
    .env("MODEL_KEY", KEY);
    let synced =
        w.ctx("sync").success().stderr_contains("embeddings of openai:m are missing for 2 documents");
    assert_eq!(w.ctx("search anchor --json").success().found_ids()[0], "a.md");
    assert_eq!(model(&w, "anchor"), "builtin-fast-1");
    let pending = w
        .ctx("-vv embed pending")
        .code(1)
        .stderr_contains("cannot reach openai at http://127.0.0.1:1/v1/embeddings");
    let pending = pending
        .stderr_contains("hint: check [embedding] in ctx.toml; the embeddings computed so far are kept");
    let doctor = w.ctx("doctor");
    ctx_snapshot!(doctor, @r"
    exit_code: 1
    ----- stdout -----
    ✓ configuration: [ROOT]/ctx.toml
    ✓ store: [DATA]/ctx.sqlite
    ✓ keyword index: intact and up to date
    ✗ embeddings: cannot reach openai at http://127.0.0.1:[PORT]/v1/embeddings: Connection refused (os error 111); documents not embedded yet: 2
        hint: check [embedding] in ctx.toml; until the model answers, the built-in `fast` model is used
    ✓ filesystem:docs: 2 documents, synced [TIME]

    ----- stderr -----
    error: 1 of 5 checks failed
    ");
    let shown = w.ctx("config show").success();
    assert!(shown.stdout.contains("api_key = \"***\""), "{}", shown.stdout);
    for outcome in [&synced, &pending, &doctor, &shown, &w.ctx("config show --json")] {
        assert!(!format!("{outcome:?}").contains(KEY), "{outcome:?}");
    }
}
