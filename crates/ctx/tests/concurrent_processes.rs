//! Several processes in one workspace: each gets its turn, or exits as busy.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestWorkspace, ctx_snapshot, signal};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

const TWO_SOURCES: &str =
    "[connectors.filesystem.a]\nroot = \"a\"\n[connectors.filesystem.b]\nroot = \"b\"\n";

/// Holds the sync lock of this source.
fn hold(w: &TestWorkspace, source_name: &str) -> File {
    let mut locks = fs::read_dir(w.data("ctx.locks")).unwrap().map(|entry| entry.unwrap().path());
    let path = locks.find(|path| path.file_stem().unwrap().to_str().unwrap().contains(source_name)).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.try_lock().unwrap();
    file
}

fn with_many_documents(count: usize) -> TestWorkspace {
    let w = TestWorkspace::new();
    for number in 0..count {
        w.write(&format!("docs/{number}.md"), format!("# Note {number}\nharbour {}", "anchor ".repeat(50)));
    }
    w
}

#[test]
fn a_source_that_is_being_synced_is_busy_and_free_again_afterwards() {
    let w = TestWorkspace::new().file("docs/a.md", "harbour");
    w.ctx("sync").success();
    let lock = hold(&w, "docs");
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 75
    ----- stdout -----

    ----- stderr -----
    error: filesystem:docs is being synced by another process
    hint: wait for it to finish, then run the command again
    ");
    assert_eq!(w.ctx("sync --json").code(75).json(), json!({"sources": []}));
    w.ctx("search harbour").success();
    w.ctx("doctor").success();
    drop(lock);
    w.ctx("sync").success();
}

#[test]
fn a_busy_source_does_not_stop_the_others_and_a_failure_outweighs_it() {
    let w = TestWorkspace::new().config(TWO_SOURCES).file("a/a.md", "harbour").file("b/b.md", "anchor");
    w.ctx("sync").success();
    let _lock = hold(&w, "filesystem_a");
    w.write("b/c.md", "chain");
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 75
    ----- stdout -----
    filesystem:b: 1 added, 1 unchanged

    ----- stderr -----
    error: filesystem:a is being synced by another process
    hint: wait for it to finish, then run the command again
    ");
    w.remove("b");
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    error: filesystem:a is being synced by another process
    error: filesystem:b: cannot read the folder b: no such file or directory
    hint: wait for it to finish, then run the command again
    ");
}

/// All stored documents, without paths and times.
fn exported(w: &TestWorkspace) -> Vec<Value> {
    let mut documents = w.ctx("export").success().json()["documents"].as_array().unwrap().clone();
    for document in &mut documents {
        for key in ["source_url", "created_at", "updated_at"] {
            document.as_object_mut().unwrap().remove(key);
        }
    }
    documents
}

#[test]
fn two_syncs_of_one_source_at_once_leave_what_one_does() {
    const ROUNDS: usize = 6;
    // The first round also creates the store.
    let w = with_many_documents(60);
    let mut busy = 0;
    for round in 0..ROUNDS {
        w.write(&format!("docs/new-{round}.md"), format!("# New {round}\nlighthouse"));
        w.write("docs/0.md", format!("# Changed {round}\nzeppelin"));
        w.remove(&format!("docs/{}.md", round + 1));
        let start =
            || w.command(["sync", "-q"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let ended = [start(), start()].map(|sync| sync.wait_with_output().unwrap());
        let codes = ended.each_ref().map(|ended| ended.status.code().unwrap());
        let said = ended.each_ref().map(|ended| String::from_utf8_lossy(&ended.stderr));
        assert!(codes.contains(&0) && codes.iter().all(|code| [0, 75].contains(code)), "{codes:?}: {said:?}");
        busy += codes.iter().filter(|code| **code == 75).count();
        let fresh = TestWorkspace::copy_of(w.root());
        fresh.ctx("sync").success();
        assert_eq!(exported(&w), exported(&fresh), "round {round}, {busy} syncs were told to come back");
        let found = |w: &TestWorkspace, text: &str| {
            let mut found = w.ctx(&format!("search {text} --limit 100 --json")).success().found_ids();
            found.sort();
            found
        };
        for text in ["lighthouse", "zeppelin", "harbour"] {
            assert_eq!(found(&w, text), found(&fresh, text), "{text}, round {round}");
        }
    }
    w.ctx("doctor").success();
}

#[test]
fn a_server_answers_while_a_sync_runs_and_then_finds_the_new_documents() {
    let w = with_many_documents(1_000);
    w.ctx("sync").success();
    w.write("docs/zeppelin.md", "zeppelin");
    let server = w.spawn_server();
    let mut sync = w.command(["sync", "--full", "-q"]).stdout(Stdio::null()).spawn().unwrap();
    let mut answers = 0;
    while sync.try_wait().unwrap().is_none() {
        let reply = server.post("/tools/search", &json!({"query": "harbour"}));
        assert_eq!((reply.status, reply.found_ids().len()), (200, 12));
        answers += 1;
    }
    assert!(answers > 0);
    assert!(sync.wait().unwrap().success());
    assert_eq!(server.post("/tools/search", &json!({"query": "zeppelin"})).found_ids(), ["zeppelin.md"]);
    server.stop().success();
}

#[test]
fn an_interrupted_sync_says_so_and_the_next_one_goes_on() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let w = with_many_documents(1_500);
        let mut sync = w
            .command(["sync", "--progress", "json"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut talk = BufReader::new(sync.stderr.take().unwrap());
        let mut line = String::new();
        talk.read_line(&mut line).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap()["seen"], 100);
        signal(sync.id(), name);
        let mut rest = String::new();
        talk.read_to_string(&mut rest).unwrap();
        assert_eq!(sync.wait().unwrap().code(), Some(code));
        let said = "error: filesystem:docs: interrupted; what was read so far is kept\n\
                    hint: run the command again to continue\n";
        assert!(rest.ends_with(said), "{rest}");

        let kept = w.ctx("search harbour --limit 100 --json").success().found_ids().len();
        assert_eq!(kept, 100, "what was read can be searched");
        let report = w.ctx("sync --json").success().json();
        assert!(report["sources"][0]["unchanged"].as_u64().unwrap() >= 100, "{report}");
        assert_eq!(w.ctx("stats --json").json()["documents"], 1_500);
    }
}
