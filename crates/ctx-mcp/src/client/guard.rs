//! Limits of one connection: unsolicited messages from the server, server requests that wait for our response, and
//! messages that wait to be sent. A server that exceeds one is disconnected, with a reason that names the flood.
//!
//! rmcp spawns a task for every request and notification and queues every response, without a limit. So the limits are
//! enforced in front of it, for all transports alike. Responses to no request of ours are dropped here too: during the
//! handshake, rmcp takes one for a broken connection.

use ctx_core::{escape_line, json_size};
use rmcp::RoleClient;
use rmcp::model::{
    ClientNotification, ClientRequest, JsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerNotification,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Unsolicited messages in one burst: requests, notifications, stray responses, lines that are not messages.
const UNSOLICITED_BURST_MAX: f64 = 10_000.0;
/// Unsolicited messages per second, sustained.
const UNSOLICITED_PER_SECOND_MAX: f64 = 1_000.0;
/// Bytes of unsolicited messages in one burst.
const UNSOLICITED_BYTES_BURST_MAX: f64 = 64.0 * 1024.0 * 1024.0;
/// Bytes of unsolicited messages per second, sustained.
const UNSOLICITED_BYTES_PER_SECOND_MAX: f64 = 1024.0 * 1024.0;
/// Server requests that wait for our response; at this number, reading pauses (backpressure).
const REQUESTS_OPEN_MAX: usize = 64;
/// How long reading may pause because of that number before the server is disconnected.
const ANSWERS_UNREAD_MAX: Duration = Duration::from_secs(5);
/// [`REQUESTS_OPEN_MAX`] for Streamable HTTP. There, one task of rmcp reads messages and sends responses, so
/// a pause would be a deadlock: the server is disconnected at once.
const HTTP_REQUESTS_OPEN_MAX: usize = 256;
/// Requests of ours without a response.
const REQUESTS_UNANSWERED_MAX: usize = 4_096;
/// Messages that wait to be sent.
const OUTGOING_MAX: usize = 512;
/// Bytes of messages that wait to be sent.
const OUTGOING_BYTES_MAX: usize = 128 << 20;
/// Bytes of the id of a server request; a request with a longer id is dropped.
const REQUEST_ID_BYTES_MAX: usize = 1_024;
/// Characters of a method name that are shown in a reason.
const METHOD_CHARS_MAX: usize = 60;

/// The limits of one connection, and the counters.
pub(super) struct ConnectionGuard {
    open_max: usize,
    unread_max: Duration,
    /// Whether `server/discover` is given up when `initialize` is sent: rmcp takes a late response to it for a broken
    /// connection.
    gives_up_probe: bool,
    counts: Mutex<MessageCounts>,
    /// Notified when a message has been sent.
    room_freed: Notify,
    closed: CancellationToken,
}

#[derive(Default)]
struct MessageCounts {
    unsolicited: UnsolicitedBudget,
    /// Whether the handshake is over. Until then rmcp answers requests one by one or not at all, so none is counted.
    is_initialized: bool,
    /// Server requests without a response.
    open: HashSet<RequestId>,
    /// When `open` became full.
    full_since: Option<Instant>,
    /// Requests of ours without a response.
    unanswered: HashSet<i64>,
    outgoing: usize,
    outgoing_bytes: usize,
    reason: Option<String>,
}

/// The token buckets of unsolicited messages and of their bytes.
struct UnsolicitedBudget {
    messages: f64,
    bytes: f64,
    refilled_at: Instant,
}

impl Default for UnsolicitedBudget {
    fn default() -> Self {
        Self {
            messages: UNSOLICITED_BURST_MAX,
            bytes: UNSOLICITED_BYTES_BURST_MAX,
            refilled_at: Instant::now(),
        }
    }
}

impl UnsolicitedBudget {
    /// Takes the tokens for one message of this size; the error names the exceeded limit.
    fn spend(&mut self, bytes: usize) -> Result<(), String> {
        let seconds = self.refilled_at.elapsed().as_secs_f64();
        self.refilled_at = Instant::now();
        let refill = |left: f64, rate: f64, max: f64| (left + seconds * rate).min(max);
        self.messages = refill(self.messages, UNSOLICITED_PER_SECOND_MAX, UNSOLICITED_BURST_MAX) - 1.0;
        self.bytes =
            refill(self.bytes, UNSOLICITED_BYTES_PER_SECOND_MAX, UNSOLICITED_BYTES_BURST_MAX) - bytes as f64;
        if self.messages < 0.0 {
            return Err(format!("more than {UNSOLICITED_BURST_MAX} unsolicited messages"));
        }
        if self.bytes < 0.0 {
            return Err(format!("more than {UNSOLICITED_BYTES_BURST_MAX} bytes of unsolicited messages"));
        }
        Ok(())
    }
}

/// A message that is being sent. It counts against the limits until this is dropped.
pub(super) struct OutgoingPermit {
    guard: Arc<ConnectionGuard>,
    bytes: usize,
    answers: Option<RequestId>,
}

impl Drop for OutgoingPermit {
    fn drop(&mut self) {
        let mut counts = self.guard.counts();
        counts.outgoing -= 1;
        counts.outgoing_bytes -= self.bytes;
        if let Some(id) = &self.answers {
            counts.open.remove(id);
        }
        drop(counts);
        self.guard.room_freed.notify_one();
    }
}

impl Default for ConnectionGuard {
    fn default() -> Self {
        Self {
            open_max: REQUESTS_OPEN_MAX,
            unread_max: ANSWERS_UNREAD_MAX,
            gives_up_probe: false,
            counts: Mutex::default(),
            room_freed: Notify::new(),
            closed: CancellationToken::new(),
        }
    }
}

impl ConnectionGuard {
    /// The limits for Streamable HTTP.
    pub(super) fn for_streamable_http() -> Self {
        Self {
            open_max: HTTP_REQUESTS_OPEN_MAX,
            unread_max: Duration::ZERO,
            gives_up_probe: true,
            ..Self::default()
        }
    }

    /// Closes the connection. Only the first reason is kept.
    pub(super) fn close(&self, reason: impl Into<String>) {
        self.counts().reason.get_or_insert_with(|| reason.into());
        self.closed.cancel();
    }

    /// Why the connection was closed, if it was closed by this guard.
    pub(super) fn reason(&self) -> Option<String> {
        self.counts().reason.clone()
    }

    /// Waits until the connection is closed by this guard.
    pub(super) async fn wait_until_closed(&self) {
        self.closed.cancelled().await;
    }

    /// Waits until another message may be read; `false` once the connection is closed.
    pub(super) async fn wait_for_room(&self) -> bool {
        loop {
            if self.closed.is_cancelled() {
                return false;
            }
            let until = {
                let mut counts = self.counts();
                if counts.open.len() < self.open_max {
                    counts.full_since = None;
                    return true;
                }
                *counts.full_since.get_or_insert_with(Instant::now) + self.unread_max
            };
            tokio::select! {
                () = self.room_freed.notified() => {}
                () = self.wait_until_closed() => return false,
                () = tokio::time::sleep_until(until) => self.close(format!(
                    "it sends requests and does not read the responses: {} are pending",
                    self.open_max
                )),
            }
        }
    }

    /// Whether a received message is passed on to rmcp.
    pub(super) fn admits(&self, message: &RxJsonRpcMessage<RoleClient>) -> bool {
        match message {
            JsonRpcMessage::Response(response) if self.take_awaited(&response.id) => return true,
            JsonRpcMessage::Error(error) if error.id.as_ref().is_some_and(|id| self.take_awaited(id)) => {
                return true;
            }
            _ => {}
        }
        let spent = self.counts().unsolicited.spend(json_size(message));
        if let Err(reason) = spent {
            self.close(format!("it sends too many {}: {reason}", describe_kind(message)));
            return false;
        }
        let mut counts = self.counts();
        match message {
            JsonRpcMessage::Request(request) => {
                let is_bounded = match &request.id {
                    RequestId::String(id) => id.len() <= REQUEST_ID_BYTES_MAX,
                    RequestId::Number(_) => true,
                };
                is_bounded && (!counts.is_initialized || counts.open.insert(request.id.clone()))
            }
            JsonRpcMessage::Notification(notification) => {
                if let ServerNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // A cancelled request gets no response.
                    counts.open.remove(id);
                }
                true
            }
            // A server that cannot parse a request does not know its id.
            JsonRpcMessage::Error(error) => error.id.is_none(),
            JsonRpcMessage::Response(_) => {
                tracing::debug!("ignored a response that matches no request");
                false
            }
        }
    }

    /// Whether `id` is that of an unanswered request of ours.
    pub(super) fn awaits(&self, id: &RequestId) -> bool {
        request_number(id).is_some_and(|id| self.counts().unanswered.contains(&id))
    }

    /// Counts a line or event that is not a message; `false` if that exceeds a limit.
    pub(super) fn admits_noise(&self, bytes: usize) -> bool {
        let spent = self.counts().unsolicited.spend(bytes);
        if let Err(reason) = &spent {
            self.close(format!("it writes too much that is not an MCP message: {reason}"));
        }
        spent.is_ok()
    }

    /// Counts a message that is to be sent; `None` if the connection is closed, or has to be for this one.
    pub(super) fn admit_outgoing(
        self: &Arc<Self>,
        message: &TxJsonRpcMessage<RoleClient>,
    ) -> Option<OutgoingPermit> {
        self.admit_outgoing_bytes(message, json_size(message))
    }

    /// [`Self::admit_outgoing`] for a message of a known size.
    pub(super) fn admit_outgoing_bytes(
        self: &Arc<Self>,
        message: &TxJsonRpcMessage<RoleClient>,
        bytes: usize,
    ) -> Option<OutgoingPermit> {
        let mut counts = self.counts();
        let exceeded = match () {
            () if self.closed.is_cancelled() => return None,
            () if counts.outgoing >= OUTGOING_MAX || counts.outgoing_bytes + bytes > OUTGOING_BYTES_MAX => {
                format!("it does not read its input: {} messages are queued", counts.outgoing)
            }
            () if counts.unanswered.len() >= REQUESTS_UNANSWERED_MAX => {
                format!("it does not respond: {REQUESTS_UNANSWERED_MAX} requests are pending")
            }
            () => {
                counts.record_sent(message, self.gives_up_probe);
                counts.outgoing += 1;
                counts.outgoing_bytes += bytes;
                let answers = match message {
                    JsonRpcMessage::Response(response) => Some(response.id.clone()),
                    JsonRpcMessage::Error(error) => error.id.clone(),
                    _ => None,
                };
                return Some(OutgoingPermit { guard: self.clone(), bytes, answers });
            }
        };
        drop(counts);
        self.close(exceeded);
        None
    }

    /// [`Self::awaits`]; the request then counts as answered.
    pub(super) fn take_awaited(&self, id: &RequestId) -> bool {
        request_number(id).is_some_and(|id| self.counts().unanswered.remove(&id))
    }

    fn counts(&self) -> MutexGuard<'_, MessageCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MessageCounts {
    fn record_sent(&mut self, message: &TxJsonRpcMessage<RoleClient>, gives_up_probe: bool) {
        match message {
            JsonRpcMessage::Request(request) => {
                match request.request {
                    ClientRequest::InitializeRequest(_) if gives_up_probe => self.unanswered.clear(),
                    ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_) => {}
                    _ => self.is_initialized = true,
                }
                self.unanswered.extend(request_number(&request.id));
            }
            JsonRpcMessage::Notification(notification) => match &notification.notification {
                ClientNotification::CancelledNotification(cancelled) => {
                    if let Some(id) = cancelled.params.request_id.as_ref().and_then(request_number) {
                        self.unanswered.remove(&id);
                    }
                }
                ClientNotification::InitializedNotification(_) => self.is_initialized = true,
                _ => {}
            },
            _ => {}
        }
    }
}

