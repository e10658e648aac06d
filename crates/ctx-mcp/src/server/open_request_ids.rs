//! The IDs of one client's open requests. rmcp tells the requests of a session apart by their IDs alone: of two open
//! requests with one ID, the second would get the first's response, and the first none. So the second is refused.

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The IDs of a client's requests without a response.
#[derive(Default)]
pub(super) struct OpenRequestIds(Mutex<HashSet<RequestId>>);

impl OpenRequestIds {
    /// Adds the ID of a received request; returns the error response to one whose ID is that of an open request.
    pub(super) fn open(&self, message: &ClientJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        let JsonRpcMessage::Request(request) = message else { return None };
        if self.ids().insert(request.id.clone()) {
            return None;
        }
        let text = format!("invalid request: another request with the id {} is open", request.id);
        Some(JsonRpcMessage::error(ErrorData::invalid_request(text, None), Some(request.id.clone())))
    }

    /// Removes the ID of a request that gets no response from rmcp.
    pub(super) fn close(&self, id: &RequestId) {
        self.ids().remove(id);
    }

    /// Removes the ID of a request that the client cancels: it gets no response.
    pub(super) fn close_cancelled(&self, message: &ClientJsonRpcMessage) {
        if let JsonRpcMessage::Notification(envelope) = message
            && let ClientNotification::CancelledNotification(cancelled) = &envelope.notification
            && let Some(id) = &cancelled.params.request_id
        {
            self.close(id);
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

    fn ids(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
