//! A client of the newest revision, which is stateless: every request names version, client and capabilities.

use bytes::Bytes;
use serde_json::{Map, Value, json};

/// The newest revision.
pub(crate) const STATELESS_VERSION: &str = "2026-07-28";

/// A request, valid until the test changes it.
#[derive(Clone)]
pub(crate) struct TestRequest {
    id: Value,
    method: String,
    params: Map<String, Value>,
    meta: Map<String, Value>,
    headers: Vec<(String, String)>,
}

pub(crate) fn request(method: &str) -> TestRequest {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS_VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "newer", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let headers = [
        ("host", "localhost"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", STATELESS_VERSION),
        ("mcp-method", method),
    ];
    TestRequest {
        id: json!(1),
        method: method.to_owned(),
        params: Map::new(),
        meta: meta.as_object().unwrap().clone(),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
    }
}

/// A call of a tool.
pub(crate) fn call(name: &str, arguments: Value) -> TestRequest {
    request("tools/call").named(name).param("arguments", arguments)
}

impl TestRequest {
    pub(crate) fn id(self, id: Value) -> Self {
        Self { id, ..self }
    }

    pub(crate) fn param(mut self, name: &str, value: Value) -> Self {
        self.params.insert(name.to_owned(), value);
        self
    }

    /// Sets the tool, prompt or resource, in the parameters and in the header.
    pub(crate) fn named(self, name: &str) -> Self {
        let key = if self.method == "resources/read" { "uri" } else { "name" };
        self.param(key, json!(name)).header("mcp-name", name)
    }

    pub(crate) fn meta(mut self, name: &str, value: Value) -> Self {
        self.meta.insert(name.to_owned(), value);
        self
    }

    pub(crate) fn without_meta(mut self, name: &str) -> Self {
        self.meta.remove(name).unwrap();
        self
    }

    pub(crate) fn version(self, version: &str) -> Self {
        self.meta("io.modelcontextprotocol/protocolVersion", json!(version))
    }

    pub(crate) fn with_capabilities(self, capabilities: Value) -> Self {
        self.meta("io.modelcontextprotocol/clientCapabilities", capabilities)
    }

    /// Sets a header, in place of what it was.
    pub(crate) fn header(self, name: &str, value: &str) -> Self {
        let mut unset = self.without_header(name);
        unset.headers.push((name.to_owned(), value.to_owned()));
        unset
    }

    pub(crate) fn without_header(mut self, name: &str) -> Self {
        self.headers.retain(|(header, _)| header != name);
        self
    }

    pub(crate) fn body(&self) -> Value {
        let mut params = self.params.clone();
        params.insert("_meta".to_owned(), Value::Object(self.meta.clone()));
        json!({"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": params})
    }

    pub(crate) fn into_http(self) -> http::Request<Bytes> {
        let body = self.body().to_string();
        self.with_body(body)
    }

    /// An HTTP request with these headers and another body.
    pub(crate) fn with_body(self, body: impl Into<Bytes>) -> http::Request<Bytes> {
        let mut request = http::Request::post("/mcp");
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        request.body(body.into()).unwrap()
    }
}
