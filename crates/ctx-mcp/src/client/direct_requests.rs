//! Requests of calls to a stdio server, past rmcp's service task: written by the task of the call, and answered by the
//! task that reads the server's output.
//!
//! rmcp takes four hand-overs between tasks for a request, and reads a result by trying every kind of result. The limits
//! of `guard` apply here too. Handshake, notifications and everything else stay with rmcp.

use super::guard::{ConnectionGuard, OutgoingPermit, request_number};
use futures::FutureExt;
use rmcp::model::{
    ClientRequest, GetMeta, JsonRpcMessage, ProgressToken, RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::{RoleClient, ServiceError};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;

/// The IDs of these requests: apart from those of rmcp, which count up from zero, and below those of the handshake.
const FIRST_ID: i64 = 1 << 30;
const LAST_ID: i64 = i32::MAX as i64 - 2;

/// The stdin of a server; `None` once it is closed.
pub(super) type ServerInput = Arc<tokio::sync::Mutex<Option<Box<dyn AsyncWrite + Send + Unpin>>>>;

type Response = Result<ServerResult, ServiceError>;

/// The requests that are open on one connection.
pub(super) struct DirectRequests {
    input: ServerInput,
    guard: Arc<ConnectionGuard>,
    open: Mutex<OpenRequests>,
}

struct OpenRequests {
    next_id: i64,
    /// By ID.
    waiting: HashMap<i64, ResponseWaiter>,
    is_closed: bool,
}

struct ResponseWaiter {
    is_tool_call: bool,
    response: oneshot::Sender<Response>,
}

/// A request that was sent. It is forgotten when this is dropped.
pub(super) struct DirectRequest {
    requests: Arc<DirectRequests>,
    id: i64,
    response: oneshot::Receiver<Response>,
}

/// The fields that distinguish a response from other messages. The order of the fields is that of most servers.
#[derive(Deserialize)]
struct ResponseEnvelope<'a> {
    #[serde(borrow)]
    jsonrpc: &'a str,
    id: RequestId,
    method: Option<IgnoredAny>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<IgnoredAny>,
}

impl DirectRequests {
    pub(super) fn new(input: ServerInput, guard: Arc<ConnectionGuard>) -> Arc<Self> {
        let open = OpenRequests { next_id: FIRST_ID, waiting: HashMap::new(), is_closed: false };
        Arc::new(Self { input, guard, open: Mutex::new(open) })
    }

    /// Sends a request with this metadata; `None` if the connection is closed. Never sends part of a request, even if the
    /// caller stops waiting.
    pub(super) fn send(
        self: &Arc<Self>,
        mut request: ClientRequest,
        meta: RequestMetaObject,
    ) -> Option<DirectRequest> {
        let (sender, response) = oneshot::channel();
        let is_tool_call = matches!(request, ClientRequest::CallToolRequest(_));
        let id = self.open().add(ResponseWaiter { is_tool_call, response: sender })?;
        let sent = DirectRequest { requests: self.clone(), id, response };
        let own_meta = request.get_meta_mut();
        own_meta.extend(meta);
        own_meta.set_progress_token(sent.progress_token());
        let message: TxJsonRpcMessage<RoleClient> = JsonRpcMessage::request(request, sent.request_id());
        let mut line = serde_json::to_vec(&message).ok()?;
        let permit = self.guard.admit_outgoing_bytes(&message, line.len())?;
        line.push(b'\n');
        self.write(line, permit, id);
        Some(sent)
    }

    /// Writes a line as far as the pipe accepts it at once; a task writes the rest.
    fn write(self: &Arc<Self>, line: Vec<u8>, permit: OutgoingPermit, id: i64) {
        let (requests, input) = (self.clone(), self.input.clone());
        let mut writing = Box::pin(async move {
            let _permit = permit;
            let write = async {
                let mut input = input.lock().await;
                let input = input.as_mut().ok_or(io::ErrorKind::NotConnected)?;
                input.write_all(&line).await?;
                input.flush().await
            };
            let written: io::Result<()> = tokio::select! {
                biased;
                written = write => written,
                () = requests.guard.wait_until_closed() => Ok(()),
            };
            if let Err(error) = written {
                tracing::debug!(%error, "a request could not be sent");
                requests.respond(id, Err(ServiceError::TransportClosed));
            }
            requests.release_input();
        });
        // Its place in the queue for the pipe, and what is written already, are kept.
        if writing.as_mut().now_or_never().is_none() {
            tokio::spawn(writing);
        }
    }

