//! Upstream MCP servers: their tools, prompts and resources, as if they were ours.
//!
//! `upstream` keeps one server connected and calls it; `connection`, `handshake` and `exchange` speak the protocol, within
//! the limits of `guard`; `calls` and `told` pass on notifications and server requests during calls. `provider`, `prompts`
//! and `resources` are the catalog's view of a server, under the names of `namespace`; `offers` and `follows` keep it
//! current. `definitions` compares the server's `definition` with the accepted one, which `memory` stores;
//! `difference` is the result.
//!
//! Transports: `process`, `startup`, `lines`, and `supervisor` on Linux or `group` and `reaper` elsewhere for stdio servers;
//! `web`, `post` and `sse` for HTTP, with `oauth` for logins and `reach` as the DNS resolver that prevents SSRF.

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
    /// Where logins are kept; without it nobody can log in anywhere.
    pub credentials: Option<Arc<dyn CredentialStore>>,
    /// Told whenever the tools of one are others than before.
    pub on_change: Arc<dyn Fn() + Send + Sync>,
    /// Called before each start of a stdio server: its program may have changed since it was trusted. It may block.
    pub may_start: Arc<StartCheck>,
    /// How many stdio servers start at once; others wait. [`default_starts_at_once`] fits the machine.
    pub starts_at_once: usize,
}

/// Decides whether the program of the server of this name may be started; the error says why not.
pub type StartCheck = dyn Fn(&Identifier) -> Result<(), String> + Send + Sync;

/// The upstream servers of a workspace. Dropped, they are given up; [`Upstreams::shutdown`] waits for that.
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
    /// Connects to all of them, in the background and side by side; programs start a few at a time.
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

    /// Ends all servers but those to keep, and connects to those of `settings`, in the background. Nobody is told: the
    /// caller knows that [`Upstreams::providers`] are others now.
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

    /// One provider for each, with the tools that are known of it.
    pub fn providers(&self) -> Vec<Arc<dyn Provider>> {
        self.all().into_iter().map(|upstream| Arc::new(UpstreamProvider(upstream)) as _).collect()
    }

    /// How each is doing.
    pub fn states(&self) -> Vec<UpstreamStatus> {
        self.all().iter().map(|upstream| upstream.status()).collect()
    }

    /// Waits until every one whose tools are not known has been tried.
    pub async fn known(&self) {
        for upstream in self.all() {
            upstream.tools_known().await;
        }
    }

    /// Waits until every one has been tried; those that sleep are waken for it.
    pub async fn settled(&self) {
        for upstream in self.all() {
            upstream.settled().await;
        }
    }

    /// Begins a login at one of them, of which the person comes back to the address `redirect`.
    pub async fn login(&self, name: &Identifier, redirect: &str) -> Result<Login, LoginError> {
        let nowhere = || LoginError::new(format!("{name} is not a server that one logs in at"));
        let upstream = self.named(name).ok_or_else(nowhere)?;
        Login::begin(upstream.authority().ok_or_else(nowhere)?, redirect).await
    }

    /// Waits until one of them can be called; the error tells why it cannot.
    pub async fn reached(&self, name: &Identifier) -> Result<(), ToolError> {
        match self.named(name) {
            Some(upstream) => upstream.reached().await,
            None => Err(ToolError::not_found(format!("there is no server {name}"))),
        }
    }

    fn named(&self, name: &Identifier) -> Option<Arc<Upstream>> {
        self.all().into_iter().find(|upstream| upstream.settings.name == *name)
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

/// What lets us in at a server that one can log in at: one that has an address, and is not told by its
/// headers who we are.
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
