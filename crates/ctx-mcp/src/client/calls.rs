//! The open calls of a connection, and which of them a notification or request of the server belongs to.

use super::guarded_transport::{CallNotification, DeliveryCount};
use super::namespace::Namespace;
use super::subscriptions::ResourceSubscriptions;
use crate::convert;
use ctx_core::{Call, Progress, Question, QuestionError, QuestionKind, ResourceChange};
use futures::FutureExt;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationAction, ErrorData, Extensions, Implementation, ListRootsResult, ProgressToken,
    RequestId, ResourceUpdatedNotificationParam,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, mpsc, oneshot};

/// Events that wait for one call; further notifications are dropped.
const EVENTS_MAX: usize = 64;
/// How long a progress notification waits for the tokens of calls that are just being sent.
const REQUEST_RECORD_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(1);
/// Server requests (elicitation, sampling, roots) that are open at once; further ones are refused.
const QUESTIONS_MAX: usize = 16;

/// A notification or request of the server during a call.
pub(super) enum ServerEvent {
    Progress(Progress),
    Log(tracing::Level, String),
    Ask(Question, AnswerSender),
}

pub(super) type AnswerSender = oneshot::Sender<Result<Value, QuestionError>>;

/// The open calls of a connection.
#[derive(Default)]
pub(super) struct OpenCalls {
    open: Mutex<Vec<OpenCallEntry>>,
    /// Notified when the server's list of tools has changed.
    pub(super) tools_changed: Notify,
    /// Notified when the request ID of a call is recorded.
    request_recorded: Notify,
    pub(super) deliveries: DeliveryCount,
}

struct OpenCallEntry {
    /// Identifies a call of this connection.
    number: u64,
    /// The caller: the address of the call's peer, which lives as long as the call.
    peer: usize,
    request: Option<(RequestId, ProgressToken)>,
    events: mpsc::Sender<ServerEvent>,
}

/// A call that is open until this is dropped.
pub(super) struct OpenCall {
    calls: Arc<OpenCalls>,
    number: u64,
    pub(super) events: mpsc::Receiver<ServerEvent>,
}

impl OpenCalls {
    pub(super) fn open(self: &Arc<Self>, call: &Call) -> OpenCall {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let peer = std::ptr::from_ref(call.peer()).cast::<()>().addr();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let number = open.last().map_or(0, |last| last.number + 1);
        open.push(OpenCallEntry { number, peer, request: None, events: sender });
        OpenCall { calls: self.clone(), number, events }
    }

    /// The call with this progress token. Its first notification may come before the token is recorded, so
    /// this waits while any call is without its token.
    async fn find_by_progress_token(&self, token: &ProgressToken) -> Option<mpsc::Sender<ServerEvent>> {
        loop {
            let recorded = self.request_recorded.notified();
            {
                let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                let matches =
                    |call: &&OpenCallEntry| call.request.as_ref().is_some_and(|(_, own)| own == token);
                let events = open.iter().find(matches).map(|call| call.events.clone());
                if events.is_some() || open.iter().all(|call| call.request.is_some()) {
                    return events;
                }
            }
            tokio::time::timeout(REQUEST_RECORD_WAIT_MAX, recorded).await.ok()?;
        }
    }

    /// The call that a message of the server belongs to: the one on whose response stream it came. If that is
    /// unknown, any call, provided that all open ones have the same peer: one caller's elicitation never
    /// reaches another caller.
    fn find_by_origin(&self, origin: Option<&InboundStreamOrigin>) -> Option<mpsc::Sender<ServerEvent>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(InboundStreamOrigin::OutboundRequest(id)) = origin {
            let matches = |call: &&OpenCallEntry| call.request.as_ref().is_some_and(|(own, _)| own == id);
            if let Some(call) = open.iter().find(matches) {
                return Some(call.events.clone());
            }
        }
        let last = open.last()?;
        open.iter().all(|call| call.peer == last.peer).then(|| last.events.clone())
    }

    /// Passes a notification on to the call that it belongs to.
    pub(super) async fn deliver(&self, notification: CallNotification) {
        match notification {
            CallNotification::Progress(params) => {
                if let Some(events) = self.find_by_progress_token(&params.progress_token).await {
                    try_deliver(&events, ServerEvent::Progress(convert::progress_from_server(params)));
                }
            }
            CallNotification::Log(params, origin) => {
                if let Some(events) = self.find_by_origin(origin.as_ref()) {
                    let (level, message) = convert::log_from_server(params);
                    try_deliver(&events, ServerEvent::Log(level, message));
                }
            }
        }
    }

    async fn ask(&self, want: QuestionKind, extensions: &Extensions) -> Result<Value, QuestionError> {
        let events = self.find_by_origin(extensions.get()).ok_or(QuestionError::Unsupported)?;
        let (reply, answer) = oneshot::channel();
        let question = Question { key: None, kind: want };
        events.send(ServerEvent::Ask(question, reply)).await.map_err(|_| QuestionError::TimedOut)?;
        answer.await.unwrap_or(Err(QuestionError::TimedOut))
    }
}

