//! The IDs of one client's open requests. rmcp tells the requests of a session apart by their IDs alone: of two open
//! requests with one ID, the second would get the first's response, and the first none. So the second is refused.

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long the ID of a cancelled request stays taken. The call takes a moment to stop, and rmcp would take its end for the
/// response to a new request with that ID.
const CANCELLED_ID_TAKEN: Duration = Duration::from_secs(10);

/// The IDs of a client's requests without a response, with the time of the cancellation of those that are cancelled.
#[derive(Default)]
pub(super) struct OpenRequestIds(Mutex<HashMap<RequestId, Option<Instant>>>);

impl OpenRequestIds {
    /// Adds the ID of a received request; returns the error response to one whose ID is that of an open request.
    pub(super) fn open(&self, message: &ClientJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        let JsonRpcMessage::Request(request) = message else { return None };
        let mut ids = self.ids();
        if ids.get(&request.id).is_none_or(has_stopped) {
            ids.insert(request.id.clone(), None);
            return None;
        }
        let text = format!("invalid request: another request with the id {} is open", request.id);
        Some(JsonRpcMessage::error(ErrorData::invalid_request(text, None), Some(request.id.clone())))
    }

    /// Removes the ID of a request that gets no response from rmcp.
    pub(super) fn close(&self, id: &RequestId) {
        self.ids().remove(id);
    }

    /// Notes that the client cancels a request, which then gets no response.
    pub(super) fn note_cancelled(&self, message: &ClientJsonRpcMessage) {
        if let JsonRpcMessage::Notification(envelope) = message
            && let ClientNotification::CancelledNotification(cancelled) = &envelope.notification
            && let Some(id) = &cancelled.params.request_id
        {
            let mut ids = self.ids();
            ids.retain(|_, cancelled_at| !has_stopped(cancelled_at));
            if let Some(cancelled_at) = ids.get_mut(id) {
                cancelled_at.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Removes the ID of a request to which this is the response.
    pub(super) fn close_answered(&self, message: &ServerJsonRpcMessage) {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        if let Some(id) = id {
            self.close(id);
        }
    }

    fn ids(&self) -> MutexGuard<'_, HashMap<RequestId, Option<Instant>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a request was cancelled long enough ago that it has surely stopped.
fn has_stopped(cancelled_at: &Option<Instant>) -> bool {
    cancelled_at.is_some_and(|at| at.elapsed() >= CANCELLED_ID_TAKEN)
}
