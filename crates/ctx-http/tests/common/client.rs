//! An HTTP/1.1 client that sends and reads raw bytes.

use super::within_deadline;
use serde_json::{Value, json};
use std::io;
use std::net::{IpAddr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// A request as text: its first line, its headers and its body.
#[derive(Clone)]
pub(crate) struct TestRequest {
    first_line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

pub(crate) fn get(target: &str) -> TestRequest {
    TestRequest::new("GET", target)
}

pub(crate) fn post(target: &str) -> TestRequest {
    TestRequest::new("POST", target)
}

impl TestRequest {
    /// A request to `localhost`.
    pub(crate) fn new(method: &str, target: &str) -> Self {
        let first_line = format!("{method} {target} HTTP/1.1");
        Self { first_line, headers: vec![("Host".to_owned(), "localhost".to_owned())], body: Vec::new() }
    }

    /// Adds a header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Removes the `Host` header.
    pub(crate) fn without_host(mut self) -> Self {
        self.headers.retain(|(name, _)| name != "Host");
        self
    }

    /// Replaces the `Host` header.
    pub(crate) fn host(self, host: &str) -> Self {
        self.without_host().header("Host", host)
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn json(self, value: &Value) -> Self {
        self.body("application/json", value.to_string())
    }

    /// Adds a body with its length.
    pub(crate) fn body(self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let length = body.len().to_string();
        Self { body, ..self.header("Content-Type", content_type).header("Content-Length", &length) }
    }

    /// Adds a JSON body in chunks of this many bytes.
    pub(crate) fn chunked(self, body: &[u8], chunk_bytes: usize) -> Self {
        let mut encoded = Vec::new();
        for chunk in body.chunks(chunk_bytes) {
            encoded.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            encoded.extend_from_slice(chunk);
            encoded.extend_from_slice(b"\r\n");
        }
        encoded.extend_from_slice(b"0\r\n\r\n");
        let headed = self.header("Content-Type", "application/json").header("Transfer-Encoding", "chunked");
        Self { body: encoded, ..headed }
    }
}

impl From<TestRequest> for Vec<u8> {
    fn from(request: TestRequest) -> Self {
        let headers: String =
            request.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let mut bytes = format!("{}\r\n{headers}\r\n", request.first_line).into_bytes();
        bytes.extend(request.body);
        bytes
    }
}

/// A client connection.
pub(crate) struct HttpClient {
    stream: TcpStream,
    unread: Vec<u8>,
    /// Whether the last request was a `HEAD`.
    expects_no_body: bool,
}

impl HttpClient {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream =
            within_deadline("a connection", TcpStream::connect(address)).await.expect("a connection");
        Self { stream, unread: Vec::new(), expects_no_body: false }
    }

    /// Connects from this local address.
    pub(crate) async fn connect_from(own: IpAddr, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(own, 0)).expect("an address of this machine");
        let stream = within_deadline("a connection", socket.connect(address)).await.expect("a connection");
        Self { stream, unread: Vec::new(), expects_no_body: false }
    }

    /// Sends all these bytes before it reads anything.
    pub(crate) async fn send(&mut self, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        self.expects_no_body = bytes.starts_with(b"HEAD ");
        self.try_send(&bytes).await.expect("the server reads what it is sent");
    }

    /// Like [`Self::send`], for a server that may disconnect before it has read everything.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        within_deadline("the server to read", self.stream.write_all(bytes)).await
    }

    /// The next response.
    pub(crate) async fn read_response(&mut self) -> HttpResponse {
        let mut response = self.head().await;
        let length = response.header("content-length").map_or(0, |text| text.parse().expect("a length"));
        let length = if self.expects_no_body { 0 } else { length };
        assert_eq!(response.header("transfer-encoding"), None, "answers have a length");
        while self.unread.len() < length {
            assert!(self.read().await, "the connection ended inside a body");
        }
        response.body = self.unread.drain(..length).collect();
        response
    }

    /// The next response, without its body.
    pub(crate) async fn head(&mut self) -> HttpResponse {
        let head = self.read_to(b"\r\n\r\n").await;
        HttpResponse::from_head(&String::from_utf8(head).expect("a head in ASCII"))
    }

    /// The next chunk of a chunked body; the last is empty.
    pub(crate) async fn chunk(&mut self) -> Vec<u8> {
        let size = String::from_utf8(self.read_to(b"\r\n").await).expect("a size in ASCII");
        let size = usize::from_str_radix(size.trim(), 16).expect("a size");
        while self.unread.len() < size + 2 {
            assert!(self.read().await, "the connection ended inside a body");
        }
        let mut chunk: Vec<u8> = self.unread.drain(..size + 2).collect();
        assert_eq!(chunk.split_off(size), b"\r\n");
        chunk
    }

    async fn read_to(&mut self, end: &[u8]) -> Vec<u8> {
        let at = loop {
            if let Some(at) = self.unread.windows(end.len()).position(|window| window == end) {
                break at;
            }
            let before = String::from_utf8_lossy(&self.unread).into_owned();
            assert!(self.read().await, "the connection ended instead of an answer, after {before:?}");
        };
        self.unread.drain(..at + end.len()).collect()
    }

    /// Waits for the end of the connection, and returns the bytes before it. A reset is a failure.
    pub(crate) async fn end(&mut self) -> Vec<u8> {
        while self.read().await {}
        std::mem::take(&mut self.unread)
    }

    /// Like [`Self::end`], for a server that may reset the connection.
    pub(crate) async fn read_until_closed(&mut self) -> Vec<u8> {
        while let Ok(1..) = self.try_read().await {}
        std::mem::take(&mut self.unread)
    }

    async fn read(&mut self) -> bool {
        self.try_read().await.expect("an end without a reset") > 0
    }

    async fn try_read(&mut self) -> io::Result<usize> {
        within_deadline("the server to write", self.stream.read_buf(&mut self.unread)).await
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl HttpResponse {
    fn from_head(head: &str) -> Self {
        let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
        let first_line = lines.next().expect("a first line");
        let status = first_line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let header = |line: &str| {
            let (name, value) = line.split_once(':').expect("a header");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Self { status, headers: lines.map(header).collect(), body: Vec::new() }
    }

    /// The value of a header that occurs at most once.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values =
            self.headers.iter().filter(|(each, _)| each == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} twice");
        value
    }

    /// The headers whose names have this prefix, sorted.
    pub(crate) fn headers_like(&self, prefix: &str) -> Vec<(&str, &str)> {
        let mut headers: Vec<_> = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .filter(|(name, _)| name.starts_with(prefix))
            .collect();
        headers.sort_unstable();
        headers
    }

    /// The body, which must be JSON and be declared as such.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// The body of a successful response.
    pub(crate) fn success(&self) -> Value {
        let value = self.json();
        assert_eq!(self.status, 200, "{value}");
        value
    }

    /// Status and body of a failure whose body has more than the error.
    pub(crate) fn failure(&self) -> (u16, Value) {
        let value = self.json();
        assert!(value["error"].is_object(), "{value}");
        (self.status, value)
    }

    /// Status, code and message of a failure whose body has nothing but the error.
    pub(crate) fn error(&self) -> (u16, String, String) {
        let value = self.json();
        let text = |name: &str| value["error"][name].as_str().expect("a text").to_owned();
        let (code, message) = (text("code"), text("message"));
        assert_eq!(value, json!({"error": {"code": code, "message": message}}));
        assert!(!message.is_empty());
        (self.status, code, message)
    }
}
