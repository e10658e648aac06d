//! Requests and connections beyond their limits are refused with the usual error body, and do not affect
//! others.

use crate::common::{
    self, ApiServer, HttpClient, LIMITS, SHORT, ServerBuilder, TestRequest, get, post, returning,
    standard_tools, within_deadline,
};
use ctx_core::RunOutcome;
use ctx_http::HttpLimits;
use serde_json::{Value, json};

const BODY_BYTES: usize = 1_000;
const HEADER_BYTES: usize = 4_000;
/// More than the socket buffers between client and server hold.
const LARGE_BYTES: usize = 16 << 20;

async fn server(limits: HttpLimits) -> ApiServer {
    ServerBuilder::with(standard_tools()).limits(limits).start().await
}

fn body_of_size(bytes: usize) -> Vec<u8> {
    let envelope = r#"{"a":""}"#.len();
    format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - envelope)).into_bytes()
}

fn assert_body_too_large(error: (u16, String, String)) {
    let message = format!("the request body is larger than {BODY_BYTES} bytes");
    assert_eq!(error, (413, "too_large".to_owned(), message));
}

fn assert_headers_too_large(error: (u16, String, String)) {
    let message = format!("the request's headers are larger than {HEADER_BYTES} bytes");
    assert_eq!(error, (413, "too_large".to_owned(), message));
}

#[tokio::test]
async fn a_body_may_be_as_large_as_the_limit_and_no_larger() {
    let server = server(HttpLimits { body_bytes: BODY_BYTES, ..LIMITS }).await;
    let whole = |bytes: usize| post("/tools/echo").body("application/json", body_of_size(bytes));
    let chunked = |bytes: usize| post("/tools/echo").chunked(&body_of_size(bytes), 300);
    for request in [whole(BODY_BYTES), chunked(BODY_BYTES)] {
        assert_eq!(server.send(request).await.status, 200);
    }
    for request in [whole(BODY_BYTES + 1), chunked(BODY_BYTES + 1)] {
        assert_body_too_large(server.send(request).await.error());
    }
    assert_body_too_large(
        server
            .send(get("/tools/sources").body("application/json", body_of_size(BODY_BYTES + 1)))
            .await
            .error(),
    );
}

#[tokio::test]
async fn a_declared_length_over_the_limit_is_refused_before_the_body() {
    let server = server(HttpLimits { body_bytes: BODY_BYTES, body_timeout: SHORT, ..LIMITS }).await;
    let head =
        post("/tools/echo").header("Content-Type", "application/json").header("Content-Length", "4000000000");
    for head in [head.clone(), head.header("Expect", "100-continue")] {
        let mut client = server.connect().await;
        client.send(head).await;
        assert_body_too_large(client.read_response().await.error());
        assert_eq!(client.end().await, b"");
    }
}

#[tokio::test]
async fn a_client_that_sends_all_before_it_reads_learns_why_it_was_refused() {
    let server = server(HttpLimits { body_bytes: BODY_BYTES, ..LIMITS }).await;
    for request in [
        post("/tools/echo").body("application/json", body_of_size(LARGE_BYTES)),
        post("/tools/echo").chunked(&body_of_size(LARGE_BYTES), 64 << 10),
    ] {
        let mut client = server.connect().await;
        client.send(request).await;
        assert_body_too_large(client.read_response().await.error());
        assert_eq!(client.end().await, b"");
    }
}

#[tokio::test]
async fn a_client_that_sends_all_to_where_nothing_is_read_learns_why_it_was_refused() {
    let server = ServerBuilder::with(standard_tools()).token("secret").start().await;
    for (request, status) in [
        (post("/nope").token("secret"), 404),
        (post("/health").token("secret"), 405),
        (post("/tools/echo"), 401),
        (post("/tools/echo").host("evil.example"), 403),
    ] {
        let mut client = server.connect().await;
        client.send(request.body("application/json", body_of_size(LARGE_BYTES))).await;
        assert_eq!(client.read_response().await.error().0, status);
    }
}

