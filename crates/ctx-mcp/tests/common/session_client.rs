//! A client of the newest revision with sessions: it introduces itself in `initialize`, which begins a
//! session.

use super::{ServerFixture, TestReply};
use bytes::Bytes;
use serde_json::{Value, json};

/// The newest revision with sessions.
pub(crate) const SESSION_VERSION: &str = "2025-11-25";

/// A session that has begun.
pub(crate) struct TestSession<'a> {
    fixture: &'a ServerFixture,
    pub(crate) id: String,
}

/// The first request of a session.
pub(crate) fn initialize(capabilities: &Value) -> Value {
    let params = json!({
        "protocolVersion": SESSION_VERSION,
        "capabilities": capabilities,
        "clientInfo": {"name": "older", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
}

impl<'a> TestSession<'a> {
    /// Begins a session of a client with these capabilities.
    pub(crate) async fn begin(fixture: &'a ServerFixture, capabilities: Value) -> Self {
        let reply = fixture.answer(post(None, &initialize(&capabilities))).await;
        assert_eq!(reply.status, 200);
        let id = reply.header("mcp-session-id").expect("a session").to_owned();
        assert_eq!(reply.result().await["protocolVersion"], SESSION_VERSION);
        let session = Self { fixture, id };
        assert_eq!(session.notify("notifications/initialized", json!({})).await, 202);
        session
    }

    pub(crate) async fn request(&self, id: i64, method: &str, params: Value) -> TestReply {
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.fixture.answer(post(Some(&self.id), &body)).await
    }

    pub(crate) async fn call(&self, id: i64, name: &str, arguments: Value) -> TestReply {
        self.request(id, "tools/call", json!({"name": name, "arguments": arguments})).await
    }

    pub(crate) async fn notify(&self, method: &str, params: Value) -> u16 {
        let body = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.fixture.answer(post(Some(&self.id), &body)).await.status
    }

    /// Sends the response to a request of the server.
    pub(crate) async fn respond(&self, question: &Value, result: Value) {
        let body = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
        assert_eq!(self.fixture.answer(post(Some(&self.id), &body)).await.status, 202);
    }

    /// Opens the standalone stream, for messages that belong to no request.
    pub(crate) async fn listen(&self) -> TestReply {
        let request = http::Request::get("/mcp")
            .header("host", "localhost")
            .header("accept", "text/event-stream")
            .header("mcp-protocol-version", SESSION_VERSION)
            .header("mcp-session-id", &self.id);
        self.fixture.answer(request.body(Bytes::new()).unwrap()).await
    }

    pub(crate) async fn end(&self) -> u16 {
        let request = http::Request::delete("/mcp")
            .header("host", "localhost")
            .header("mcp-protocol-version", SESSION_VERSION)
            .header("mcp-session-id", &self.id);
        self.fixture.answer(request.body(Bytes::new()).unwrap()).await.status
    }
}

/// A message of a session, or before there is one.
pub(crate) fn post(session: Option<&str>, body: &Value) -> http::Request<Bytes> {
    let mut request = http::Request::post("/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    if let Some(session) = session {
        request = request.header("mcp-session-id", session).header("mcp-protocol-version", SESSION_VERSION);
    }
    request.body(body.to_string().into()).unwrap()
}
