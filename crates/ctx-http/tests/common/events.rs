//! A client that reads the event stream of a call.

use super::{ApiServer, HttpClient, HttpResponse, TestRequest, post};
use serde_json::Value;

/// A request to stream the events of a call.
pub(crate) fn streaming_request(name: &str) -> TestRequest {
    post(&format!("/tools/{name}")).header("Accept", "text/event-stream")
}

/// An event stream.
pub(crate) struct Events {
    client: HttpClient,
    pub(crate) head: HttpResponse,
    text: String,
}

impl Events {
    /// Sends a request whose response must be an event stream.
    pub(crate) async fn of(server: &ApiServer, request: TestRequest) -> Self {
        let mut client = server.connect().await;
        client.send(request).await;
        let head = client.head().await;
        assert_eq!(
            (head.status, head.header("content-type"), head.header("transfer-encoding")),
            (200, Some("text/event-stream"), Some("chunked"))
        );
        Self { client, head, text: String::new() }
    }

    /// The next event, by name and data; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        let end = loop {
            if let Some(end) = self.text.find("\n\n") {
                break end;
            }
            let chunk = self.client.chunk().await;
            if chunk.is_empty() {
                assert_eq!(self.text, "", "the stream ended inside an event");
                return None;
            }
            self.text.push_str(&String::from_utf8(chunk).expect("whole characters in every piece"));
        };
        let event: String = self.text.drain(..end + 2).collect();
        let (name, data) = event.trim_end().split_once('\n').expect("a name and data");
        let name = name.strip_prefix("event: ").expect("a name").to_owned();
        let data = data.strip_prefix("data: ").expect("data");
        Some((name, serde_json::from_str(data).expect("JSON in one line")))
    }

    /// All remaining events of the stream.
    pub(crate) async fn all(mut self) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }

    /// Waits until a server that may disconnect has closed the connection.
    pub(crate) async fn read_until_closed(&mut self) -> Vec<u8> {
        self.client.read_until_closed().await
    }
}
