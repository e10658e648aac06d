//! The server at an address: HTTP, and MCP at `/mcp`.

use super::background::{Background, allow_descriptors};
use super::{mcp_server, until_signal};
use crate::error::{CommandError, CommandResult};
use crate::scripts::ScriptSet;
use crate::signals::Signals;
use crate::workspace::Workspace;
use ctx_http::{Api, Exposed, generate_token};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A server that has its address.
pub(crate) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    api: Api,
    signals: Signals,
    shutdown: CancellationToken,
}

impl Server {
    /// Takes the configured address.
    pub(crate) async fn bind(workspace: &Workspace) -> CommandResult<Self> {
        // Before anybody is told that it serves: whoever knows may want to stop it.
        let signals = Signals::listen()?;
        allow_descriptors();
        let settings = &workspace.config.settings;
        let bind = &settings.server.bind;
        let wanted = resolve(bind).await?;
        let oauth = settings.server.oauth.as_ref();
        let token = settings.server.token.as_ref();
        if let Err(exposed) = Exposed::check(wanted.ip(), token, oauth.is_some()) {
            return Err(unprotected_bind_error(bind, exposed));
        }
        if !wanted.ip().is_loopback() && oauth.is_some_and(|oauth| !oauth.has_resource()) {
            return Err(CommandError::usage(
                "`[server.oauth]` does not say how clients reach the server, which is what tokens are meant for",
            )
            .hint("set `server.oauth.resource`, for example to \"https://ctx.example.com/mcp\""));
        }
        let listener = TcpListener::bind(wanted).await.map_err(|error| cannot_listen(bind, &error))?;
        let address = listener.local_addr().map_err(|error| cannot_listen(bind, &error))?;
        let mut access = settings.access();
        if let Some((host, _)) = bind.rsplit_once(':')
            && !host.is_empty()
            && access.allowed_hosts.is_empty()
        {
            // The name that was bound is a name to be called by.
            access.allowed_hosts.push(host.to_owned());
        }
        if let Some(oauth) = oauth {
            let oauth = oauth
                .oauth(&format!("http://{address}/mcp"))
                .map_err(|error| CommandError::usage(format!("in [server.oauth]: {error}")))?;
            // So is the name that tokens are meant for.
            access.allowed_hosts.push(oauth.host().to_owned());
            access.oauth = Some(Arc::new(oauth));
        }
        let shutdown = CancellationToken::new();
        // Nobody is let in before the scripts are loaded.
        let (_, ready) = watch::channel(true);
        let mcp = mcp_server(workspace, ready, &shutdown);
        let api = Api::new(workspace.catalog.clone(), address, access, settings.http_limits())
            .map_err(|error| CommandError::usage(format!("in [server]: {error}")))?
            .with_mcp(mcp);
        Ok(Self { listener, address, api, signals, shutdown })
    }

    /// Where it can be reached.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cancelled when it begins to end.
    pub(crate) fn shutdown(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Serves until a signal comes, then drains; a second signal ends it at once.
    pub(crate) async fn run(self, workspace: &Workspace, scripts: ScriptSet) -> CommandResult {
        let Self { listener, api, signals, shutdown, .. } = self;
        let mut background = Background::start(workspace, &shutdown);
        background.keep_fresh(workspace, scripts);
        // A task of its own: whatever else this one does must not keep connections waiting.
        let serving = tokio::spawn(ctx_http::serve(listener, api, shutdown.clone()));
        let stopping = shutdown.clone().cancelled_owned();
        let stopped_at = tokio::spawn(async move {
            stopping.await;
            Instant::now()
        });
        let ended = until_signal(serving, signals, &shutdown).await;
        // The background work gets only the rest of the drain timeout; draining connections counts against it.
        let drain = workspace.config.settings.http_limits().drain;
        let used = stopped_at.await.map_or(Duration::ZERO, |stopped_at| stopped_at.elapsed());
        background.end(workspace, drain.saturating_sub(used)).await;
        ended
    }
}

/// The error for a public bind address without a sufficient token. Its hint contains a new random token to copy; the
/// configuration file is never written.
fn unprotected_bind_error(bind: &str, exposed: Exposed) -> CommandError {
    let error = CommandError::usage(format!("`server.bind` = \"{bind}\" {exposed}"));
    let new = generate_token()
        .map_or_else(String::new, |token| format!(" to this new one: \"{}\"", token.expose()));
    error
        .hint(format!("set `server.token`{new}"))
        .hint("or name a variable (\"${CTX_TOKEN}\"), or set up `[server.oauth]`, or bind to 127.0.0.1")
}

async fn resolve(bind: &str) -> CommandResult<SocketAddr> {
    let wrong = || {
        CommandError::usage(format!("`server.bind` = \"{bind}\" is not an address and port"))
            .hint("write something like \"127.0.0.1:7331\"")
    };
    tokio::net::lookup_host(bind).await.map_err(|_| wrong())?.next().ok_or_else(wrong)
}

fn cannot_listen(bind: &str, error: &io::Error) -> CommandError {
    match error.kind() {
        io::ErrorKind::AddrInUse => CommandError::new(format!("{bind} is in use by another program"))
            .hint("stop it, or set `server.bind` to another port (port 0 takes any that is free)"),
        io::ErrorKind::PermissionDenied => CommandError::new(format!("{bind} may not be used"))
            .hint("ports below 1024 are usually reserved; set `server.bind` to a higher one"),
        _ => CommandError::new(format!("cannot listen on {bind}: {error}")),
    }
}
