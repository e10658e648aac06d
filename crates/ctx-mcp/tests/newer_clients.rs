//! Clients of the newest revision: disconnects, backpressure, notifications.

use crate::common::{Gate, Request, Site, call, chatty, request};
use ctx_core::Progress;
use ctx_testkit::{echo, tool};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[tokio::test]
async fn the_call_of_a_client_that_leaves_is_cancelled() {
    let gate = Gate::new();
    let site = Site::with([gate.tool("wait"), echo("echo")]);
    {
        let answer = site.server.answer(call("wait", json!({})).into_http());
        tokio::select! {
            _ = answer => panic!("nobody has opened the gate"),
            () = gate.entered() => {}
        }
    }
    site.sees_cancelled("wait").await;
    site.send(call("echo", json!({}))).await.result().await;
}

#[tokio::test]
async fn so_is_one_that_has_begun_to_tell() {
    let gate = Gate::new();
    let waiting = gate.clone();
    let talk = tool("talk", move |_, call| {
        let gate = waiting.clone();
        Box::pin(async move {
            call.peer().progress(Progress { done: 1.0, total: None, message: None });
            gate.pass().await;
            Ok(Value::Null.into())
        })
    });
    let site = Site::with([talk]);
    let mut reply = site.send(heard("talk")).await;
    reply.expect("notifications/progress").await;
    gate.entered().await;
    drop(reply);
    site.sees_cancelled("talk").await;
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_its_own_call_and_nothing_else() {
    let told = Arc::new(AtomicU32::new(0));
    let counted = told.clone();
    let flood = tool("flood", move |_, call| {
        let told = counted.clone();
        Box::pin(async move {
            for _ in 0..100_000 {
                call.peer().progress(Progress { done: 1.0, total: None, message: Some("x".repeat(100)) });
                told.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Value::Null.into())
        })
    });
    let site = Site::with([flood, echo("echo")]);
    let unread = site.send(heard("flood")).await;
    // Reporting progress never waits for the client.
    assert_eq!(site.next_run().await, ("tools.flood".to_owned(), "ok".to_owned()));
    assert_eq!(told.load(Ordering::Relaxed), 100_000);
    site.send(call("echo", json!({}))).await.result().await;
    // The messages that wait for the client are bounded; the result is among them.
    let messages = unread.all().await;
    assert!(messages.len() < 1_000, "{}", messages.len());
    assert_eq!(messages.last().unwrap()["result"]["resultType"], "complete");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_call_tells_last_is_heard_before_its_result() {
    let site = Site::with([chatty("talk", 1)]);
    for _ in 0..500 {
        let messages = site
            .send(heard("talk").meta("io.modelcontextprotocol/logLevel", json!("info")))
            .await
            .all()
            .await;
        let methods: Vec<&Value> = messages.iter().map(|message| &message["method"]).collect();
        let (progress, log) = (json!("notifications/progress"), json!("notifications/message"));
        assert_eq!(methods, [&progress, &log, &log, &Value::Null]);
    }
}

#[tokio::test]
async fn logs_are_told_to_who_asks_for_them() {
    let site = Site::with([chatty("talk", 0)]);
    let quiet = site.send(call("talk", json!({}))).await;
    assert!(!quiet.is_stream());
    assert_eq!(quiet.all().await.len(), 1);
    for (level, count) in [("debug", 3), ("info", 2), ("warning", 1), ("error", 0)] {
        let asked = call("talk", json!({})).meta("io.modelcontextprotocol/logLevel", json!(level));
        assert_eq!(site.send(asked).await.all().await.len(), count + 1, "{level}");
    }
}

#[tokio::test]
async fn listening_ends_with_the_client() {
    let site = Site::with([echo("echo")]);
    for _ in 0..100 {
        let mut stream = site.send(listen(json!({"toolsListChanged": true}))).await;
        let first = stream.expect("notifications/subscriptions/acknowledged").await;
        assert_eq!(first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    }
    site.is_well().await;
}

fn listen(notifications: Value) -> Request {
    request("subscriptions/listen").param("notifications", notifications)
}

/// A call with a progress token.
fn heard(tool: &str) -> Request {
    call(tool, json!({})).meta("progressToken", json!("p"))
}
