//! A connection to an upstream server: made over any transport, and watched to its end. Lists the server's
//! tools.

use super::StartCheck;
use super::boxed_transport::{BoxedTransport, unbox_error};
use super::calls::{OpenCalls, UpstreamHandler};
use super::definition::ToolDefinition;
use super::direct_requests::DirectRequests;
use super::guard::ConnectionGuard;
use super::guarded_transport::GuardedTransport;
use super::handshake::{NegotiatedTransport, probe_time};
use super::line_transport::LineTransport;
use super::namespace::Namespace;
use super::oauth::OAuthClient;
use super::process::{ServerProcess, ServerStarter, StderrLog};
use super::settings::{Headers, HttpTransportKind, Transport, UpstreamSettings};
use super::sse_transport::SseTransport;
use super::startup::{StartSlot, StartSlots, cpu_adjusted_timeout};
use super::streamable_http::{StreamableHttp, describe_error};
use super::subscriptions::{ResourceSubscriptions, SubscriptionSync};
use ctx_core::{Redactor, escape_line};
use rmcp::model::{
    ClientConfig, Implementation, LoggingLevel, PaginatedRequestParams, ProtocolVersion, RequestMetaObject,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, RunningService, serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient, ServiceError};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The JSON-RPC error code for an unknown method.
const METHOD_NOT_FOUND: i32 = -32601;
/// Pages of a list of tools.
const TOOL_PAGES_MAX: usize = 500;

/// The log level that servers are asked for. Each of our clients filters by a level of its own.
const REQUESTED_LOG_LEVEL: LoggingLevel = LoggingLevel::Debug;

/// The protocol era of a server. It is remembered, since finding it out takes time with servers that do not
/// answer `server/discover`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ProtocolEra {
    #[default]
    Unknown,
    /// Revisions before 2026-07-28: a session that begins with `initialize`.
    Sessions,
    /// Revisions since 2026-07-28, which have no sessions.
    Stateless,
}

/// Starts the servers of all upstreams, and connects to them.
pub(super) struct ConnectionFactory {
    pub(super) client_info: Implementation,
    pub(super) redactor: Redactor,
    pub(super) starter: ServerStarter,
    pub(super) slots: StartSlots,
    pub(super) tasks: TaskTracker,
    pub(super) may_start: Arc<StartCheck>,
}

/// A connection after its handshake.
pub(super) struct Connection {
    pub(super) peer: Peer<RoleClient>,
    pub(super) calls: Arc<OpenCalls>,
    /// Sends the requests of calls to a stdio server.
    pub(super) direct: Option<Arc<DirectRequests>>,
    /// Metadata of every request of a call.
    pub(super) request_meta: RequestMetaObject,
    /// Whether the server knows this connection by a session ID, as HTTP servers with sessions do.
    pub(super) has_sessions: bool,
    /// Whether users can log in at the server (OAuth).
    pub(super) can_log_in: bool,
    stop: CancellationToken,
    /// The reason of its end, once it has ended.
    ended: watch::Receiver<Option<String>>,
    /// The HTTP client of a Streamable HTTP server.
    http: Option<StreamableHttp>,
}

/// A server that can be connected to.
pub(super) enum ConnectTarget<'a> {
    Process(Box<StartedProcess>),
    Http { url: &'a str, headers: &'a Headers, kind: HttpTransportKind },
}

/// The process of a stdio server, which has not answered yet.
pub(super) struct StartedProcess {
    process: ServerProcess,
    lines: LineTransport,
    guard: Arc<ConnectionGuard>,
    slot: StartSlot,
}

