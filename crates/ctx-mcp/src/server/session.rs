//! A client: its session, and the channels to it during one request.

use crate::convert;
use ctx_core::{Progress, Question, QuestionError, ResourceSubscription};
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientCapabilities, ClientResult, InputRequest,
    LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParam, ProgressNotification,
    ProgressToken, ProtocolVersion, RequestId, ServerNotification,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext};
use rmcp::{RoleServer, ServiceError};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Characters of a client's name that are kept.
const NAME_CHARS_MAX: usize = 64;
/// Resources that one client may subscribe to.
pub(super) const SUBSCRIPTIONS_MAX: usize = 1_000;

/// State of a session, for clients of older revisions.
#[derive(Default)]
pub(super) struct ClientSession {
    state: Mutex<SessionState>,
}

#[derive(Default)]
struct SessionState {
    level: Option<LoggingLevel>,
    /// Subscribed resources, with the subscription at their origin, if it needs one.
    subscriptions: BTreeMap<String, Option<ResourceSubscription>>,
    /// Sends change notifications; ends with the session.
    notifier: Option<AbortOnDropHandle<()>>,
}

impl ClientSession {
    pub(super) fn set_level(&self, level: LoggingLevel) {
        self.with(|state| state.level = Some(level));
    }

    pub(super) fn level(&self) -> Option<LoggingLevel> {
        self.with(|state| state.level)
    }

    /// Returns false at the limit of subscriptions.
    pub(super) fn subscribe(&self, uri: String) -> bool {
        self.with(|state| {
            let has_room =
                state.subscriptions.len() < SUBSCRIPTIONS_MAX || state.subscriptions.contains_key(&uri);
            if has_room {
                state.subscriptions.entry(uri).or_default();
            }
            has_room
        })
    }

    /// Stores the origin's subscription, if the client is still subscribed.
    pub(super) fn store_origin_subscription(&self, uri: &str, origin_subscription: ResourceSubscription) {
        self.with(|state| {
            state.subscriptions.get_mut(uri).map(|subscription| subscription.replace(origin_subscription))
        });
    }

    pub(super) fn unsubscribe(&self, uri: &str) {
        self.with(|state| state.subscriptions.remove(uri));
    }

    pub(super) fn is_subscribed(&self, uri: &str) -> bool {
        self.with(|state| state.subscriptions.contains_key(uri))
    }

    pub(super) fn subscribed_uris(&self) -> Vec<String> {
        self.with(|state| state.subscriptions.keys().cloned().collect())
    }

    pub(super) fn set_notifier(&self, notifier: AbortOnDropHandle<()>) {
        self.with(|state| state.notifier = Some(notifier));
    }

    fn with<T>(&self, work: impl FnOnce(&mut SessionState) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The client of one request.
pub(super) struct RequestClient {
    peer: Peer<RoleServer>,
    cancelled: CancellationToken,
    is_stateless: bool,
    capabilities: ClientCapabilities,
    progress_token: Option<ProgressToken>,
    /// The minimum level of log notifications; `None` disables them.
    level: Option<LoggingLevel>,
}

impl RequestClient {
    pub(super) fn of(context: &RequestContext<RoleServer>, session: &ClientSession) -> Self {
        let is_stateless = is_stateless(context);
        let level = match is_stateless {
            true => context.meta.log_level(),
            false => Some(session.level().unwrap_or(LoggingLevel::Info)),
        };
        Self {
            peer: context.peer.clone(),
            cancelled: context.ct.clone(),
            is_stateless,
            capabilities: context.client_capabilities().unwrap_or_default(),
            progress_token: context.meta.get_progress_token(),
            level,
        }
    }

    pub(super) fn is_stateless(&self) -> bool {
        self.is_stateless
    }

    pub(super) fn can_answer(&self, question: &Question) -> bool {
        convert::can_answer(&self.capabilities, question)
    }

    /// Waits until the client cancels its request.
    pub(super) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    pub(super) async fn progress(&self, progress: Progress) {
        let Some(token) = self.progress_token.clone() else { return };
        let params = convert::progress(token, progress);
        self.notify(ServerNotification::ProgressNotification(ProgressNotification::new(params))).await;
    }

    pub(super) async fn log(&self, level: tracing::Level, message: String) {
        let level = convert::logging_level(level);
        if self.level.is_none_or(|minimum| severity(level) < severity(minimum)) {
            return;
        }
        let params = LoggingMessageNotificationParam::new(level, json!(message));
        let notification = LoggingMessageNotification::new(params);
        self.notify(ServerNotification::LoggingMessageNotification(notification)).await;
    }

    async fn notify(&self, notification: ServerNotification) {
        let sent = tokio::select! {
            () = self.cancelled.cancelled() => return,
            sent = self.peer.send_notification(notification) => sent,
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "cannot send a notification to a client");
        }
    }

    /// Sends a server-to-client request, which clients of older revisions answer during the call.
    pub(super) async fn ask(&self, request: InputRequest) -> Result<Value, QuestionError> {
        let request = convert::server_request(request).ok_or(QuestionError::UnsupportedSchema)?;
        let sending = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let answer = match sending {
            Ok(handle) => {
                let mut guard = CancelOnDrop { peer: self.peer.clone(), id: Some(handle.id.clone()) };
                let answer = handle.await_response().await;
                guard.id = None;
                answer
            }
            Err(error) => Err(error),
        };
        match answer {
            Ok(ClientResult::CreateMessageResult(result)) => to_json(&result),
            Ok(ClientResult::ElicitResult(result)) => to_json(&result),
            Ok(ClientResult::ListRootsResult(result)) => to_json(&result),
            Ok(_) => Err(QuestionError::InvalidAnswer),
            Err(ServiceError::McpError(error)) => {
                tracing::debug!(%error, "a client responded with an error");
                Err(QuestionError::Declined)
            }
            Err(error) => {
                tracing::debug!(%error, "cannot send a request to a client");
                Err(QuestionError::TimedOut)
            }
        }
    }
}

/// Cancels a server-to-client request when dropped, unless it has been answered.
struct CancelOnDrop {
    peer: Peer<RoleServer>,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) else { return };
        let params = CancelledNotificationParam::new(Some(id), None);
        let notification = CancelledNotification::new(params);
        let peer = self.peer.clone();
        runtime.spawn(async move {
            // The client may have disconnected.
            let _ = peer.send_notification(ServerNotification::CancelledNotification(notification)).await;
        });
    }
}

/// Whether a request is of a revision without sessions.
pub(super) fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// The client's name, without control characters.
pub(super) fn client_name(context: &RequestContext<RoleServer>) -> String {
    let name = context.client_info().map(|client| client.name).unwrap_or_default();
    let name: String = name.chars().filter(|letter| !letter.is_control()).take(NAME_CHARS_MAX).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

fn to_json(result: &impl serde::Serialize) -> Result<Value, QuestionError> {
    serde_json::to_value(result).map_err(|_| QuestionError::InvalidAnswer)
}

fn severity(level: LoggingLevel) -> u8 {
    level as u8
}
