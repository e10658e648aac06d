//! A connection to an upstream server: made, its tools listed, calls sent through it.

use super::calls::{Calls, Event, Handler, OpenCall, Reply};
use super::process::{Process, Said};
use super::reaper::Reaper;
use super::settings::{HttpKind, Transport, UpstreamSettings};
use super::sse::Sse;
use super::web::{Web, WebError};
use crate::convert;
use ctx_core::{Call, ErrorKind, Output, Question, Redactor, ToolError, ToolSpec, chain};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientNotification, ClientRequest, ErrorCode, ErrorData, Implementation, InputRequiredResult,
    InputResponses, JsonObject, PaginatedRequestParams, ProtocolVersion, RequestId, ServerResult,
    SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, PeerRequestOptions, RunningService,
    serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{RoleClient, ServiceError};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Pages of a list of tools that are read.
const PAGES_MAX: usize = 500;
/// How often one call may ask for something before it goes on.
const ROUNDS_MAX: usize = 10;

/// Which revisions a server has shown to speak; asking costs time with those that do not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Era {
    #[default]
    Unknown,
    /// It begins with `initialize`.
    Sessions,
    /// It has none.
    Stateless,
}

/// What connections are made from.
pub(super) struct Maker {
    pub(super) us: Implementation,
    pub(super) redactor: Redactor,
    pub(super) reaper: Arc<Reaper>,
    pub(super) tasks: TaskTracker,
}

/// A server that answers.
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    calls: Arc<Calls>,
    /// Whether it is one of several clients that the server tells apart by their sessions.
    has_sessions: bool,
    stop: CancellationToken,
    /// Why it ended, once it has.
    ended: watch::Receiver<Option<String>>,
}

/// Why a call got no answer.
pub(super) enum Lost {
    /// It never left.
    Unsent,
    /// It may have run.
    Unanswered,
}

impl Maker {
    /// Connects, in the manner of the era that the server is known to be of.
    pub(super) async fn connect(
        &self,
        settings: &UpstreamSettings,
        era: Era,
        said: &Said,
    ) -> Result<Connection, String> {
        let calls = Arc::new(Calls::default());
        let handler = Handler::new(calls.clone(), self.us.clone());
        let stop = CancellationToken::new();
        let drop_guard = stop.clone().drop_guard();
        let (running, process) = match &settings.transport {
            Transport::Stdio(command) => {
                let started = Process::start(command, settings.limits.message_bytes, said, &self.reaper);
                let (process, lines) = started.map_err(|error| {
                    format!("`{}` cannot be started: {error}", command.program.to_string_lossy())
                })?;
                let serving = serve_client_with_lifecycle_and_ct(handler, lines, era.mode(), stop.clone());
                match serving.await {
                    Ok(running) => (running, Some(process)),
                    Err(
                        ClientInitializeError::ConnectionClosed(_)
                        | ClientInitializeError::TransportError { .. },
                    ) => return Err(process.end().await),
                    Err(error) => return Err(explain(&error)),
                }
            }
            Transport::Http { url, headers, kind: HttpKind::Sse } => {
                let sse = Sse::open(url, headers, settings.limits.message_bytes).await?;
                // None of these knows anything but sessions.
                let mode = ClientLifecycleMode::Initialize;
                let serving = serve_client_with_lifecycle_and_ct(handler, sse, mode, stop.clone());
                (serving.await.map_err(|error| explain(&error))?, None)
            }
            Transport::Http { url, headers, kind: HttpKind::Streamable } => {
                let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .custom_headers(headers.0.clone())
                    .max_concurrent_requests(settings.limits.in_flight);
                // A session that is gone is a connection that is lost, which is ours to make anew.
                config.reinit_on_expired_session = false;
                let web = Web::new(settings.limits.message_bytes).map_err(|error| chain(&error))?;
                let transport = StreamableHttpClientTransport::with_client(web, config);
                let serving =
                    serve_client_with_lifecycle_and_ct(handler, transport, era.mode(), stop.clone());
                (serving.await.map_err(|error| explain(&error))?, None)
            }
        };
        let peer = running.peer().clone();
        let (ended_in, ended) = watch::channel(None);
        self.tasks.spawn(until_its_end(running, process, ended_in));
        drop_guard.disarm();
        let mut connection = Connection { peer, calls, has_sessions: false, stop, ended };
        connection.has_sessions =
            matches!(settings.transport, Transport::Http { .. }) && connection.era() == Era::Sessions;
        connection.follow_list(&self.tasks);
        Ok(connection)
    }
}