#[tokio::test]
async fn headers_within_the_limit_are_read_and_those_over_it_refused() {
    let server = server(HttpLimits { header_bytes: HEADER_BYTES, ..LIMITS }).await;
    let padded = |bytes: usize| get("/health").header("X-Padding", &"x".repeat(bytes));
    assert_eq!(server.send(padded(HEADER_BYTES - 100)).await.status, 200);
    for bytes in [HEADER_BYTES, 40_000] {
        assert_headers_too_large(server.send(padded(bytes)).await.error());
    }
}

#[tokio::test]
async fn a_long_target_counts_as_a_header() {
    let server = server(HttpLimits { header_bytes: HEADER_BYTES, ..LIMITS }).await;
    for target in [format!("/{}", "x".repeat(HEADER_BYTES)), format!("/health?{}", "x".repeat(HEADER_BYTES))]
    {
        assert_headers_too_large(server.send(get(&target)).await.error());
    }
}

#[tokio::test]
async fn headers_too_many_or_far_too_large_are_refused_alike() {
    let server = server(HttpLimits { header_bytes: HEADER_BYTES, ..LIMITS }).await;
    let many = |count: usize| (0..count).fold(get("/health"), |all, n| all.header(&format!("x{n}"), "y"));
    assert_eq!(server.send(many(90)).await.status, 200);
    for request in [
        many(200),
        many(1_000),
        get("/health").header("X-Padding", &"x".repeat(1 << 20)),
        get(&format!("/{}", "x".repeat(66_000))),
        get(&format!("/{}", "x".repeat(1 << 20))),
    ] {
        let mut client = server.connect().await;
        client.send(request).await;
        let (status, code, _) = client.read_response().await.error();
        assert_eq!((status, code.as_str()), (413, "too_large"));
        assert_eq!(client.end().await, b"");
    }
}

#[tokio::test]
async fn headers_that_do_not_come_end_the_connection() {
    let server = server(HttpLimits { header_timeout: SHORT, ..LIMITS }).await;
    for part in ["", "GET", "GET /health HTTP/1.1\r\n", "GET /health HTTP/1.1\r\nHost: localhost\r\n"] {
        let mut client = server.connect().await;
        client.send(part).await;
        assert_eq!(client.end().await, b"", "{part:?}");
    }
}

