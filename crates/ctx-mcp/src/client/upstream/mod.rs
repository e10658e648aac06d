//! One upstream server: its state, and the tools, prompts and resources that are known of it.
//!
//! `reconnect` keeps it connected, `call` sends requests to it.

mod call;
mod reconnect;

use super::connection::{Connection, ProtocolEra};
use super::difference::DefinitionDiff;
use super::features::ServerFeatures;
use super::namespace::Namespace;
use super::oauth::{LoginRequirement, OAuthClient};
use super::pinning::PinnedDefinitions;
use super::process::StderrLog;
use super::provider::ListedTools;
use super::resources::ResourcePageCache;
use super::settings::{StartMode, UpstreamSettings};
use super::subscriptions::ResourceSubscriptions;
use ctx_core::{ErrorKind, Identifier, ToolError};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The connection state of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpstreamState {
    /// It is being connected.
    Connecting,
    /// It can be called.
    Ready,
    /// It is stopped, and started by the next call.
    Idle,
    /// It failed. It is connected again after a backoff delay, or by the next call.
    Failed {
        /// The reason.
        reason: String,
        /// The time until the next attempt.
        retry_in: Duration,
    },
    /// It requires a login. The next call checks whether the user has logged in.
    LoginNeeded {
        /// The reason.
        reason: String,
        /// The command that fixes it.
        remedy: String,
    },
    /// It was shut down.
    Stopped,
}

/// The status of an upstream.
#[derive(Clone, Debug)]
pub struct UpstreamStatus {
    /// Its name.
    pub name: Identifier,
    /// Its connection state.
    pub state: UpstreamState,
    /// The number of its tools, as far as they are known.
    pub tools: usize,
    /// How its definition (tools, instructions, prompts, resources) differs from the accepted one.
    pub difference: DefinitionDiff,
    /// Warnings for the user: invisible characters in text that agents read.
    pub warnings: Vec<String>,
    /// The name and version that it sends, once it has been connected.
    pub server: Option<String>,
    /// The protocol revision that it speaks, once it has been connected.
    pub protocol: Option<String>,
    /// The last lines it wrote to stderr.
    pub stderr_lines: Vec<String>,
}

/// The connection state. Calls wait for its changes.
#[derive(Clone)]
enum ConnectionPhase {
    Connecting,
    Ready(Arc<Connection>),
    Idle,
    /// With the number of the attempt.
    Failed {
        attempt: u64,
        reason: String,
        until: Instant,
    },
    /// With the number of the attempt.
    LoginNeeded {
        attempt: u64,
        requirement: LoginRequirement,
    },
    Stopped,
}

pub(super) struct Upstream {
    pub(super) settings: UpstreamSettings,
    pub(super) tools: ListedTools,
    definitions: Arc<PinnedDefinitions>,
    /// The OAuth client, if users can log in at the server.
    oauth: Option<Arc<OAuthClient>>,
    pub(super) namespace: Arc<Namespace>,
    pub(super) features: ServerFeatures,
    pub(super) subscriptions: Arc<ResourceSubscriptions>,
    pub(super) resource_pages: ResourcePageCache,
    created_at: Instant,
    phase: watch::Sender<ConnectionPhase>,
    /// Notified when a call needs the server: connect now, or restart the idle timeout.
    demand: Notify,
    call_permits: Semaphore,
    waiting_calls: AtomicUsize,
    /// Facts from earlier connections.
    facts: Mutex<ServerFacts>,
    stderr: StderrLog,
    stop: CancellationToken,
}

#[derive(Default)]
struct ServerFacts {
    /// Whether its tools are known.
    are_tools_known: bool,
    /// Whether an attempt to connect has ended since this process started.
    has_tried: bool,
    era: ProtocolEra,
    server: Option<String>,
    protocol: Option<String>,
}

impl Upstream {
    /// An upstream that is not connected yet. Its tools are available at once if their definitions are
    /// stored.
    pub(super) fn new(
        settings: UpstreamSettings,
        definitions: PinnedDefinitions,
        oauth: Option<Arc<OAuthClient>>,
        stop: CancellationToken,
    ) -> Self {
        let stored_tools = definitions.load_tools();
        let facts = ServerFacts { are_tools_known: stored_tools.is_some(), ..ServerFacts::default() };
        let phase = match settings.start {
            StartMode::Lazy if facts.are_tools_known => ConnectionPhase::Idle,
            _ => ConnectionPhase::Connecting,
        };
        let tools = ListedTools::default();
        tools.set(stored_tools.unwrap_or_default());
        Self {
            call_permits: Semaphore::new(settings.limits.in_flight),
            namespace: Arc::new(Namespace::new(&settings.name)),
            settings,
            tools,
            definitions: Arc::new(definitions),
            oauth,
            features: ServerFeatures::default(),
            subscriptions: Arc::default(),
            resource_pages: ResourcePageCache::default(),
            created_at: Instant::now(),
            phase: watch::Sender::new(phase),
            demand: Notify::new(),
            waiting_calls: AtomicUsize::new(0),
            facts: Mutex::new(facts),
            stderr: StderrLog::default(),
            stop,
        }
    }

