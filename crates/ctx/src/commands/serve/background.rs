//! The work behind a server, for one configuration: the index is tended, vectors are made, upstreams are connected,
//! sources are kept fresh, and scripts are reloaded when they change.

use crate::commands::filling::Filling;
use crate::commands::refresh::{Kept, Refresh, Tell};
use crate::scripts::ScriptSet;
use crate::workspace::Workspace;
use ctx_core::chain;
use ctx_knowledge::Knowledge;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How often the keyword index is looked after while serving.
const TEND_EVERY: Duration = Duration::from_secs(1);

/// The work behind a server until its configuration changes.
pub(super) struct Background {
    pub(super) workspace: Arc<Workspace>,
    scripts: JoinHandle<ScriptSet>,
    tending: JoinHandle<()>,
    filling: Filling,
    refresh: Option<Refresh>,
    stop: CancellationToken,
}

impl Background {
    /// Starts everything but the refreshing of sources, until `shutdown`.
    pub(super) fn start(workspace: Arc<Workspace>, scripts: ScriptSet, shutdown: &CancellationToken) -> Self {
        workspace.start_upstreams();
        let stop = shutdown.child_token();
        Self {
            scripts: tokio::spawn(scripts.keep_fresh(workspace.composition().clone(), stop.clone())),
            tending: tokio::spawn(tend(workspace.knowledge.clone(), stop.clone())),
            filling: Filling::start(workspace.knowledge.clone(), stop.clone()),
            refresh: None,
            workspace,
            stop,
        }
    }

    /// Keeps these sources fresh from now on.
    pub(super) fn refresh(&mut self, sources: Vec<Kept>, tell: &Tell) {
        self.refresh = Some(Refresh::start(&self.workspace, sources, tell, &self.stop));
    }

    /// Stops the work, so that another configuration can go on with it: returns the scripts as they are loaded. A sync
    /// or a batch of vectors in hand ends by itself.
    pub(super) async fn stop(self) -> Option<ScriptSet> {
        self.stop.cancel();
        self.scripts.await.ok()
    }

    /// Ends it all, whatever scripts still run, and upstream servers.
    pub(super) async fn end(self, patience: Duration) {
        self.stop.cancel();
        self.tending.abort();
        self.scripts.abort();
        self.workspace.end_processes().await;
        let refreshing = async {
            if let Some(refresh) = self.refresh {
                refresh.end().await;
            }
        };
        // A batch may be on its way to a model that is slow; without it nothing is lost.
        let work = async { tokio::join!(self.filling.end(), refreshing) };
        if tokio::time::timeout(patience, work).await.is_err() {
            tracing::debug!("stopped while vectors were made or a source was synced");
        }
        self.workspace.close();
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
