//! Requests over a connection: sent, served with the server's notifications and requests until the response,
//! and cancelled if the caller stops waiting.

use super::calls::{Event, OpenCall, Reply};
use super::connection::{Connection, Era};
use super::web::WebError;
use crate::convert;
use ctx_core::{Call, ErrorKind, Question, ToolError, Unanswered, chain};
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientNotification, ClientRequest, ErrorCode, ErrorData, GetPromptRequest, GetPromptRequestParams,
    InputRequiredResult, InputResponses, LoggingLevel, ReadResourceRequest, ReadResourceRequestParams,
    RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions};
use rmcp::{RoleClient, ServiceError};

/// Rounds of one call: requests that the server answers with `InputRequiredResult`, and the last one.
const ROUNDS_MAX: usize = 10;
/// Questions of the server (elicitation, sampling, roots) during one call, in all its rounds; further ones are refused.
const QUESTIONS_PER_CALL_MAX: usize = 100;
/// Input requests in one `InputRequiredResult`; a call with more fails.
const QUESTIONS_PER_ROUND_MAX: usize = 16;
/// An error code with which HTTP servers answer a request of an unknown session.
const NO_SESSION: i32 = -32000;
/// Another error code for an unknown session.
const NOT_FOUND: i32 = -32001;

/// The log level that servers are asked for. Each of our clients filters by a level of its own.
const LOGGED: LoggingLevel = LoggingLevel::Debug;

/// Why a call got no response.
pub(super) enum Lost {
    /// The server has not run it: it was not sent, or refused for an unknown session.
    Unsent,
    /// The connection was lost after it was sent: it may have run.
    Unanswered,
    /// The server requires a login, or further scopes.
    Refused,
}

/// A request to a server on behalf of a call, in one round or several.
#[derive(Clone)]
pub(super) enum Asked {
    Tool(CallToolRequestParams),
    Prompt(GetPromptRequestParams),
    Resource(ReadResourceRequestParams),
}

impl Asked {
    fn request(&self) -> ClientRequest {
        match self.clone() {
            Self::Tool(params) => ClientRequest::CallToolRequest(CallToolRequest::new(params)),
            Self::Prompt(params) => ClientRequest::GetPromptRequest(GetPromptRequest::new(params)),
            Self::Resource(params) => ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params)),
        }
    }

    /// The name of the tool or prompt, or the URI of the resource.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Tool(params) => &params.name,
            Self::Prompt(params) => &params.name,
            Self::Resource(params) => &params.uri,
        }
    }

    /// Sets the state and the responses for the next round.
    fn go_on(&mut self, state: Option<String>, responses: InputResponses) {
        let (own_state, own_responses) = match self {
            Self::Tool(params) => (&mut params.request_state, &mut params.input_responses),
            Self::Prompt(params) => (&mut params.request_state, &mut params.input_responses),
            Self::Resource(params) => (&mut params.request_state, &mut params.input_responses),
        };
        (*own_state, *own_responses) = (state, Some(responses));
    }
}

impl Connection {
    /// Calls a tool, gets a prompt or reads a resource. Notifications and requests of the server meanwhile go
    /// to the peer of `call`.
    pub(super) async fn ask(
        &self,
        mut asked: Asked,
        call: &Call,
    ) -> Result<Result<ServerResult, ToolError>, Lost> {
        let mut questions_left = QUESTIONS_PER_CALL_MAX;
        for _ in 0..ROUNDS_MAX {
            let answer = match self.round(asked.request(), call, &mut questions_left).await {
                Ok(answer) => answer,
                Err(Ok(error)) => return Ok(Err(error)),
                Err(Err(lost)) => return Err(lost),
            };
            match answer {
                ServerResult::InputRequiredResult(wanted) => {
                    let count = wanted.input_requests.as_ref().map_or(0, |requests| requests.len());
                    let too_many = |why: String| Ok(Err(ToolError::new(ErrorKind::Tool, why)));
                    if count > QUESTIONS_PER_ROUND_MAX {
                        return too_many(format!(
                            "it asked more than {QUESTIONS_PER_ROUND_MAX} questions at once"
                        ));
                    }
                    let Some(left) = questions_left.checked_sub(count) else {
                        return too_many(format!("it asked more than {QUESTIONS_PER_CALL_MAX} questions"));
                    };
                    questions_left = left;
                    let state = wanted.request_state.clone();
                    match answers(wanted, call).await {
                        Ok(responses) => asked.go_on(state, responses),
                        Err(why) => return Ok(Err(why.into())),
                    }
                }
                answer => return Ok(Ok(answer)),
            }
        }
        Ok(Err(ToolError::new(ErrorKind::Tool, format!("it asked more than {ROUNDS_MAX} times"))))
    }

    /// Sends a request that belongs to no call.
    pub(super) async fn request(&self, request: ClientRequest) -> Result<ServerResult, ServiceError> {
        self::request(&self.peer, request).await
    }

    /// Stateless servers send log notifications only for requests that ask for them.
    fn options(&self) -> PeerRequestOptions {
        let options = PeerRequestOptions::no_options();
        if self.era() != Era::Stateless {
            return options;
        }
        let mut meta = RequestMetaObject::default();
        meta.set_log_level(LOGGED);
        options.with_meta(meta)
    }

    /// Whether an error means that the server does not know our session, for example since it was restarted.
    /// The protocol has a 404 response for that, which the transport handles; many servers send a 400
    /// response with such an error instead.
    fn is_session_gone(&self, error: &ErrorData) -> bool {
        let codes = [ErrorCode(NO_SESSION), ErrorCode(NOT_FOUND)];
        self.has_sessions && codes.contains(&error.code) && error.message.to_lowercase().contains("session")
    }

