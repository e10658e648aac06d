//! Calls of scripts, one after the other and in parallel.

use crate::Test;
use crate::bench::{Bench, limits, settings};
use ctx_core::{ErrorKind, Output, Peer, Progress, ToolError};
use ctx_testkit::{TestTool, echo, provider, tool};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Barrier;

/// Number of calls in one `parallel`.
const SIDE_BY_SIDE: usize = 10;

pub(crate) const TESTS: &[Test] = tests![calls:
    a_script_calls_tools_and_gets_their_values,
    a_script_searches_what_is_known,
    a_provider_is_a_global_whose_calls_return_promises,
    calls_in_parallel_overlap_and_keep_their_order,
    calls_are_counted_and_bounded,
    an_unknown_function_is_reported_with_the_nearest_name,
    certain_failures_are_reported_before_anything_is_called,
    wrong_arguments_are_named_with_the_line,
    a_failed_call_can_be_caught,
    a_script_may_execute_a_script,
    logs_and_progress_reach_the_peer_during_the_run,
    a_script_that_was_sent_reaches_neither_files_nor_network_nor_environment,
];

fn double() -> TestTool {
    let schema = json!({
        "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
    });
    tool("double", |arguments, _| {
        Box::pin(async move { Ok(json!(arguments["n"].as_i64().unwrap() * 2).into()) })
    })
    .schema(schema)
}

pub(crate) async fn a_script_calls_tools_and_gets_their_values() {
    let bench = Bench::with([double(), echo("echo")]);
    let script = "local n = sdk.tools.double{ n = 20 }\nreturn sdk.tools.echo{ n = n, list = { n, n + 2 } }";
    assert_eq!(bench.value(script).await, json!({"n": 40, "list": [40, 42]}));
    assert_eq!(bench.value("return sdk.tools.echo()").await, json!({}));
}

pub(crate) async fn a_script_searches_what_is_known() {
    let search = tool("search", |arguments, _| {
        Box::pin(async move { Ok(json!({"results": [{"title": "Deploy", "asked": arguments}]}).into()) })
    });
    let bench = Bench::of(settings(), limits(), vec![provider("context", [search])]);
    let script = "local hits = context.search('green button', { limit = 1, source = 'git' })\nreturn hits[1]";
    let arguments = json!({"query": "green button", "limit": 1, "filters": {"source": "git"}});
    assert_eq!(bench.value(script).await, json!({"title": "Deploy", "asked": arguments}));
}

pub(crate) async fn a_provider_is_a_global_whose_calls_return_promises() {
    let calculator = provider("calculator", [double()]);
    let bench = Bench::of(settings(), limits(), vec![calculator]);
    let script = "local a, b = calculator.double{ n = 1 }, calculator.double{ n = 2 }\n\
                  result({ a:await(), b:await() })";
    assert_eq!(bench.value(script).await, json!([2, 4]));
}

pub(crate) async fn calls_in_parallel_overlap_and_keep_their_order() {
    // The barrier opens when all calls have arrived: sequential calls would never end.
    let barrier = Arc::new(Barrier::new(SIDE_BY_SIDE));
    let meet = tool("meet", move |arguments, _| {
        let barrier = barrier.clone();
        Box::pin(async move {
            barrier.wait().await;
            Ok(arguments["n"].clone().into())
        })
    });
    let script = format!(
        "local functions = {{}}\nfor n = 1, {SIDE_BY_SIDE} do\n\
         functions[n] = function() return sdk.tools.meet{{ n = n }} end\nend\nreturn parallel(functions)"
    );
    let expected: Vec<usize> = (1..=SIDE_BY_SIDE).collect();
    assert_eq!(Bench::with([meet]).value(&script).await, json!(expected));
}

/// Counts its calls.
fn counting_tool(count: &Arc<AtomicUsize>) -> TestTool {
    let counted = count.clone();
    tool("count", move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(Output::default()) })
    })
}

