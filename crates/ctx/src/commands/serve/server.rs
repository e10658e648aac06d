//! The HTTP server of a workspace, with MCP at `/mcp`.

use super::background::raise_descriptor_limit;
use super::config_watcher::LiveWorkspace;
use super::{mcp_server, until_signal};
use crate::cli::data_folders;
use crate::config::Config;
use crate::error::{CommandError, CommandResult};
use crate::server_record::{RunningServer, ServerRecord};
use crate::signals::Signals;
use crate::workspace::Workspace;
use ctx_http::{Api, UnprotectedServer, generate_token};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A server that is bound to its address and not yet running.
pub(crate) struct BoundServer {
    listener: TcpListener,
    address: SocketAddr,
    api: Api,
    signals: Signals,
    shutdown: CancellationToken,
    /// Records address and process in the data folder, while the server runs.
    record: Option<ServerRecord>,
}

impl BoundServer {
    /// Binds to the configured address.
    pub(crate) async fn bind(workspace: &Workspace) -> CommandResult<Self> {
        // Installed before the address is announced: from then on somebody may stop the server by a signal.
        let signals = Signals::listen()?;
        raise_descriptor_limit();
        let config = &workspace.config;
        let settings = &config.settings;
        let bind = &settings.server.bind;
        let requested = resolve(config).await?;
        let oauth_settings = settings.server.oauth.as_ref();
        let token = settings.server.token.as_ref();
        if let Err(unprotected) = UnprotectedServer::check(requested.ip(), token, oauth_settings.is_some()) {
            return Err(unprotected_bind_error(config, unprotected));
        }
        if !requested.ip().is_loopback() && oauth_settings.is_some_and(|oauth| !oauth.has_resource()) {
            return Err(CommandError::usage(
                "`[server.oauth]` needs `resource`, the public URL of this server for which access tokens are issued",
            )
            .hint("set it, for example to \"https://ctx.example.com/mcp\""));
        }
        let failed = |error: io::Error| cannot_listen(bind, requested, &error);
        let listener = TcpListener::bind(requested).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let mut access = settings.access();
        if let Some((host, _)) = bind.rsplit_once(':')
            && !host.is_empty()
            && access.allowed_hosts.is_empty()
        {
            // Unless allowed hosts are configured, the host in `server.bind` is an allowed `Host`.
            access.allowed_hosts.push(host.to_owned());
        }
        if let Some(oauth_settings) = oauth_settings {
            let oauth = oauth_settings
                .token_validator(&format!("http://{address}/mcp"))
                .map_err(|error| CommandError::usage(format!("in [server.oauth]: {error}")))?;
            // The host of the OAuth resource is an allowed `Host` as well.
            access.allowed_hosts.push(oauth.host().to_owned());
            access.oauth = Some(Arc::new(oauth));
        }
        let shutdown = CancellationToken::new();
        // The MCP server need not wait for the scripts: the caller loads them before `Self::run` accepts the first connection.
        let (_, ready) = watch::channel(true);
        let mcp = mcp_server(workspace, ready, &shutdown);
        let api = Api::new(workspace.catalog.clone(), address, access, settings.http_limits())
            .map_err(|error| CommandError::usage(format!("in [server]: {error}")))?
            .with_mcp(mcp);
        let record = write_record(config, address);
        Ok(Self { listener, address, api, signals, shutdown, record })
    }

    /// The server's base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cancelled when the server starts to shut down.
    pub(crate) fn shutdown(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Serves until a signal, then drains for at most `drain`. A second signal cuts off the requests in flight.
    pub(crate) async fn run(self, live_workspace: LiveWorkspace, drain: Duration) -> CommandResult {
        let Self { listener, api, signals, shutdown, record, .. } = self;
        // Connections are accepted in a task of their own, so that they never wait for the work of the calling task.
        let serving = tokio::spawn(ctx_http::serve(listener, api, shutdown.clone()));
        let stopping = shutdown.clone().cancelled_owned();
        let shutdown_started = tokio::spawn(async move {
            stopping.await;
            Instant::now()
        });
        let ended = until_signal(serving, signals, &shutdown).await;
        // The background work gets only the rest of the drain timeout; draining connections counts against it.
        let used = shutdown_started.await.map_or(Duration::ZERO, |started| started.elapsed());
        live_workspace.end(drain.saturating_sub(used)).await;
        drop(record);
        ended
    }
}

/// Records the server in the data folder of its workspace. With this record, a second server
/// that finds the address in use can name this one in its error. If it cannot be written, the server runs all the same.
fn write_record(config: &Config, address: SocketAddr) -> Option<ServerRecord> {
    // `ctx run` serves without a configuration file: there is no workspace folder that the record could name.
    config.path.as_ref()?;
    let server = RunningServer { process: std::process::id(), address, workspace: config.root.clone() };
    ServerRecord::write(config.data_folder(), &server).unwrap_or_else(|error| {
        tracing::debug!("cannot record the address of the server: {error}");
        None
    })
}

/// The error for a bind address beyond loopback without a strong enough token or OAuth. Its hint contains a new random
/// token for the user to copy, because `ctx` never edits the configuration file.
fn unprotected_bind_error(config: &Config, unprotected: UnprotectedServer) -> CommandError {
    let (key, bind) = (config.bind_key(), &config.settings.server.bind);
    let error = CommandError::usage(format!("`{key}` = \"{bind}\" {unprotected}"));
    let new = generate_token()
        .map_or_else(String::new, |token| format!(" to this new one: \"{}\"", token.expose()));
    error
        .hint(format!("set `server.token`{new}"))
        .hint("or read it from an environment variable (`token = \"${CTX_TOKEN}\"`), or set up `[server.oauth]`, or bind to 127.0.0.1")
}

async fn resolve(config: &Config) -> CommandResult<SocketAddr> {
    let (key, bind) = (config.bind_key(), &config.settings.server.bind);
    let invalid = || {
        CommandError::usage(format!("`{key}` = \"{bind}\" is not an address and port"))
            .hint("write something like \"127.0.0.1:7331\"")
    };
    tokio::net::lookup_host(bind).await.map_err(|_| invalid())?.next().ok_or_else(invalid)
}

fn cannot_listen(bind: &str, requested: SocketAddr, error: &io::Error) -> CommandError {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let holder = data_folders().and_then(|folders| RunningServer::at(&folders, requested));
            let holder = holder.map_or_else(
                || "another program".to_owned(),
                |server| {
                    format!("ctx, which serves {} (process {})", server.workspace.display(), server.process)
                },
            );
            CommandError::new(format!("{bind} is in use by {holder}"))
                .hint("stop it, or take another port: `--port PORT`, or `server.bind` (port 0 takes any that is free)")
        }
        io::ErrorKind::PermissionDenied => CommandError::new(format!("no permission to listen on {bind}"))
            .hint(
                "ports below 1024 are usually reserved; take a higher one: `--port PORT`, or `server.bind`",
            ),
        _ => CommandError::new(format!("cannot listen on {bind}: {error}")),
    }
}