    async fn round(
        &self,
        request: ClientRequest,
        call: &Call,
        questions_left: &mut usize,
    ) -> Result<ServerResult, Result<ToolError, Lost>> {
        let mut open = self.calls.open(call);
        let sent = self.peer.send_request_with_option(request, self.options()).await;
        let handle = sent.map_err(|_| Err(Lost::Unsent))?;
        open.sent(handle.id.clone(), handle.progress_token.clone());
        let mut guard = CancelOnDrop { peer: &self.peer, id: Some(handle.id.clone()) };
        let answer = attended(handle.await_response(), &mut open, call, questions_left).await;
        guard.id = None;
        match answer {
            Ok(answer) => Ok(answer),
            Err(ServiceError::McpError(error)) if self.is_session_gone(&error) => Err(Err(Lost::Unsent)),
            Err(ServiceError::McpError(error)) => Err(Ok(convert::server_error(&error))),
            Err(ServiceError::TransportSend(error)) => match error.error.downcast_ref() {
                Some(WebError::AuthRequired(_) | WebError::InsufficientScope(_)) if self.can_log_in => {
                    Err(Err(Lost::Refused))
                }
                // The server has responded with a refusal: a retry would not help.
                Some(
                    refusal @ (WebError::HttpStatus(_)
                    | WebError::UnexpectedServerResponse(_)
                    | WebError::UnexpectedContentType(_)
                    | WebError::AuthRequired(_)
                    | WebError::InsufficientScope(_)),
                ) => Err(Ok(ToolError::new(ErrorKind::Tool, chain(refusal)))),
                _ => {
                    tracing::debug!(error = chain(&*error.error), "a call could not be sent");
                    Err(Err(Lost::Unanswered))
                }
            },
            Err(ServiceError::TransportClosed) => Err(Err(Lost::Unanswered)),
            Err(ServiceError::Cancelled { .. }) => Err(Err(Lost::Unanswered)),
            Err(error) => Err(Ok(ToolError::new(ErrorKind::Tool, error.to_string()))),
        }
    }
}

/// Sends a request that belongs to no call; cancels it if the caller stops waiting.
pub(super) async fn request(
    peer: &Peer<RoleClient>,
    request: ClientRequest,
) -> Result<ServerResult, ServiceError> {
    let handle = peer.send_request_with_option(request, PeerRequestOptions::no_options()).await?;
    let mut guard = CancelOnDrop { peer, id: Some(handle.id.clone()) };
    let answer = handle.await_response().await;
    guard.id = None;
    answer
}

/// Waits for the response; meanwhile passes notifications and requests of the server on to the call's peer.
async fn attended<T>(
    answer: impl Future<Output = T>,
    open: &mut OpenCall,
    call: &Call,
    questions_left: &mut usize,
) -> T {
    let mut asking = FuturesUnordered::new();
    let mut answer = std::pin::pin!(answer);
    loop {
        tokio::select! {
            biased;
            Some(()) = asking.next(), if !asking.is_empty() => {}
            Some(event) = open.events.recv() => {
                if let Some((question, reply)) = tell(event, call) {
                    let Some(left) = questions_left.checked_sub(1) else {
                        let _ = reply.send(Err(Unanswered::Unable));
                        continue;
                    };
                    *questions_left = left;
                    asking.push(call.ask(question).map(|answer| {
                        // The server may have cancelled its request.
                        let _ = reply.send(answer);
                    }));
                }
            }
            answer = &mut answer => {
                // Notifications that came before the response are passed on before it.
                open.caught_up().await;
                while let Ok(event) = open.events.try_recv() {
                    tell(event, call);
                }
                return answer;
            }
        }
    }
}

/// Passes a notification on to the call's peer; returns a question instead.
fn tell(event: Event, call: &Call) -> Option<(Question, Reply)> {
    match event {
        Event::Progress(progress) => call.peer().progress(progress),
        Event::Log(level, message) => call.peer().log(level, &message),
        Event::Ask(question, reply) => return Some((question, reply)),
    }
    None
}

/// The answers of the call's peer to the input requests of a server. Those without an answer are left out;
/// fails if none is answered, since the server would ask the same again.
async fn answers(wanted: InputRequiredResult, call: &Call) -> Result<InputResponses, Unanswered> {
    // Concurrently: a stateless client is sent all of them in one response.
    let asking = wanted.input_requests.unwrap_or_default().into_iter().map(|(key, request)| async move {
        let response = convert::input_response(&key, request, call).await;
        response.map(|response| (key, response))
    });
    let (mut responses, mut unanswered) = (InputResponses::new(), None);
    for response in join_all(asking).await {
        match response {
            Ok((key, response)) => drop(responses.insert(key, response)),
            Err(why) => unanswered = Some(why),
        }
    }
    match unanswered {
        Some(why) if responses.is_empty() => Err(why),
        _ => Ok(responses),
    }
}

/// Sends `notifications/cancelled` when dropped, unless the request was answered.
struct CancelOnDrop<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let peer = self.peer.clone();
        let params = CancelledNotificationParam::new(Some(id), Some("nobody waits for it".to_owned()));
        let notification = ClientNotification::CancelledNotification(CancelledNotification::new(params));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = peer.send_notification(notification).await {
                    tracing::debug!(%error, "a call could not be taken back");
                }
            });
        }
    }
}
