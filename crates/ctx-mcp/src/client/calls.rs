//! The open calls of a connection, and which of them a notification or request of the server belongs to.

use super::follows::Follows;
use super::namespace::Namespace;
use super::told::{Count, Telling};
use crate::convert;
use ctx_core::{Call, Progress, Question, ResourceChange, Unanswered, Want};
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
const SENDING_MAX: std::time::Duration = std::time::Duration::from_secs(1);
/// Server requests (elicitation, sampling, roots) that are open at once; further ones are refused.
const QUESTIONS_MAX: usize = 16;

/// A notification or request of the server during a call.
pub(super) enum Event {
    Progress(Progress),
    Log(tracing::Level, String),
    Ask(Question, Reply),
}

pub(super) type Reply = oneshot::Sender<Result<Value, Unanswered>>;

/// The open calls of a connection.
#[derive(Default)]
pub(super) struct Calls {
    open: Mutex<Vec<Open>>,
    /// Notified when the server's list of tools has changed.
    pub(super) list_changed: Notify,
    /// Notified when the request ID of a call is recorded.
    sent: Notify,
    pub(super) count: Count,
}

struct Open {
    /// Identifies a call of this connection.
    number: u64,
    /// The caller: the address of the call's peer, which lives as long as the call.
    peer: usize,
    request: Option<(RequestId, ProgressToken)>,
    events: mpsc::Sender<Event>,
}

/// A call that is open until this is dropped.
pub(super) struct OpenCall {
    calls: Arc<Calls>,
    number: u64,
    pub(super) events: mpsc::Receiver<Event>,
}

impl Calls {
    pub(super) fn open(self: &Arc<Self>, call: &Call) -> OpenCall {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let peer = std::ptr::from_ref(call.peer()).cast::<()>().addr();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let number = open.last().map_or(0, |last| last.number + 1);
        open.push(Open { number, peer, request: None, events: sender });
        OpenCall { calls: self.clone(), number, events }
    }

    /// The call with this progress token. Its first notification may come before the token is recorded, so
    /// this waits while any call is without its token.
    async fn by_progress(&self, token: &ProgressToken) -> Option<mpsc::Sender<Event>> {
        loop {
            let sent = self.sent.notified();
            {
                let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                let is_it = |call: &&Open| call.request.as_ref().is_some_and(|(_, own)| own == token);
                let found = open.iter().find(is_it).map(|call| call.events.clone());
                if found.is_some() || open.iter().all(|call| call.request.is_some()) {
                    return found;
                }
            }
            tokio::time::timeout(SENDING_MAX, sent).await.ok()?;
        }
    }

    /// The call that a message of the server belongs to: the one on whose response stream it came. If that is
    /// unknown, any call, provided that all open ones have the same peer: one caller's elicitation never
    /// reaches another caller.
    fn cause(&self, origin: Option<&InboundStreamOrigin>) -> Option<mpsc::Sender<Event>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(InboundStreamOrigin::OutboundRequest(id)) = origin {
            let is_it = |call: &&Open| call.request.as_ref().is_some_and(|(own, _)| own == id);
            if let Some(call) = open.iter().find(is_it) {
                return Some(call.events.clone());
            }
        }
        let last = open.last()?;
        open.iter().all(|call| call.peer == last.peer).then(|| last.events.clone())
    }

    /// Passes a notification on to the call that it belongs to.
    pub(super) async fn tell(&self, telling: Telling) {
        match telling {
            Telling::Progress(told) => {
                if let Some(events) = self.by_progress(&told.progress_token).await {
                    offer(&events, Event::Progress(convert::told_progress(told)));
                }
            }
            Telling::Log(told, origin) => {
                if let Some(events) = self.cause(origin.as_ref()) {
                    let (level, message) = convert::told_log(told);
                    offer(&events, Event::Log(level, message));
                }
            }
        }
    }

    async fn ask(&self, want: Want, extensions: &Extensions) -> Result<Value, Unanswered> {
        let events = self.cause(extensions.get()).ok_or(Unanswered::Unable)?;
        let (reply, answer) = oneshot::channel();
        let question = Question { key: None, want };
        events.send(Event::Ask(question, reply)).await.map_err(|_| Unanswered::TooLate)?;
        answer.await.unwrap_or(Err(Unanswered::TooLate))
    }
}

impl OpenCall {
    /// Waits until the notifications received so far are in the queues of their calls.
    pub(super) async fn caught_up(&self) {
        self.calls.count.caught_up().await;
    }

    /// Records the request ID and the progress token of the call.
    pub(super) fn sent(&self, id: RequestId, token: ProgressToken) {
        let mut open = self.calls.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = open.iter_mut().find(|call| call.number == self.number) {
            call.request = Some((id, token));
        }
        drop(open);
        self.calls.sent.notify_waiters();
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut open = self.calls.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|call| call.number != self.number);
    }
}

/// The client handler of rmcp: answers requests of the server, and handles its notifications other than
/// progress and logs.
pub(super) struct Handler {
    pub(super) calls: Arc<Calls>,
    pub(super) follows: Arc<Follows>,
    pub(super) namespace: Arc<Namespace>,
    pub(super) questions: tokio::sync::Semaphore,
    pub(super) us: Implementation,
}

impl Handler {
    pub(super) fn new(
        calls: Arc<Calls>,
        follows: Arc<Follows>,
        namespace: Arc<Namespace>,
        us: Implementation,
    ) -> Self {
        Self { calls, follows, namespace, questions: tokio::sync::Semaphore::new(QUESTIONS_MAX), us }
    }

    async fn ask(&self, want: Want, context: &RequestContext<RoleClient>) -> Result<Value, Unanswered> {
        let Ok(_permit) = self.questions.try_acquire() else { return Err(Unanswered::Unable) };
        tokio::select! {
            () = context.ct.cancelled() => Err(Unanswered::TooLate),
            answer = self.calls.ask(want, &context.extensions) => answer,
        }
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let capabilities = json!({ "elicitation": { "form": {} }, "sampling": {}, "roots": {} });
        let capabilities: ClientCapabilities = serde_json::from_value(capabilities).unwrap_or_default();
        ClientConfig::new(capabilities, self.us.clone())
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let want = convert::want_model(&params).map_err(refusal)?;
        let answer = self.ask(want, &context).await.map_err(refusal)?;
        serde_json::from_value(answer).map_err(|_| refusal(Unanswered::Unfit))
    }

    async fn list_roots(&self, context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        // Servers send this when they start, while no call is open: they get an empty list then.
        let roots = self.ask(Want::Roots, &context).await.unwrap_or_else(|_| json!([]));
        serde_json::from_value(json!({ "roots": roots })).map_err(|_| refusal(Unanswered::Unfit))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let Some(want) = convert::want_person(&request) else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        Ok(convert::elicited(self.ask(want, &context).await))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.calls.list_changed.notify_one();
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.follows.list_changed.notify_one();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.follows.list_changed.notify_one();
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        if let Some(uri) = self.namespace.checked_uri(&params.uri) {
            self.follows.tell(ResourceChange::Content { uri });
        }
    }
}

fn offer(events: &mpsc::Sender<Event>, event: Event) {
    if events.try_send(event).is_err() {
        tracing::debug!("a call does not keep up; what its server told is lost");
    }
}

fn refusal(reason: Unanswered) -> ErrorData {
    ErrorData::invalid_request(reason.to_string(), None)
}