    /// Begins to close its connection, and to end its process.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    pub(super) fn status(&self) -> UpstreamStatus {
        let state = match &*self.phase.borrow() {
            ConnectionPhase::Connecting => UpstreamState::Connecting,
            ConnectionPhase::Ready(_) => UpstreamState::Ready,
            ConnectionPhase::Idle => UpstreamState::Idle,
            ConnectionPhase::Failed { reason, until, .. } => UpstreamState::Failed {
                reason: reason.clone(),
                retry_in: until.saturating_duration_since(Instant::now()),
            },
            ConnectionPhase::LoginNeeded { requirement, .. } => UpstreamState::LoginNeeded {
                reason: requirement.reason(&self.settings.name),
                remedy: requirement.remedy(&self.settings.name),
            },
            ConnectionPhase::Stopped => UpstreamState::Stopped,
        };
        let facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        UpstreamStatus {
            name: self.settings.name.clone(),
            state,
            tools: self.tools.get().len(),
            difference: self.definitions.difference(),
            warnings: self.definitions.warnings(),
            server: facts.server.clone(),
            protocol: facts.protocol.clone(),
            stderr_lines: self.stderr.lines(),
        }
    }

    /// Why its tools are not known; `None` if they are.
    pub(super) fn unknown_tools_reason(&self) -> Option<String> {
        if self.with_facts(|facts| facts.are_tools_known) {
            return None;
        }
        Some(match &*self.phase.borrow() {
            ConnectionPhase::Failed { reason, .. } => format!("cannot be reached: {reason}"),
            ConnectionPhase::LoginNeeded { requirement, .. } => {
                format!("cannot be reached: {}", requirement.describe(&self.settings.name))
            }
            ConnectionPhase::Stopped => "was shut down".to_owned(),
            ConnectionPhase::Connecting | ConnectionPhase::Ready(_) | ConnectionPhase::Idle => {
                "is still connecting".to_owned()
            }
        })
    }

    pub(super) fn oauth_client(&self) -> Option<&Arc<OAuthClient>> {
        self.oauth.as_ref()
    }

    /// Waits until it is connected, and so its tools are known.
    pub(super) async fn wait_until_connected(&self) -> Result<(), ToolError> {
        self.wait_for_connection().await.map(drop)
    }

    /// Waits until the first attempt to connect has ended, with success or not.
    pub(super) async fn wait_for_first_attempt(&self) {
        let mut phase = self.phase.subscribe();
        loop {
            let current = phase.borrow_and_update().clone();
            let has_ended =
                self.with_facts(|facts| facts.has_tried) && !matches!(current, ConnectionPhase::Connecting);
            if has_ended || matches!(current, ConnectionPhase::Stopped) {
                return;
            }
            if matches!(current, ConnectionPhase::Idle) {
                self.demand.notify_one();
            }
            if phase.changed().await.is_err() {
                return;
            }
        }
    }

    /// [`Self::wait_for_first_attempt`], unless its tools are known already.
    pub(super) async fn wait_for_tools(&self) {
        if !self.with_facts(|facts| facts.are_tools_known) {
            self.wait_for_first_attempt().await;
        }
    }

    /// Runs `work` with the store of definitions on a thread that may block.
    async fn with_definition_store(&self, work: impl FnOnce() + Send + 'static) {
        if let Err(error) = tokio::task::spawn_blocking(work).await {
            tracing::debug!(%error, "{}: cannot store its definition", self.settings.name);
        }
    }

    /// Starts the server if it is idle.
    pub(super) fn wake(&self) {
        if matches!(*self.phase.borrow(), ConnectionPhase::Idle) {
            self.demand.notify_one();
        }
    }

    fn with_facts<T>(&self, work: impl FnOnce(&mut ServerFacts) -> T) -> T {
        work(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn error(&self, message: impl std::fmt::Display) -> ToolError {
        ToolError::new(ErrorKind::Tool, format!("{}: {message}", self.settings.name))
    }
}
