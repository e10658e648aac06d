//! The stdio transport: one JSON-RPC message per line, bounded in length.
//!
//! A server may write anything to its stdout. Lines that are no messages are skipped; a response that is too
//! long or cannot be parsed fails the call that waits for it.

use super::direct_requests::{DirectRequests, ServerInput};
use super::guard::ConnectionGuard;
use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

/// Bytes at each end of an overlong line in which the request ID is searched.
const LINE_END_BYTES: usize = 256;
/// Bytes of an overlong line that are skipped; a longer one is taken for endless, and the server is disconnected.
const LINE_BYTES_MAX: usize = 1 << 30;

/// A transport over the stdout and stdin of a server.
pub(super) struct LineTransport {
    output: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    input: ServerInput,
    reader: LineReader,
    guard: Arc<ConnectionGuard>,
    direct: Arc<DirectRequests>,
}

impl LineTransport {
    pub(super) fn new(
        output: impl AsyncRead + Send + Unpin + 'static,
        input: impl AsyncWrite + Send + Unpin + 'static,
        bytes_max: usize,
        guard: Arc<ConnectionGuard>,
    ) -> Self {
        let input: ServerInput = Arc::new(tokio::sync::Mutex::new(Some(Box::new(input))));
        Self {
            output: BufReader::with_capacity(64 << 10, Box::new(output)),
            direct: DirectRequests::new(input.clone(), guard.clone()),
            input,
            reader: LineReader { line: Vec::new(), tail: Vec::new(), length: 0, bytes_max },
            guard,
        }
    }

    /// Sends requests on this connection past rmcp.
    pub(super) fn direct_requests(&self) -> &Arc<DirectRequests> {
        &self.direct
    }
}

impl Drop for LineTransport {
    fn drop(&mut self) {
        self.direct.close();
    }
}

impl Transport<RoleClient> for LineTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let input = self.input.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut input = input.lock().await;
            let input = input.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            input.write_all(&line).await?;
            input.flush().await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // Cancel safe: bytes are stored in the reader before the next await.
        loop {
            let bytes = match self.output.fill_buf().await {
                Ok([]) | Err(_) => return None,
                Ok(bytes) => bytes,
            };
            let (taken, line) = self.reader.read_bytes(bytes);
            self.output.consume(taken);
            let Some(line) = line else {
                if self.reader.length > LINE_BYTES_MAX {
                    self.guard.close(format!("it writes a line of more than {LINE_BYTES_MAX} bytes"));
                    return None;
                }
                continue;
            };
            let length = line.length();
            if let ReceivedLine::Whole(line) = &line
                && self.direct.deliver_line(line)
            {
                continue;
            }
            let message = match line.parse() {
                LineContent::Message(message) => *message,
                LineContent::UnreadableResponse(id, why) if self.guard.awaits(&id) => error_response(id, why),
                _ if !self.guard.admits_noise(length) => return None,
                _ => continue,
            };
            if let Some(message) = self.direct.deliver(message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.direct.close();
        drop(self.input.lock().await.take());
        Ok(())
    }
}

/// Assembles lines; of an overlong line, only the two ends are kept.
struct LineReader {
    line: Vec<u8>,
    tail: Vec<u8>,
    length: usize,
    bytes_max: usize,
}

enum ReceivedLine {
    Whole(Vec<u8>),
    TooLong { head: Vec<u8>, tail: Vec<u8>, length: usize, bytes_max: usize },
}

enum LineContent {
    Message(Box<RxJsonRpcMessage<RoleClient>>),
    /// A response to this request that is too long or cannot be parsed, and why.
    UnreadableResponse(RequestId, String),
    Noise,
}

