//! Automatic sync: watched and scheduled sources, with `ctx sync --watch` and in a server.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{DEADLINE, TestServer, TestWorkspace, ctx_snapshot, signal, wait_until};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

/// A running `ctx sync --watch`; killed on drop.
struct WatchProcess {
    child: Child,
    results: Receiver<String>,
    messages: Receiver<String>,
}

impl WatchProcess {
    /// Starts it and waits until it watches.
    #[track_caller]
    fn start(w: &TestWorkspace, arguments: &[&str]) -> Self {
        let mut child = w
            .command([&["sync", "--watch"], arguments].concat())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (results, messages) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
        let watching = Self { child, results, messages };
        watching.wait_for("watching ");
        watching
    }

    /// The next line of its stdout.
    #[track_caller]
    fn next_result(&self) -> String {
        self.results.recv_timeout(DEADLINE).unwrap()
    }

    /// Waits for a line of its stderr that begins so.
    #[track_caller]
    fn wait_for(&self, beginning: &str) {
        while !self.messages.recv_timeout(DEADLINE).unwrap().starts_with(beginning) {}
    }

    /// Ends it with Ctrl-C; returns its exit code and the rest of its stdout.
    #[track_caller]
    fn stop(mut self) -> (Option<i32>, Vec<String>) {
        signal(self.child.id(), "INT");
        let mut ended = None;
        wait_until("the watch has ended", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        (ended.unwrap().code(), self.results.iter().collect())
    }
}

impl Drop for WatchProcess {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            if sender.send(line.unwrap()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Creates a file atomically, so that no watcher reads half of it.
fn write_atomically(w: &TestWorkspace, path: &str, text: &str) {
    w.write("staging/file", text);
    fs::rename(w.path("staging/file"), w.path(path)).unwrap();
}

/// The results of a search for a word; empty while the first index is being built.
fn search_results(server: &TestServer, word: &str) -> Vec<String> {
    let reply = server.post("/tools/search", &json!({"query": word, "mode": "keyword"}));
    if reply.status == 200 { reply.found_ids() } else { Vec::new() }
}

fn with_one_document() -> TestWorkspace {
    TestWorkspace::new().file("docs/deploy.md", "# Deploy\nPush the button.\n")
}

#[test]
fn a_watch_reports_added_changed_moved_and_deleted_documents_only() {
    let w = with_one_document();
    let watching = WatchProcess::start(&w, &[]);
    assert_eq!(watching.next_result(), "filesystem:docs: 1 added");
    write_atomically(&w, "docs/ship.md", "harbour");
    assert_eq!(watching.next_result(), "filesystem:docs: 1 added, 1 unchanged");
    assert_eq!(w.ctx("search harbour --mode keyword --json").found_ids(), ["ship.md"]);
    write_atomically(&w, "docs/ship.md", "lighthouse");
    assert_eq!(watching.next_result(), "filesystem:docs: 1 updated, 1 unchanged");
    assert_eq!(w.ctx("search lighthouse --mode keyword --json").found_ids(), ["ship.md"]);
    fs::rename(w.path("docs/ship.md"), w.path("docs/boat.md")).unwrap();
    assert_eq!(watching.next_result(), "filesystem:docs: 1 added, 1 deleted, 1 unchanged");
    fs::rename(w.path("docs/boat.md"), w.path("docs/Boat.md")).unwrap();
    assert_eq!(watching.next_result(), "filesystem:docs: 1 added, 1 deleted, 1 unchanged");
    assert_eq!(w.ctx("search lighthouse --mode keyword --json").found_ids(), ["Boat.md"]);
    w.write("staging/deep/down/a.md", "anchor");
    fs::rename(w.path("staging/deep"), w.path("docs/deep")).unwrap();
    assert_eq!(watching.next_result(), "filesystem:docs: 1 added, 2 unchanged");
    write_atomically(&w, "docs/deep/down/b.md", "chain");
    assert_eq!(watching.next_result(), "filesystem:docs: 1 added, 3 unchanged");
    fs::rename(w.path("docs/deep"), w.path("staging/deep")).unwrap();
    assert_eq!(watching.next_result(), "filesystem:docs: 2 deleted, 2 unchanged");
    write_atomically(&w, "docs/.gitignore", "deploy.md\n");
    assert_eq!(watching.next_result(), "filesystem:docs: 1 deleted, 1 unchanged");
    assert_eq!(watching.stop(), (Some(0), Vec::new()));
}

#[test]
fn a_watch_for_programs_answers_one_object_a_line() {
    let w = with_one_document();
    let watching = WatchProcess::start(&w, &["--json"]);
    let next = || serde_json::from_str::<serde_json::Value>(&watching.next_result()).unwrap();
    assert_eq!(next()["added"], 1);
    write_atomically(&w, "docs/deploy.md", "harbour");
    let report = next();
    assert_eq!((&report["source"], &report["updated"]), (&json!("filesystem:docs"), &json!(1)));
    assert_eq!(watching.stop().0, Some(0));
}

#[test]
fn a_root_that_vanishes_is_told_once_and_watched_again_when_it_is_back() {
    let w = with_one_document();
    let watching = WatchProcess::start(&w, &[]);
    assert_eq!(watching.next_result(), "filesystem:docs: 1 added");
    fs::rename(w.path("docs"), w.path("away")).unwrap();
    watching.wait_for("error: filesystem:docs: cannot read the folder docs: no such file or directory");
    assert_eq!(w.ctx("search button --mode keyword --json").found_ids(), ["deploy.md"]);
    w.write("next/ship.md", "harbour");
    fs::rename(w.path("next"), w.path("docs")).unwrap();
    assert_eq!(watching.next_result(), "filesystem:docs: 1 added, 1 deleted");
    write_atomically(&w, "docs/boat.md", "lighthouse");
    assert_eq!(watching.next_result(), "filesystem:docs: 1 added, 1 unchanged");
    let messages = watching.messages.try_iter().count();
    assert_eq!((watching.stop(), messages), ((Some(0), Vec::new()), 0));
}

#[test]
fn a_store_below_a_watched_folder_does_not_make_it_sync_forever() {
    let w = TestWorkspace::new()
        .config("[db]\npath = \"ctx.sqlite\"\n[connectors.filesystem.docs]\nroot = \".\"\n")
        .file("ship.md", "harbour");
    let watching = WatchProcess::start(&w, &[]);
    assert_eq!(watching.next_result(), "filesystem:docs: 1 added", "settings are no document");
    write_atomically(&w, "boat.md", "lighthouse");
    assert_eq!(watching.next_result(), "filesystem:docs: 1 added, 1 unchanged");
    let last_sync = || w.ctx("sources --json").json()["sources"][0]["last_sync"].to_string();
    wait_until("it rests", || {
        let before = last_sync();
        thread::sleep(Duration::from_secs(2));
        before == last_sync()
    });
    assert_eq!(watching.stop(), (Some(0), Vec::new()));
}

#[test]
fn a_watch_cannot_be_restricted() {
    let w = with_one_document();
    for restricted in ["--dry-run", "--limit 1", "--since 2026-01-01", "--until 2026-01-01"] {
        w.ctx(&format!("sync --watch {restricted}")).code(2);
    }
}

#[test]
fn up_notices_an_edit() {
    let w = with_one_document();
    let server = w.spawn(["up"]);
    wait_until("the first sync is done", || search_results(&server, "button") == ["deploy.md"]);
    write_atomically(&w, "docs/deploy.md", "# Deploy\nPull the lever.\n");
    wait_until("the edit is found", || search_results(&server, "lever") == ["deploy.md"]);
    assert_eq!(search_results(&server, "button"), [""; 0]);
    server.stop().success();
}

#[test]
fn a_server_syncs_changes_from_before_its_start_and_while_it_runs() {
    let w = with_one_document();
    w.ctx("sync").success();
    write_atomically(&w, "docs/ship.md", "harbour");
    let server = w.spawn_server();
    wait_until("what changed before is found", || search_results(&server, "harbour") == ["ship.md"]);
    write_atomically(&w, "docs/boat.md", "lighthouse");
    wait_until("what changed since is found", || search_results(&server, "lighthouse") == ["boat.md"]);
    w.remove("docs");
    let failed = || w.ctx("sources --json").json()["sources"][0]["notes"].to_string();
    wait_until("the failure is shown", || failed().contains("cannot read the folder docs"));
    let source = &server.get("/tools/sources").body["sources"][0];
    let keys: Vec<&String> = source.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["name", "configured", "healthy", "notes"]);
    assert_eq!(search_results(&server, "harbour"), ["ship.md"], "a source that cannot be read stops nobody");
    w.write("docs/anchor.md", "anchor");
    wait_until("what is back is found", || search_results(&server, "anchor") == ["anchor.md"]);
    server.stop().success();
}

#[test]
fn a_source_that_is_due_is_synced_when_a_server_starts() {
    let w = with_one_document().config(
        "[connectors.filesystem.docs]\nroot = \"docs\"\nwatch = false\nevery = \"1d\"\n[server]\nbind = \"127.0.0.1:0\"\n",
    );
    let server = w.spawn_server();
    let last_sync = || w.ctx("sources --json").json()["sources"][0]["last_sync"].clone();
    wait_until("it is synced", || last_sync().is_string());
    wait_until("it is found", || search_results(&server, "button") == ["deploy.md"]);
    server.stop().success();
    write_atomically(&w, "docs/ship.md", "harbour");
    let server = w.spawn_server();
    assert_eq!(server.get("/health").status, 200);
    server.stop().success();
    assert_eq!(w.ctx("sources --json").json()["sources"][0]["documents"], 1, "not due again until tomorrow");
}

#[test]
fn sources_show_how_they_are_kept_fresh() {
    let w = TestWorkspace::new()
        .config(
            "[connectors.filesystem.a]\nroot = \"a\"\n\
             [connectors.filesystem.b]\nroot = \"b\"\nevery = \"60m\"\n\
             [connectors.filesystem.c]\nroot = \"c\"\nwatch = false\n",
        )
        .file("a/a.md", "harbour")
        .file("b/b.md", "anchor")
        .file("c/c.md", "chain");
    ctx_snapshot!(w.ctx("sources"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:a  ok  watched            never synced; run `ctx sync`
    filesystem:b  ok  watched, every 1h  never synced; run `ctx sync`
    filesystem:c  ok  manual             never synced; run `ctx sync`

    ----- stderr -----
    ");
    w.ctx("sync").success();
    ctx_snapshot!(w.ctx("sources"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:a  ok  watched            1 document, synced [TIME]
    filesystem:b  ok  watched, every 1h  1 document, synced [TIME], next [TIME]
    filesystem:c  ok  manual             1 document, synced [TIME]

    ----- stderr -----
    ");
    let shown = w.ctx("sources --json").success().json();
    let keys = |index: usize| {
        let source = &shown["sources"][index];
        (source["watched"].clone(), source["every"].clone(), source["next_sync"].is_string())
    };
    assert_eq!(keys(0), (json!(true), json!(null), false));
    assert_eq!(keys(1), (json!(true), json!("1h"), true));
    assert_eq!(keys(2), (json!(false), json!(null), false));
}
