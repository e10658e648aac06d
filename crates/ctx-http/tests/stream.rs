//! Event streams of calls: which events are sent, in which order, and how the stream ends.

use crate::common::documents::serving_documents;
use crate::common::{
    CallGate, Events, LIMITS, SHORT, ServerBuilder, TestTool, echo, get, post, provider, standard_tools,
    streaming_request,
};
use ctx_core::{ErrorKind, LogLine, Output, Progress, RunOutcome, Schema, ToolError};
use ctx_http::HttpLimits;
use serde_json::{Value, json};
use std::sync::Arc;
use tracing::Level;

/// More than the queue and the socket buffers between client and server hold.
const LINES: usize = 2_000;
const LINE_BYTES: usize = 16 << 10;

fn event(name: &str, data: Value) -> (String, Value) {
    (name.to_owned(), data)
}

fn line(level: Level, message: &str) -> LogLine {
    LogLine { level, message: message.to_owned() }
}

/// A tool that logs and reports progress, and ends as its argument says.
fn logging_tool() -> TestTool {
    ctx_testkit::tool("work", |arguments, call| {
        Box::pin(async move {
            call.peer().log(Level::INFO, "begin");
            call.peer().progress(Progress { done: 1.0, total: Some(2.0), message: Some("half".to_owned()) });
            tokio::task::yield_now().await;
            call.peer().progress(Progress { done: 2.0, total: None, message: None });
            call.peer().log(Level::WARN, "end");
            let logs = vec![line(Level::INFO, "begin"), line(Level::WARN, "end")];
            if arguments.contains_key("fail") {
                return Err(ToolError::new(ErrorKind::Tool, "work.lua:3: broken").with_logs(logs));
            }
            Ok(Output { value: json!({"done": "ä\n\n"}), logs, ..Output::default() })
        })
    })
}

fn expected_events() -> Vec<(String, Value)> {
    vec![
        event("log", json!({"level": "info", "message": "begin"})),
        event("progress", json!({"progress": 1.0, "total": 2.0, "message": "half"})),
        event("progress", json!({"progress": 2.0, "total": null, "message": null})),
        event("log", json!({"level": "warn", "message": "end"})),
    ]
}

fn logs() -> Value {
    json!([{"level": "info", "message": "begin"}, {"level": "warn", "message": "end"}])
}

#[tokio::test]
async fn events_come_in_order_and_the_result_last() {
    let server = ServerBuilder::with([logging_tool()]).start().await;
    let events = Events::of(&server, streaming_request("work")).await;
    assert_eq!(events.head.header("cache-control"), Some("no-cache"));
    assert_eq!(events.head.header("x-accel-buffering"), Some("no"));
    let mut expected = expected_events();
    expected.push(event("result", server.call("work", json!({})).await));
    assert_eq!(expected[4].1, json!({"result": {"done": "ä\n\n"}, "logs": logs()}));
    assert_eq!(events.all().await, expected);
}

#[tokio::test]
async fn a_failure_on_the_way_is_the_last_event() {
    let server = ServerBuilder::with([logging_tool()]).start().await;
    let failing = json!({"fail": true});
    let events = Events::of(&server, streaming_request("work").json(&failing)).await;
    let mut expected = expected_events();
    let (status, body) = server.send(post("/tools/work").json(&failing)).await.failure();
    assert_eq!(status, 500);
    let error = json!({"code": "tool_error", "message": "work.lua:3: broken"});
    assert_eq!(body, json!({"error": error, "logs": logs()}));
    expected.push(event("error", body));
    assert_eq!(events.all().await, expected);
}

#[tokio::test]
async fn a_tool_without_events_has_its_result_alone() {
    let server =
        ServerBuilder::with([echo("echo")]).provider(provider("context", [echo("search")])).start().await;
    let events = Events::of(&server, streaming_request("echo").json(&json!({"a": 1}))).await;
    assert_eq!(events.all().await, [event("result", json!({"result": {"a": 1}}))]);
    let events = Events::of(&server, streaming_request("search").json(&json!({"a": 1}))).await;
    assert_eq!(events.all().await, [event("result", json!({"a": 1}))]);
}

#[tokio::test]
async fn built_in_tools_are_streamed_on_post_but_not_on_get() {
    let (server, _folder) = serving_documents().await;
    let plain = server.call("search", json!({"query": "green"})).await;
    let events = Events::of(&server, streaming_request("search").json(&json!({"query": "green"}))).await;
    assert_eq!(events.all().await, [event("result", plain)]);

    let sources = server.send(get("/tools/sources").header("Accept", "text/event-stream")).await.success();
    assert_eq!(
        Events::of(&server, streaming_request("sources")).await.all().await,
        [event("result", sources)]
    );
}

