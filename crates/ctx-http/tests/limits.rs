//! Requests and connections beyond their limits are refused with the usual error body, and do not affect
//! others.

use crate::common::{
    self, Client, LIMITS, Request, SHORT, Server, Setup, get, patiently, post, returning, standard_tools,
};
use ctx_core::Outcome;
use ctx_http::HttpLimits;
use serde_json::{Value, json};

const BODY_BYTES: usize = 1_000;
const HEADER_BYTES: usize = 4_000;
/// More than the socket buffers between client and server hold.
const LARGE_BYTES: usize = 16 << 20;

async fn server(limits: HttpLimits) -> Server {
    Setup::with(standard_tools()).limits(limits).start().await
}

fn sized(bytes: usize) -> Vec<u8> {
    let envelope = r#"{"a":""}"#.len();
    format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - envelope)).into_bytes()
}

fn refuses_body(error: (u16, String, String)) {
    let message = format!("the request body is larger than {BODY_BYTES} bytes");
    assert_eq!(error, (413, "too_large".to_owned(), message));
}

fn refuses_headers(error: (u16, String, String)) {
    let message = format!("the request's headers are larger than {HEADER_BYTES} bytes");
    assert_eq!(error, (413, "too_large".to_owned(), message));
}

#[tokio::test]
async fn a_body_may_be_as_large_as_the_limit_and_no_larger() {
    let server = server(HttpLimits { body_bytes: BODY_BYTES, ..LIMITS }).await;
    let whole = |bytes: usize| post("/tools/echo").body("application/json", sized(bytes));
    let chunked = |bytes: usize| post("/tools/echo").chunked(&sized(bytes), 300);
    for request in [whole(BODY_BYTES), chunked(BODY_BYTES)] {
        assert_eq!(server.send(request).await.status, 200);
    }
    for request in [whole(BODY_BYTES + 1), chunked(BODY_BYTES + 1)] {
        refuses_body(server.send(request).await.error());
    }
    refuses_body(
        server.send(get("/tools/sources").body("application/json", sized(BODY_BYTES + 1))).await.error(),
    );
}

#[tokio::test]
async fn a_body_that_says_it_is_too_large_is_refused_before_it_comes() {
    let server = server(HttpLimits { body_bytes: BODY_BYTES, body_timeout: SHORT, ..LIMITS }).await;
    let head =
        post("/tools/echo").header("Content-Type", "application/json").header("Content-Length", "4000000000");
    for head in [head.clone(), head.header("Expect", "100-continue")] {
        let mut client = server.connect().await;
        client.send(head).await;
        refuses_body(client.answer().await.error());
        assert_eq!(client.end().await, b"");
    }
}

#[tokio::test]
async fn a_client_that_sends_all_before_it_reads_learns_why_it_was_refused() {
    let server = server(HttpLimits { body_bytes: BODY_BYTES, ..LIMITS }).await;
    for request in [
        post("/tools/echo").body("application/json", sized(LARGE_BYTES)),
        post("/tools/echo").chunked(&sized(LARGE_BYTES), 64 << 10),
    ] {
        let mut client = server.connect().await;
        client.send(request).await;
        refuses_body(client.answer().await.error());
        assert_eq!(client.end().await, b"");
    }
}

#[tokio::test]
async fn a_client_that_sends_all_to_where_nothing_is_read_learns_why_it_was_refused() {
    let server = Setup::with(standard_tools()).token("secret").start().await;
    for (request, status) in [
        (post("/nope").token("secret"), 404),
        (post("/health").token("secret"), 405),
        (post("/tools/echo"), 401),
        (post("/tools/echo").host("evil.example"), 403),
    ] {
        let mut client = server.connect().await;
        client.send(request.body("application/json", sized(LARGE_BYTES))).await;
        assert_eq!(client.answer().await.error().0, status);
    }
}

#[tokio::test]
async fn headers_within_the_limit_are_read_and_those_over_it_refused() {
    let server = server(HttpLimits { header_bytes: HEADER_BYTES, ..LIMITS }).await;
    let padded = |bytes: usize| get("/health").header("X-Padding", &"x".repeat(bytes));
    assert_eq!(server.send(padded(HEADER_BYTES - 100)).await.status, 200);
    for bytes in [HEADER_BYTES, 40_000] {
        refuses_headers(server.send(padded(bytes)).await.error());
    }
}

