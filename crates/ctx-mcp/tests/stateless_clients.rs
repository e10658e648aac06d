//! Clients of the newest revision: disconnects, backpressure, notifications.

use crate::common::{CallGate, ServerFixture, TestRequest, call, notifying_tool, request};
use ctx_core::Progress;
use ctx_testkit::{echo, tool};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[tokio::test]
async fn the_call_of_a_client_that_leaves_is_cancelled() {
    let gate = CallGate::new();
    let fixture = ServerFixture::with([gate.tool("wait"), echo("echo")]);
    {
        let answer = fixture.server.handle_http(call("wait", json!({})).into_http());
        tokio::select! {
            _ = answer => panic!("nobody has opened the gate"),
            () = gate.wait_for_call() => {}
        }
    }
    fixture.assert_next_run_cancelled("wait").await;
    fixture.send(call("echo", json!({}))).await.result().await;
}

#[tokio::test]
async fn a_call_that_has_reported_progress_is_cancelled_too() {
    let gate = CallGate::new();
    let waiting = gate.clone();
    let talk = tool("talk", move |_, call| {
        let gate = waiting.clone();
        Box::pin(async move {
            call.peer().progress(Progress { done: 1.0, total: None, message: None });
            gate.pass().await;
            Ok(Value::Null.into())
        })
    });
    let fixture = ServerFixture::with([talk]);
    let mut reply = fixture.send(call_with_progress("talk")).await;
    reply.expect("notifications/progress").await;
    gate.wait_for_call().await;
    drop(reply);
    fixture.assert_next_run_cancelled("talk").await;
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_its_own_call_and_nothing_else() {
    let reported = Arc::new(AtomicU32::new(0));
    let counted = reported.clone();
    let flood = tool("flood", move |_, call| {
        let reported = counted.clone();
        Box::pin(async move {
            for _ in 0..100_000 {
                call.peer().progress(Progress { done: 1.0, total: None, message: Some("x".repeat(100)) });
                reported.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Value::Null.into())
        })
    });
    let fixture = ServerFixture::with([flood, echo("echo")]);
    let unread = fixture.send(call_with_progress("flood")).await;
    // Reporting progress never waits for the client.
    assert_eq!(fixture.next_run().await, ("tools.flood".to_owned(), "ok".to_owned()));
    assert_eq!(reported.load(Ordering::Relaxed), 100_000);
    fixture.send(call("echo", json!({}))).await.result().await;
    // The messages that wait for the client are bounded; the result is among them.
    let messages = unread.all().await;
    assert!(messages.len() < 1_000, "{}", messages.len());
    assert_eq!(messages.last().unwrap()["result"]["resultType"], "complete");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_arrive_before_the_result() {
    let fixture = ServerFixture::with([notifying_tool("talk", 1)]);
    for _ in 0..500 {
        let messages = fixture
            .send(call_with_progress("talk").meta("io.modelcontextprotocol/logLevel", json!("info")))
            .await
            .all()
            .await;
        let methods: Vec<&Value> = messages.iter().map(|message| &message["method"]).collect();
        let (progress, log) = (json!("notifications/progress"), json!("notifications/message"));
        assert_eq!(methods, [&progress, &log, &log, &Value::Null]);
    }
}

#[tokio::test]
async fn logs_are_sent_at_the_requested_level() {
    let fixture = ServerFixture::with([notifying_tool("talk", 0)]);
    let quiet = fixture.send(call("talk", json!({}))).await;
    assert!(!quiet.is_stream());
    assert_eq!(quiet.all().await.len(), 1);
    for (level, count) in [("debug", 3), ("info", 2), ("warning", 1), ("error", 0)] {
        let request_with_level =
            call("talk", json!({})).meta("io.modelcontextprotocol/logLevel", json!(level));
        assert_eq!(fixture.send(request_with_level).await.all().await.len(), count + 1, "{level}");
    }
}

#[tokio::test]
async fn listening_ends_with_the_client() {
    let fixture = ServerFixture::with([echo("echo")]);
    for _ in 0..100 {
        let mut stream = fixture.send(listen(json!({"toolsListChanged": true}))).await;
        let first = stream.expect("notifications/subscriptions/acknowledged").await;
        assert_eq!(first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    }
    fixture.assert_responsive().await;
}

fn listen(notifications: Value) -> TestRequest {
    request("subscriptions/listen").param("notifications", notifications)
}

/// A call with a progress token.
fn call_with_progress(tool: &str) -> TestRequest {
    call(tool, json!({})).meta("progressToken", json!("p"))
}