impl ConnectionFactory {
    /// Starts the process of a stdio server once it has a slot. The start limit does not include the wait for the slot.
    pub(super) async fn start<'a>(
        &self,
        settings: &'a UpstreamSettings,
        stderr: &StderrLog,
    ) -> Result<ConnectTarget<'a>, String> {
        let command = match &settings.transport {
            Transport::Stdio(command) => command,
            Transport::Http { url, headers, kind, .. } => {
                return Ok(ConnectTarget::Http { url, headers, kind: *kind });
            }
        };
        let slot = self.slots.acquire().await;
        let guard = Arc::new(ConnectionGuard::default());
        let starting = async {
            let (may_start, name) = (self.may_start.clone(), settings.name.clone());
            let allowed = tokio::task::spawn_blocking(move || may_start(&name)).await;
            allowed.unwrap_or_else(|error| Err(error.to_string()))?;
            let bytes_max = settings.limits.message_bytes;
            let started =
                ServerProcess::start(command, bytes_max, (stderr, &self.redactor), &self.starter, &guard);
            started.await.map_err(|error| {
                format!("`{}` cannot be started: {error}", command.program.to_string_lossy())
            })
        };
        let started = cpu_adjusted_timeout(settings.limits.start, starting).await;
        let (process, lines) = started.unwrap_or_else(|| Err(start_timeout_reason(settings.limits.start)))?;
        Ok(ConnectTarget::Process(Box::new(StartedProcess { process, lines, guard, slot })))
    }

    /// Connects, with the handshake of the server's era if that is known.
    pub(super) async fn connect(
        &self,
        settings: &UpstreamSettings,
        server: ConnectTarget<'_>,
        oauth: Option<&Arc<OAuthClient>>,
        era: ProtocolEra,
        subscriptions: &Arc<ResourceSubscriptions>,
        namespace: &Arc<Namespace>,
    ) -> Result<Connection, String> {
        let calls = Arc::new(OpenCalls::default());
        let handler = UpstreamHandler::new(
            calls.clone(),
            subscriptions.clone(),
            namespace.clone(),
            self.client_info.clone(),
        );
        let client = handler.get_info();
        let stop = CancellationToken::new();
        let drop_guard = stop.clone().drop_guard();
        let (mut http, mut direct) = (None, None);
        let (running, process, guard) = match server {
            ConnectTarget::Process(started) => {
                let StartedProcess { process, lines, guard, slot } = *started;
                direct = Some(lines.direct_requests().clone());
                let lines = GuardedTransport::new(lines, guard.clone(), calls.clone(), &self.tasks);
                let probe_time = probe_time(settings.limits.start);
                match slot.hold_during(stdio_handshake(handler, lines, era, probe_time, &stop)).await {
                    Some(Ok(running)) => (running, Some(process), guard),
                    None
                    | Some(Err(
                        ClientInitializeError::ConnectionClosed(_)
                        | ClientInitializeError::TransportError { .. },
                    )) => {
                        let reason = process.end().await;
                        return Err(guard.reason().unwrap_or(reason));
                    }
                    Some(Err(error)) => return Err(describe_initialize_error(&error)),
                }
            }
            ConnectTarget::Http { url, headers, kind: HttpTransportKind::Sse } => {
                let guard = Arc::new(ConnectionGuard::default());
                let sse =
                    SseTransport::open(url, headers, oauth, settings.limits.message_bytes, &guard).await?;
                let sse = GuardedTransport::new(sse, guard.clone(), calls.clone(), &self.tasks);
                // Servers of this transport speak revisions with sessions only.
                let mode = ClientLifecycleMode::Initialize;
                let serving = start_client(handler, BoxedTransport::new(sse), mode, &stop);
                let running = serving
                    .await
                    .map_err(|error| guard.reason().unwrap_or_else(|| describe_initialize_error(&error)))?;
                (running, None, guard)
            }
            ConnectTarget::Http { url, headers, kind: HttpTransportKind::Streamable } => {
                let guard = Arc::new(ConnectionGuard::for_streamable_http());
                let mut config = StreamableHttpClientTransportConfig::with_uri(url)
                    .custom_headers(headers.0.clone())
                    .max_concurrent_requests(settings.limits.in_flight);
                // An expired session ends the connection: `Upstream::keep_connected` reconnects, not rmcp.
                config.reinit_on_expired_session = false;
                let bytes_max = settings.limits.message_bytes;
                let http_client = StreamableHttp::new(url, bytes_max, oauth.cloned(), &self.redactor, &guard);
                let transport = StreamableHttpClientTransport::with_client(http_client.clone(), config);
                let transport = GuardedTransport::new(transport, guard.clone(), calls.clone(), &self.tasks);
                let transport = BoxedTransport::new(transport);
                let running = match start_client(handler, transport, era.lifecycle_mode(), &stop).await {
                    Ok(running) => running,
                    Err(error) => {
                        let reason = guard.reason().unwrap_or_else(|| describe_initialize_error(&error));
                        return Err(http_client.explain_refusal(reason, url, headers).await);
                    }
                };
                http = Some(http_client);
                (running, None, guard)
            }
        };
        let peer = running.peer().clone();
        let (end_sender, ended) = watch::channel(None);
        self.tasks.spawn(watch_until_end(running, process, guard, end_sender));
        drop_guard.disarm();
        let era = ProtocolEra::of(&peer);
        let connection = Connection {
            calls,
            request_meta: request_meta(&peer, &client, direct.is_some()),
            direct,
            has_sessions: matches!(settings.transport, Transport::Http { .. })
                && era == ProtocolEra::Sessions,
            can_log_in: oauth.is_some(),
            stop,
            ended,
            http,
            peer,
        };
        connection.spawn_subscription_sync(subscriptions.clone(), namespace.clone(), &self.tasks);
        Ok(connection)
    }
}

