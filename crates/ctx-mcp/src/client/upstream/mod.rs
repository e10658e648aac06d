//! One upstream server: its state, and the tools, prompts and resources that are known of it.
//!
//! `supervise` keeps it connected, `asking` sends requests to it.

mod asking;
mod supervise;

use super::connection::{Connection, Era};
use super::definitions::Definitions;
use super::difference::Difference;
use super::follows::Follows;
use super::namespace::Namespace;
use super::oauth::{Authority, Need};
use super::offers::Offers;
use super::process::Said;
use super::provider::Listed;
use super::resources::Pages;
use super::settings::{Start, UpstreamSettings};
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
    pub difference: Difference,
    /// Warnings for the user: invisible characters in text that agents read.
    pub warnings: Vec<String>,
    /// The name and version that it sends, once it has been connected.
    pub server: Option<String>,
    /// The protocol revision that it speaks, once it has been connected.
    pub protocol: Option<String>,
    /// The last lines it wrote to stderr.
    pub said: Vec<String>,
}

/// The connection state. Calls wait for its changes.
#[derive(Clone)]
enum Phase {
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
        need: Need,
    },
    Stopped,
}

pub(super) struct Upstream {
    pub(super) settings: UpstreamSettings,
    pub(super) listed: Listed,
    definitions: Arc<Definitions>,
    /// The OAuth credentials, if users can log in at the server.
    authority: Option<Arc<Authority>>,
    pub(super) namespace: Arc<Namespace>,
    pub(super) offers: Offers,
    pub(super) follows: Arc<Follows>,
    pub(super) pages: Pages,
    since: Instant,
    phase: watch::Sender<Phase>,
    /// Notified when a call needs the server: connect now, or restart the idle timeout.
    wanted: Notify,
    room: Semaphore,
    waiting: AtomicUsize,
    /// Facts from earlier connections.
    known: Mutex<Known>,
    said: Said,
    stop: CancellationToken,
}

#[derive(Default)]
struct Known {
    /// Whether its tools are known.
    listed: bool,
    /// Whether an attempt to connect has ended since this process started.
    tried: bool,
    era: Era,
    server: Option<String>,
    protocol: Option<String>,
}

impl Upstream {
    /// An upstream that is not connected yet. Its tools are available at once if their definitions are
    /// stored.
    pub(super) fn new(
        settings: UpstreamSettings,
        definitions: Definitions,
        authority: Option<Arc<Authority>>,
        stop: CancellationToken,
    ) -> Self {
        let remembered = definitions.recall();
        let known = Known { listed: remembered.is_some(), ..Known::default() };
        let phase = match settings.start {
            Start::Lazy if known.listed => Phase::Idle,
            _ => Phase::Connecting,
        };
        let listed = Listed::default();
        listed.set(remembered.unwrap_or_default());
        Self {
            room: Semaphore::new(settings.limits.in_flight),
            namespace: Arc::new(Namespace::new(&settings.name)),
            settings,
            listed,
            definitions: Arc::new(definitions),
            authority,
            offers: Offers::default(),
            follows: Arc::default(),
            pages: Pages::default(),
            since: Instant::now(),
            phase: watch::Sender::new(phase),
            wanted: Notify::new(),
            waiting: AtomicUsize::new(0),
            known: Mutex::new(known),
            said: Said::default(),
            stop,
        }
    }

    /// Begins to close its connection, and to end its process.
    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    pub(super) fn status(&self) -> UpstreamStatus {
        let state = match &*self.phase.borrow() {
            Phase::Connecting => UpstreamState::Connecting,
            Phase::Ready(_) => UpstreamState::Ready,
            Phase::Idle => UpstreamState::Idle,
            Phase::Failed { reason, until, .. } => UpstreamState::Failed {
                reason: reason.clone(),
                retry_in: until.saturating_duration_since(Instant::now()),
            },
            Phase::LoginNeeded { need, .. } => UpstreamState::LoginNeeded {
                reason: need.reason(&self.settings.name),
                remedy: need.remedy(&self.settings.name),
            },
            Phase::Stopped => UpstreamState::Stopped,
        };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        UpstreamStatus {
            name: self.settings.name.clone(),
            state,
            tools: self.listed.get().len(),
            difference: self.definitions.difference(),
            warnings: self.definitions.warnings(),
            server: known.server.clone(),
            protocol: known.protocol.clone(),
            said: self.said.lines(),
        }
    }

    /// Why its tools are not known; `None` if they are.
    pub(super) fn unknown(&self) -> Option<String> {
        if self.with_known(|known| known.listed) {
            return None;
        }
        Some(match &*self.phase.borrow() {
            Phase::Failed { reason, .. } => format!("cannot be reached: {reason}"),
            Phase::LoginNeeded { need, .. } => {
                format!("cannot be reached: {}", need.describe(&self.settings.name))
            }
            Phase::Stopped => "was shut down".to_owned(),
            Phase::Connecting | Phase::Ready(_) | Phase::Idle => "is still being reached".to_owned(),
        })
    }

    pub(super) fn authority(&self) -> Option<&Arc<Authority>> {
        self.authority.as_ref()
    }

    /// Waits until it is connected, and so its tools are known.
    pub(super) async fn reached(&self) -> Result<(), ToolError> {
        self.connected().await.map(drop)
    }

    /// Waits until the first attempt to connect has ended, with success or not.
    pub(super) async fn settled(&self) {
        let mut phase = self.phase.subscribe();
        loop {
            let now = phase.borrow_and_update().clone();
            let is_tried = self.with_known(|known| known.tried) && !matches!(now, Phase::Connecting);
            if is_tried || matches!(now, Phase::Stopped) {
                return;
            }
            if matches!(now, Phase::Idle) {
                self.wanted.notify_one();
            }
            if phase.changed().await.is_err() {
                return;
            }
        }
    }

    /// [`Self::settled`], unless its tools are known already.
    pub(super) async fn tools_known(&self) {
        if !self.with_known(|known| known.listed) {
            self.settled().await;
        }
    }

    /// Runs `work` with the store of definitions on a thread that may block.
    async fn remembering(&self, work: impl FnOnce() + Send + 'static) {
        if let Err(error) = tokio::task::spawn_blocking(work).await {
            tracing::debug!(%error, "{}: its tools are not remembered", self.settings.name);
        }
    }

    /// Starts the server if it is idle.
    pub(super) fn wake(&self) {
        if matches!(*self.phase.borrow(), Phase::Idle) {
            self.wanted.notify_one();
        }
    }

    fn with_known<T>(&self, work: impl FnOnce(&mut Known) -> T) -> T {
        work(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn failed(&self, message: impl std::fmt::Display) -> ToolError {
        ToolError::new(ErrorKind::Tool, format!("{}: {message}", self.settings.name))
    }
}
