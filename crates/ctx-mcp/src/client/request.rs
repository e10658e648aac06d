//! Requests over a connection: sent, served with the server's notifications and requests until the response,
//! and cancelled if the caller stops waiting.

use super::boxed_transport::unbox_error;
use super::calls::{AnswerSender, OpenCall, ServerEvent};
use super::connection::Connection;
use super::streamable_http::HttpTransportError;
use crate::convert;
use ctx_core::{Call, ErrorKind, Question, QuestionError, ToolError, error_chain};
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientNotification, ClientRequest, ErrorCode, ErrorData, GetPromptRequest, GetPromptRequestParams,
    InputRequiredResult, InputResponses, ReadResourceRequest, ReadResourceRequestParams, RequestId,
    ServerResult,
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
const SESSION_ERROR: i32 = -32000;
/// Another error code for an unknown session.
const SESSION_NOT_FOUND: i32 = -32001;

/// Why a call failed.
pub(super) enum CallFailure {
    /// The server refused it, or answered with an error.
    Refused(ToolError),
    /// The server has not run it: it was not sent, or refused for an unknown session.
    NotSent,
    /// The connection was lost after it was sent: it may have run.
    ConnectionLost,
    /// The server requires a login, or further scopes.
    LoginRequired,
}

impl CallFailure {
    fn refused(message: String) -> Self {
        Self::Refused(ToolError::new(ErrorKind::Tool, message))
    }
}

/// A request to a server on behalf of a call, in one round or several.
#[derive(Clone)]
pub(super) enum UpstreamRequest {
    Tool(CallToolRequestParams),
    Prompt(GetPromptRequestParams),
    Resource(ReadResourceRequestParams),
}

