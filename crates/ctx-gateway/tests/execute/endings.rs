//! Scripts that fail, time out or are cancelled.

use crate::Test;
use crate::bench::{Bench, SHORT, limits, log_texts, settings};
use ctx_core::{Catalog, ErrorKind};
use ctx_luau::{EngineSettings, ScriptLimits};
use ctx_testkit::{TestTool, provider, tool};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub(crate) const TESTS: &[Test] = tests![endings:
    a_syntax_error_is_a_bad_request_with_the_line,
    a_script_that_is_too_large_is_a_bad_request,
    a_script_is_required,
    an_error_names_its_line,
    a_script_over_its_time_is_a_timeout_and_keeps_its_logs,
    a_call_over_the_scripts_time_is_a_timeout_too,
    calls_that_are_open_at_the_end_are_awaited_within_the_scripts_time,
    a_script_over_its_memory_fails,
    a_result_without_a_json_form_fails,
    cancelling_a_call_cancels_its_script_and_nested_calls,
    a_script_that_finds_no_worker_gets_a_retry_delay,
];

pub(crate) async fn a_syntax_error_is_a_bad_request_with_the_line() {
    let (kind, message) = Bench::with([]).failure("local a = 1\nlocal = 2").await;
    assert_eq!(kind, ErrorKind::BadRequest);
    assert!(message.starts_with("script:2: "), "{message}");
    let (kind, _) = Bench::with([]).failure("\u{0}").await;
    assert_eq!(kind, ErrorKind::BadRequest);
}

pub(crate) async fn a_script_that_is_too_large_is_a_bad_request() {
    let script = format!("-- {}\nreturn 1", "x".repeat(256 << 10));
    let message = "script: the script is larger than 256 KiB".to_owned();
    assert_eq!(Bench::with([]).failure(&script).await, (ErrorKind::BadRequest, message));
}

pub(crate) async fn a_script_is_required() {
    let bench = Bench::with([]);
    let refusal = async |arguments| {
        let error = Catalog::call("execute", arguments, bench.call()).await.unwrap_err();
        (error.kind(), error.message().to_owned())
    };
    let missing = "missing required parameter: script".to_owned();
    assert_eq!(refusal(json!({})).await, (ErrorKind::BadRequest, missing));
    assert_eq!(refusal(json!({"script": 1})).await.0, ErrorKind::BadRequest);
    assert_eq!(refusal(json!({"script": "return 1", "code": ""})).await.0, ErrorKind::BadRequest);
}

pub(crate) async fn an_error_names_its_line() {
    let (kind, message) = Bench::with([]).failure("local a = 1\nlocal b = nil\nreturn b.c").await;
    assert_eq!(kind, ErrorKind::Tool);
    assert!(message.starts_with("script:3: attempt to index nil"), "{message}");
}

fn hasty<const N: usize>(tools: [TestTool; N]) -> Bench {
    Bench::of(settings(), ScriptLimits { timeout: SHORT, ..limits() }, vec![provider("tools", tools)])
}

pub(crate) async fn a_script_over_its_time_is_a_timeout_and_keeps_its_logs() {
    let error = hasty([]).try_run("print('begun')\nwhile true do end").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.message(), "tool 'execute' timed out after 0.3 seconds");
    assert_eq!(log_texts(error.logs()), ["INFO begun"]);
}

pub(crate) async fn a_call_over_the_scripts_time_is_a_timeout_too() {
    let never = tool("never", |_, _| Box::pin(std::future::pending()));
    let error = hasty([never]).try_run("print('begun')\nsdk.tools.never()").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.message(), "tool 'execute' timed out after 0.3 seconds");
    assert_eq!(log_texts(error.logs()), ["INFO begun"]);
}

/// `p` is a promise, because the script awaits it elsewhere.
pub(crate) async fn calls_that_are_open_at_the_end_are_awaited_within_the_scripts_time() {
    let never = tool("never", |_, _| Box::pin(std::future::pending()));
    let limits = ScriptLimits { timeout: SHORT, ..limits() };
    let bench = Bench::of(settings(), limits, vec![provider("shop", [never])]);
    let script = "local p = shop.never()\nif false then p:await() end\nprint('at the end')\nreturn 1";
    let error = bench.try_run(script).await.unwrap_err();
    assert_eq!(error.message(), "tool 'execute' timed out after 0.3 seconds");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(log_texts(error.logs()), ["INFO at the end"]);
}

pub(crate) async fn a_script_over_its_memory_fails() {
    let script = "local t = {}\nwhile true do t[#t + 1] = string.rep('x', 1024) .. #t end";
    let (kind, message) = Bench::with([]).failure(script).await;
    assert_eq!(kind, ErrorKind::Tool);
    assert!(message.contains("memory"), "{message}");
}

pub(crate) async fn a_result_without_a_json_form_fails() {
    let bench = Bench::with([]);
    for script in ["return print", "return string.rep('x', 2 * 1024 * 1024)", "local t = {} t.t = t return t"]
    {
        let (kind, message) = bench.failure(script).await;
        assert_eq!(kind, ErrorKind::Tool, "{message}");
        assert!(message.contains("result"), "{message}");
    }
}

/// A call that reports when it has begun and when it was dropped.
struct PendingCall(Arc<Semaphore>);

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

/// A tool that never ends by itself.
fn pending_tool(started: &Arc<Semaphore>, dropped: &Arc<Semaphore>) -> TestTool {
    let (started, dropped) = (started.clone(), dropped.clone());
    tool("stay", move |_, _| {
        let call = PendingCall(dropped.clone());
        started.add_permits(1);
        Box::pin(async move {
            let _call = call;
            std::future::pending().await
        })
    })
}

async fn take(semaphore: &Semaphore) {
    semaphore.acquire().await.unwrap().forget();
}

pub(crate) async fn cancelling_a_call_cancels_its_script_and_nested_calls() {
    let (started, dropped) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let bench = Bench::with([pending_tool(&started, &dropped)]);
    let token = CancellationToken::new();
    let call = bench.call().with_cancellation(&token);
    let script = json!({"script": "pcall(sdk.tools.stay)\nwhile true do end"});
    let running = tokio::spawn(Catalog::call("execute", script, call));
    take(&started).await;
    token.cancel();
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    take(&dropped).await;
    // The engine still runs scripts.
    assert_eq!(bench.value("return 1").await, json!(1));
}

pub(crate) async fn a_script_that_finds_no_worker_gets_a_retry_delay() {
    let (started, dropped) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let settings = EngineSettings { workers_max: 1, queue_max: 0, ..settings() };
    let bench = Bench::of(settings, limits(), vec![provider("tools", [pending_tool(&started, &dropped)])]);
    let script = json!({"script": "sdk.tools.stay()"});
    let running = tokio::spawn(Catalog::call("execute", script, bench.call()));
    take(&started).await;
    let error = bench.try_run("return 1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert!(error.retry_after().is_some());
    running.abort();
    take(&dropped).await;
    bench.engine.shutdown().await;
}
