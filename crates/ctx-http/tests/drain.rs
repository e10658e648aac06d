//! Shutdown and client disconnects: which calls are waited for, which are cut off, and what is recorded.

use crate::common::{self, ApiServer, CallGate, LIMITS, SHORT, ServerBuilder, get, post, within_deadline};
use ctx_core::{Run, RunOutcome};
use ctx_http::HttpLimits;
use serde_json::json;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;

async fn server(gate: &Arc<CallGate>) -> ApiServer {
    ServerBuilder::with([gate.tool("wait")]).start().await
}

async fn server_with_short_drain(gate: &Arc<CallGate>) -> ApiServer {
    ServerBuilder::with([gate.tool("wait")]).limits(HttpLimits { drain: SHORT, ..LIMITS }).start().await
}

fn cancelled() -> RunOutcome {
    RunOutcome::Failed { code: "cancelled".to_owned(), message: "the caller disconnected".to_owned() }
}

/// A run without its id and times.
fn run_summary(run: Run) -> (String, String, serde_json::Value, RunOutcome) {
    (run.tool, run.caller, run.arguments, run.outcome)
}

async fn wait_until_port_is_closed(server: &ApiServer) {
    within_deadline("the port to close", async {
        loop {
            match TcpStream::connect(server.address).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => break,
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_in_flight_finishes_and_its_connection_ends() {
    let gate = CallGate::new();
    let server = server(&gate).await;
    let mut client = server.connect().await;
    client.send(post("/tools/wait")).await;
    gate.entered().await;
    server.stop();
    wait_until_port_is_closed(&server).await;
    assert!(!server.has_stopped());

    gate.open();
    let response = client.read_response().await;
    assert_eq!(response.success(), json!({"result": "through"}));
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(client.end().await, b"");
    server.wait_until_stopped().await;
}

#[tokio::test]
async fn a_body_on_its_way_is_waited_for() {
    let gate = CallGate::new();
    let server = server(&gate).await;
    let mut client = server.connect().await;
    let head = post("/tools/wait").header("Content-Type", "application/json").header("Content-Length", "2");
    client.send(head.header("Expect", "100-continue")).await;
    assert_eq!(client.read_response().await.status, 100);
    server.stop();
    wait_until_port_is_closed(&server).await;

    client.send("{}").await;
    gate.entered().await;
    gate.open();
    assert_eq!(client.read_response().await.success(), json!({"result": "through"}));
    server.wait_until_stopped().await;
}

#[tokio::test]
async fn connections_without_a_request_end_at_once() {
    let gate = CallGate::new();
    let server = server(&gate).await;
    let mut used = server.connect().await;
    used.send(get("/health")).await;
    assert_eq!(used.read_response().await.status, 200);
    let mut untouched = server.connect().await;
    // Accepted by now, since a later connection was served.
    assert_eq!(server.send(get("/health")).await.status, 200);

    server.stop();
    assert_eq!(used.end().await, b"");
    assert_eq!(untouched.end().await, b"");
    server.wait_until_stopped().await;
}

#[tokio::test]
async fn a_request_longer_than_the_drain_is_cut_and_recorded() {
    let gate = CallGate::new();
    let mut server = server_with_short_drain(&gate).await;
    let mut client = server.connect().await;
    client.send(post("/tools/wait").json(&json!({"a": 1}))).await;
    gate.entered().await;
    server.stop();

    assert_eq!(client.read_until_closed().await, b"");
    gate.cancelled().await;
    let run = run_summary(server.next_run().await);
    assert_eq!(run, ("tools.wait".to_owned(), "http".to_owned(), json!({"a": 1}), cancelled()));
    server.wait_until_stopped().await;
}

#[tokio::test]
async fn half_a_request_does_not_hold_up_the_end() {
    let gate = CallGate::new();
    let server = server_with_short_drain(&gate).await;
    let (mut head, mut body) = (server.connect().await, server.connect().await);
    head.send("GET /health HT").await;
    let half = post("/tools/wait").header("Content-Type", "application/json").header("Content-Length", "9");
    body.send([Vec::from(half), b"{\"a\"".to_vec()].concat()).await;
    assert_eq!(server.send(get("/health")).await.status, 200);

    server.stop();
    head.read_until_closed().await;
    body.read_until_closed().await;
    server.wait_until_stopped().await;
}

#[tokio::test]
async fn a_server_with_nothing_to_do_stops_at_once() {
    let server = server(&CallGate::new()).await;
    server.stop();
    wait_until_port_is_closed(&server).await;
    server.wait_until_stopped().await;
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_its_call() {
    let gate = CallGate::new();
    let mut server = server(&gate).await;
    let mut client = server.connect().await;
    client.send(post("/tools/wait").json(&json!({"a": 1}))).await;
    gate.entered().await;
    drop(client);

    gate.cancelled().await;
    let run = run_summary(server.next_run().await);
    assert_eq!(run, ("tools.wait".to_owned(), "http".to_owned(), json!({"a": 1}), cancelled()));
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_no_other_call() {
    let gate = CallGate::new();
    let server = server(&gate).await;
    let (mut stays, mut goes) = (server.connect().await, server.connect().await);
    stays.send(post("/tools/wait")).await;
    gate.entered().await;
    goes.send(post("/tools/wait")).await;
    gate.entered().await;
    drop(goes);
    gate.cancelled().await;

    gate.open();
    assert_eq!(stays.read_response().await.success(), json!({"result": "through"}));
}

#[tokio::test]
async fn answers_and_failures_are_recorded_as_calls_over_http() {
    let mut server = ServerBuilder::with(common::standard_tools()).start().await;
    server.call("echo", json!({"a": 1})).await;
    let run = run_summary(server.next_run().await);
    assert_eq!(run, ("tools.echo".to_owned(), "http".to_owned(), json!({"a": 1}), RunOutcome::Ok));

    server.refusal("create_ticket", json!({})).await;
    let message = "missing required parameter: title".to_owned();
    let refused = RunOutcome::Failed { code: "bad_request".to_owned(), message };
    let run = run_summary(server.next_run().await);
    assert_eq!(run, ("tools.create_ticket".to_owned(), "http".to_owned(), json!({}), refused));
}
