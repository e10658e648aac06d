//! A connection to an upstream server: made over any transport, and watched to its end. Lists the server's
//! tools.

use super::StartCheck;
use super::calls::{Calls, Handler};
use super::definition::ToolDefinition;
use super::follows::{Follower, Follows};
use super::guard::Guard;
use super::handshake::{NegotiatedTransport, probe_time};
use super::lines::Lines;
use super::namespace::Namespace;
use super::oauth::Authority;
use super::process::{Process, Said, Starter};
use super::settings::{Headers, HttpKind, Transport, UpstreamSettings};
use super::sse::Sse;
use super::startup::{StartSlot, StartSlots, within};
use super::told::Heard;
use super::web::{Web, why};
use ctx_core::{Redactor, escape_line};
use rmcp::model::{Implementation, PaginatedRequestParams, ProtocolVersion};
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
const PAGES_MAX: usize = 500;

/// The protocol era of a server. It is remembered, since finding it out takes time with servers that do not
/// answer `server/discover`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Era {
    #[default]
    Unknown,
    /// Revisions before 2026-07-28: a session that begins with `initialize`.
    Sessions,
    /// Revisions since 2026-07-28, which have no sessions.
    Stateless,
}

/// Makes the connections of all upstreams.
pub(super) struct Maker {
    pub(super) us: Implementation,
    pub(super) redactor: Redactor,
    pub(super) starter: Starter,
    pub(super) slots: StartSlots,
    pub(super) tasks: TaskTracker,
    pub(super) may_start: Arc<StartCheck>,
}

/// A connection after its handshake.
pub(super) struct Connection {
    pub(super) peer: Peer<RoleClient>,
    pub(super) calls: Arc<Calls>,
    /// Whether the server knows this connection by a session ID, as HTTP servers with sessions do.
    pub(super) has_sessions: bool,
    /// Whether users can log in at the server (OAuth).
    pub(super) can_log_in: bool,
    stop: CancellationToken,
    /// The reason of its end, once it has ended.
    ended: watch::Receiver<Option<String>>,
    /// The HTTP client of a Streamable HTTP server.
    web: Option<Web>,
}

/// A server that can be connected to.
pub(super) enum Reachable<'a> {
    Process(Box<StartedProcess>),
    Web { url: &'a str, headers: &'a Headers, kind: HttpKind },
}

/// The process of a stdio server, which has not answered yet.
pub(super) struct StartedProcess {
    process: Process,
    lines: Lines,
    guard: Arc<Guard>,
    slot: StartSlot,
}

