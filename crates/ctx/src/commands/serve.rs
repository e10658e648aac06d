//! `ctx serve`

use super::filling::Filling;
use super::refresh::{News, Refresh, Tell};
use super::sync::summary;
use crate::cli::Global;
use crate::error::{CommandError, CommandResult};
use crate::output::Output;
use crate::scripts::ScriptSet;
use crate::signals::Signals;
use crate::trust::ALL_GROUPS;
use crate::workspace::Workspace;
use clap::Subcommand;
use ctx_core::chain;
use ctx_http::Api;
use ctx_knowledge::Knowledge;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

/// How often the keyword index is looked after while serving.
const TEND_EVERY: Duration = Duration::from_secs(1);

/// Serve the workspace.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Serve the tools over HTTP at `server.bind`.
    Mcp,
}

impl Serve {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let What::Mcp = self.what;
        let workspace = global.open_for_scripts(ALL_GROUPS)?;
        let server = Server::bind(&workspace).await?;
        let scripts = load_scripts(&workspace, &global.output()).await;
        global.output().say(&format!("serving {}", server.url()));
        let tell: Tell = Arc::new(|news| log(&news));
        let sources = Refresh::of(&workspace);
        let refresh = Refresh::start(&workspace.knowledge, sources, &tell, &server.shutdown());
        let ended = server.run(&workspace, scripts).await;
        refresh.end().await;
        ended
    }
}

/// Loads the scripts to be served; those that cannot be are told and left out.
pub(crate) async fn load_scripts(workspace: &Workspace, output: &Output) -> ScriptSet {
    let scripts = workspace.load_scripts().await;
    scripts.problems().iter().for_each(|problem| output.warn(problem));
    workspace.runner().warm_up();
    scripts
}

/// A server has nobody to talk to but its log.
fn log(news: &News<'_>) {
    match news {
        News::Synced(report) => tracing::info!("{}", summary(report)),
        News::Warned(report) => {
            for warning in &report.warnings {
                tracing::info!("{}: {}: {}", report.source, warning.source_id, warning.reason);
            }
        }
        News::Failed(error) => tracing::warn!("{}; it is tried again", error.messages.join("; ")),
    }
}

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
        if !wanted.ip().is_loopback() && settings.server.token.is_none() {
            return Err(CommandError::usage(format!(
                "`server.bind` = \"{bind}\" can be reached from outside, and there is no token"
            ))
            .hint("set `server.token` (for example to \"${CTX_TOKEN}\"), or bind to 127.0.0.1"));
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
        let api = Api::new(workspace.catalog.clone(), address, access, settings.http_limits())
            .map_err(|error| CommandError::usage(format!("in [server]: {error}")))?;
        Ok(Self { listener, address, api, signals, shutdown: CancellationToken::new() })
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
        let Self { listener, api, mut signals, shutdown, .. } = self;
        let tending = tokio::spawn(tend(workspace.knowledge.clone(), shutdown.clone()));
        let filling = Filling::start(workspace.knowledge.clone(), shutdown.clone());
        let reloading = tokio::spawn(scripts.keep_fresh(
            workspace.parts().clone(),
            workspace.catalog.clone(),
            shutdown.clone(),
        ));
        // A task of its own: whatever else this one does must not keep connections waiting.
        let mut serving = tokio::spawn(ctx_http::serve(listener, api, shutdown.clone()));
        let failed = |error: &dyn std::error::Error| CommandError::new(format!("the server failed: {error}"));
        let ended = |served: Result<io::Result<()>, JoinError>| match served {
            Ok(served) => served.map_err(|error| failed(&error)),
            Err(error) => Err(failed(&error)),
        };
        let ended = tokio::select! {
            served = &mut serving => ended(served),
            () = signals.next() => {
                shutdown.cancel();
                tokio::select! {
                    served = &mut serving => ended(served),
                    () = signals.next() => {
                        Err(CommandError::new("stopped before requests in flight had finished"))
                    }
                }
            }
        };
        shutdown.cancel();
        tending.abort();
        reloading.abort();
        workspace.runner().shutdown().await;
        // A batch may be on its way to a model that is slow; without it nothing is lost.
        let drain = workspace.config.settings.http_limits().drain;
        if tokio::time::timeout(drain, filling.end()).await.is_err() {
            tracing::debug!("stopped while vectors were made");
        }
        workspace.close();
        ended
    }
}

/// Every connection needs a descriptor and every worker three, and what is allowed at first is meant
/// for programs that serve nobody. Raised to what may be had.
fn allow_descriptors() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        if current != maximum
            && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        {
            tracing::debug!("no more files may be open at once than before: {error}");
        }
    }
}

/// Looks after the keyword index: a sync in another process may have died before it was done.
async fn tend(knowledge: Arc<Knowledge>, shutdown: CancellationToken) {
    let mut failed = false;
    while !shutdown.is_cancelled() {
        let tended = {
            let knowledge = knowledge.clone();
            tokio::task::spawn_blocking(move || knowledge.tend()).await
        };
        match tended {
            Ok(Ok(())) => failed = false,
            Ok(Err(error)) if !failed => {
                failed = true;
                tracing::warn!("{}", chain(&error));
            }
            _ => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(TEND_EVERY) => {}
        }
    }
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
