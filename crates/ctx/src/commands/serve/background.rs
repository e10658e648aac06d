//! Background tasks of a server, for one configuration: update the keyword index, compute embeddings, connect to
//! upstreams, keep sources fresh, reload changed scripts, and return free memory to the system.

use super::discovery_task::prepare_discovery;
use crate::commands::embedding_thread::EmbeddingThread;
use crate::commands::refresh::{RefreshTasks, SourceRefresh, SyncReporter};
use crate::memory;
use crate::scripts::ScriptSet;
use crate::workspace::Workspace;
use ctx_core::error_chain;
use ctx_knowledge::Knowledge;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How often the keyword index is checked while serving.
const INDEX_CHECK_EVERY: Duration = Duration::from_secs(1);

/// The background tasks of a server, until its configuration changes.
pub(super) struct BackgroundTasks {
    pub(super) workspace: Arc<Workspace>,
    script_task: JoinHandle<ScriptSet>,
    index_task: JoinHandle<()>,
    memory_task: JoinHandle<()>,
    discovery_task: JoinHandle<()>,
    embedding_thread: EmbeddingThread,
    refresh: Option<RefreshTasks>,
    stop: CancellationToken,
}

impl BackgroundTasks {
    /// Starts all background tasks except the syncs of sources; they run until `shutdown`.
    pub(super) fn start(workspace: Arc<Workspace>, scripts: ScriptSet, shutdown: &CancellationToken) -> Self {
        workspace.start_upstreams();
        let stop = shutdown.child_token();
        Self {
            script_task: tokio::spawn(scripts.keep_fresh(workspace.composition().clone(), stop.clone())),
            index_task: tokio::spawn(tend_index(workspace.knowledge.clone(), stop.clone())),
            memory_task: tokio::spawn(memory::trim_after_bursts(stop.clone())),
            discovery_task: tokio::spawn(prepare_discovery(
                workspace.runner().clone(),
                workspace.catalog.clone(),
            )),
            embedding_thread: EmbeddingThread::start(workspace.knowledge.clone(), stop.clone()),
            refresh: None,
            workspace,
            stop,
        }
    }

    /// Keeps these sources fresh from now on.
    pub(super) fn refresh(&mut self, sources: Vec<SourceRefresh>, report_event: &SyncReporter) {
        self.refresh = Some(RefreshTasks::start(&self.workspace, sources, report_event, &self.stop));
    }

    /// Stops the background tasks so that those of a new configuration can take over, and returns the loaded scripts. A
    /// running sync or embedding batch ends by itself.
    pub(super) async fn stop(self) -> Option<ScriptSet> {
        self.stop.cancel();
        self.discovery_task.abort();
        self.script_task.await.ok()
    }

    /// Stops all background tasks, running scripts and upstream servers; waits at most `grace_period` for syncs and
    /// embeddings.
    pub(super) async fn end(self, grace_period: Duration) {
        self.stop.cancel();
        self.index_task.abort();
        self.memory_task.abort();
        self.script_task.abort();
        self.discovery_task.abort();
        self.workspace.end_processes().await;
        let refreshing = async {
            if let Some(refresh) = self.refresh {
                refresh.end().await;
            }
        };
        // A batch may still wait for a slow remote model. Giving up loses nothing: its chunks are embedded later.
        let work = async { tokio::join!(self.embedding_thread.end(), refreshing) };
        if tokio::time::timeout(grace_period, work).await.is_err() {
            tracing::debug!("stopped while embeddings were computed or a source was synced");
        }
        self.workspace.close();
    }
}

/// Raises the limit on open files to its hard limit. Every connection needs a file descriptor and every worker three;
/// the default soft limit is too low for a server.
pub(super) fn raise_descriptor_limit() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        if current != maximum
            && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        {
            tracing::debug!("cannot raise the limit on open files: {error}");
        }
    }
}

/// Lets the keyword index catch up periodically: a sync in another process may have died before it was complete.
async fn tend_index(knowledge: Arc<Knowledge>, shutdown: CancellationToken) {
    let mut failed = false;
    while !shutdown.is_cancelled() {
        let result = {
            let knowledge = knowledge.clone();
            tokio::task::spawn_blocking(move || knowledge.catch_up()).await
        };
        match result {
            Ok(Ok(())) => failed = false,
            Ok(Err(error)) if !failed => {
                failed = true;
                tracing::warn!("{}", error_chain(&error));
            }
            _ => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(INDEX_CHECK_EVERY) => {}
        }
    }
}