/// Stays with a connection to its end, and then sees to it that its process ends too.
async fn until_its_end(
    running: RunningService<RoleClient, Handler>,
    process: Option<Process>,
    ended: watch::Sender<Option<String>>,
) {
    if let Err(error) = running.waiting().await {
        tracing::debug!(%error, "a connection broke");
    }
    let how = match process {
        Some(process) => process.end().await,
        None => "the connection was closed".to_owned(),
    };
    ended.send_replace(Some(how));
}

impl Era {
    fn mode(self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        match self {
            Self::Unknown => ClientLifecycleMode::Auto { preferred_versions, legacy_version: None },
            Self::Sessions => ClientLifecycleMode::Initialize,
            Self::Stateless => ClientLifecycleMode::Discover { preferred_versions },
        }
    }
}

fn explain(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => explain(fallback),
        ClientInitializeError::TransportError { error, .. } => chain(&*error.error),
        ClientInitializeError::JsonRpcError(error) => format!("it refused to begin: {}", error.message),
        ClientInitializeError::ConnectionClosed(_) => "it closed the connection".to_owned(),
        other => format!("it did not begin as MCP servers do: {other}"),
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Connection {
    pub(super) fn era(&self) -> Era {
        match self.peer.peer_info() {
            Some(info) if info.protocol_version < ProtocolVersion::V_2026_07_28 => Era::Sessions,
            Some(_) => Era::Stateless,
            None => Era::Unknown,
        }
    }

    /// What the server calls itself, and the revision it speaks.
    pub(super) fn server(&self) -> (Option<String>, Option<String>) {
        let Some(info) = self.peer.peer_info() else { return (None, None) };
        let server = info.server_info.as_ref().map(|server| format!("{} {}", server.name, server.version));
        (server, Some(info.protocol_version.to_string()))
    }

    /// Waits until the list of tools has changed.
    pub(super) async fn list_changed(&self) {
        self.calls.list_changed.notified().await;
    }

    /// Servers without sessions tell of changes only whom has asked them to.
    fn follow_list(&self, tasks: &TaskTracker) {
        let tells = self.peer.peer_info().is_some_and(|info| {
            info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true))
        });
        if self.era() != Era::Stateless || !tells {
            return;
        }
        let (peer, calls, stop) = (self.peer.clone(), self.calls.clone(), self.stop.clone());
        tasks.spawn(async move {
            let mut filter = SubscriptionFilter::new();
            filter.tools_list_changed = Some(true);
            let follow = async {
                let mut changes = peer.listen(filter).await?;
                while changes.next().await?.is_some() {
                    calls.list_changed.notify_one();
                }
                Ok::<(), ServiceError>(())
            };
            tokio::select! {
                () = stop.cancelled() => {}
                followed = follow => if let Err(error) = followed {
                    tracing::debug!(%error, "a server does not tell of changes");
                },
            }
        });
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some() || self.peer.is_transport_closed()
    }

    /// Waits until the connection and its process have ended; tells how.
    pub(super) async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(how) => how.clone().unwrap_or_default(),
            Err(_) => "the connection is gone".to_owned(),
        }
    }

    /// Ends it, and waits until its process has ended.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.ended().await;
    }

    /// Ends it without waiting.
    pub(super) fn drop_it(&self) {
        self.stop.cancel();
    }

    /// All tools that are taken, in the server's order.
    pub(super) async fn tools(&self, settings: &UpstreamSettings) -> Result<Vec<ToolSpec>, String> {
        let mut specs = Vec::new();
        let mut names = HashSet::new();
        let mut cursors = HashSet::new();
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let listed = self.peer.list_tools(Some(page)).await;
            let listed = match listed {
                // It has none.
                Err(ServiceError::McpError(error))
                    if error.code.0 == METHOD_NOT_FOUND && specs.is_empty() =>
                {
                    return Ok(specs);
                }
                other => other.map_err(|error| format!("its tools cannot be listed: {error}"))?,
            };
            for tool in listed.tools {
                if !settings.tools.takes(&tool.name) || !names.insert(tool.name.to_string()) {
                    continue;
                }
                if specs.len() == settings.limits.tools {
                    return Err(format!("it has more than {} tools", settings.limits.tools));
                }
                specs.push(convert::tool_spec(tool));
            }
            match listed.next_cursor {
                None => return Ok(specs),
                Some(next) if !cursors.insert(next.clone()) => {
                    return Err("its list of tools never ends".to_owned());
                }
                next => cursor = next,
            }
        }
        Err(format!("its list of tools has more than {PAGES_MAX} pages"))
    }

    /// Calls a tool; asks and tells whoever is at the other end of `call` what the server asks and tells.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: &JsonObject,
        call: &Call,
    ) -> Result<Result<Output, ToolError>, Lost> {
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.clone());
        for _ in 0..ROUNDS_MAX {
            let answer = match self.round(params.clone(), call).await {
                Ok(answer) => answer,
                Err(Ok(error)) => return Ok(Err(error)),
                Err(Err(lost)) => return Err(lost),
            };
            match answer {
                ServerResult::CallToolResult(result) => return Ok(convert::output(result)),
                ServerResult::InputRequiredResult(wanted) => {
                    params.request_state.clone_from(&wanted.request_state);
                    params.input_responses = Some(answers(wanted, call).await);
                }
                _ => return Ok(Err(ToolError::new(ErrorKind::Tool, "its answer is not that of a tool"))),
            }
        }
        Ok(Err(ToolError::new(ErrorKind::Tool, format!("it asked more than {ROUNDS_MAX} times"))))
    }

    /// Whether a server says that it knows nothing of our session, as one does that was started again. By the
    /// protocol that is a 404, which the transport knows; many answer a 400 with such an error instead.
    fn is_session_gone(&self, error: &ErrorData) -> bool {
        let codes = [ErrorCode(NO_SESSION), ErrorCode(NOT_FOUND)];
        self.has_sessions && codes.contains(&error.code) && error.message.to_lowercase().contains("session")
    }

    async fn round(
        &self,
        params: CallToolRequestParams,
        call: &Call,
    ) -> Result<ServerResult, Result<ToolError, Lost>> {
        let mut open = self.calls.open(call);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let sent = self.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await;
        let handle = sent.map_err(|_| Err(Lost::Unsent))?;
        open.sent(handle.id.clone(), handle.progress_token.clone());
        let mut guard = CancelOnDrop { peer: &self.peer, id: Some(handle.id.clone()) };
        let answer = attended(handle.await_response(), &mut open, call).await;
        guard.id = None;
        match answer {
            Ok(answer) => Ok(answer),
            Err(ServiceError::McpError(error)) if self.is_session_gone(&error) => Err(Err(Lost::Unsent)),
            Err(ServiceError::McpError(error)) => Err(Ok(convert::server_error(&error))),
            Err(ServiceError::TransportSend(error)) => match error.error.downcast_ref() {
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

/// What servers on the web answer to a request of a session they do not know.
const NO_SESSION: i32 = -32000;
/// The same.
const NOT_FOUND: i32 = -32001;
/// What servers answer to a method they do not have.
const METHOD_NOT_FOUND: i32 = -32601;

/// Waits for an answer; meanwhile tells and asks the other end of the call.
async fn attended<T>(answer: impl Future<Output = T>, open: &mut OpenCall, call: &Call) -> T {
    let mut asking = FuturesUnordered::new();
    let mut answer = std::pin::pin!(answer);
    loop {
        tokio::select! {
            biased;
            Some(()) = asking.next(), if !asking.is_empty() => {}
            Some(event) = open.events.recv() => {
                if let Some((question, reply)) = tell(event, call) {
                    asking.push(call.ask(question).map(|answer| {
                        // The server may have given up.
                        let _ = reply.send(answer);
                    }));
                }
            }
            answer = &mut answer => {
                // What it told at the last moment may have come between two looks.
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

/// What the other end answers to all that a server wants before it goes on.
async fn answers(wanted: InputRequiredResult, call: &Call) -> InputResponses {
    let mut responses = InputResponses::new();
    for (key, request) in wanted.input_requests.unwrap_or_default() {
        let response = convert::input_response(&key, request, call).await;
        responses.insert(key, response);
    }
    responses
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

/// The tools of an upstream as they were last listed.
#[derive(Default)]
pub(super) struct Listed(Mutex<Arc<Vec<Arc<ToolSpec>>>>);

impl Listed {
    pub(super) fn get(&self) -> Arc<Vec<Arc<ToolSpec>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether that changed anything.
    pub(super) fn set(&self, specs: Vec<ToolSpec>) -> bool {
        let mut listed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if listed.iter().map(|spec| &**spec).eq(&specs) {
            return false;
        }
        *listed = Arc::new(specs.into_iter().map(Arc::new).collect());
        true
    }
}