#[tokio::test]
async fn a_tool_that_fails_at_once_is_an_error_event_as_one_that_fails_later() {
    let broken = ctx_testkit::tool("broken", |_, _| {
        Box::pin(async { Err(ToolError::new(ErrorKind::Tool, "broken.lua:1: broken")) })
    });
    let server = ServerBuilder::with([broken]).start().await;
    let error = json!({"code": "tool_error", "message": "broken.lua:1: broken"});
    for _ in 0..2 {
        let events = Events::of(&server, streaming_request("broken")).await;
        assert_eq!(events.all().await, [event("error", json!({ "error": error }))]);
    }
}

#[tokio::test]
async fn a_timeout_is_an_error_event() {
    let server = ServerBuilder::with(standard_tools()).start().await;
    let error = json!({"code": "timeout", "message": "tool 'slow' timed out after 0.1 seconds"});
    let events = Events::of(&server, streaming_request("slow")).await;
    assert_eq!(events.all().await, [event("error", json!({ "error": error }))]);
}

#[tokio::test]
async fn a_call_that_is_not_admitted_is_refused_like_any_other_request() {
    let server = ServerBuilder::with(standard_tools()).start().await;
    let cases = [
        (streaming_request("nope"), (404, "not_found")),
        (streaming_request("echo").body("application/json", "{"), (400, "bad_request")),
        (streaming_request("echo").body("text/plain", "{}"), (415, "bad_request")),
        (streaming_request("create_ticket"), (400, "bad_request")),
    ];
    for (request, expected) in cases {
        let (status, code, _) = server.send(request).await.error();
        assert_eq!((status, code.as_str()), expected);
    }
    for _ in 0..2 {
        Events::of(&server, streaming_request("limited")).await.all().await;
    }
    let refused = server.send(streaming_request("limited")).await;
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.error().0, 429);
}