/// Makes the handshake with a stdio server; `None` if the connection is closed before the era is known.
async fn stdio_handshake(
    handler: UpstreamHandler,
    lines: GuardedTransport<LineTransport>,
    era: ProtocolEra,
    probe_time: Duration,
    stop: &CancellationToken,
) -> Option<Result<RunningService<RoleClient, UpstreamHandler>, ClientInitializeError>> {
    let (lines, era) = match era {
        ProtocolEra::Unknown => {
            NegotiatedTransport::negotiate(lines, &handler.get_info(), probe_time).await?
        }
        era => (NegotiatedTransport::with_known_era(lines), era),
    };
    Some(start_client(handler, BoxedTransport::new(lines), era.lifecycle_mode(), stop).await)
}

/// Starts rmcp's client service, which makes the handshake.
async fn start_client(
    handler: UpstreamHandler,
    transport: BoxedTransport,
    mode: ClientLifecycleMode,
    stop: &CancellationToken,
) -> Result<RunningService<RoleClient, UpstreamHandler>, ClientInitializeError> {
    serve_client_with_lifecycle_and_ct(handler, transport, mode, stop.clone()).await
}

/// Waits for the end of a connection, then ends its process; sends the reason to `end_sender`.
async fn watch_until_end(
    running: RunningService<RoleClient, UpstreamHandler>,
    mut process: Option<ServerProcess>,
    guard: Arc<ConnectionGuard>,
    end_sender: watch::Sender<Option<String>>,
) {
    let mut waiting = std::pin::pin!(running.waiting());
    let process_exit = async {
        match &mut process {
            Some(process) => process.wait().await,
            None => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        biased;
        result = &mut waiting => result,
        reason = process_exit => {
            // A descendant may still hold the pipe of its stdout, which then never reaches end of file.
            guard.close(reason);
            waiting.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection broke");
    }
    let reason = match process {
        Some(process) => process.end().await,
        None => "the connection was closed".to_owned(),
    };
    end_sender.send_replace(Some(guard.reason().unwrap_or(reason)));
}

impl ProtocolEra {
    /// The era of a server after the handshake.
    fn of(peer: &Peer<RoleClient>) -> Self {
        match peer.peer_info() {
            Some(info) if info.protocol_version < ProtocolVersion::V_2026_07_28 => Self::Sessions,
            Some(_) => Self::Stateless,
            None => Self::Unknown,
        }
    }

    pub(super) fn lifecycle_mode(self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        match self {
            Self::Unknown => ClientLifecycleMode::Auto { preferred_versions, legacy_version: None },
            Self::Sessions => ClientLifecycleMode::Initialize,
            Self::Stateless => ClientLifecycleMode::Discover { preferred_versions },
        }
    }
}

/// The metadata of the requests of calls. Stateless servers send log notifications only for requests that ask for them. On
/// requests that do not pass rmcp, they need the client's context too, which rmcp adds otherwise.
fn request_meta(peer: &Peer<RoleClient>, client: &ClientConfig, is_direct: bool) -> RequestMetaObject {
    let mut meta = RequestMetaObject::default();
    let Some(server) = peer.peer_info().filter(|_| ProtocolEra::of(peer) == ProtocolEra::Stateless) else {
        return meta;
    };
    if is_direct {
        meta = RequestMetaObject::with_client_context(
            server.protocol_version.clone(),
            client.client_info.clone(),
            client.capabilities.clone(),
        );
    }
    meta.set_log_level(REQUESTED_LOG_LEVEL);
    meta
}

/// The reason for a server that has not answered within its start limit.
pub(super) fn start_timeout_reason(limit: Duration) -> String {
    format!("it did not answer within {} s", limit.as_secs_f32())
}

fn describe_initialize_error(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => describe_initialize_error(fallback),
        ClientInitializeError::TransportError { error, .. } => describe_error(unbox_error(&*error.error)),
        ClientInitializeError::JsonRpcError(error) => {
            format!("it refused the MCP handshake: {}", error.message)
        }
        ClientInitializeError::ConnectionClosed(_) => "it closed the connection".to_owned(),
        other => format!("it did not complete the MCP handshake: {other}"),
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Connection {
    pub(super) fn era(&self) -> ProtocolEra {
        ProtocolEra::of(&self.peer)
    }

    /// The name and version of the server, and the protocol revision.
    pub(super) fn server_info(&self) -> (Option<String>, Option<String>) {
        let Some(info) = self.peer.peer_info() else { return (None, None) };
        let server = info.server_info.as_ref().map(|server| format!("{} {}", server.name, server.version));
        let server = server.map(|server| escape_line(&server).into_owned());
        (server, Some(escape_line(&info.protocol_version.to_string()).into_owned()))
    }

    /// The server's `instructions` for agents; empty if it sends none.
    pub(super) fn instructions(&self) -> String {
        self.peer.peer_info().and_then(|info| info.instructions.clone()).unwrap_or_default()
    }

    /// Waits until calls can be made: elicitations during a call may need the standalone stream to arrive on.
    pub(super) async fn wait_until_ready(&self) {
        if let Some(http) = &self.http {
            http.wait_for_standalone_stream().await;
        }
    }

    /// Waits for a notification that the list of tools has changed.
    pub(super) async fn wait_for_tools_changed(&self) {
        self.calls.tools_changed.notified().await;
    }

    /// Keeps the subscriptions at the server up to date for as long as there is a connection.
    fn spawn_subscription_sync(
        &self,
        subscriptions: Arc<ResourceSubscriptions>,
        namespace: Arc<Namespace>,
        tasks: &TaskTracker,
    ) {
        let sync = SubscriptionSync {
            peer: self.peer.clone(),
            calls: self.calls.clone(),
            subscriptions,
            namespace,
            is_stateless: self.era() == ProtocolEra::Stateless,
        };
        let stop = self.stop.clone();
        tasks.spawn(async move { stop.run_until_cancelled(sync.run()).await });
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some() || self.peer.is_transport_closed()
    }

    /// Waits until the connection and its process have ended; returns the reason.
    pub(super) async fn wait_for_end(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => "the connection is gone".to_owned(),
        }
    }

    /// Closes the connection, and waits until its process has ended.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.wait_for_end().await;
    }

    /// Closes the connection without waiting.
    pub(super) fn begin_close(&self) {
        self.stop.cancel();
    }

    /// All tools in the server's order, with those that the filter excludes: it may be changed later.
    pub(super) async fn list_tools(
        &self,
        settings: &UpstreamSettings,
    ) -> Result<Vec<ToolDefinition>, String> {
        let mut definitions = Vec::new();
        let (mut provided, mut excluded) = (0, 0);
        let mut names = HashSet::new();
        let mut cursors = HashSet::new();
        let mut cursor = None;
        for _ in 0..TOOL_PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor.take());
            let result = self.peer.list_tools(Some(params)).await;
            let page = match result {
                // The server has no tools.
                Err(ServiceError::McpError(error))
                    if error.code.0 == METHOD_NOT_FOUND && names.is_empty() =>
                {
                    return Ok(definitions);
                }
                other => other.map_err(|error| format!("its tools cannot be listed: {error}"))?,
            };
            for tool in page.tools {
                let is_provided = settings.tools.allows(&tool.name);
                let count = if is_provided { &mut provided } else { &mut excluded };
                if *count == settings.limits.tools && !names.contains(&*tool.name) {
                    if is_provided {
                        return Err(format!("it has more than {} tools", settings.limits.tools));
                    }
                    continue;
                }
                if names.insert(tool.name.to_string()) {
                    *count += 1;
                    definitions.push(ToolDefinition::of(tool));
                }
            }
            match page.next_cursor {
                None => return Ok(definitions),
                Some(next) if !cursors.insert(next.clone()) => {
                    return Err("its list of tools never ends".to_owned());
                }
                next => cursor = next,
            }
        }
        Err(format!("its list of tools has more than {TOOL_PAGES_MAX} pages"))
    }
}
