//! Faults of workers, and a parent that is killed.

use super::world::{FAKE, LATE, LONG, PARENT, SHORT, TestWorld, WORKER};
use super::world::{engine, run, script, settings, until, value};
use crate::Test;
use ctx_luau::{Engine, RunErrorKind};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

pub(crate) const TESTS: &[Test] = tests!(faults:
    a_worker_killed_in_a_run_is_a_crash_and_the_next_run_works,
    a_worker_killed_while_idle_is_not_noticed,
    workers_that_violate_the_protocol_are_crashes,
    a_worker_without_memory_is_not_a_crash,
    workers_that_never_become_ready_are_errors,
    a_worker_that_ignores_the_deadline_is_ended,
    no_worker_outlives_its_killed_parent,
    workers_inherit_nothing,
    a_missing_worker_program_is_an_error,
    exited_workers_leave_no_processes,
);

/// Ids of the child processes of a process, from `/proc/<id>/stat`.
fn children_of(parent: u32) -> BTreeSet<u32> {
    let ids = fs::read_dir("/proc").unwrap();
    let ids = ids.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default().to_owned();
        after_name.split_whitespace().nth(1).and_then(|field| field.parse().ok()) == Some(parent)
    })
    .collect()
}

/// Whether a process has exited, even if its parent has not waited for it.
fn has_exited(id: &u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

fn kill(id: u32) {
    assert!(Command::new("kill").arg("-KILL").arg(id.to_string()).status().unwrap().success());
}

fn engine_without_spares(arguments: &[&str]) -> Engine {
    let mut settings = settings(arguments);
    settings.workers_spare = 0;
    Engine::new(settings).unwrap()
}

async fn a_worker_killed_in_a_run_is_a_crash_and_the_next_run_works() {
    let engine = engine_without_spares(&[WORKER]);
    let world = TestWorld::never_answering();
    for source in ["print('begun') return env.get('X')", "print('begun') while true do end"] {
        let before = children_of(std::process::id());
        let script = script(source, LONG);
        let killed = async {
            until("the script runs", || !world.logged.lock().unwrap().is_empty()).await;
            children_of(std::process::id()).difference(&before).copied().for_each(kill);
        };
        let (outcome, ()) = tokio::join!(engine.run(&script, &world), killed);
        let error = outcome.unwrap_err();
        assert_eq!(error.kind, RunErrorKind::Crashed);
        assert!(error.message.contains("SIGKILL"), "{}", error.message);
        world.logged.lock().unwrap().clear();
        assert_eq!(world.open.load(Ordering::SeqCst), 0);
    }
    assert_eq!(value(&engine, "return 1").await, json!(1));
}

async fn a_worker_killed_while_idle_is_not_noticed() {
    let engine = engine_without_spares(&[WORKER]);
    let before = children_of(std::process::id());
    value(&engine, "return 1").await;
    let workers: Vec<u32> = children_of(std::process::id()).difference(&before).copied().collect();
    assert_eq!(workers.len(), 1);
    workers.iter().copied().for_each(kill);
    until("it ended", || workers.iter().all(has_exited)).await;
    assert_eq!(value(&engine, "return 2").await, json!(2));
}

async fn workers_that_violate_the_protocol_are_crashes() {
    for (fault, expected) in [
        ("claims-too-much", "too large"),
        ("is-of-no-kind", "frame of an unknown kind"),
        ("greets-again", "an unexpected frame"),
        ("logs-without-end", "more log output than allowed"),
        ("asks-without-waiting", "too many concurrent requests"),
        ("asks-the-same-twice", "an unexpected frame"),
        ("answers-too-deep", "too deep"),
        ("answers-too-many", "too many values"),
        ("answers-too-large", "too large"),
        ("answers-no-json", "invalid or too deeply nested JSON"),
        ("answers-twice", "an unexpected frame"),
        ("ends", "exit status: 7"),
    ] {
        let engine = engine_without_spares(&[FAKE, fault]);
        let world = TestWorld::never_answering();
        let error = engine.run(&script("", LONG), &world).await.unwrap_err();
        assert_eq!(error.kind, RunErrorKind::Crashed, "{fault}: {error}");
        assert!(error.message.contains(expected), "{fault}: {error}");
        assert_eq!(engine.figures().workers, 0, "{fault}");
    }
}

async fn a_worker_without_memory_is_not_a_crash() {
    let error = run(&engine_without_spares(&[FAKE, "has-no-memory"]), "", LONG).await.unwrap_err();
    assert_eq!(error.kind, RunErrorKind::Memory, "{error}");
}

async fn workers_that_never_become_ready_are_errors() {
    for (fault, expected) in
        [("greets-with-garbage", "frame of an unknown kind"), ("ends-at-once", "status: 7")]
    {
        let error = run(&engine_without_spares(&[FAKE, fault]), "", LONG).await.unwrap_err();
        assert_eq!(error.kind, RunErrorKind::Unavailable, "{fault}: {error}");
        assert!(error.message.contains(expected), "{fault}: {error}");
    }
    let error = run(&engine_without_spares(&[FAKE, "is-silent"]), "", SHORT).await.unwrap_err();
    assert_eq!(error.kind, RunErrorKind::Overloaded);
}

async fn a_worker_that_ignores_the_deadline_is_ended() {
    for fault in ["does-nothing", "claims-a-lot-and-stops"] {
        let engine = engine_without_spares(&[FAKE, fault]);
        let began = Instant::now();
        let error = run(&engine, "", SHORT).await.unwrap_err();
        assert_eq!(error.kind, RunErrorKind::Time);
        assert!(began.elapsed() < SHORT + LATE, "{:?}", began.elapsed());
        assert_eq!(engine.figures().workers, 0);
    }
}

/// The main function of a parent that is to be killed: an engine with one busy and one waiting script, which
/// do not end.
pub(crate) fn parent() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let engine = engine();
        let world = TestWorld::never_answering();
        let (busy, waiting) =
            (script("print('busy') while true do end", LONG), script("print('waits') env.get('X')", LONG));
        let report_workers = async {
            until("both run", || world.logged.lock().unwrap().len() == 2).await;
            until("a spare one waits", || engine.figures().idle == 1).await;
            let workers = children_of(std::process::id());
            let workers: Vec<String> = workers.iter().map(ToString::to_string).collect();
            std::io::stdout().write_all(format!("{}\n", workers.join(" ")).as_bytes()).unwrap();
        };
        let outcome = tokio::join!(engine.run(&busy, &world), engine.run(&waiting, &world), report_workers);
        panic!("{outcome:?}")
    })
}