impl LineReader {
    /// Consumes bytes of the current line; returns their number, and the line if it is complete.
    fn read_bytes(&mut self, bytes: &[u8]) -> (usize, Option<ReceivedLine>) {
        let newline = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..newline.unwrap_or(bytes.len())];
        self.length += part.len();
        if self.length <= self.bytes_max {
            self.line.extend_from_slice(part);
        } else {
            if self.tail.is_empty() {
                self.tail.extend_from_slice(&self.line[self.line.len().saturating_sub(LINE_END_BYTES)..]);
            }
            self.line.truncate(LINE_END_BYTES);
            self.line.extend_from_slice(&part[..part.len().min(LINE_END_BYTES - self.line.len())]);
            self.tail.extend_from_slice(&part[part.len().saturating_sub(LINE_END_BYTES)..]);
            self.tail.drain(..self.tail.len().saturating_sub(LINE_END_BYTES));
        }
        let Some(newline) = newline else { return (bytes.len(), None) };
        let (line, tail) = (std::mem::take(&mut self.line), std::mem::take(&mut self.tail));
        let (length, bytes_max) = (std::mem::take(&mut self.length), self.bytes_max);
        let line = match length <= bytes_max {
            true => ReceivedLine::Whole(line),
            false => ReceivedLine::TooLong { head: line, tail, length, bytes_max },
        };
        (newline + 1, Some(line))
    }
}

impl ReceivedLine {
    fn length(&self) -> usize {
        match self {
            Self::Whole(line) => line.len(),
            Self::TooLong { length, .. } => *length,
        }
    }

    fn parse(self) -> LineContent {
        let (id, why) = match self {
            Self::Whole(line) => {
                let error = match serde_json::from_slice(&line) {
                    Ok(message) => return LineContent::Message(Box::new(message)),
                    Err(error) => error,
                };
                tracing::debug!(%error, "a server's message cannot be read");
                let id = match serde_json::from_slice::<Value>(&line) {
                    Ok(read) if read.get("method").is_some() => None,
                    Ok(read) => read.get("id").and_then(|id| serde_json::from_value(id.clone()).ok()),
                    Err(_) => find_request_id(
                        &line[..line.len().min(LINE_END_BYTES)],
                        &line[line.len().saturating_sub(LINE_END_BYTES)..],
                    ),
                };
                (id, format!("its answer cannot be read: {error}"))
            }
            Self::TooLong { head, tail, bytes_max, .. } => {
                (find_request_id(&head, &tail), format!("its answer is longer than {bytes_max} bytes"))
            }
        };
        id.map_or(LineContent::Noise, |id| LineContent::UnreadableResponse(id, why))
    }
}

fn error_response(id: RequestId, message: String) -> RxJsonRpcMessage<RoleClient> {
    RxJsonRpcMessage::<RoleClient>::error(ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None), Some(id))
}

