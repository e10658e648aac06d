//! Runs that reach their limits.

use super::world::{LATE, LONG, SHORT, TestWorld, WORKER, engine, run, script, settings, until, value};
use crate::Test;
use ctx_luau::{DEPTH_MAX, Engine, RunErrorKind};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

pub(crate) const TESTS: &[Test] = tests!(limits:
    an_endless_loop_ends_at_the_deadline,
    a_caught_error_does_not_outlive_the_deadline,
    a_request_without_a_response_ends_at_the_deadline,
    memory_is_bounded,
    logs_are_bounded,
    a_dropped_run_ends_its_worker_and_its_requests,
    too_many_waiting_are_refused,
    waiting_runs_get_their_turn,
    waiting_ends_at_the_deadline,
    nested_runs_go_beyond_the_limit,
    nesting_is_bounded,
    after_a_shutdown_nothing_runs,
);

async fn an_endless_loop_ends_at_the_deadline() {
    let engine = engine();
    value(&engine, "return 1").await;
    let began = Instant::now();
    let error = run(&engine, "while true do end", SHORT).await.unwrap_err();
    assert_eq!(error.kind, RunErrorKind::Time);
    assert!(began.elapsed() < SHORT + LATE, "{:?}", began.elapsed());
    assert_eq!(value(&engine, "return 2").await, json!(2));
}

async fn a_caught_error_does_not_outlive_the_deadline() {
    let source = "while true do pcall(function() while true do end end) end";
    let error = run(&engine(), source, SHORT).await.unwrap_err();
    assert_eq!(error.kind, RunErrorKind::Time);
}

async fn a_request_without_a_response_ends_at_the_deadline() {
    let world = TestWorld::never_answering();
    let engine = engine();
    let began = Instant::now();
    let source = "while true do pcall(env.get, 'X') end";
    let error = engine.run(&script(source, SHORT), &world).await.unwrap_err();
    assert_eq!(error.kind, RunErrorKind::Time);
    assert!(began.elapsed() < SHORT + LATE, "{:?}", began.elapsed());
    assert_eq!(world.open.load(Ordering::SeqCst), 0);
    // The worker ended the run by itself, and is used again.
    assert_eq!(engine.figures().idle, engine.figures().workers);
}

async fn memory_is_bounded() {
    let engine = engine();
    let source = "local t = {} while true do t[#t + 1] = string.rep('x', 1000000) .. #t end";
    let error = run(&engine, source, LONG).await.unwrap_err();
    assert_eq!(error.kind, RunErrorKind::Memory, "{error:?}");
    assert_eq!(value(&engine, "return 1").await, json!(1));
}

async fn logs_are_bounded() {
    let source = "for i = 1, 100000 do print('') print('a line of some length') end return 1";
    let completed = run(&engine(), source, LONG).await.unwrap();
    let bytes: usize = completed.logs.iter().map(|line| line.message.len()).sum();
    assert!(bytes <= 260 << 10, "{bytes}");
    assert!(bytes > 32 << 10, "{bytes}");
    // Bytes that are not UTF-8 grow when they are converted to text.
    let source = "for i = 1, 100 do print(string.rep('\\xff', 5000)) end return 1";
    assert_eq!(value(&engine(), source).await, json!(1));
}

async fn a_dropped_run_ends_its_worker_and_its_requests() {
    let engine = engine();
    let world = TestWorld::never_answering();
    let script = script("return env.get('X')", LONG);
    {
        let run = engine.run(&script, &world);
        let request_opened = until("the question is open", || world.open.load(Ordering::SeqCst) == 1);
        tokio::select! {
            outcome = run => panic!("{outcome:?}"),
            () = request_opened => {}
        }
    }
    assert_eq!(world.open.load(Ordering::SeqCst), 0);
    until("only a fresh worker is left", || {
        let figures = engine.figures();
        (figures.workers, figures.idle) == (1, 1)
    })
    .await;
    assert_eq!(value(&engine, "return 1").await, json!(1));
}

fn engine_with(workers_max: usize, queue_max: usize) -> Engine {
    let mut settings = settings(&[WORKER]);
    (settings.workers_max, settings.queue_max) = (workers_max, queue_max);
    Engine::new(settings).unwrap()
}

async fn too_many_waiting_are_refused() {
    let engine = engine_with(1, 1);
    let world = Arc::new(TestWorld::never_answering());
    let mut runs = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (engine, world) = (engine.clone(), Arc::clone(&world));
        runs.spawn(async move { engine.run(&script("return env.get('X')", LONG), &*world).await });
    }
    until("one runs and one waits", || {
        world.open.load(Ordering::SeqCst) == 1 && engine.figures().waiting == 1
    })
    .await;
    let error = run(&engine, "return 1", LONG).await.unwrap_err();
    assert_eq!(error.kind, RunErrorKind::Overloaded);
    runs.shutdown().await;
    assert_eq!(value(&engine, "return 1").await, json!(1));
}

async fn waiting_runs_get_their_turn() {
    let engine = engine_with(2, 100);
    let runs = (0..40).map(|number| {
        let engine = engine.clone();
        async move { assert_eq!(value(&engine, &format!("return {number}")).await, json!(number)) }
    });
    futures::future::join_all(runs).await;
    // A spare worker that was still starting when both were busy is stopped.
    until("there are two workers", || engine.figures().workers <= 2).await;
    assert_eq!(engine.figures().waiting, 0);
}

async fn waiting_ends_at_the_deadline() {
    let engine = engine_with(1, 10);
    let world = TestWorld::never_answering();
    let holding = script("return env.get('X')", LONG);
    let holds = engine.run(&holding, &world);
    let waits = async {
        until("one runs", || world.open.load(Ordering::SeqCst) == 1).await;
        run(&engine, "return 1", SHORT).await.unwrap_err()
    };
    tokio::select! {
        outcome = holds => panic!("{outcome:?}"),
        error = waits => assert_eq!(error.kind, RunErrorKind::Overloaded),
    }
}

async fn nested_runs_go_beyond_the_limit() {
    let engine = engine_with(1, 10);
    let world = TestWorld::never_answering();
    let holding = script("return env.get('X')", LONG);
    let holds = engine.run(&holding, &world);
    let nested = async {
        until("one runs", || world.open.load(Ordering::SeqCst) == 1).await;
        let mut nested = script("return 'inside'", LONG);
        nested.depth = 1;
        engine.run(&nested, &world).await.unwrap().value
    };
    tokio::select! {
        outcome = holds => panic!("{outcome:?}"),
        value = nested => assert_eq!(value, json!("inside")),
    }
}

async fn nesting_is_bounded() {
    let mut deepest = script("return 1", LONG);
    deepest.depth = DEPTH_MAX + 1;
    let error = engine().run(&deepest, &TestWorld::default()).await.unwrap_err();
    assert_eq!(error.kind, RunErrorKind::Overloaded);
}

async fn after_a_shutdown_nothing_runs() {
    let engine = engine();
    let world = TestWorld::never_answering();
    let holding = script("return env.get('X')", LONG);
    let stops = async {
        until("one runs", || world.open.load(Ordering::SeqCst) == 1).await;
        engine.shutdown().await;
    };
    let (outcome, ()) = tokio::join!(engine.run(&holding, &world), stops);
    assert_eq!(outcome.unwrap_err().kind, RunErrorKind::Stopped);
    assert_eq!(run(&engine, "return 1", LONG).await.unwrap_err().kind, RunErrorKind::Stopped);
    assert_eq!(engine.figures().workers, 0);
}