#[tokio::test]
async fn headers_that_trickle_end_the_connection_all_the_same() {
    let server = server(HttpLimits { header_timeout: SHORT, ..LIMITS }).await;
    let mut client = server.connect().await;
    client.send("GET /health HTTP/1.1\r\nHost: localhost\r\nX: ").await;
    within_deadline("the end of the connection", async {
        while client.try_send(b"x").await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_idle_connection_ends_after_a_while() {
    let server = server(HttpLimits { header_timeout: SHORT, ..LIMITS }).await;
    let mut client = server.connect().await;
    client.send(get("/health")).await;
    assert_eq!(client.read_response().await.status, 200);
    assert_eq!(client.end().await, b"");
}

#[tokio::test]
async fn a_slow_tool_is_not_cut_by_the_header_timeout() {
    let tool = common::tool("slow", async |_, _| {
        tokio::time::sleep(SHORT * 3).await;
        Ok(Value::Null.into())
    });
    let limits = HttpLimits { header_timeout: SHORT, body_timeout: SHORT, ..LIMITS };
    let server = ServerBuilder::with([tool]).limits(limits).start().await;
    assert_eq!(server.call("slow", json!({})).await, json!({"result": null}));
}

#[tokio::test]
async fn a_body_that_does_not_come_is_a_timeout() {
    let server = server(HttpLimits { body_timeout: SHORT, ..LIMITS }).await;
    let message = "the request body took too long to arrive".to_owned();
    let typed = || post("/tools/echo").header("Content-Type", "application/json");
    for (head, part) in [
        (typed().header("Content-Length", "10"), ""),
        (typed().header("Content-Length", "10"), "{\"a\":"),
        (typed().header("Transfer-Encoding", "chunked"), ""),
        (typed().header("Transfer-Encoding", "chunked"), "5\r\n{\"a\":"),
    ] {
        let mut client = server.connect().await;
        client.send([Vec::from(head), part.into()].concat()).await;
        assert_eq!(client.read_response().await.error(), (408, "timeout".to_owned(), message.clone()));
        assert_eq!(client.end().await, b"", "half a body leaves the connection unusable");
    }
}

#[tokio::test]
async fn a_body_that_trickles_is_a_timeout_all_the_same() {
    let server = server(HttpLimits { body_timeout: SHORT, ..LIMITS }).await;
    let mut client = server.connect().await;
    let head =
        post("/tools/echo").header("Content-Type", "application/json").header("Content-Length", "60000");
    client.send(head).await;
    within_deadline("the end of the connection", async {
        while client.try_send(b" ").await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    })
    .await;
    let response = String::from_utf8(client.read_until_closed().await).unwrap();
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
}

/// A connection that the server has accepted and keeps open.
async fn hold_connection(server: &ApiServer) -> HttpClient {
    let mut client = server.connect().await;
    client.send(get("/health")).await;
    assert_eq!(client.read_response().await.status, 200);
    client
}

#[tokio::test]
async fn connections_over_the_limit_are_refused_with_retry_after() {
    let server = server(HttpLimits { connections: 2, ..LIMITS }).await;
    let (mut first, second) = (hold_connection(&server).await, hold_connection(&server).await);
    for request in [None, Some(get("/health")), Some(post("/tools/echo").json(&json!({"a": 1})))] {
        let mut client = server.connect().await;
        if let Some(request) = request {
            client.send(request).await;
        }
        let response = client.read_response().await;
        assert_eq!(response.error(), (503, "overloaded".to_owned(), "too many connections".to_owned()));
        assert_eq!(response.header("retry-after"), Some("1"));
        assert_eq!(response.header("connection"), Some("close"));
        assert_eq!(client.end().await, b"");
    }
    first.send(get("/health")).await;
    assert_eq!(first.read_response().await.status, 200, "those who were first are served on");

    drop(second);
    wait_for_free_slot(&server).await;
}

#[tokio::test]
async fn one_peer_cannot_take_all_connection_slots() {
    let server = server(HttpLimits { connections: 4, connections_per_peer: 2, ..LIMITS }).await;
    let (first, _second) = (hold_connection(&server).await, hold_connection(&server).await);
    let mut client = server.connect().await;
    let response = client.read_response().await;
    let message = "too many connections from this address".to_owned();
    assert_eq!(response.error(), (503, "overloaded".to_owned(), message));
    assert_eq!(response.header("retry-after"), Some("1"));
    assert_eq!(client.end().await, b"");

    // Only Linux answers on all of 127.0.0.0/8 by default.
    if cfg!(target_os = "linux") {
        let mut other = server.connect_from([127, 0, 0, 2]).await;
        other.send(get("/health")).await;
        assert_eq!(other.read_response().await.status, 200, "another address has its own share");
    }

    drop(first);
    wait_for_free_slot(&server).await;
}

/// Waits until a connection slot is free.
async fn wait_for_free_slot(server: &ApiServer) {
    within_deadline("a free place", async {
        while server.send(get("/health")).await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn slots_of_closed_connections_are_freed() {
    let limits = HttpLimits { connections: 1, header_timeout: SHORT, body_timeout: SHORT, ..LIMITS };
    let server = server(limits).await;
    let unfinished: [Vec<u8>; 3] = [
        b"GET /hea".to_vec(),
        Vec::from(TestRequest::new("POST", "/tools/echo").header("Content-Length", "10")),
        b"nonsense\r\n\r\n".to_vec(),
    ];
    for part in unfinished {
        let mut client = server.connect().await;
        client.send(part).await;
        client.read_until_closed().await;
        wait_for_free_slot(&server).await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_its_response_loses_its_slot() {
    let limits = HttpLimits { connections: 1, body_timeout: SHORT, ..LIMITS };
    let large = returning("large", Value::String("x".repeat(LARGE_BYTES)));
    let mut server = ServerBuilder::with([large]).limits(limits).start().await;
    let mut client = server.connect().await;
    client.send(post("/tools/large")).await;
    assert_eq!(server.next_run().await.outcome, RunOutcome::Ok);
    wait_for_free_slot(&server).await;
    drop(client);
}