async fn no_worker_outlives_its_killed_parent() {
    let mut parent =
        Command::new(std::env::current_exe().unwrap()).arg(PARENT).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let workers: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
    assert_eq!(workers.len(), 3, "{line}");
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("its workers are gone", || workers.iter().all(has_exited)).await;
}

async fn workers_inherit_nothing() {
    let inherited = value(&engine_without_spares(&[FAKE, "says-what-it-has"]), "").await;
    assert_eq!(inherited, json!({ "environment": 0, "folder": "/" }));
}

async fn a_missing_worker_program_is_an_error() {
    let mut settings = settings(&[]);
    settings.program = "/nowhere/at/all".into();
    let error = run(&Engine::new(settings).unwrap(), "return 1", LONG).await.unwrap_err();
    assert_eq!(error.kind, RunErrorKind::Unavailable);
}

async fn exited_workers_leave_no_processes() {
    let before = children_of(std::process::id());
    let engine = engine();
    for _ in 0..3 {
        run(&engine, "while true do end", SHORT / 3).await.unwrap_err();
        run(&engine_without_spares(&[FAKE, "does-nothing"]), "", SHORT / 3).await.unwrap_err();
    }
    engine.shutdown().await;
    until("no process is left, ended or not", || children_of(std::process::id()).is_subset(&before)).await;
}