pub(crate) async fn calls_are_counted_and_bounded() {
    let count = Arc::new(AtomicUsize::new(0));
    let bench = Bench::with([counting_tool(&count)]);
    let script = |times: u32| format!("for _ = 1, {times} do\nsdk.tools.count()\nend\nreturn 'done'");
    assert_eq!(bench.value(&script(100)).await, json!("done"));
    assert_eq!(count.swap(0, Ordering::Relaxed), 100);

    let (kind, message) = bench.failure(&script(101)).await;
    assert_eq!(
        (kind, message.as_str()),
        (ErrorKind::Tool, "script:2: a call may make at most 100 nested calls")
    );
    assert_eq!(count.load(Ordering::Relaxed), 100);
}

pub(crate) async fn an_unknown_function_is_reported_with_the_nearest_name() {
    let bench = Bench::with([double()]);
    let message = "script:1: no tool registered with name: tools.duoble (did you mean `tools.double`?)";
    assert_eq!(
        bench.failure("return sdk.tools['duo' .. 'ble']{ n = 1 }").await,
        (ErrorKind::Tool, message.to_owned())
    );
}

pub(crate) async fn certain_failures_are_reported_before_anything_is_called() {
    let count = Arc::new(AtomicUsize::new(0));
    let bench = Bench::with([counting_tool(&count), double()]);
    let script = "sdk.tools.count{}\nsdk.tools.duoble{ n = 1 }\nreturn sdk.tools.double{ n = 'x' }";
    let message = "the script was not run, and nothing was called:\n\
         2:1: sdk.tools.duoble: tools has no function `duoble` (did you mean `double`?)\n\
         3:8: sdk.tools.double: `n` must be number (whole)\n    sdk.tools.double(params: { n: number }): any";
    assert_eq!(bench.failure(script).await, (ErrorKind::BadRequest, message.to_owned()));
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

pub(crate) async fn wrong_arguments_are_named_with_the_line() {
    let bench = Bench::with([double()]);
    let (kind, message) = bench.failure("local a = {}\n\nreturn sdk.tools.double(a)").await;
    assert_eq!((kind, message.as_str()), (ErrorKind::Tool, "script:3: missing required parameter: n"));
}

pub(crate) async fn a_failed_call_can_be_caught() {
    let failing =
        tool("fail", |_, _| Box::pin(async { Err(ToolError::new(ErrorKind::Tool, "out of luck")) }));
    let script = "local ok, why = pcall(sdk.tools.fail)\nreturn { ok = ok, why = tostring(why) }";
    let value = Bench::with([failing]).value(script).await;
    assert_eq!(value["ok"], json!(false));
    assert!(value["why"].as_str().unwrap().ends_with("out of luck"), "{value}");
}

pub(crate) async fn a_script_may_execute_a_script() {
    let value = Bench::with([]).value("return sdk.ctx.execute{ script = 'return { inner = 1 }' }").await;
    assert_eq!(value, json!({"inner": 1}));
}

#[derive(Default)]
struct Listener(Mutex<Vec<String>>);

impl Peer for Listener {
    fn progress(&self, progress: Progress) {
        self.0
            .lock()
            .unwrap()
            .push(format!("{} of {:?}: {:?}", progress.done, progress.total, progress.message));
    }

    fn log(&self, level: tracing::Level, message: &str) {
        self.0.lock().unwrap().push(format!("{level} {message}"));
    }
}

pub(crate) async fn logs_and_progress_reach_the_peer_during_the_run() {
    let bench = Bench::with([]);
    let listener = Arc::new(Listener::default());
    let script: Value = json!({"script": "print('a')\ncontext.progress(1, 2, 'half')\nreturn 1"});
    let call = bench.call().with_peer(listener.clone());
    ctx_core::Catalog::call("execute", script, call).await.unwrap();
    assert_eq!(*listener.0.lock().unwrap(), ["INFO a", "1 of Some(2.0): Some(\"half\")"]);
}

pub(crate) async fn a_script_that_was_sent_reaches_neither_files_nor_network_nor_environment() {
    let value =
        Bench::with([]).value("return { tostring(_G.http), tostring(_G.env), tostring(_G.fs) }").await;
    assert_eq!(value, json!(["nil", "nil", "nil"]));
}
