//! What goes on behind a server: the index looked after, vectors made, upstream servers connected, scripts
//! taken up when they change.

use crate::cli::untrusted_requests;
use crate::commands::filling::Filling;
use crate::scripts::ScriptSet;
use crate::trust;
use crate::version::{Version, version};
use crate::workspace::Workspace;
use ctx_core::chain;
use ctx_knowledge::Knowledge;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How often the keyword index is looked after while serving.
const TEND_EVERY: Duration = Duration::from_secs(1);
/// How often the configuration file is polled for changes.
const CONFIG_POLL_EVERY: Duration = Duration::from_secs(1);

/// The work behind one server.
pub(super) struct Background {
    tending: JoinHandle<()>,
    filling: Filling,
    reloading: Option<JoinHandle<()>>,
    config_watch: JoinHandle<()>,
    shutdown: CancellationToken,
}

impl Background {
    pub(super) fn start(workspace: &Workspace, shutdown: &CancellationToken) -> Self {
        workspace.start_upstreams();
        Self {
            tending: tokio::spawn(tend(workspace.knowledge.clone(), shutdown.clone())),
            filling: Filling::start(workspace.knowledge.clone(), shutdown.clone()),
            reloading: None,
            config_watch: tokio::spawn(warn_of_config_changes(
                workspace.config.path.clone(),
                workspace.config.version,
                shutdown.clone(),
            )),
            shutdown: shutdown.clone(),
        }
    }

    /// Takes up scripts that change from now on.
    pub(super) fn keep_fresh(&mut self, workspace: &Workspace, scripts: ScriptSet) {
        self.reloading = Some(tokio::spawn(scripts.keep_fresh(
            workspace.parts().clone(),
            workspace.catalog.clone(),
            self.shutdown.clone(),
        )));
    }

    /// Ends it all, whatever scripts still run, and upstream servers.
    pub(super) async fn end(self, workspace: &Workspace, patience: Duration) {
        self.shutdown.cancel();
        self.tending.abort();
        self.config_watch.abort();
        if let Some(reloading) = self.reloading {
            reloading.abort();
        }
        workspace.end_processes().await;
        // A batch may be on its way to a model that is slow; without it nothing is lost.
        if tokio::time::timeout(patience, self.filling.end()).await.is_err() {
            tracing::debug!("stopped while vectors were made");
        }
        workspace.close();
    }
}

/// Every connection needs a descriptor and every worker three, and what is allowed at first is meant
/// for programs that serve nobody. Raised to what may be had.
pub(super) fn allow_descriptors() {
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

/// Logs a warning when the configuration file has changed. It is not reloaded: a server keeps the configuration that
/// it was started, and trusted, with.
async fn warn_of_config_changes(
    path: Option<PathBuf>,
    mut known: Option<Version>,
    shutdown: CancellationToken,
) {
    let Some(path) = path else { return };
    let read_version = |path: PathBuf| tokio::task::spawn_blocking(move || version(&path));
    while shutdown.run_until_cancelled(tokio::time::sleep(CONFIG_POLL_EVERY)).await.is_some() {
        let now = read_version(path.clone()).await.ok().flatten();
        if now == known {
            continue;
        }
        known = now;
        let untrusted = {
            let path = path.clone();
            tokio::task::spawn_blocking(move || trust::inline_list(&untrusted_requests(&path)))
                .await
                .unwrap_or_default()
        };
        let untrusted = match untrusted.is_empty() {
            true => untrusted,
            false => format!("; what it wants now is not trusted: {untrusted}"),
        };
        let file = path.display();
        tracing::warn!(
            "{file} has changed; this server goes on as it was started, a restart takes it up{untrusted}"
        );
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
