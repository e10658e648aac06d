//! A response, read message by message, as JSON or as an event stream.

use super::with_timeout;
use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use serde_json::{Value, json};
use std::convert::Infallible;

/// A response.
pub(crate) struct TestReply {
    pub(crate) status: u16,
    headers: http::HeaderMap,
    body: BoxBody<Bytes, Infallible>,
    unread: Vec<u8>,
}

impl TestReply {
    pub(crate) fn new(response: Response<BoxBody<Bytes, Infallible>>) -> Self {
        let (parts, body) = response.into_parts();
        Self { status: parts.status.as_u16(), headers: parts.headers, body, unread: Vec::new() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    /// The next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        // One time limit for the whole message: keep-alive events must not extend it.
        with_timeout("more of an answer", self.read_message()).await
    }

    async fn read_message(&mut self) -> Option<Value> {
        loop {
            if !self.is_stream() {
                while self.read().await {}
                let body = std::mem::take(&mut self.unread);
                return (!body.is_empty()).then(|| serde_json::from_slice(&body).unwrap());
            }
            while let Some(end) = self.unread.windows(2).position(|window| window == b"\n\n") {
                let event: Vec<u8> = self.unread.drain(..end + 2).collect();
                let event = String::from_utf8(event).unwrap();
                let data: String = event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
                // An event without data, or a comment that keeps the connection alive.
                if !data.trim().is_empty() {
                    return Some(serde_json::from_str(&data).unwrap());
                }
            }
            if !self.read().await {
                return None;
            }
        }
    }

    /// The next message, which must be a notification or request of this method.
    pub(crate) async fn expect(&mut self, method: &str) -> Value {
        let message = self.next().await.unwrap_or_else(|| panic!("the answer ended before a {method}"));
        assert_eq!(message["method"], method, "{message}");
        message
    }

    /// All messages.
    pub(crate) async fn all(mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(message) = self.next().await {
            all.push(message);
        }
        all
    }

    /// The last message.
    pub(crate) async fn last(self) -> Value {
        self.all().await.pop().expect("a message")
    }

    /// The result; the request must not have failed.
    pub(crate) async fn result(self) -> Value {
        assert_eq!(self.status, 200);
        let mut last = self.last().await;
        assert!(last.get("error").is_none(), "{last}");
        last["result"].take()
    }

    /// Status, code and message of a refusal.
    pub(crate) async fn refusal(self) -> (u16, i64, String) {
        let status = self.status;
        let last = self.last().await;
        let error = &last["error"];
        let text = error["message"].as_str().unwrap_or_else(|| panic!("no refusal: {last}"));
        (status, error["code"].as_i64().unwrap(), text.to_owned())
    }

    /// Status and code of a refusal.
    pub(crate) async fn refusal_code(self) -> (u16, i64) {
        let (status, code, _) = self.refusal().await;
        (status, code)
    }

    async fn read(&mut self) -> bool {
        match self.body.frame().await {
            None => false,
            Some(Ok(frame)) => {
                self.unread.extend_from_slice(&frame.into_data().unwrap_or_default());
                true
            }
            Some(Err(never)) => match never {},
        }
    }
}

/// The text of a tool's result, and whether it is a success.
pub(crate) fn result_text(result: &Value) -> (bool, String) {
    let blocks = result["content"].as_array().expect("content");
    let texts: Vec<&str> = blocks.iter().map(|block| block["text"].as_str().unwrap()).collect();
    (result["isError"] != json!(true), texts.join("|"))
}