/// The number of a request of ours. Some servers return it as a string.
pub(super) fn request_number(id: &RequestId) -> Option<i64> {
    match id {
        RequestId::Number(number) => Some(*number),
        RequestId::String(text) => text.parse().ok(),
    }
}

/// The kind of a message, for the reason of a disconnect.
fn describe_kind(message: &ServerJsonRpcMessage) -> String {
    if matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) {
        return "responses that match no request".to_owned();
    }
    let message = serde_json::to_value(message).unwrap_or_default();
    let method = message.get("method").and_then(Value::as_str).unwrap_or("messages");
    let method: String = method.chars().take(METHOD_CHARS_MAX).collect();
    format!("`{}`", escape_line(&method))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn server_message(message: Value) -> RxJsonRpcMessage<RoleClient> {
        serde_json::from_value(message).unwrap()
    }

    fn client_message(message: Value) -> TxJsonRpcMessage<RoleClient> {
        serde_json::from_value(message).unwrap()
    }

    fn request(id: i64, method: &str) -> TxJsonRpcMessage<RoleClient> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"}});
        client_message(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    }

    fn answer(id: Value) -> RxJsonRpcMessage<RoleClient> {
        server_message(json!({"jsonrpc": "2.0", "id": id, "result": {}}))
    }

    fn ping(id: Value) -> RxJsonRpcMessage<RoleClient> {
        server_message(json!({"jsonrpc": "2.0", "id": id, "method": "ping"}))
    }

    fn pong(id: Value) -> TxJsonRpcMessage<RoleClient> {
        client_message(json!({"jsonrpc": "2.0", "id": id, "result": {}}))
    }

    /// A guard after the handshake.
    fn initialized_guard() -> Arc<ConnectionGuard> {
        let guard = Arc::new(ConnectionGuard::default());
        drop(guard.admit_outgoing(&request(0, "tools/list")).unwrap());
        guard
    }

    #[tokio::test]
    async fn only_the_first_answer_to_a_request_of_ours_is_handled() {
        let guard = Arc::new(ConnectionGuard::for_streamable_http());
        drop(guard.admit_outgoing(&request(0, "server/discover")).unwrap());
        for stray in [json!(1), json!("zero"), json!(-1)] {
            assert!(!guard.admits(&answer(stray)));
        }
        drop(guard.admit_outgoing(&request(1, "initialize")).unwrap());
        assert!(!guard.admits(&answer(json!(0))), "nobody waits for it any more");
        assert!(guard.admits(&answer(json!("1"))) && !guard.admits(&answer(json!(1))));
        let parse_error =
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "what?"}});
        assert!(guard.admits(&server_message(parse_error)));
        drop(guard.admit_outgoing(&request(2, "tools/list")).unwrap());
        let cancelled =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
        drop(guard.admit_outgoing(&client_message(cancelled)).unwrap());
        assert!(!guard.admits(&answer(json!(2))) && guard.reason().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_named_and_a_steady_trickle_is_none() {
        let guard = initialized_guard();
        for number in 0..30_000 {
            assert!(guard.admits(&ping(json!(number))) && guard.wait_for_room().await);
            drop(guard.admit_outgoing(&pong(json!(number))).unwrap());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let admitted = (0..30_000).take_while(|number| {
            let is_admitted = guard.admits(&ping(json!(number)));
            drop(guard.admit_outgoing(&pong(json!(number))));
            is_admitted
        });
        assert_eq!(admitted.count(), UNSOLICITED_BURST_MAX as usize);
        let reason = guard.reason().unwrap();
        assert_eq!(reason, "it sends too many `ping`: more than 10000 unsolicited messages");
        assert!(!guard.wait_for_room().await && guard.admit_outgoing(&pong(json!(1))).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_bounded_as_messages_are() {
        let guard = initialized_guard();
        let log = json!({"level": "info", "data": "x".repeat(4 << 20)});
        let log = server_message(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": log}));
        let admitted = (0..1_000).take_while(|_| guard.admits(&log)).count();
        assert!((14..17).contains(&admitted), "{admitted}");
        assert!(guard.reason().unwrap().starts_with("it sends too many `notifications/message`: more"));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_cancelled_at_once_are_bounded_too() {
        let guard = initialized_guard();
        let cancelled = |id: usize| {
            let params = json!({"requestId": id});
            server_message(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
        };
        for never_open in 0..100 {
            assert!(guard.admits(&cancelled(1_000_000 + never_open)));
        }
        let mut count = 0;
        while guard.wait_for_room().await
            && guard.admits(&ping(json!(count)))
            && guard.admits(&cancelled(count))
        {
            count += 1;
        }
        assert_eq!(count, (UNSOLICITED_BURST_MAX as usize - 100) / 2);
        assert!(guard.reason().unwrap().contains("it sends too many"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_reads_no_answers_is_not_read_and_then_disconnected() {
        let guard = initialized_guard();
        let mut sending = Vec::new();
        while tokio::time::timeout(Duration::from_secs(1), guard.wait_for_room()).await == Ok(true) {
            assert!(guard.admits(&ping(json!(sending.len()))));
            assert!(!guard.admits(&ping(json!(sending.len()))), "a number that is taken already");
            sending.push(guard.admit_outgoing(&pong(json!(sending.len()))).unwrap());
        }
        assert_eq!(sending.len(), REQUESTS_OPEN_MAX);
        // A server that is merely slow stays connected.
        drop(sending.pop());
        assert!(guard.wait_for_room().await && guard.admits(&ping(json!("another"))));
        assert!(!guard.wait_for_room().await);
        assert_eq!(
            guard.reason().unwrap(),
            "it sends requests and does not read the responses: 64 are pending"
        );
    }

    #[tokio::test]
    async fn outgoing_messages_are_bounded() {
        let guard = initialized_guard();
        let waiting: Vec<_> =
            (1..).map_while(|id| guard.admit_outgoing(&request(id, "tools/list"))).collect();
        assert_eq!(waiting.len(), OUTGOING_MAX);
        assert_eq!(guard.reason().unwrap(), "it does not read its input: 512 messages are queued");
        let guard = initialized_guard();
        let large = json!({"name": "x", "arguments": {"text": "x".repeat(30 << 20)}});
        let large = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": large});
        let large = client_message(large);
        let waiting: Vec<_> =
            std::iter::repeat_with(|| guard.admit_outgoing(&large)).map_while(|permit| permit).collect();
        assert_eq!(waiting.len(), 4);
    }
}