/// The request ID of a response of which only the ends are known: servers write it before or after the
/// result.
fn find_request_id(head: &[u8], tail: &[u8]) -> Option<RequestId> {
    const KEY: &str = "\"id\":";
    if !head.starts_with(b"{") {
        return None;
    }
    let digits = |text: &str| {
        let text = text.trim_start();
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse().ok().map(RequestId::Number)
    };
    let head = String::from_utf8_lossy(head);
    let before_result = head.split("\"result\"").next().unwrap_or_default();
    let first = before_result.find(KEY).and_then(|at| digits(&before_result[at + KEY.len()..]));
    let tail = String::from_utf8_lossy(tail);
    first.or_else(|| {
        let after = &tail[tail.rfind(KEY)? + KEY.len()..];
        // Nothing but the end of the message may follow.
        let is_last = after.chars().all(|letter| letter.is_ascii_digit() || " }\r,\"".contains(letter))
            || after.contains("\"jsonrpc\"");
        is_last.then(|| digits(after))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8], chunk: usize, bytes_max: usize) -> Vec<Option<Value>> {
        let mut reader = LineReader { line: Vec::new(), tail: Vec::new(), length: 0, bytes_max };
        let mut messages = Vec::new();
        for mut part in bytes.chunks(chunk.max(1)) {
            while !part.is_empty() {
                let (taken, line) = reader.read_bytes(part);
                part = &part[taken..];
                let message = match line.map(ReceivedLine::parse) {
                    None => continue,
                    Some(LineContent::Noise) => None,
                    Some(LineContent::Message(message)) => Some(*message),
                    Some(LineContent::UnreadableResponse(id, why)) => Some(error_response(id, why)),
                };
                messages.push(message.map(|message| serde_json::to_value(message).unwrap()));
            }
        }
        messages
    }

    fn error_of(message: &Option<Value>) -> (i64, String) {
        let message = message.as_ref().unwrap();
        (message["id"].as_i64().unwrap(), message["error"]["message"].as_str().unwrap().to_owned())
    }

    #[test]
    fn an_answer_that_is_too_long_fails_the_call_that_waits_for_it() {
        let long = "x".repeat(2_000);
        for answer in [
            format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"a\":\"{long}\"}}}}\n"),
            format!("{{\"result\":{{\"id\":1,\"a\":\"{long}\"}},\"jsonrpc\":\"2.0\",\"id\":7}}\n"),
            format!("{{\"result\":{{\"a\":\"{long}\"}},\"id\":7,\"jsonrpc\":\"2.0\"}}\n"),
        ] {
            let messages = read(answer.as_bytes(), 100, 1_000);
            assert_eq!(error_of(&messages[0]), (7, "its answer is longer than 1000 bytes".to_owned()));
        }
    }

    #[test]
    fn lines_that_are_no_messages_are_skipped_and_an_unreadable_response_fails_its_call() {
        let text = "Server running!\n\n{\"jsonrpc\":\"2.0\",\"id\":3,\"outcome\":1}\n[]\n";
        let messages = read(text.as_bytes(), 9, 1_000);
        assert_eq!(messages.len(), 4);
        assert!(messages[0].is_none() && messages[1].is_none() && messages[3].is_none());
        assert_eq!(error_of(&messages[2]).0, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn long_lines_that_nobody_asked_for_are_bounded_by_their_bytes() {
        let long = "x".repeat(8 << 20);
        for line in [
            format!("{long}\n"),
            format!("{{\"method\":1,\"a\":\"{long}\"}}\n"),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"outcome\":\"{long}\"}}\n"),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"{long}{long}\"}}\n"),
        ] {
            let guard = Arc::new(ConnectionGuard::default());
            let (mut server, output) = tokio::io::duplex(1 << 20);
            let mut lines = LineTransport::new(output, tokio::io::sink(), 10 << 20, guard.clone());
            let writing = tokio::spawn(async move {
                let mut count = 0;
                while server.write_all(line.as_bytes()).await.is_ok() && count < 50 {
                    count += 1;
                }
                count
            });
            assert!(lines.receive().await.is_none());
            drop(lines);
            let count = writing.await.unwrap();
            assert!((3..=9).contains(&count), "{count}");
            assert!(guard.reason().unwrap().contains("bytes of unsolicited messages"));
        }
    }

    /// Arbitrary output of a server: whole and broken messages among random bytes.
    fn any_output() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40),
            Just(b"\n".to_vec()),
            Just(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n".to_vec()),
            Just(b"{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"method\":\"ping\"}\r\n".to_vec()),
            Just(b"{\"result\":{\"id\":1,\"a\":\"".to_vec()),
            Just(b"\"},\"id\":7,\"jsonrpc\":\"2.0\"}\n".to_vec()),
            Just("[".repeat(300).into_bytes()),
        ];
        proptest::collection::vec(part, 0..20).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn buffered_bytes_of_a_line_are_bounded(
            bytes in any_output(),
            chunk in 1_usize..50,
            bytes_max in 1_usize..100,
        ) {
            let mut reader = LineReader { line: Vec::new(), tail: Vec::new(), length: 0, bytes_max };
            for mut part in bytes.chunks(chunk) {
                while !part.is_empty() {
                    let (taken, line) = reader.read_bytes(part);
                    part = &part[taken..];
                    prop_assert!(taken > 0);
                    prop_assert!(reader.line.len() <= bytes_max.max(LINE_END_BYTES) && reader.tail.len() <= LINE_END_BYTES);
                    if let Some(line) = line {
                        drop(line.parse());
                    }
                }
            }
            prop_assert_eq!(read(&bytes, chunk, bytes_max), read(&bytes, bytes.len(), bytes_max));
        }

        #[test]
        fn any_bytes_in_any_pieces_are_as_many_lines(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            chunk in 1_usize..50,
            bytes_max in 1_usize..100,
        ) {
            let newlines = bytes.iter().filter(|byte| **byte == b'\n').count();
            prop_assert_eq!(read(&bytes, chunk, bytes_max).len(), newlines);
            prop_assert_eq!(read(&bytes, chunk, bytes_max), read(&bytes, 600, bytes_max));
        }
    }
}
