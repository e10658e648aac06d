//! Faults of the files that `ctx` stores: damage, a newer version, missing permissions, a full disk.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestWorkspace, ctx_snapshot};
use std::fs;
use std::path::PathBuf;

/// Offset of `user_version` in the header of an SQLite file.
const VERSION_OFFSET: usize = 60;

fn synced() -> TestWorkspace {
    let workspace = TestWorkspace::new()
        .file("docs/a.md", "harbour")
        .file("docs/b.md", "anchor")
        .file("docs/c.md", "ship");
    workspace.ctx("sync").success();
    workspace
}

fn store(w: &TestWorkspace) -> String {
    w.data("ctx.sqlite").display().to_string()
}

fn keyword_index(w: &TestWorkspace) -> PathBuf {
    let mut entries = fs::read_dir(w.data("")).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.is_dir() && path.display().to_string().contains("keyword")).unwrap()
}

fn noise(length: usize) -> Vec<u8> {
    (0..length as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn a_store_of_a_newer_version_is_refused_and_not_touched() {
    let w = synced();
    let mut bytes = fs::read(store(&w)).unwrap();
    bytes[VERSION_OFFSET..VERSION_OFFSET + 4].copy_from_slice(&99u32.to_be_bytes());
    w.write(&store(&w), &bytes);
    ctx_snapshot!(w.ctx("search harbour"), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    error: the store [DATA]/ctx.sqlite was written by a newer ctx (format 99, this version supports 6)
    hint: install a newer ctx, or set `db.path` to another file
    ");
    w.ctx("sync").code(1).stderr_contains("newer ctx");
    w.ctx("serve mcp").code(1).stderr_contains("newer ctx");
    w.ctx("doctor").code(1);
    assert_eq!(fs::read(store(&w)).unwrap(), bytes);
}

#[test]
fn a_store_that_is_garbage_is_refused_and_the_hint_helps() {
    let w = synced();
    w.write(&store(&w), noise(8_192));
    ctx_snapshot!(w.ctx("search harbour"), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    error: the store [DATA]/ctx.sqlite is damaged: file is not a database
    hint: move the file away and run `ctx sync`: everything in it can be read again from its sources
    ");
    ctx_snapshot!(w.ctx("doctor"), @r"
    exit_code: 1
    ----- stdout -----
    ✓ configuration: [ROOT]/ctx.toml
    ✗ store: the store [DATA]/ctx.sqlite is damaged: file is not a database
        hint: move the file away and run `ctx sync`: everything in it can be read again from its sources

    ----- stderr -----
    error: 1 of 2 checks failed
    ");
    w.ctx("sync").code(1).stderr_contains("damaged");
    assert_eq!(fs::read(store(&w)).unwrap(), noise(8_192));

    fs::rename(store(&w), w.path("moved-away")).unwrap();
    w.ctx("sync").success();
    assert_eq!(w.ctx("search harbour --json").found_ids(), ["a.md"]);
}

#[test]
fn a_record_of_runs_that_is_garbage_stops_nothing() {
    let w = synced();
    w.write(w.data("state.sqlite").to_str().unwrap(), noise(8_192));
    ctx_snapshot!(w.ctx("search harbour"), @r"
    exit_code: 0
    ----- stdout -----
     1. a.md  (0.11)
        filesystem:docs  a.md  [DATE]
        harbour
        id [ID]

    ----- stderr -----
    warning: runs are not recorded: cannot use [DATA]/state.sqlite: file is not a database
    ");
    ctx_snapshot!(w.ctx("runs"), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    warning: runs are not recorded: cannot use [DATA]/state.sqlite: file is not a database
    error: runs are not recorded here
    ");
}

#[test]
fn a_folder_that_may_not_be_written_can_be_searched_and_a_sync_says_why_it_cannot() {
    let w = synced().unprivileged();
    w.ctx("sync").success();
    let data = w.data("");
    for entry in fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        w.mode(path.to_str().unwrap(), if path.is_dir() { 0o500 } else { 0o400 });
    }
    // tantivy locks this file even for reading.
    w.mode(keyword_index(&w).join(".tantivy-meta.lock").to_str().unwrap(), 0o400);
    w.mode(data.to_str().unwrap(), 0o500);
    assert_eq!(w.ctx("search harbour --json").success().found_ids(), ["a.md"]);
    ctx_snapshot!(w.ctx("search anchor"), @r"
    exit_code: 0
    ----- stdout -----
     1. b.md  (0.11)
        filesystem:docs  b.md  [DATE]
        anchor
        id [ID]

    ----- stderr -----
    warning: runs are not recorded: cannot use [DATA]/state.sqlite: attempt to write a readonly database
    ");
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    warning: runs are not recorded: cannot use [DATA]/state.sqlite: attempt to write a readonly database
    error: the store [DATA]/ctx.sqlite cannot be written
    hint: check the permissions of the file and its folder
    ");
    ctx_snapshot!(w.ctx("doctor"), @r"
    exit_code: 1
    ----- stdout -----
    ✗ configuration: runs are not recorded: cannot use [DATA]/state.sqlite: attempt to write a readonly database
        hint: everything else works without it
    ✗ store: it can be read but not written
        hint: check the permissions of its folder
    ✓ keyword index: intact and up to date
    ✓ embeddings: disabled; search is by keywords only
    ✓ filesystem:docs: 3 documents, synced [TIME]

    ----- stderr -----
    error: 2 of 5 checks failed
    ");
    let server = w.spawn_server();
    assert_eq!(server.post("/tools/search", &serde_json::json!({"query": "ship"})).found_ids(), ["c.md"]);
    server.stop().success();
}

#[test]
fn a_workspace_that_may_not_be_written_is_searched_and_a_home_that_may_not_says_so() {
    let w = TestWorkspace::new().unprivileged().file("docs/a.md", "harbour");
    w.mode(".", 0o555);
    w.ctx("sync").success();
    assert_eq!(w.ctx("search harbour --json").found_ids(), ["a.md"]);
    let w = TestWorkspace::new().unprivileged().file("docs/a.md", "harbour");
    w.mode(w.home().to_str().unwrap(), 0o555);
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    error: cannot open the store [DATA]/ctx.sqlite: Permission denied (os error 13)
    hint: check `db.path` and the permissions of its folder
    ");
    let empty = TestWorkspace::empty().unprivileged();
    empty.mode(".", 0o555);
    ctx_snapshot!(empty.ctx("init"), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    error: cannot write [ROOT]/ctx.toml: Permission denied (os error 13)
    ");
}

#[test]
fn a_keyword_index_that_is_gone_is_built_again_by_whatever_comes_next() {
    let w = synced();
    for command in ["search anchor --json", "sync --json", "doctor --json"] {
        fs::remove_dir_all(keyword_index(&w)).unwrap();
        w.ctx(command).success();
        assert_eq!(w.ctx("search anchor --json").found_ids(), ["b.md"], "after {command}");
    }
}

/// Overwrites the files of the index that have this ending.
fn damage_index(w: &TestWorkspace, ending: &str, damage: fn(usize) -> Vec<u8>) {
    let mut damaged = 0;
    for entry in fs::read_dir(keyword_index(w)).unwrap().map(Result::unwrap) {
        if entry.file_name().to_str().unwrap().ends_with(ending) {
            fs::write(entry.path(), damage(entry.metadata().unwrap().len() as usize)).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0, "the index has no {ending}");
}

#[test]
fn a_keyword_index_that_is_damaged_gives_right_answers_and_no_traces() {
    let w = synced();
    let damages: [fn(usize) -> Vec<u8>; 3] = [|_| Vec::new(), noise, |length| vec![0; length / 2]];
    for damage in damages {
        for ending in ["", "meta.json", ".term", ".idx"] {
            damage_index(&w, ending, damage);
            assert_eq!(w.ctx("search anchor --json").success().found_ids(), ["b.md"], "{ending:?}");
        }
        damage_index(&w, "", damage);
        w.ctx("sync").success();
        assert_eq!(w.ctx("search anchor --json").success().found_ids(), ["b.md"], "after a sync");
    }
}

#[test]
fn a_file_that_may_not_grow_fails_the_sync_and_a_later_one_completes() {
    let w = TestWorkspace::new();
    for number in 0..200 {
        w.write(&format!("docs/{number}.md"), format!("# Note {number}\n{}", "harbour ".repeat(300)));
    }
    // Simulates a full disk; works without privileges.
    for blocks in [8, 100, 400, 1_000] {
        let outcome = w.shell(&format!("trap '' XFSZ; ulimit -f {blocks}; exec ctx sync"));
        assert_eq!(outcome.code, Some(1), "{blocks}: {outcome:?}");
        assert!(
            outcome.stderr.starts_with("error: ") && outcome.stderr.contains("the store "),
            "{blocks}: {}",
            outcome.stderr
        );
    }
    w.ctx("sync").success();
    assert_eq!(w.ctx("stats --json").json()["documents"], 200);
    assert_eq!(w.ctx("search harbour --limit 100 --json").found_ids().len(), 100);
    w.ctx("doctor").success();
}

#[test]
fn an_index_that_cannot_be_written_still_answers() {
    let w = synced();
    let index = keyword_index(&w);
    let older: Vec<_> = fs::read_dir(&index)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    let words: String = (0..40_000).map(|number| format!("w{number} ")).collect();
    w.write("docs/long.md", words);
    w.ctx("sync").success();
    // The index lags behind the store, and there is no space to update it.
    fs::remove_dir_all(&index).unwrap();
    fs::create_dir(&index).unwrap();
    older.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    let outcome = w.shell("trap '' XFSZ; ulimit -f 128; exec ctx search harbour --json");
    assert_eq!(outcome.clone().success().found_ids(), ["a.md"], "{}", outcome.stderr);
    assert_eq!(w.ctx("search w39999 --json").found_ids(), ["long.md"]);
}

#[test]
fn unwritable_stdout_is_a_failure_and_unwritable_stderr_is_not() {
    let w = synced();
    for command in ["search harbour", "export", "stats", "completions bash"] {
        let outcome = w.shell(&format!("ctx {command} >/dev/full"));
        assert_eq!(outcome.code, Some(1), "{command}: {}", outcome.stderr);
        assert!(outcome.stderr.starts_with("error: cannot write the "), "{command}: {}", outcome.stderr);
    }
    for (command, code) in [("search zeppelin", 0), ("runs", 0), ("get nothing", 1), ("-vv search ship", 0)] {
        assert_eq!(w.shell(&format!("ctx {command} 2>/dev/full")).code, Some(code), "{command}");
    }
}

#[test]
fn searching_goes_on_where_no_file_may_grow() {
    let w = synced();
    // Simulates a full disk: SQLite cannot even create its `-wal` and `-shm` files.
    for command in ["search harbour --json", "-q search harbour --json"] {
        let outcome = w.shell(&format!("trap '' XFSZ; ulimit -f 0; exec ctx {command}"));
        assert_eq!(outcome.clone().success().found_ids(), ["a.md"], "{}", outcome.stderr);
    }
    w.write("docs/d.md", "compass");
    let outcome = w.shell("trap '' XFSZ; ulimit -f 0; exec ctx sync");
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("no space left to write the store "), "{}", outcome.stderr);
    w.ctx("sync").success();
    assert_eq!(w.ctx("search compass --json").found_ids(), ["d.md"]);
}
