//! A small HTTP server for tests: answers by a closure and records all requests.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A recorded HTTP request.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// The request line: `GET /path?query HTTP/1.1`.
    pub line: String,
    /// The header lines.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl RecordedRequest {
    /// Method and target: `GET /path?query`.
    pub fn target(&self) -> &str {
        self.line.trim_end_matches(" HTTP/1.1")
    }

    /// A parameter of the query, still percent-encoded.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target().split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the request's body is JSON")
    }
}

/// A server on a free loopback port; stopped on drop.
pub struct MockWebServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    is_stopped: Arc<AtomicBool>,
}

impl MockWebServer {
    /// Answers every request with the bytes that the closure returns: status line, headers, a blank line, body. One
    /// request per connection.
    pub fn serve(answer: impl Fn(&RecordedRequest) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::stream(move |request, stream| {
            // A client may close the connection before it has read everything.
            stream.write_all(&answer(request)).ok();
        })
    }

    /// Like [`MockWebServer::serve`], but the closure writes to the connection itself: for endless or missing responses.
    pub fn stream(answer: impl Fn(&RecordedRequest, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, is_stopped) =
            (Arc::<Mutex<Vec<RecordedRequest>>>::default(), Arc::<AtomicBool>::default());
        let (recorded, stopped, answer) = (requests.clone(), is_stopped.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (recorded, answer, mut stream) = (recorded.clone(), answer.clone(), stream.unwrap());
                thread::spawn(move || {
                    // An incomplete request is not recorded.
                    let Some(request) = read_request(&mut stream) else { return };
                    recorded.lock().unwrap().push(request.clone());
                    answer(&request, &mut stream);
                });
            }
        });
        Self { address, requests, is_stopped }
    }

    /// The URL of this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for MockWebServer {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then ends and closes the port.
        TcpStream::connect(self.address).ok();
    }
}

fn read_request(stream: &mut TcpStream) -> Option<RecordedRequest> {
    let (mut bytes, mut part) = (Vec::new(), [0; 16 << 10]);
    let mut read_more = |bytes: &mut Vec<u8>| {
        let read = stream.read(&mut part).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&part[..read]);
        Some(())
    };
    let end = loop {
        read_more(&mut bytes)?;
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let (line, head) = head.split_once("\r\n").unwrap_or((&head, ""));
    let mut request =
        RecordedRequest { line: line.to_owned(), head: head.to_owned(), body: bytes[end + 4..].to_vec() };
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    while request.body.len() < length {
        read_more(&mut request.body)?;
    }
    Some(request)
}

/// A response with this status and body.
pub fn http_response(status: u16, body: &str) -> Vec<u8> {
    http_response_with(status, &[], body)
}

/// A response with this status, headers and body.
pub fn http_response_with(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!(
        "HTTP/1.1 {status} x\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
