//! Upstream MCP servers: their tools, called as if they were ours.
//!
//! `upstream` keeps one server connected and calls it, `connection` and `exchange` speak to it, `calls`
//! passes on what it tells and asks meanwhile,
//! `definitions` holds its tools against those that were accepted, of which `memory` knows and `difference` tells, `process` and `lines` are a server that is a process,
//! `web` and `sse` are one that has an address, and `reaper` is who cleans up behind us.

mod calls;
mod connection;
mod definitions;
mod difference;
mod exchange;
mod lines;
mod memory;
mod process;
mod provider;
mod reaper;
mod settings;
mod sse;
mod upstream;
mod web;

pub use difference::{ChangedField, ChangedPlaces, ChangedTool, Difference, FieldChange};
pub use memory::{Memory, MemoryError, Remembered, ServerKey};
pub use reaper::{ReaperProgram, reaper_main};
pub use settings::{
    Changes, Command, Headers, HttpKind, InvalidHeader, InvalidPattern, Start, ToolFilter, Transport,
    UpstreamLimits, UpstreamSettings,
};
pub use upstream::{UpstreamState, UpstreamStatus};

use connection::Maker;
use ctx_core::{Provider, Redactor};
use definitions::Definitions;
use provider::UpstreamProvider;
use reaper::Reaper;
use rmcp::model::Implementation;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use upstream::Upstream;

/// How long all of them may take to end: a process that does not end by itself takes most of it.
const SHUTDOWN_MAX: Duration = Duration::from_secs(6);

/// What all upstreams share.
pub struct UpstreamOptions {
    /// What we are called.
    pub name: String,
    /// Which version we are.
    pub version: String,
    /// What ends their processes when we cannot.
    pub reaper: ReaperProgram,
    /// What is masked in what servers say.
    pub redactor: Redactor,
    /// Where definitions of their tools are remembered; without, only as long as we run.
    pub memory: Option<Arc<dyn Memory>>,
    /// Told whenever the tools of one are others than before.
    pub on_change: Arc<dyn Fn() + Send + Sync>,
}

/// The upstream servers of a workspace. Dropped, they are given up; [`Upstreams::shutdown`] waits for that.
pub struct Upstreams {
    all: Vec<Arc<Upstream>>,
    tasks: TaskTracker,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

impl Upstreams {
    /// Connects to all of them, in the background and side by side.
    pub fn start(settings: Vec<UpstreamSettings>, options: UpstreamOptions) -> Self {
        let UpstreamOptions { name, version, reaper, redactor, memory, on_change } = options;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let maker = Arc::new(Maker {
            us: Implementation::new(name, version),
            redactor: redactor.clone(),
            reaper: Arc::new(Reaper::new(reaper)),
            tasks: tasks.clone(),
        });
        let start = |settings| {
            let definitions = Definitions::new(&settings, memory.clone(), redactor.clone());
            let upstream = Arc::new(Upstream::new(settings, definitions, stop.child_token()));
            tasks.spawn(upstream.clone().supervise(maker.clone(), on_change.clone()));
            upstream
        };
        let all = settings.into_iter().map(start).collect();
        Self { all, tasks, _stop_on_drop: stop.clone().drop_guard(), stop }
    }

    /// One provider for each, with the tools that are known of it.
    pub fn providers(&self) -> Vec<Arc<dyn Provider>> {
        self.all.iter().map(|upstream| Arc::new(UpstreamProvider(upstream.clone())) as _).collect()
    }

    /// How each is doing.
    pub fn states(&self) -> Vec<UpstreamStatus> {
        self.all.iter().map(|upstream| upstream.status()).collect()
    }

    /// Waits until every one whose tools are not known has been tried.
    pub async fn known(&self) {
        for upstream in &self.all {
            upstream.tools_known().await;
        }
    }

    /// Waits until every one has been tried; those that sleep are waken for it.
    pub async fn settled(&self) {
        for upstream in &self.all {
            upstream.settled().await;
        }
    }

    /// Closes every connection, and ends every process with all that it has started.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(SHUTDOWN_MAX, self.tasks.wait()).await.is_err() {
            tracing::debug!("a server does not let go");
        }
    }
}
