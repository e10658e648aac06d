//! Connections: invalid HTTP, keep-alive, `HEAD`.

use crate::common::{ApiServer, ServerBuilder, TestRequest, get, post, standard_tools};
use serde_json::json;

async fn server() -> ApiServer {
    ServerBuilder::with(standard_tools()).start().await
}

#[tokio::test]
async fn bytes_that_are_no_http_are_a_bad_request() {
    let server = server().await;
    let requests: [&[u8]; 7] = [
        b"hello\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
        b"GET /hea lth HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"POST /tools/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /tools/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ];
    for request in requests {
        let mut client = server.connect().await;
        client.send(request).await;
        let (status, code, message) = client.read_response().await.error();
        let shown = String::from_utf8_lossy(request);
        assert_eq!((status, code.as_str()), (400, "bad_request"), "{shown}: {message}");
        assert_eq!(client.end().await, b"", "{shown}");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_inside_its_encoding_is_a_bad_request() {
    let server = server().await;
    let head =
        post("/tools/echo").header("Content-Type", "application/json").header("Transfer-Encoding", "chunked");
    let expected = (400, "bad_request".to_owned(), "the request body is incomplete".to_owned());
    let request = [Vec::from(head), b"zz\r\n{}\r\n0\r\n\r\n".to_vec()].concat();
    assert_eq!(server.send(request).await.error(), expected);
}

#[tokio::test]
async fn head_is_answered_as_get_without_the_body() {
    let server = server().await;
    for (target, status) in [("/health", 200), ("/tools/list", 200), ("/openapi.json", 200), ("/nope", 404)] {
        let whole = server.send(get(target)).await;
        let head = server.send(TestRequest::new("HEAD", target)).await;
        assert_eq!((head.status, head.body.as_slice()), (status, &b""[..]), "{target}");
        assert_eq!(head.header("content-length"), whole.header("content-length"), "{target}");
        assert_eq!(head.header("content-type"), Some("application/json"), "{target}");
    }
}

#[tokio::test]
async fn a_connection_is_used_again_after_answers_and_refusals_alike() {
    let server = server().await;
    let mut client = server.connect().await;
    for _ in 0..3 {
        client.send(post("/tools/echo").json(&json!({"a": 1}))).await;
        assert_eq!(client.read_response().await.success(), json!({"result": {"a": 1}}));
        client.send(post("/nope").json(&json!({"a": 1}))).await;
        assert_eq!(client.read_response().await.error().0, 404);
        client.send(post("/tools/echo").body("text/plain", "a")).await;
        assert_eq!(client.read_response().await.error().0, 415);
        client.send(get("/tools/echo").json(&json!({"a": 1}))).await;
        assert_eq!(client.read_response().await.error().0, 405);
        client.send(post("/tools/echo").chunked(br#"{"b":2}"#, 3)).await;
        assert_eq!(client.read_response().await.success(), json!({"result": {"b": 2}}));
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = server().await;
    let mut client = server.connect().await;
    let requests = (0..20).flat_map(|n| Vec::from(post("/tools/echo").json(&json!({"n": n}))));
    client.send(requests.collect::<Vec<u8>>()).await;
    for n in 0..20 {
        assert_eq!(client.read_response().await.success(), json!({"result": {"n": n}}));
    }
}

#[tokio::test]
async fn a_request_pipelined_behind_a_slow_one_waits_for_it() {
    let server = server().await;
    let mut client = server.connect().await;
    client.send([Vec::from(post("/tools/slow")), Vec::from(post("/tools/echo"))].concat()).await;
    assert_eq!(client.read_response().await.error().0, 408);
    assert_eq!(client.read_response().await.success(), json!({"result": {}}));
}

#[tokio::test]
async fn connection_close_is_honoured() {
    let server = server().await;
    let mut client = server.connect().await;
    client.send(get("/health").header("Connection", "close")).await;
    assert_eq!(client.read_response().await.status, 200);
    assert_eq!(client.end().await, b"");
}

#[tokio::test]
async fn http_1_0_is_served_and_ends_with_its_answer() {
    let server = server().await;
    let mut client = server.connect().await;
    client.send(*b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(client.read_response().await.status, 200);
    assert_eq!(client.end().await, b"");
}

#[tokio::test]
async fn requests_may_come_byte_by_byte() {
    let server = server().await;
    let mut client = server.connect().await;
    for byte in Vec::from(post("/tools/echo").json(&json!({"a": 1}))) {
        client.send([byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.read_response().await.success(), json!({"result": {"a": 1}}));
}

#[tokio::test]
async fn request_smuggling_is_refused() {
    let server = server().await;
    let mut client = server.connect().await;
    let smuggled = Vec::from(get("/tools/list"));
    let head = post("/tools/echo")
        .header("Content-Type", "application/json")
        .header("Content-Length", &smuggled.len().to_string())
        .header("Transfer-Encoding", "chunked");
    client.send([Vec::from(head), b"2\r\n{}\r\n0\r\n\r\n".to_vec(), smuggled].concat()).await;
    // Both are allowed (RFC 9112): to refuse the request, or to read the chunks and close the connection.
    let response = client.read_response().await;
    if response.status == 200 {
        assert_eq!(client.end().await, b"", "what follows is not taken for a request");
    } else {
        assert_eq!(response.error().0, 400);
    }
}

#[tokio::test]
async fn expect_100_continue_is_answered() {
    let server = server().await;
    let mut client = server.connect().await;
    let head = post("/tools/echo")
        .header("Content-Type", "application/json")
        .header("Content-Length", "2")
        .header("Expect", "100-continue");
    client.send(head).await;
    assert_eq!(client.read_response().await.status, 100);
    client.send(*b"{}").await;
    assert_eq!(client.read_response().await.success(), json!({"result": {}}));
}

#[tokio::test]
async fn targets_that_are_no_paths_are_not_found() {
    let server = server().await;
    for request in ["OPTIONS * HTTP/1.1", "CONNECT localhost:80 HTTP/1.1", "GET http://localhost HTTP/1.1"] {
        let response = server.send(format!("{request}\r\nHost: localhost\r\n\r\n")).await;
        assert_eq!(response.error().0, 404, "{request}");
    }
}
