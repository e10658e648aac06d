//! Upstream MCP servers as providers of tools, prompts and resources.
//!
//! `upstream` keeps one server connected and calls it. `provider`, `prompts` and `resources` present it to
//! the catalog, under the names that `namespace` makes. `definitions` compares what a server offers with what
//! the user accepted. Transports: `process` and `lines` (stdio), `web` (Streamable HTTP), `sse` (HTTP+SSE),
//! with `oauth` for sign-in. The address policy (SSRF) is left to ctx-net.

mod calls;
mod connection;
mod definition;
mod definitions;
mod difference;
mod events;
mod exchange;
mod follows;
#[cfg(not(target_os = "linux"))]
mod group;
mod guard;
mod handshake;
mod lines;
mod memory;
mod namespace;
mod oauth;
mod offers;
mod post;
mod process;
mod prompts;
mod provider;
mod reaper;
mod resources;
mod server_client;
mod settings;
mod sse;
mod startup;
#[cfg(target_os = "linux")]
mod supervisor;
mod told;
mod upstream;
mod web;

pub use difference::{ChangedField, ChangedOffer, ChangedPlaces, ChangedTool, Difference, FieldChange};
pub use memory::{Memory, MemoryError, Remembered, ServerKey};
pub use oauth::{CredentialStore, Login, LoginError, OAuthSettings, forget_login, has_login};
pub use reaper::{ReaperProgram, reaper_main};
pub use settings::{
    Changes, Command, Headers, HttpKind, InvalidHeader, InvalidPattern, Start, ToolFilter, Transport,
    UpstreamLimits, UpstreamSettings,
};
pub use startup::default_starts_at_once;
pub use upstream::{UpstreamState, UpstreamStatus};

use connection::Maker;
use ctx_core::{Identifier, Provider, Redactor, ToolError};
use definitions::Definitions;
use oauth::Authority;
use process::Starter;
use provider::UpstreamProvider;
use rmcp::model::Implementation;
use startup::StartSlots;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use upstream::Upstream;

/// Time limit for stopping all servers. A process that does not exit by itself needs most of it.
const SHUTDOWN_MAX: Duration = Duration::from_secs(6);

/// Options that all upstreams share.
pub struct UpstreamOptions {
    /// Our name, as servers are told it (`clientInfo`).
    pub name: String,
    /// Our version, as servers are told it.
    pub version: String,
    /// The program that kills the processes of servers after this process is gone.
    pub reaper: ReaperProgram,
    /// Masks secrets in text from servers.
    pub redactor: Redactor,
    /// Stores the definitions of servers; without it they are kept only while this process runs.
    pub memory: Option<Arc<dyn Memory>>,
    /// Stores OAuth logins; without it no login is possible.
    pub credentials: Option<Arc<dyn CredentialStore>>,
    /// Called when the tools or prompts of an upstream have changed.
    pub on_change: Arc<dyn Fn() + Send + Sync>,
    /// Called before each start of a stdio server: its program may have changed since it was trusted. It may block.
    pub may_start: Arc<StartCheck>,
    /// How many stdio servers start at once; others wait. [`default_starts_at_once`] fits the machine.
    pub starts_at_once: usize,
}

/// Decides whether the program of the server of this name may be started; the error says why not.
pub type StartCheck = dyn Fn(&Identifier) -> Result<(), String> + Send + Sync;

/// The upstream servers of a workspace. Dropping it stops them; [`Upstreams::shutdown`] also waits for that.
pub struct Upstreams {
    all: RwLock<Vec<Arc<Upstream>>>,
    maker: Arc<Maker>,
    memory: Option<Arc<dyn Memory>>,
    credentials: Option<Arc<dyn CredentialStore>>,
    on_change: Arc<dyn Fn() + Send + Sync>,
    tasks: TaskTracker,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

impl Upstreams {
    /// Connects to all servers concurrently, in the background; only a few processes start at a time.
    pub fn start(settings: Vec<UpstreamSettings>, options: UpstreamOptions) -> Self {
        let UpstreamOptions {
            name,
            version,
            reaper,
            redactor,
            memory,
            credentials,
            on_change,
            may_start,
            starts_at_once,
        } = options;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let maker = Arc::new(Maker {
            us: Implementation::new(name, version),
            redactor,
            starter: Starter::new(reaper),
            slots: StartSlots::new(starts_at_once),
            tasks: tasks.clone(),
            may_start,
        });
        let upstreams = Self {
            all: RwLock::default(),
            maker,
            memory,
            credentials,
            on_change,
            tasks,
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
        };
        upstreams.update(&|_| false, settings);
        upstreams
    }