    /// Delivers a line that is a response to one of these requests; `false` if it is another message, or unreadable.
    pub(super) fn deliver_line(&self, line: &[u8]) -> bool {
        if self.open().waiting.is_empty() {
            return false;
        }
        let Ok(envelope) = serde_json::from_slice::<ResponseEnvelope<'_>>(line) else { return false };
        let ResponseEnvelope { jsonrpc: "2.0", id, method: None, result: Some(result), error: None } =
            envelope
        else {
            return false;
        };
        let Some((id, is_tool_call)) = self.find(&id) else { return false };
        let tool_result = if is_tool_call { serde_json::from_str(result.get()).ok() } else { None };
        let result = match tool_result {
            Some(result) => ServerResult::CallToolResult(result),
            None => match serde_json::from_str(result.get()) {
                Ok(result) => result,
                Err(_) => return false,
            },
        };
        self.respond(id, Ok(result));
        true
    }

    /// Delivers a response to one of these requests; returns any other message.
    pub(super) fn deliver(
        &self,
        message: RxJsonRpcMessage<RoleClient>,
    ) -> Option<RxJsonRpcMessage<RoleClient>> {
        let id = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let Some((id, _)) = id.and_then(|id| self.find(id)) else { return Some(message) };
        match message {
            JsonRpcMessage::Response(response) => self.respond(id, Ok(response.result)),
            JsonRpcMessage::Error(error) => self.respond(id, Err(ServiceError::McpError(error.error))),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
        }
        None
    }

    /// Fails all requests, and closes the server's stdin: the connection is closed.
    pub(super) fn close(&self) {
        let mut open = self.open();
        open.is_closed = true;
        let waiting = std::mem::take(&mut open.waiting);
        drop(open);
        // The callers learn it from their receivers.
        drop(waiting);
        self.release_input();
    }

    /// Closes the server's stdin if the connection is closed; a task that still writes does so at its end.
    fn release_input(&self) {
        if self.open().is_closed
            && let Ok(mut input) = self.input.try_lock()
        {
            drop(input.take());
        }
    }

    /// The request with this ID, and whether it is a call of a tool.
    fn find(&self, id: &RequestId) -> Option<(i64, bool)> {
        let id = request_number(id)?;
        self.open().waiting.get(&id).map(|waiter| (id, waiter.is_tool_call))
    }

    fn respond(&self, id: i64, response: Response) {
        self.guard.take_awaited(&RequestId::Number(id));
        let waiter = self.open().waiting.remove(&id);
        if let Some(waiter) = waiter {
            // The caller may just have stopped waiting.
            let _ = waiter.response.send(response);
        }
    }

    fn open(&self) -> MutexGuard<'_, OpenRequests> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenRequests {
    /// Adds a request, and returns its ID; `None` if the connection is closed.
    fn add(&mut self, waiter: ResponseWaiter) -> Option<i64> {
        if self.is_closed {
            return None;
        }
        // The guard bounds the requests without a response, so there is always a free one.
        loop {
            let id = self.next_id;
            self.next_id = if id == LAST_ID { FIRST_ID } else { id + 1 };
            if let Entry::Vacant(free) = self.waiting.entry(id) {
                free.insert(waiter);
                return Some(id);
            }
        }
    }
}

impl DirectRequest {
    pub(super) fn request_id(&self) -> RequestId {
        RequestId::Number(self.id)
    }

    pub(super) fn progress_token(&self) -> ProgressToken {
        ProgressToken(self.request_id())
    }

    /// Waits for the response.
    pub(super) async fn response(mut self) -> Response {
        (&mut self.response).await.unwrap_or(Err(ServiceError::TransportClosed))
    }
}

