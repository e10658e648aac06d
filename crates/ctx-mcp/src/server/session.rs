//! A client: its session, and the channels to it during one request.

use crate::convert;
use ctx_core::{Following, Progress, Question, Unanswered};
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
const NAME_MAX: usize = 64;
/// Resources that one client may subscribe to.
pub(super) const FOLLOWED_MAX: usize = 1_000;

/// State of a session, for clients of older revisions.
#[derive(Default)]
pub(super) struct Session {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    level: Option<LoggingLevel>,
    /// Subscribed resources, with the subscription at their origin, if it needs one.
    followed: BTreeMap<String, Option<Following>>,
    /// Sends change notifications; ends with the session.
    teller: Option<AbortOnDropHandle<()>>,
}

impl Session {
    pub(super) fn set_level(&self, level: LoggingLevel) {
        self.with(|state| state.level = Some(level));
    }

    pub(super) fn level(&self) -> Option<LoggingLevel> {
        self.with(|state| state.level)
    }

    /// Returns false at the limit of subscriptions.
    pub(super) fn follow(&self, uri: String) -> bool {
        self.with(|state| {
            let has_room = state.followed.len() < FOLLOWED_MAX || state.followed.contains_key(&uri);
            if has_room {
                state.followed.entry(uri).or_default();
            }
            has_room
        })
    }

    /// Stores the origin's subscription, if the client is still subscribed.
    pub(super) fn keep_following(&self, uri: &str, following: Following) {
        self.with(|state| state.followed.get_mut(uri).map(|kept| kept.replace(following)));
    }

    pub(super) fn unfollow(&self, uri: &str) {
        self.with(|state| state.followed.remove(uri));
    }

    pub(super) fn follows(&self, uri: &str) -> bool {
        self.with(|state| state.followed.contains_key(uri))
    }

    pub(super) fn followed(&self) -> Vec<String> {
        self.with(|state| state.followed.keys().cloned().collect())
    }

    pub(super) fn keep(&self, teller: AbortOnDropHandle<()>) {
        self.with(|state| state.teller = Some(teller));
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The client of one request.
pub(super) struct Client {
    peer: Peer<RoleServer>,
    cancelled: CancellationToken,
    is_stateless: bool,
    capabilities: ClientCapabilities,
    progress_token: Option<ProgressToken>,
    /// The minimum level of log notifications; `None` disables them.
    level: Option<LoggingLevel>,
}

impl Client {
    pub(super) fn of(context: &RequestContext<RoleServer>, session: &Session) -> Self {
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
        let level = convert::level(level);
        if self.level.is_none_or(|wanted| severity(level) < severity(wanted)) {
            return;
        }
        let params = LoggingMessageNotificationParam::new(level, json!(message));
        let notification = LoggingMessageNotification::new(params);
        self.notify(ServerNotification::LoggingMessageNotification(notification)).await;
    }

    async fn notify(&self, notification: ServerNotification) {
        let told = tokio::select! {
            () = self.cancelled.cancelled() => return,
            told = self.peer.send_notification(notification) => told,
        };
        if let Err(error) = told {
            tracing::debug!(%error, "a client could not be told");
        }
    }

    /// Sends a server-to-client request, which clients of older revisions answer during the call.
    pub(super) async fn ask(&self, request: InputRequest) -> Result<Value, Unanswered> {
        let request = convert::server_request(request).ok_or(Unanswered::Unaskable)?;
        let asked = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let answer = match asked {
            Ok(handle) => {
                let mut asked = Asked { peer: self.peer.clone(), id: Some(handle.id.clone()) };
                let answer = handle.await_response().await;
                asked.id = None;
                answer
            }
            Err(error) => Err(error),
        };
        match answer {
            Ok(ClientResult::CreateMessageResult(result)) => to_json(&result),
            Ok(ClientResult::ElicitResult(result)) => to_json(&result),
            Ok(ClientResult::ListRootsResult(result)) => to_json(&result),
            Ok(_) => Err(Unanswered::Unfit),
            Err(ServiceError::McpError(error)) => {
                tracing::debug!(%error, "a client refused to answer");
                Err(Unanswered::Declined)
            }
            Err(error) => {
                tracing::debug!(%error, "a client could not be asked");
                Err(Unanswered::TooLate)
            }
        }
    }
}

/// Cancels a server-to-client request when dropped, unless it has been answered.
struct Asked {
    peer: Peer<RoleServer>,
    id: Option<RequestId>,
}

impl Drop for Asked {
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
    let name: String = name.chars().filter(|letter| !letter.is_control()).take(NAME_MAX).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

fn to_json(result: &impl serde::Serialize) -> Result<Value, Unanswered> {
    serde_json::to_value(result).map_err(|_| Unanswered::Unfit)
}

fn severity(level: LoggingLevel) -> u8 {
    level as u8
}