    /// Stops all servers except those to keep, and connects to those of `settings` in the background.
    /// `on_change` is not called for the replacement itself: the caller knows that [`Upstreams::providers`]
    /// has changed.
    pub fn update(&self, keep: &dyn Fn(&Identifier) -> bool, settings: Vec<UpstreamSettings>) {
        let started = settings.into_iter().map(|settings| self.start_one(settings)).collect::<Vec<_>>();
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let (kept, ended): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *all).into_iter().partition(|upstream| keep(&upstream.settings.name));
        ended.iter().for_each(|upstream| upstream.end());
        *all = kept.into_iter().chain(started).collect();
    }

    fn start_one(&self, settings: UpstreamSettings) -> Arc<Upstream> {
        let redactor = &self.maker.redactor;
        let definitions = Definitions::new(&settings, self.memory.clone(), redactor.clone());
        let authority = authority(&settings, self.credentials.as_ref(), redactor);
        let upstream = Arc::new(Upstream::new(settings, definitions, authority, self.stop.child_token()));
        self.tasks.spawn(upstream.clone().supervise(self.maker.clone(), self.on_change.clone()));
        upstream
    }

    fn all(&self) -> Vec<Arc<Upstream>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A provider for each upstream, with the tools known so far.
    pub fn providers(&self) -> Vec<Arc<dyn Provider>> {
        self.all().into_iter().map(|upstream| Arc::new(UpstreamProvider(upstream)) as _).collect()
    }

    /// The status of each upstream.
    pub fn states(&self) -> Vec<UpstreamStatus> {
        self.all().iter().map(|upstream| upstream.status()).collect()
    }

    /// Waits until the tools of each upstream are known, or the first attempt to connect to it has ended.
    pub async fn known(&self) {
        for upstream in self.all() {
            upstream.tools_known().await;
        }
    }

    /// Waits until the first attempt to connect to each upstream has ended; idle ones are started for it.
    pub async fn settled(&self) {
        for upstream in self.all() {
            upstream.settled().await;
        }
    }

    /// Begins an OAuth login at an upstream; `redirect` is the redirect URI.
    pub async fn login(&self, name: &Identifier, redirect: &str) -> Result<Login, LoginError> {
        let nowhere = || LoginError::new(format!("{name} is not a server that one logs in at"));
        let upstream = self.named(name).ok_or_else(nowhere)?;
        Login::begin(upstream.authority().ok_or_else(nowhere)?, redirect).await
    }

    /// Waits until an upstream can be called; the error says why it cannot.
    pub async fn reached(&self, name: &Identifier) -> Result<(), ToolError> {
        match self.named(name) {
            Some(upstream) => upstream.reached().await,
            None => Err(ToolError::not_found(format!("there is no server {name}"))),
        }
    }

    fn named(&self, name: &Identifier) -> Option<Arc<Upstream>> {
        self.all().into_iter().find(|upstream| upstream.settings.name == *name)
    }

    /// Closes every connection, and ends every process with its descendants.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(SHUTDOWN_MAX, self.tasks.wait()).await.is_err() {
            tracing::debug!("a server does not let go");
        }
    }
}

/// The OAuth credentials for an HTTP server; `None` if its configured headers contain an `Authorization`, or
/// if there is no credential store.
fn authority(
    settings: &UpstreamSettings,
    credentials: Option<&Arc<dyn CredentialStore>>,
    redactor: &Redactor,
) -> Option<Arc<Authority>> {
    let Transport::Http { url, headers, oauth, .. } = &settings.transport else { return None };
    let store = credentials.filter(|_| !headers.authorize())?;
    match Authority::new(url, oauth.clone(), store.clone(), redactor.clone()) {
        Ok(authority) => Some(Arc::new(authority)),
        Err(error) => {
            tracing::warn!("{}: nobody can log in: {error}", settings.name);
            None
        }
    }
}