/// Validation on the blocking pool is part of the admission, too: a schema that is compiled at its first
/// call, and large arguments.
#[tokio::test]
async fn a_refusal_has_an_error_status_the_first_time_and_whatever_its_size() {
    let titled =
        || json!({"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]});
    let lazy = echo("lazy").schema(Schema::lazy(move |_| titled()));
    let setup = ServerBuilder::with([lazy, echo("there").schema(titled())]);
    let server = setup.limits(HttpLimits { body_bytes: 1 << 20, ..LIMITS }).start().await;
    let large = json!({"other": "x".repeat(200 << 10)});
    for arguments in [json!({}), json!({}), large.clone(), large] {
        for name in ["lazy", "there"] {
            let (status, code, _) = server.send(streaming_request(name).json(&arguments)).await.error();
            assert_eq!((status, code.as_str()), (400, "bad_request"), "{name}");
        }
    }
}

#[tokio::test]
async fn a_tool_that_refuses_by_itself_is_an_error_event_however_soon() {
    let picky = ctx_testkit::tool("picky", |arguments, _| {
        Box::pin(async move {
            if arguments.contains_key("later") {
                tokio::task::yield_now().await;
            }
            Err(ToolError::not_found("no such document"))
        })
    });
    let server = ServerBuilder::with([picky]).start().await;
    let error = json!({"error": {"code": "not_found", "message": "no such document"}});
    for arguments in [json!({}), json!({"later": true})] {
        let events = Events::of(&server, streaming_request("picky").json(&arguments)).await;
        assert_eq!(events.all().await, [event("error", error.clone())]);
    }
}

#[tokio::test]
async fn only_a_client_that_names_event_streams_gets_one() {
    let server = ServerBuilder::with([echo("echo")]).start().await;
    for accept in ["application/json", "*/*", "text/*", "text/event-stream;q=0", "text/event-streams", ""] {
        let response = server.send(post("/tools/echo").header("Accept", accept)).await;
        assert_eq!(response.success(), json!({"result": {}}), "{accept}");
    }
    for accept in [
        "text/event-stream",
        "Text/Event-Stream; q=0.5",
        "application/json, text/event-stream",
        "*/*,text/event-stream",
    ] {
        let request = post("/tools/echo").header("Accept", accept);
        assert_eq!(Events::of(&server, request).await.all().await.len(), 1, "{accept}");
    }
}

#[tokio::test]
async fn the_guard_applies_to_streams_too() {
    let setup =
        ServerBuilder::with([echo("echo")]).token("hunter2hunter2").allowed_origin("https://app.example");
    let server = setup.start().await;
    let allowed = || streaming_request("echo").token("hunter2hunter2");
    assert_eq!(server.send(streaming_request("echo")).await.error().0, 401);
    assert_eq!(server.send(allowed().host("evil.example")).await.error().0, 403);
    assert_eq!(server.send(allowed().header("Origin", "https://evil.example")).await.error().0, 403);

    let events = Events::of(&server, allowed().header("Origin", "https://app.example")).await;
    assert_eq!(events.head.header("access-control-allow-origin"), Some("https://app.example"));
}

#[tokio::test]
async fn a_connection_serves_on_after_a_stream() {
    let server = ServerBuilder::with([echo("echo")]).start().await;
    let mut client = server.connect().await;
    client.send(streaming_request("echo")).await;
    assert_eq!(client.head().await.status, 200);
    while !client.chunk().await.is_empty() {}
    client.send(get("/health")).await;
    assert_eq!(client.read_response().await.status, 200);
}

fn cancelled() -> RunOutcome {
    RunOutcome::Failed { code: "cancelled".to_owned(), message: "the caller disconnected".to_owned() }
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_its_call_and_no_other() {
    let gate = CallGate::new();
    let mut server = ServerBuilder::with([gate.tool("wait")]).start().await;
    let stays = Events::of(&server, streaming_request("wait")).await;
    gate.entered().await;
    let goes = Events::of(&server, streaming_request("wait")).await;
    gate.entered().await;
    drop(goes);
    gate.cancelled().await;
    assert_eq!(server.next_run().await.outcome, cancelled());

    gate.open();
    assert_eq!(stays.all().await, [event("result", json!({"result": "through"}))]);
}

/// A tool that sends more events than the queue and a slow client hold, and then an even larger result.
fn flooding_tool() -> TestTool {
    ctx_testkit::tool("flood", |_, call| {
        Box::pin(async move {
            for number in 0..LINES {
                call.peer().log(Level::INFO, &format!("{number} {}", "x".repeat(LINE_BYTES)));
                let done = number as f64;
                call.peer().progress(Progress { done, total: None, message: None });
                tokio::task::yield_now().await;
            }
            Ok(json!("y".repeat(4 << 20)).into())
        })
    })
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_no_tool_and_still_gets_the_result() {
    let mut server = ServerBuilder::with([flooding_tool()]).start().await;
    let events = Events::of(&server, streaming_request("flood")).await;
    assert_eq!(server.next_run().await.outcome, RunOutcome::Ok);

    let mut events = events.all().await;
    let (name, result) = events.pop().unwrap();
    assert_eq!((name.as_str(), result), ("result", json!({"result": "y".repeat(4 << 20)})));
    let (mut came, mut lost, mut last) = (0, 0, None);
    for (name, data) in events {
        if name == "progress" {
            continue;
        }
        let message = data["message"].as_str().unwrap();
        let number: usize = message.split(' ').next().unwrap().parse().unwrap();
        if data["level"] == "warn" {
            lost += number;
        } else {
            // The message in place of dropped lines states their exact number.
            assert_eq!(number, came + lost);
            assert!(last < Some(number), "in order");
            last = Some(number);
            came += 1;
        }
    }
    assert_eq!(came + lost, LINES);
    assert!(lost > 0);
}

#[tokio::test]
async fn a_stream_outlasts_the_times_that_requests_have() {
    let gate = CallGate::new();
    let limits = HttpLimits { header_timeout: SHORT, body_timeout: SHORT, ..LIMITS };
    let server = ServerBuilder::with([gate.tool("wait")]).limits(limits).start().await;
    let events = Events::of(&server, streaming_request("wait")).await;
    tokio::time::sleep(SHORT * 3).await;
    gate.open();
    assert_eq!(events.all().await, [event("result", json!({"result": "through"}))]);
}

#[tokio::test]
async fn a_stream_finishes_while_the_server_stops() {
    let gate = CallGate::new();
    let server = ServerBuilder::with([gate.tool("wait")]).start().await;
    let events = Events::of(&server, streaming_request("wait")).await;
    gate.entered().await;
    server.stop();
    gate.open();
    assert_eq!(events.all().await, [event("result", json!({"result": "through"}))]);
    server.wait_until_stopped().await;
}

#[tokio::test]
async fn a_stream_longer_than_the_drain_is_cut_and_recorded() {
    let gate: Arc<CallGate> = CallGate::new();
    let limits = HttpLimits { drain: SHORT, ..LIMITS };
    let mut server = ServerBuilder::with([gate.tool("wait")]).limits(limits).start().await;
    let mut events = Events::of(&server, streaming_request("wait")).await;
    gate.entered().await;
    server.stop();
    assert_eq!(events.read_until_closed().await, b"");
    gate.cancelled().await;
    assert_eq!(server.next_run().await.outcome, cancelled());
    server.wait_until_stopped().await;
}