impl Drop for DirectRequest {
    fn drop(&mut self) {
        self.requests.open().waiting.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{CallToolRequest, CallToolRequestParams};
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream};

    /// The requests of a connection with a pipe of this size, and the server's end.
    fn requests(pipe_bytes: usize) -> (Arc<DirectRequests>, BufReader<DuplexStream>) {
        let (client, server) = tokio::io::duplex(pipe_bytes);
        let input: ServerInput = Arc::new(tokio::sync::Mutex::new(Some(Box::new(client))));
        (DirectRequests::new(input, Arc::default()), BufReader::new(server))
    }

    fn send(requests: &Arc<DirectRequests>, tool: &str) -> Option<DirectRequest> {
        let request = CallToolRequest::new(CallToolRequestParams::new(tool.to_owned()));
        requests.send(ClientRequest::CallToolRequest(request), RequestMetaObject::default())
    }

    async fn next_message(server: &mut BufReader<DuplexStream>) -> Value {
        let mut line = String::new();
        server.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn answer(request: &DirectRequest, result: Value) -> Vec<u8> {
        json!({"jsonrpc": "2.0", "id": request.id, "result": result}).to_string().into_bytes()
    }

    #[tokio::test]
    async fn requests_are_sent_whole_though_the_pipe_is_full_and_nobody_waits_for_the_first() {
        let (requests, mut server) = requests(16);
        let one = send(&requests, "one").unwrap();
        let one_id = one.id;
        drop(one);
        let two = send(&requests, "two").unwrap();
        for (id, tool) in [(one_id, "one"), (two.id, "two")] {
            let message = next_message(&mut server).await;
            assert_eq!((&message["id"], &message["params"]["name"]), (&json!(id), &json!(tool)));
            assert_eq!(message["params"]["_meta"]["progressToken"], json!(id));
        }
    }

    #[tokio::test]
    async fn each_response_reaches_its_own_request() {
        let (requests, _server) = requests(1 << 16);
        let (one, two) = (send(&requests, "one").unwrap(), send(&requests, "two").unwrap());
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        // Two requests wait: neither messages of other kinds nor responses to others are theirs.
        for other in [
            json!({"jsonrpc": "2.0", "id": one.id, "method": "ping"}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
            json!({"jsonrpc": "1.0", "id": one.id, "result": text("old")}),
            json!({"jsonrpc": "2.0", "id": one.id, "error": {"code": 1, "message": "no"}}),
        ] {
            assert!(!requests.deliver_line(other.to_string().as_bytes()), "{other}");
        }
        assert!(requests.deliver_line(&answer(&two, text("2"))));
        assert!(!requests.deliver_line(&answer(&two, text("again"))));
        let refusal = json!({"jsonrpc": "2.0", "id": one.id, "error": {"code": 7, "message": "no"}});
        assert!(requests.deliver(serde_json::from_value(refusal).unwrap()).is_none());
        assert!(matches!(one.response().await, Err(ServiceError::McpError(error)) if error.code.0 == 7));
        let Ok(ServerResult::CallToolResult(result)) = two.response().await else { panic!("no result") };
        assert_eq!(serde_json::to_value(result.content).unwrap()[0]["text"], "2");
    }

    #[tokio::test]
    async fn open_requests_fail_when_the_connection_is_closed_and_further_ones_are_not_sent() {
        let (requests, mut server) = requests(1 << 16);
        let request = send(&requests, "one").unwrap();
        next_message(&mut server).await;
        requests.close();
        assert!(matches!(request.response().await, Err(ServiceError::TransportClosed)));
        assert!(send(&requests, "two").is_none());
        let mut rest = String::new();
        assert_eq!(server.read_line(&mut rest).await.unwrap(), 0, "the server's stdin is closed");
    }

    #[tokio::test]
    async fn a_request_is_forgotten_when_nobody_waits_for_it() {
        let (requests, _server) = requests(1 << 16);
        let request = send(&requests, "one").unwrap();
        let late = answer(&request, json!({"content": []}));
        drop(request);
        assert!(!requests.deliver_line(&late));
        assert!(requests.open().waiting.is_empty());
    }
}