#[tokio::test]
async fn a_long_target_counts_as_a_header() {
    let server = server(HttpLimits { header_bytes: HEADER_BYTES, ..LIMITS }).await;
    for target in [format!("/{}", "x".repeat(HEADER_BYTES)), format!("/health?{}", "x".repeat(HEADER_BYTES))]
    {
        refuses_headers(server.send(get(&target)).await.error());
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
        let (status, code, _) = client.answer().await.error();
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
    patiently("the end of the connection", async {
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
    assert_eq!(client.answer().await.status, 200);
    assert_eq!(client.end().await, b"");
}

#[tokio::test]
async fn a_slow_tool_is_not_cut_by_the_header_timeout() {
    let tool = common::tool("slow", async |_, _| {
        tokio::time::sleep(SHORT * 3).await;
        Ok(Value::Null.into())
    });
    let limits = HttpLimits { header_timeout: SHORT, body_timeout: SHORT, ..LIMITS };
    let server = Setup::with([tool]).limits(limits).start().await;
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
        assert_eq!(client.answer().await.error(), (408, "timeout".to_owned(), message.clone()));
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
    patiently("the end of the connection", async {
        while client.try_send(b" ").await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    })
    .await;
    let answer = String::from_utf8(client.cut().await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

/// A connection that the server has accepted and keeps open.
async fn held(server: &Server) -> Client {
    let mut client = server.connect().await;
    client.send(get("/health")).await;
    assert_eq!(client.answer().await.status, 200);
    client
}

#[tokio::test]
async fn connections_over_the_limit_are_told_to_come_back() {
    let server = server(HttpLimits { connections: 2, ..LIMITS }).await;
    let (mut first, second) = (held(&server).await, held(&server).await);
    for request in [None, Some(get("/health")), Some(post("/tools/echo").json(&json!({"a": 1})))] {
        let mut client = server.connect().await;
        if let Some(request) = request {
            client.send(request).await;
        }
        let answer = client.answer().await;
        assert_eq!(answer.error(), (503, "overloaded".to_owned(), "too many connections".to_owned()));
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(client.end().await, b"");
    }
    first.send(get("/health")).await;
    assert_eq!(first.answer().await.status, 200, "those who were first are served on");

    drop(second);
    admits(&server).await;
}

#[tokio::test]
async fn one_address_takes_its_share_of_the_places_and_others_are_served() {
    let server = server(HttpLimits { connections: 4, connections_per_peer: 2, ..LIMITS }).await;
    let (first, _second) = (held(&server).await, held(&server).await);
    let mut client = server.connect().await;
    let answer = client.answer().await;
    let message = "too many connections from this address".to_owned();
    assert_eq!(answer.error(), (503, "overloaded".to_owned(), message));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(client.end().await, b"");

    // Only Linux answers on all of 127.0.0.0/8 by default.
    if cfg!(target_os = "linux") {
        let mut other = server.connect_from([127, 0, 0, 2]).await;
        other.send(get("/health")).await;
        assert_eq!(other.answer().await.status, 200, "another address has its own share");
    }

    drop(first);
    admits(&server).await;
}

/// Waits until a connection slot is free.
async fn admits(server: &Server) {
    patiently("a free place", async {
        while server.send(get("/health")).await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn places_of_clients_that_were_cut_off_are_free_again() {
    let limits = HttpLimits { connections: 1, header_timeout: SHORT, body_timeout: SHORT, ..LIMITS };
    let server = server(limits).await;
    let unfinished: [Vec<u8>; 3] = [
        b"GET /hea".to_vec(),
        Vec::from(Request::new("POST", "/tools/echo").header("Content-Length", "10")),
        b"nonsense\r\n\r\n".to_vec(),
    ];
    for part in unfinished {
        let mut client = server.connect().await;
        client.send(part).await;
        client.cut().await;
        admits(&server).await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_loses_its_place() {
    let limits = HttpLimits { connections: 1, body_timeout: SHORT, ..LIMITS };
    let large = returning("large", Value::String("x".repeat(LARGE_BYTES)));
    let mut server = Setup::with([large]).limits(limits).start().await;
    let mut client = server.connect().await;
    client.send(post("/tools/large")).await;
    assert_eq!(server.next_run().await.outcome, Outcome::Ok);
    admits(&server).await;
    drop(client);
}