impl Maker {
    /// Starts the process of a stdio server once it has a slot. The start limit does not include the wait for the slot.
    pub(super) async fn start<'a>(
        &self,
        settings: &'a UpstreamSettings,
        said: &Said,
    ) -> Result<Reachable<'a>, String> {
        let command = match &settings.transport {
            Transport::Stdio(command) => command,
            Transport::Http { url, headers, kind, .. } => {
                return Ok(Reachable::Web { url, headers, kind: *kind });
            }
        };
        let slot = self.slots.acquire().await;
        let guard = Arc::new(Guard::default());
        let starting = async {
            let (may_start, name) = (self.may_start.clone(), settings.name.clone());
            let allowed = tokio::task::spawn_blocking(move || may_start(&name)).await;
            allowed.unwrap_or_else(|error| Err(error.to_string()))?;
            let bytes_max = settings.limits.message_bytes;
            let started = Process::start(command, bytes_max, (said, &self.redactor), &self.starter, &guard);
            started.await.map_err(|error| {
                format!("`{}` cannot be started: {error}", command.program.to_string_lossy())
            })
        };
        let started = within(settings.limits.start, starting).await;
        let (process, lines) = started.unwrap_or_else(|| Err(too_late(settings.limits.start)))?;
        Ok(Reachable::Process(Box::new(StartedProcess { process, lines, guard, slot })))
    }

    /// Connects, with the handshake of the server's era if that is known.
    pub(super) async fn connect(
        &self,
        settings: &UpstreamSettings,
        server: Reachable<'_>,
        authority: Option<&Arc<Authority>>,
        era: Era,
        follows: &Arc<Follows>,
        namespace: &Arc<Namespace>,
    ) -> Result<Connection, String> {
        let calls = Arc::new(Calls::default());
        let handler = Handler::new(calls.clone(), follows.clone(), namespace.clone(), self.us.clone());
        let stop = CancellationToken::new();
        let drop_guard = stop.clone().drop_guard();
        let mut web = None;
        let (running, process, guard) = match server {
            Reachable::Process(started) => {
                let StartedProcess { process, lines, guard, slot } = *started;
                let lines = Heard::new(lines, guard.clone(), calls.clone(), &self.tasks);
                let probe_time = probe_time(settings.limits.start);
                match slot.keep_during(begin(handler, lines, era, probe_time, &stop)).await {
                    Some(Ok(running)) => (running, Some(process), guard),
                    None
                    | Some(Err(
                        ClientInitializeError::ConnectionClosed(_)
                        | ClientInitializeError::TransportError { .. },
                    )) => {
                        let how = process.end().await;
                        return Err(guard.reason().unwrap_or(how));
                    }
                    Some(Err(error)) => return Err(explain(&error)),
                }
            }
            Reachable::Web { url, headers, kind: HttpKind::Sse } => {
                let guard = Arc::new(Guard::default());
                let sse = Sse::open(url, headers, authority, settings.limits.message_bytes, &guard).await?;
                let sse = Heard::new(sse, guard.clone(), calls.clone(), &self.tasks);
                // Servers of this transport speak revisions with sessions only.
                let mode = ClientLifecycleMode::Initialize;
                let serving = serve_client_with_lifecycle_and_ct(handler, sse, mode, stop.clone());
                let running =
                    serving.await.map_err(|error| guard.reason().unwrap_or_else(|| explain(&error)))?;
                (running, None, guard)
            }
            Reachable::Web { url, headers, kind: HttpKind::Streamable } => {
                let guard = Arc::new(Guard::for_streamable_http());
                let mut config = StreamableHttpClientTransportConfig::with_uri(url)
                    .custom_headers(headers.0.clone())
                    .max_concurrent_requests(settings.limits.in_flight);
                // An expired session ends the connection: the supervisor reconnects, not rmcp.
                config.reinit_on_expired_session = false;
                let bytes_max = settings.limits.message_bytes;
                let made = Web::new(url, bytes_max, authority.cloned(), &self.redactor, &guard);
                let transport = StreamableHttpClientTransport::with_client(made.clone(), config);
                let transport = Heard::new(transport, guard.clone(), calls.clone(), &self.tasks);
                let serving =
                    serve_client_with_lifecycle_and_ct(handler, transport, era.mode(), stop.clone());
                let running = match serving.await {
                    Ok(running) => running,
                    Err(error) => {
                        let reason = guard.reason().unwrap_or_else(|| explain(&error));
                        return Err(made.explain_refusal(reason, url, headers).await);
                    }
                };
                web = Some(made);
                (running, None, guard)
            }
        };
        let peer = running.peer().clone();
        let (ended_in, ended) = watch::channel(None);
        self.tasks.spawn(until_its_end(running, process, guard, ended_in));
        drop_guard.disarm();
        let mut connection = Connection {
            peer,
            calls,
            has_sessions: false,
            can_log_in: authority.is_some(),
            stop,
            ended,
            web,
        };
        connection.has_sessions =
            matches!(settings.transport, Transport::Http { .. }) && connection.era() == Era::Sessions;
        connection.follow(follows.clone(), namespace.clone(), &self.tasks);
        Ok(connection)
    }
}

/// Makes the handshake with a stdio server; `None` if the connection is closed before the era is known.
async fn begin(
    handler: Handler,
    lines: Heard<Lines>,
    era: Era,
    probe_time: Duration,
    stop: &CancellationToken,
) -> Option<Result<RunningService<RoleClient, Handler>, ClientInitializeError>> {
    let (lines, era) = match era {
        Era::Unknown => NegotiatedTransport::negotiate(lines, &handler.get_info(), probe_time).await?,
        era => (NegotiatedTransport::of_known_era(lines), era),
    };
    Some(serve_client_with_lifecycle_and_ct(handler, lines, era.mode(), stop.clone()).await)
}

