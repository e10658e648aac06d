//! Successful runs.

use super::world::{FAKE, WORKER};
use super::world::{LONG, SHORT, TestWorld, engine, run, script, settings, until, value};
use crate::Test;
use ctx_luau::{Engine, RunErrorKind};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests!(runs:
    a_script_answers_with_a_value,
    a_script_that_raises_says_where,
    a_host_request_is_answered,
    log_lines_arrive_live_and_with_the_outcome,
    a_failed_run_keeps_its_logs,
    eight_concurrent_runs,
    workers_are_reused,
    a_spare_worker_waits,
    idle_workers_exit,
    several_requests_are_open_at_once,
    time_spent_on_people_does_not_count,
    elicitations_without_an_answer_time_out,
    requests_beyond_the_maximum_wait_their_turn,
    large_values_are_transferred,
);

async fn a_script_answers_with_a_value() {
    assert_eq!(value(&engine(), "return 6 * 7").await, json!(42));
}

async fn a_script_that_raises_says_where() {
    let error = run(&engine(), "local x = nil\nreturn x.y", LONG).await.unwrap_err();
    assert_eq!(error.kind, RunErrorKind::Raised);
    assert!(error.message.contains("test.lua:2:"), "{}", error.message);
}

async fn a_host_request_is_answered() {
    let value_of_env = value(&engine(), "return env.get('NAME')").await;
    assert_eq!(value_of_env, json!("answer"));
}

async fn log_lines_arrive_live_and_with_the_outcome() {
    let world = TestWorld::default();
    let completed = engine().run(&script("print('one') print('two') return 1", LONG), &world).await.unwrap();
    let logs: Vec<_> = completed.logs.into_iter().map(|line| line.message).collect();
    assert_eq!(logs, ["one", "two"]);
    assert_eq!(*world.logged.lock().unwrap(), ["one", "two"]);
}

async fn a_failed_run_keeps_its_logs() {
    let error = run(&engine(), "print('before') error('oh')", LONG).await.unwrap_err();
    assert_eq!(error.logs.len(), 1);
    let error = run(&engine(), "print('before') while true do end", SHORT).await.unwrap_err();
    assert_eq!((error.kind, error.logs.len()), (RunErrorKind::Time, 1));
}

async fn eight_concurrent_runs() {
    let engine = engine();
    let mut runs = tokio::task::JoinSet::new();
    for number in 0..64 {
        let engine = engine.clone();
        runs.spawn(async move {
            let source = format!("local s = 0 for i = 1, 1000 do s = s + 1 end env.get('X') return {number}");
            (number, value(&engine, &source).await)
        });
        if number % 8 == 7 {
            while let Some(outcome) = runs.join_next().await {
                let (number, value) = outcome.unwrap();
                assert_eq!(value, json!(number));
            }
        }
    }
}

async fn workers_are_reused() {
    let mut settings = settings(&[WORKER]);
    settings.workers_spare = 0;
    let engine = Engine::new(settings).unwrap();
    for number in 0..50 {
        assert_eq!(value(&engine, &format!("return {number}")).await, json!(number));
        assert_eq!(engine.figures().workers, 1);
    }
}

async fn a_spare_worker_waits() {
    let engine = engine();
    assert_eq!(engine.figures().workers, 0);
    engine.warm_up();
    until("a worker is idle", || engine.figures().idle == 1).await;
    let world = TestWorld::never_answering();
    let script = script("return env.get('X')", LONG);
    let run = engine.run(&script, &world);
    let spare = until("another is idle", || engine.figures().workers == 2 && engine.figures().idle == 1);
    tokio::select! {
        outcome = run => panic!("{outcome:?}"),
        () = spare => {}
    }
}

async fn idle_workers_exit() {
    let mut settings = settings(&[WORKER]);
    settings.idle_max = Duration::from_millis(50);
    let engine = Engine::new(settings).unwrap();
    let world = TestWorld { delay: Duration::from_millis(200), ..TestWorld::default() };
    let script = script("return env.get('X')", LONG);
    let runs = (0..4).map(|_| engine.run(&script, &world));
    for outcome in futures::future::join_all(runs).await {
        outcome.unwrap();
    }
    until("only the spare one is left", || engine.figures().workers == 1).await;
}

async fn several_requests_are_open_at_once() {
    let engine = Engine::new(settings(&[FAKE, "asks-two-at-once"])).unwrap();
    let world = TestWorld { delay: Duration::from_millis(50), ..TestWorld::default() };
    let completed = engine.run(&script("", LONG), &world).await.unwrap();
    assert_eq!(completed.value, json!("both"));
    assert_eq!(world.open_max.load(Ordering::SeqCst), 2);
}

async fn time_spent_on_people_does_not_count() {
    let engine = engine();
    let world = TestWorld { delay: 3 * SHORT, ..TestWorld::default() };
    let source = "context.elicit('?') local s = 0 for i = 1, 1000 do s += i end return s";
    let completed = engine.run(&script(source, SHORT), &world).await.unwrap();
    assert_eq!(completed.value, json!(500_500));
    let error = engine.run(&script("return env.get('X')", SHORT), &world).await.unwrap_err();
    assert_eq!(error.kind, RunErrorKind::Time);
    // After the pause the time counts again.
    let endless = "context.elicit('?') while true do end";
    let error = engine.run(&script(endless, SHORT), &world).await.unwrap_err();
    assert_eq!(error.kind, RunErrorKind::Time);
}

async fn elicitations_without_an_answer_time_out() {
    let mut settings = settings(&[WORKER]);
    settings.pause_max = SHORT;
    let engine = Engine::new(settings).unwrap();
    let world = TestWorld::never_answering();
    let source = "local ok, why = pcall(context.elicit, '?') return { ok = ok, why = tostring(why) }";
    let completed = engine.run(&script(source, LONG), &world).await.unwrap();
    assert_eq!(completed.value["ok"], json!(false), "{}", completed.value);
}

async fn requests_beyond_the_maximum_wait_their_turn() {
    let source = "local fs = {} for i = 1, 200 do fs[i] = function() return env.get('X') end end
        return #parallel(fs)";
    let world = TestWorld { delay: Duration::from_millis(20), ..TestWorld::default() };
    let completed = engine().run(&script(source, LONG), &world).await.unwrap();
    assert_eq!(completed.value, json!(200));
    assert_eq!(world.open_max.load(Ordering::SeqCst), 64);
}

async fn large_values_are_transferred() {
    let engine = engine();
    let mut large =
        script("local text = sdk.a.b({ text = string.rep('x', 9000000) }) return #text.text", LONG);
    let world = TestWorld::default();
    assert_eq!(engine.run(&large, &world).await.unwrap().value, json!(9_000_000));
    // Both processes send a lot at the same time.
    let source = "local function f() return #sdk.a.b({ text = string.rep('x', 3000000) }).text end
        local lengths = parallel({ f, f, f, f }) return lengths[1] + lengths[4]";
    assert_eq!(engine.run(&script(source, LONG), &world).await.unwrap().value, json!(6_000_000));
    large.source = format!("--{}\nreturn 1", "x".repeat(200 << 10)).into_bytes().into();
    assert_eq!(engine.run(&large, &world).await.unwrap().value, json!(1));
}
