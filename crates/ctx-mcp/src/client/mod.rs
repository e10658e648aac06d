//! Upstream MCP servers as providers of tools, prompts and resources.
//!
//! `upstream` keeps one server connected and calls it. `provider`, `prompts` and `resources` present it to
//! the catalog, under the names that `namespace` makes. `pinning` compares the definition of a server with the
//! one that the user accepted. Transports: `process` and `line_transport` (stdio), `streamable_http`,
//! `sse_transport` (HTTP+SSE), with `oauth` for sign-in. The address policy (SSRF) is left to ctx-net.

mod boxed_transport;
mod calls;
mod connection;
mod definition;
mod definition_store;
mod difference;
mod direct_requests;
mod events;
mod features;
mod guard;
mod guarded_transport;
mod handshake;
mod line_transport;
mod namespace;
mod oauth;
mod pinning;
mod post;
mod process;
#[cfg(not(target_os = "linux"))]
mod process_group;
mod prompts;
mod provider;
mod reaper;
mod request;
mod resources;
mod server_client;
mod settings;
mod sse_transport;
mod startup;
mod streamable_http;
mod subscriptions;
#[cfg(target_os = "linux")]
mod supervisor;
mod upstream;

pub use definition_store::{DefinitionStore, DefinitionStoreError, ServerKey, StoredDefinitions};
pub use difference::{ChangedFeature, ChangedField, ChangedPaths, ChangedTool, DefinitionDiff, FieldChange};
pub use oauth::{CredentialStore, Login, LoginError, OAuthSettings, forget_login, has_login};
pub use reaper::{ReaperProgram, reaper_main};
pub use settings::{
    DefinitionChangePolicy, Headers, HttpTransportKind, InvalidHeader, InvalidPattern, ServerCommand,
    StartMode, ToolFilter, Transport, UpstreamLimits, UpstreamSettings,
};
pub use startup::default_starts_at_once;
pub use upstream::{UpstreamState, UpstreamStatus};

use connection::ConnectionFactory;
use ctx_core::{Identifier, Provider, Redactor, ToolError};
use oauth::OAuthClient;
use pinning::PinnedDefinitions;
use process::ServerStarter;
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
    /// Our name, as it is sent to servers (`clientInfo`).
    pub name: String,
    /// Our version, as it is sent to servers.
    pub version: String,
    /// The program that kills the processes of servers after this process is gone.
    pub reaper: ReaperProgram,
    /// Masks secrets in text from servers.
    pub redactor: Redactor,
    /// Stores the definitions of servers; without it they are kept only while this process runs.
    pub definitions: Option<Arc<dyn DefinitionStore>>,
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
    list: RwLock<Vec<Arc<Upstream>>>,
    factory: Arc<ConnectionFactory>,
    memory: Option<Arc<dyn DefinitionStore>>,
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
            definitions: memory,
            credentials,
            on_change,
            may_start,
            starts_at_once,
        } = options;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let factory = Arc::new(ConnectionFactory {
            client_info: Implementation::new(name, version),
            redactor,
            starter: ServerStarter::new(reaper),
            slots: StartSlots::new(starts_at_once),
            tasks: tasks.clone(),
            may_start,
        });
        let upstreams = Self {
            list: RwLock::default(),
            factory,
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
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let (remaining, removed): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *list).into_iter().partition(|upstream| keep(&upstream.settings.name));
        removed.iter().for_each(|upstream| upstream.stop());
        *list = remaining.into_iter().chain(started).collect();
    }

    fn start_one(&self, settings: UpstreamSettings) -> Arc<Upstream> {
        let redactor = &self.factory.redactor;
        let definitions = PinnedDefinitions::new(&settings, self.memory.clone(), redactor.clone());
        let oauth_client = oauth_client(&settings, self.credentials.as_ref(), redactor);
        let upstream = Arc::new(Upstream::new(settings, definitions, oauth_client, self.stop.child_token()));
        self.tasks.spawn(upstream.clone().keep_connected(self.factory.clone(), self.on_change.clone()));
        upstream
    }

    fn all(&self) -> Vec<Arc<Upstream>> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A provider for each upstream, with the tools known so far.
    pub fn providers(&self) -> Vec<Arc<dyn Provider>> {
        self.all().into_iter().map(|upstream| Arc::new(UpstreamProvider(upstream)) as _).collect()
    }

    /// The status of each upstream.
    pub fn statuses(&self) -> Vec<UpstreamStatus> {
        self.all().iter().map(|upstream| upstream.status()).collect()
    }

    /// Waits until the tools of each upstream are known, or the first attempt to connect to it has ended.
    pub async fn wait_for_tools(&self) {
        for upstream in self.all() {
            upstream.wait_for_tools().await;
        }
    }

    /// Waits until the first attempt to connect to each upstream has ended; idle ones are started for it.
    pub async fn wait_for_first_attempts(&self) {
        for upstream in self.all() {
            upstream.wait_for_first_attempt().await;
        }
    }

    /// Begins an OAuth login at an upstream; `redirect` is the redirect URI.
    pub async fn login(&self, name: &Identifier, redirect: &str) -> Result<Login, LoginError> {
        let no_oauth = || LoginError::new(format!("{name} is not an upstream with OAuth login"));
        let upstream = self.find(name).ok_or_else(no_oauth)?;
        Login::begin(upstream.oauth_client().ok_or_else(no_oauth)?, redirect).await
    }

    /// Waits until an upstream can be called; the error says why it cannot.
    pub async fn wait_until_connected(&self, name: &Identifier) -> Result<(), ToolError> {
        match self.find(name) {
            Some(upstream) => upstream.wait_until_connected().await,
            None => Err(ToolError::not_found(format!("there is no server {name}"))),
        }
    }

    fn find(&self, name: &Identifier) -> Option<Arc<Upstream>> {
        self.all().into_iter().find(|upstream| upstream.settings.name == *name)
    }

    /// Closes every connection, and ends every process with its descendants.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(SHUTDOWN_MAX, self.tasks.wait()).await.is_err() {
            tracing::debug!("upstream connections did not close in time");
        }
    }
}

/// The OAuth client for an HTTP server; `None` if its configured headers contain an `Authorization`, or
/// if there is no credential store.
fn oauth_client(
    settings: &UpstreamSettings,
    credentials: Option<&Arc<dyn CredentialStore>>,
    redactor: &Redactor,
) -> Option<Arc<OAuthClient>> {
    let Transport::Http { url, headers, oauth, .. } = &settings.transport else { return None };
    let store = credentials.filter(|_| !headers.has_authorization())?;
    match OAuthClient::new(url, oauth.clone(), store.clone(), redactor.clone()) {
        Ok(client) => Some(Arc::new(client)),
        Err(error) => {
            tracing::warn!("{}: OAuth login is not available: {error}", settings.name);
            None
        }
    }
}