/// Waits for the end of a connection, then ends its process; sends the reason to `ended`.
async fn until_its_end(
    running: RunningService<RoleClient, Handler>,
    mut process: Option<Process>,
    guard: Arc<Guard>,
    ended: watch::Sender<Option<String>>,
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
        how = process_exit => {
            // A descendant may still hold the pipe of its stdout, which then never reaches end of file.
            guard.close(how);
            waiting.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection broke");
    }
    let how = match process {
        Some(process) => process.end().await,
        None => "the connection was closed".to_owned(),
    };
    ended.send_replace(Some(guard.reason().unwrap_or(how)));
}

impl Era {
    pub(super) fn mode(self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        match self {
            Self::Unknown => ClientLifecycleMode::Auto { preferred_versions, legacy_version: None },
            Self::Sessions => ClientLifecycleMode::Initialize,
            Self::Stateless => ClientLifecycleMode::Discover { preferred_versions },
        }
    }
}

/// The reason for a server that has not answered within its start limit.
pub(super) fn too_late(limit: Duration) -> String {
    format!("it did not answer within {} s", limit.as_secs_f32())
}

fn explain(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => explain(fallback),
        ClientInitializeError::TransportError { error, .. } => why(&*error.error),
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

    /// The name and version of the server, and the protocol revision.
    pub(super) fn server(&self) -> (Option<String>, Option<String>) {
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
    pub(super) async fn ready_for_calls(&self) {
        if let Some(web) = &self.web {
            web.standalone_stream_answered().await;
        }
    }

    /// Waits for a notification that the list of tools has changed.
    pub(super) async fn list_changed(&self) {
        self.calls.list_changed.notified().await;
    }

    /// Keeps the subscriptions at the server up to date for as long as there is a connection.
    fn follow(&self, follows: Arc<Follows>, namespace: Arc<Namespace>, tasks: &TaskTracker) {
        let follower = Follower {
            peer: self.peer.clone(),
            calls: self.calls.clone(),
            follows,
            namespace,
            is_stateless: self.era() == Era::Stateless,
        };
        let stop = self.stop.clone();
        tasks.spawn(async move { stop.run_until_cancelled(follower.run()).await });
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some() || self.peer.is_transport_closed()
    }

    /// Waits until the connection and its process have ended; returns the reason.
    pub(super) async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(how) => how.clone().unwrap_or_default(),
            Err(_) => "the connection is gone".to_owned(),
        }
    }

    /// Closes the connection, and waits until its process has ended.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.ended().await;
    }

    /// Closes the connection without waiting.
    pub(super) fn drop_it(&self) {
        self.stop.cancel();
    }

    /// All tools in the server's order, with those that the filter excludes: it may be changed later.
    pub(super) async fn tools(&self, settings: &UpstreamSettings) -> Result<Vec<ToolDefinition>, String> {
        let mut specs = Vec::new();
        let (mut taken, mut others) = (0, 0);
        let mut names = HashSet::new();
        let mut cursors = HashSet::new();
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let listed = self.peer.list_tools(Some(page)).await;
            let listed = match listed {
                // The server has no tools.
                Err(ServiceError::McpError(error))
                    if error.code.0 == METHOD_NOT_FOUND && names.is_empty() =>
                {
                    return Ok(specs);
                }
                other => other.map_err(|error| format!("its tools cannot be listed: {error}"))?,
            };
            for tool in listed.tools {
                let is_taken = settings.tools.takes(&tool.name);
                let count = if is_taken { &mut taken } else { &mut others };
                if *count == settings.limits.tools && !names.contains(&*tool.name) {
                    if is_taken {
                        return Err(format!("it has more than {} tools", settings.limits.tools));
                    }
                    continue;
                }
                if names.insert(tool.name.to_string()) {
                    *count += 1;
                    specs.push(ToolDefinition::of(tool));
                }
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
}
