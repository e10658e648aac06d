//! One call over a connection: sent, attended to until it is answered, taken back where nobody waits.

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

/// How often one call may ask for something before it goes on.
const ROUNDS_MAX: usize = 10;
/// Questions of the server (elicitation, sampling, roots) during one call, in all its rounds; further ones are refused.
const QUESTIONS_PER_CALL_MAX: usize = 100;
/// Input requests in one `InputRequiredResult`; a call with more fails.
const QUESTIONS_PER_ROUND_MAX: usize = 16;
/// What servers on the web answer to a request of a session they do not know.
const NO_SESSION: i32 = -32000;
/// The same.
const NOT_FOUND: i32 = -32001;

/// What servers are asked to log; what of it reaches whom is settled by whoever called.
const LOGGED: LoggingLevel = LoggingLevel::Debug;

/// Why a call got no answer.
pub(super) enum Lost {
    /// It never left.
    Unsent,
    /// It may have run.
    Unanswered,
    /// The server lets us in no further.
    Refused,
}

/// What a server is asked for on behalf of a call, in one round or several.
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

    /// What it asks for.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Tool(params) => &params.name,
            Self::Prompt(params) => &params.name,
            Self::Resource(params) => &params.uri,
        }
    }

    /// The next round.
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
    /// Calls a tool, gets a prompt or reads a resource; asks and tells whoever is at the other end of `call`
    /// what the server asks and tells.
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

    /// Asks for something that is nobody's call.
    pub(super) async fn request(&self, request: ClientRequest) -> Result<ServerResult, ServiceError> {
        self::request(&self.peer, request).await
    }

    /// Servers without sessions log only for whom has asked them to, with each request.
    fn options(&self) -> PeerRequestOptions {
        let options = PeerRequestOptions::no_options();
        if self.era() != Era::Stateless {
            return options;
        }
        let mut meta = RequestMetaObject::default();
        meta.set_log_level(LOGGED);
        options.with_meta(meta)
    }

    /// Whether a server says that it knows nothing of our session, as one does that was started again. By the
    /// protocol that is a 404, which the transport knows; many answer a 400 with such an error instead.
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
                // The server is there, and says no.
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

/// Asks a server for something that is nobody's call; takes it back where nobody waits for it.
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

/// Waits for an answer; meanwhile tells and asks the other end of the call.
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
                        // The server may have given up.
                        let _ = reply.send(answer);
                    }));
                }
            }
            answer = &mut answer => {
                // What it told before it answered is told before the answer is given.
                open.caught_up().await;
                while let Ok(event) = open.events.try_recv() {
                    tell(event, call);
                }
                return answer;
            }
        }
    }
}

/// Tells the other end; a question is handed back.
fn tell(event: Event, call: &Call) -> Option<(Question, Reply)> {
    match event {
        Event::Progress(progress) => call.peer().progress(progress),
        Event::Log(level, message) => call.peer().log(level, &message),
        Event::Ask(question, reply) => return Some((question, reply)),
    }
    None
}

/// What the other end answers to all that a server wants before it goes on. What has no answer is left out; an
/// error where that is all of it, since the server would ask the same again.
async fn answers(wanted: InputRequiredResult, call: &Call) -> Result<InputResponses, Unanswered> {
    // All at once: whoever is asked may have them all before any is answered.
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

/// Tells the server that nobody waits for an answer any more.
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