impl OpenCall {
    /// Waits until the notifications received so far are in the queues of their calls.
    pub(super) async fn wait_for_notifications(&self) {
        self.calls.deliveries.wait_for_delivery().await;
    }

    /// Records the request ID and the progress token of the call.
    pub(super) fn record_request(&self, id: RequestId, token: ProgressToken) {
        let mut open = self.calls.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = open.iter_mut().find(|call| call.number == self.number) {
            call.request = Some((id, token));
        }
        drop(open);
        self.calls.request_recorded.notify_waiters();
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        // Forgets the waker of this task: dropping the sender below would wake it, and a task that is woken while it runs is
        // handed over to another thread.
        let _ = self.events.recv().now_or_never();
        let mut open = self.calls.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|call| call.number != self.number);
    }
}

/// The client handler of rmcp: answers requests of the server, and handles its notifications other than
/// progress and logs.
pub(super) struct UpstreamHandler {
    pub(super) calls: Arc<OpenCalls>,
    pub(super) subscriptions: Arc<ResourceSubscriptions>,
    pub(super) namespace: Arc<Namespace>,
    pub(super) question_permits: tokio::sync::Semaphore,
    pub(super) client_info: Implementation,
}

impl UpstreamHandler {
    pub(super) fn new(
        calls: Arc<OpenCalls>,
        subscriptions: Arc<ResourceSubscriptions>,
        namespace: Arc<Namespace>,
        client_info: Implementation,
    ) -> Self {
        Self {
            calls,
            subscriptions,
            namespace,
            question_permits: tokio::sync::Semaphore::new(QUESTIONS_MAX),
            client_info,
        }
    }

    async fn ask(
        &self,
        want: QuestionKind,
        context: &RequestContext<RoleClient>,
    ) -> Result<Value, QuestionError> {
        let Ok(_permit) = self.question_permits.try_acquire() else { return Err(QuestionError::Unsupported) };
        tokio::select! {
            () = context.ct.cancelled() => Err(QuestionError::TimedOut),
            answer = self.calls.ask(want, &context.extensions) => answer,
        }
    }
}

impl ClientHandler for UpstreamHandler {
    fn get_info(&self) -> ClientConfig {
        let capabilities = json!({ "elicitation": { "form": {} }, "sampling": {}, "roots": {} });
        let capabilities: ClientCapabilities = serde_json::from_value(capabilities).unwrap_or_default();
        ClientConfig::new(capabilities, self.client_info.clone())
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let want = convert::want_from_sampling(&params).map_err(refusal_error)?;
        let answer = self.ask(want, &context).await.map_err(refusal_error)?;
        serde_json::from_value(answer).map_err(|_| refusal_error(QuestionError::InvalidAnswer))
    }

    async fn list_roots(&self, context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        // Servers send this when they start, while no call is open: they get an empty list then.
        let roots = self.ask(QuestionKind::Roots, &context).await.unwrap_or_else(|_| json!([]));
        serde_json::from_value(json!({ "roots": roots }))
            .map_err(|_| refusal_error(QuestionError::InvalidAnswer))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let Some(want) = convert::want_from_elicitation(&request) else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        Ok(convert::elicit_result(self.ask(want, &context).await))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.calls.tools_changed.notify_one();
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.subscriptions.lists_changed.notify_one();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.subscriptions.lists_changed.notify_one();
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        if let Some(uri) = self.namespace.checked_uri(&params.uri) {
            self.subscriptions.publish(ResourceChange::Content { uri });
        }
    }
}

fn try_deliver(events: &mpsc::Sender<ServerEvent>, event: ServerEvent) {
    if events.try_send(event).is_err() {
        tracing::debug!("dropped a server's notification or question: the queue of its call is full");
    }
}

fn refusal_error(reason: QuestionError) -> ErrorData {
    ErrorData::invalid_request(reason.to_string(), None)
}