impl UpstreamRequest {
    fn to_client_request(&self) -> ClientRequest {
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
    fn set_next_round(&mut self, state: Option<String>, responses: InputResponses) {
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
    pub(super) async fn request_for_call(
        &self,
        mut request: UpstreamRequest,
        call: &Call,
    ) -> Result<ServerResult, CallFailure> {
        let mut questions_left = QUESTIONS_PER_CALL_MAX;
        for _ in 0..ROUNDS_MAX {
            match self.send_round(request.to_client_request(), call, &mut questions_left).await? {
                ServerResult::InputRequiredResult(input_required) => {
                    let count = input_required.input_requests.as_ref().map_or(0, |requests| requests.len());
                    let too_many = |why: String| Err(CallFailure::refused(why));
                    if count > QUESTIONS_PER_ROUND_MAX {
                        return too_many(format!(
                            "it asked more than {QUESTIONS_PER_ROUND_MAX} questions at once"
                        ));
                    }
                    let Some(left) = questions_left.checked_sub(count) else {
                        return too_many(format!("it asked more than {QUESTIONS_PER_CALL_MAX} questions"));
                    };
                    questions_left = left;
                    let state = input_required.request_state.clone();
                    match answer_input_requests(input_required, call).await {
                        Ok(responses) => request.set_next_round(state, responses),
                        Err(why) => return Err(CallFailure::Refused(why.into())),
                    }
                }
                result => return Ok(result),
            }
        }
        Err(CallFailure::refused(format!("it asked more than {ROUNDS_MAX} times")))
    }

    /// Sends a request that belongs to no call.
    pub(super) async fn request(&self, request: ClientRequest) -> Result<ServerResult, ServiceError> {
        send(&self.peer, request).await
    }

    /// Whether an error means that the server does not know our session, for example since it was restarted.
    /// The protocol has a 404 response for that, which the transport handles; many servers send a 400
    /// response with such an error instead.
    fn is_unknown_session(&self, error: &ErrorData) -> bool {
        let codes = [ErrorCode(SESSION_ERROR), ErrorCode(SESSION_NOT_FOUND)];
        self.has_sessions && codes.contains(&error.code) && error.message.to_lowercase().contains("session")
    }

    async fn send_round(
        &self,
        request: ClientRequest,
        call: &Call,
        questions_left: &mut usize,
    ) -> Result<ServerResult, CallFailure> {
        let mut open = self.calls.open(call);
        let response = match &self.direct {
            Some(direct) => {
                let sent = direct.send(request, self.request_meta.clone()).ok_or(CallFailure::NotSent)?;
                open.record_request(sent.request_id(), sent.progress_token());
                let mut guard = CancelOnDrop { peer: &self.peer, id: Some(sent.request_id()) };
                let response = await_response(sent.response(), &mut open, call, questions_left).await;
                guard.id = None;
                response
            }
            None => {
                let options = PeerRequestOptions::no_options().with_meta(self.request_meta.clone());
                let sent = self.peer.send_request_with_option(request, options).await;
                let handle = sent.map_err(|_| CallFailure::NotSent)?;
                open.record_request(handle.id.clone(), handle.progress_token.clone());
                let mut guard = CancelOnDrop { peer: &self.peer, id: Some(handle.id.clone()) };
                let response = await_response(handle.await_response(), &mut open, call, questions_left).await;
                guard.id = None;
                response
            }
        };
        match response {
            Ok(result) => Ok(result),
            Err(ServiceError::McpError(error)) if self.is_unknown_session(&error) => {
                Err(CallFailure::NotSent)
            }
            Err(ServiceError::McpError(error)) => Err(CallFailure::Refused(convert::server_error(&error))),
            Err(ServiceError::TransportSend(error)) => match unbox_error(&*error.error).downcast_ref() {
                Some(HttpTransportError::AuthRequired(_) | HttpTransportError::InsufficientScope(_))
                    if self.can_log_in =>
                {
                    Err(CallFailure::LoginRequired)
                }
                // The server has responded with a refusal: a retry would not help.
                Some(
                    refusal @ (HttpTransportError::HttpStatus(_)
                    | HttpTransportError::UnexpectedServerResponse(_)
                    | HttpTransportError::UnexpectedContentType(_)
                    | HttpTransportError::AuthRequired(_)
                    | HttpTransportError::InsufficientScope(_)),
                ) => Err(CallFailure::refused(error_chain(refusal))),
                _ => {
                    tracing::debug!(error = error_chain(&*error.error), "a call could not be sent");
                    Err(CallFailure::ConnectionLost)
                }
            },
            Err(ServiceError::TransportClosed) => Err(CallFailure::ConnectionLost),
            Err(ServiceError::Cancelled { .. }) => Err(CallFailure::ConnectionLost),
            Err(error) => Err(CallFailure::refused(error.to_string())),
        }
    }
}

/// Sends a request that belongs to no call; cancels it if the caller stops waiting.
pub(super) async fn send(
    peer: &Peer<RoleClient>,
    request: ClientRequest,
) -> Result<ServerResult, ServiceError> {
    let handle = peer.send_request_with_option(request, PeerRequestOptions::no_options()).await?;
    let mut guard = CancelOnDrop { peer, id: Some(handle.id.clone()) };
    let response = handle.await_response().await;
    guard.id = None;
    response
}

/// Waits for the response; meanwhile passes notifications and requests of the server on to the call's peer.
async fn await_response<T>(
    response: impl Future<Output = T>,
    open: &mut OpenCall,
    call: &Call,
    questions_left: &mut usize,
) -> T {
    let mut answering = FuturesUnordered::new();
    let mut response = std::pin::pin!(response);
    loop {
        tokio::select! {
            biased;
            Some(()) = answering.next(), if !answering.is_empty() => {}
            Some(event) = open.events.recv() => {
                if let Some((question, reply)) = forward_event(event, call) {
                    let Some(left) = questions_left.checked_sub(1) else {
                        let _ = reply.send(Err(QuestionError::Unsupported));
                        continue;
                    };
                    *questions_left = left;
                    answering.push(call.ask(question).map(|answer| {
                        // The server may have cancelled its request.
                        let _ = reply.send(answer);
                    }));
                }
            }
            response = &mut response => {
                // Notifications that came before the response are passed on before it.
                open.wait_for_notifications().await;
                while let Ok(event) = open.events.try_recv() {
                    forward_event(event, call);
                }
                return response;
            }
        }
    }
}

/// Passes a notification on to the call's peer; returns a question instead.
fn forward_event(event: ServerEvent, call: &Call) -> Option<(Question, AnswerSender)> {
    match event {
        ServerEvent::Progress(progress) => call.peer().progress(progress),
        ServerEvent::Log(level, message) => call.peer().log(level, &message),
        ServerEvent::Ask(question, reply) => return Some((question, reply)),
    }
    None
}

/// The answers of the call's peer to the input requests of a server. Those without an answer are left out;
/// fails if none is answered, since the server would ask the same again.
async fn answer_input_requests(
    input_required: InputRequiredResult,
    call: &Call,
) -> Result<InputResponses, QuestionError> {
    // Concurrently: a stateless client is sent all of them in one response.
    let answering =
        input_required.input_requests.unwrap_or_default().into_iter().map(|(key, request)| async move {
            let response = convert::input_response(&key, request, call).await;
            response.map(|response| (key, response))
        });
    let (mut responses, mut unanswered) = (InputResponses::new(), None);
    for response in join_all(answering).await {
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
        let params = CancelledNotificationParam::new(Some(id), Some("the request was cancelled".to_owned()));
        let notification = ClientNotification::CancelledNotification(CancelledNotification::new(params));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = peer.send_notification(notification).await {
                    tracing::debug!(%error, "cannot cancel a call");
                }
            });
        }
    }
}
