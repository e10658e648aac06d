//! One upstream server: kept connected, and called.

use super::connection::{Connection, Era, Maker};
use super::definitions::Definitions;
use super::difference::Difference;
use super::exchange::{Asked, Lost};
use super::follows::Follows;
use super::namespace::Namespace;
use super::oauth::{Authority, Need};
use super::offers::Offers;
use super::process::Said;
use super::provider::Listed;
use super::resources::Pages;
use super::settings::{Changes, Start, UpstreamSettings};
use crate::convert;
use backon::{BackoffBuilder, ExponentialBuilder};
use ctx_core::{Call, ErrorKind, Identifier, Output, ResourceChange, ToolError, ToolSpec};
use rmcp::model::{CallToolRequestParams, ServerResult};
use serde_json::{Map, Value};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long the first wait for another try is; each is twice as long as the one before.
const WAIT_MIN: Duration = Duration::from_millis(500);
/// The longest such wait.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A connection that held this long was a good one: the next try need not wait.
const HELD: Duration = Duration::from_secs(30);
/// When a call that finds no room may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long a server's lists are left alone after it said that they are others: it may say so often.
const RELIST_PAUSE: Duration = Duration::from_millis(50);
/// Lines of what a server said that are told with its failure.
const SAID_TOLD: usize = 5;

/// How an upstream is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpstreamState {
    /// It is being started.
    Connecting,
    /// It can be called.
    Ready,
    /// It sleeps, and is started by the next call.
    Idle,
    /// It failed; it is tried again by itself, and by the next call.
    Failed {
        /// What went wrong.
        reason: String,
        /// How long until it is tried again.
        retry_in: Duration,
    },
    /// It lets us in when somebody has logged in; the next call sees whether that was done.
    LoginNeeded {
        /// What to do.
        told: String,
    },
    /// It was shut down.
    Stopped,
}

/// What is told of an upstream.
#[derive(Clone, Debug)]
pub struct UpstreamStatus {
    /// Its name.
    pub name: Identifier,
    /// How it is doing.
    pub state: UpstreamState,
    /// How many tools it has, as far as is known.
    pub tools: usize,
    /// How they differ from those that were accepted.
    pub difference: Difference,
    /// What it calls itself, once it has been reached.
    pub server: Option<String>,
    /// The revision of the protocol it speaks, once it has been reached.
    pub protocol: Option<String>,
    /// The last lines it wrote to stderr.
    pub said: Vec<String>,
}

/// Where it stands; waited for by calls.
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
    /// The same.
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
    /// What lets us in, where one can log in.
    authority: Option<Arc<Authority>>,
    pub(super) namespace: Arc<Namespace>,
    pub(super) offers: Offers,
    pub(super) follows: Arc<Follows>,
    pub(super) pages: Pages,
    since: Instant,
    phase: watch::Sender<Phase>,
    /// Somebody wants it now.
    wanted: Notify,
    room: Semaphore,
    waiting: AtomicUsize,
    /// What is remembered of it.
    known: Mutex<Known>,
    said: Said,
    stop: CancellationToken,
}

#[derive(Default)]
struct Known {
    /// Whether its tools are.
    listed: bool,
    /// Whether it was tried to reach it since we run.
    tried: bool,
    era: Era,
    server: Option<String>,
    protocol: Option<String>,
}

/// Why attending to a connection ended.
enum Over {
    Lost(String),
    Idle,
    Stopped,
}

impl Upstream {
    /// One of which the tools are there at once, if they are remembered.
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

    pub(super) fn status(&self) -> UpstreamStatus {
        let state = match &*self.phase.borrow() {
            Phase::Connecting => UpstreamState::Connecting,
            Phase::Ready(_) => UpstreamState::Ready,
            Phase::Idle => UpstreamState::Idle,
            Phase::Failed { reason, until, .. } => UpstreamState::Failed {
                reason: reason.clone(),
                retry_in: until.saturating_duration_since(Instant::now()),
            },
            Phase::LoginNeeded { need, .. } => {
                UpstreamState::LoginNeeded { told: need.told(&self.settings.name) }
            }
            Phase::Stopped => UpstreamState::Stopped,
        };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        UpstreamStatus {
            name: self.settings.name.clone(),
            state,
            tools: self.listed.get().len(),
            difference: self.definitions.difference(),
            server: known.server.clone(),
            protocol: known.protocol.clone(),
            said: self.said.lines(),
        }
    }

    /// Why its tools are not known, where they are not.
    pub(super) fn unknown(&self) -> Option<String> {
        if self.with_known(|known| known.listed) {
            return None;
        }
        Some(match &*self.phase.borrow() {
            Phase::Failed { reason, .. } => format!("cannot be reached: {reason}"),
            Phase::LoginNeeded { need, .. } => {
                format!("cannot be reached: {}", need.told(&self.settings.name))
            }
            Phase::Stopped => "was shut down".to_owned(),
            Phase::Connecting | Phase::Ready(_) | Phase::Idle => "is still being reached".to_owned(),
        })
    }

    pub(super) fn authority(&self) -> Option<&Arc<Authority>> {
        self.authority.as_ref()
    }

    /// Waits until its tools are known.
    pub(super) async fn reached(&self) -> Result<(), ToolError> {
        self.connected().await.map(drop)
    }

    /// Waits until the first try to reach it has ended, either way.
    pub(super) async fn settled(&self) {
        let mut phase = self.phase.subscribe();
        loop {
            let now = phase.borrow_and_update().clone();
            if self.with_known(|known| known.tried) || matches!(now, Phase::Stopped) {
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

    /// The same, unless its tools are known anyway.
    pub(super) async fn tools_known(&self) {
        if !self.with_known(|known| known.listed) {
            self.settled().await;
        }
    }

    /// Keeps it connected until it is stopped.
    pub(super) async fn supervise(
        self: Arc<Self>,
        maker: Arc<Maker>,
        on_change: Arc<dyn Fn() + Send + Sync>,
    ) {
        let waits = ExponentialBuilder::default()
            .with_min_delay(WAIT_MIN)
            .with_max_delay(WAIT_MAX)
            .with_jitter()
            .without_max_times();
        let mut wait = waits.build();
        // Whether clients have not been told that it is there.
        let mut is_news = true;
        if matches!(*self.phase.borrow(), Phase::Idle) && !self.is_wanted().await {
            self.phase.send_replace(Phase::Stopped);
            return;
        }
        for attempt in 1.. {
            self.phase.send_replace(Phase::Connecting);
            let connected = tokio::select! {
                () = self.stop.cancelled() => break,
                connected = self.connect(&maker, &*on_change) => connected,
            };
            let reason = match connected {
                Err(reason) => {
                    if let Some(need) = self.authority.as_ref().and_then(|authority| authority.need()) {
                        tracing::warn!("{}", need.told(&self.settings.name));
                        self.phase.send_replace(Phase::LoginNeeded { attempt, need });
                        tokio::select! {
                            () = self.stop.cancelled() => break,
                            () = self.logged_in() => {}
                        }
                        wait = waits.build();
                        continue;
                    }
                    reason
                }
                Ok(connection) => {
                    let since = Instant::now();
                    self.phase.send_replace(Phase::Ready(connection.clone()));
                    if std::mem::take(&mut is_news) {
                        self.follows.tell(ResourceChange::List);
                    }
                    match self.attend(&connection, &*on_change).await {
                        Over::Lost(how) => {
                            if since.elapsed() >= HELD {
                                wait = waits.build();
                            }
                            how
                        }
                        Over::Stopped => {
                            self.phase.send_replace(Phase::Stopped);
                            connection.close().await;
                            break;
                        }
                        Over::Idle => {
                            self.phase.send_replace(Phase::Idle);
                            connection.close().await;
                            if !self.is_wanted().await {
                                break;
                            }
                            wait = waits.build();
                            continue;
                        }
                    }
                }
            };
            is_news = true;
            // What a server says may be anything that it was given.
            let reason = maker.redactor.text(self.with_said(reason));
            let pause = wait.next().unwrap_or(WAIT_MAX);
            tracing::warn!("{}: {reason}; tried again in {:.1} s", self.settings.name, pause.as_secs_f32());
            let until = Instant::now() + pause;
            self.phase.send_replace(Phase::Failed { attempt, reason, until });
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = tokio::time::sleep_until(until) => {}
                () = self.wanted.notified() => {}
            }
        }
        self.phase.send_replace(Phase::Stopped);
    }

    /// Waits until somebody wants it; not if it is stopped before.
    async fn is_wanted(&self) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = self.wanted.notified() => true,
        }
    }

    /// Waits until somebody wants it and there is a login that was not refused.
    async fn logged_in(&self) {
        loop {
            self.wanted.notified().await;
            match &self.authority {
                Some(authority) if !authority.has_news().await => {}
                _ => return,
            }
        }
    }

    /// Connects and takes the list of its tools.
    async fn connect(
        &self,
        maker: &Maker,
        on_change: &(dyn Fn() + Send + Sync),
    ) -> Result<Arc<Connection>, String> {
        let era = self.with_known(|known| known.era);
        self.said.clear();
        if let Some(authority) = &self.authority {
            authority.begin();
        }
        let connecting = async {
            let authority = self.authority.as_ref();
            let connecting =
                maker.connect(&self.settings, authority, era, &self.said, &self.follows, &self.namespace);
            let connection = Arc::new(connecting.await?);
            let (tools, offers) =
                tokio::join!(connection.tools(&self.settings), connection.offers(&self.namespace));
            match tools {
                Ok(specs) => Ok((connection, specs, offers)),
                Err(reason) => {
                    connection.drop_it();
                    Err(reason)
                }
            }
        };
        let start = self.settings.limits.start;
        let connected = tokio::time::timeout(start, connecting).await;
        let connected =
            connected.unwrap_or_else(|_| Err(format!("it did not answer within {} s", start.as_secs_f32())));
        match connected {
            Ok((connection, specs, offers)) => {
                let (server, protocol) = connection.server();
                let era = connection.era();
                let changed = self.take_up(specs).await;
                let is_new = self.with_known(|known| {
                    let now = Known { listed: true, tried: true, era, server, protocol };
                    !std::mem::replace(known, now).listed
                });
                let has_other_prompts = self.offers.set(offers);
                if changed || has_other_prompts || is_new {
                    on_change();
                }
                Ok(connection)
            }
            Err(reason) => {
                // What was known of it may be what was wrong.
                self.with_known(|known| {
                    known.era = Era::Unknown;
                    known.tried = true;
                });
                Err(reason)
            }
        }
    }

    /// A reason, with what the server said last.
    fn with_said(&self, reason: String) -> String {
        let said = self.said.lines();
        let last = said.iter().rev().take(SAID_TOLD).rev().map(String::as_str).collect::<Vec<_>>();
        if last.is_empty() { reason } else { format!("{reason}; it said: {}", last.join(" | ")) }
    }

    /// Takes up what the server has, and remembers it; tells whether that is something else than before.
    async fn take_up(&self, mut specs: Vec<ToolSpec>) -> bool {
        let (definitions, seen) = (self.definitions.clone(), specs.clone());
        self.remembering(move || definitions.see(&seen)).await;
        specs.retain(|spec| self.settings.tools.takes(&spec.name));
        self.listed.set(specs)
    }

    /// Memories may be slow.
    async fn remembering(&self, work: impl FnOnce() + Send + 'static) {
        if let Err(error) = tokio::task::spawn_blocking(work).await {
            tracing::debug!(%error, "{}: its tools are not remembered", self.settings.name);
        }
    }

    /// Refuses a tool that is not the one that was accepted, where that is wanted.
    async fn allow(&self, asked: &Asked) -> Result<(), ToolError> {
        let Asked::Tool(params) = asked else { return Ok(()) };
        let tool = &params.name;
        if self.settings.changes == Changes::Tell || self.definitions.objection(tool).is_none() {
            return Ok(());
        }
        let definitions = self.definitions.clone();
        self.remembering(move || definitions.look_again()).await;
        self.definitions.objection(tool).map_or(Ok(()), |objection| {
            let message = format!("{}: {objection}", self.settings.name);
            Err(ToolError::new(ErrorKind::Forbidden, message))
        })
    }

    /// Stays with a connection until it ends, or is needed no more.
    async fn attend(&self, connection: &Connection, on_change: &(dyn Fn() + Send + Sync)) -> Over {
        let idle = self.settings.limits.idle;
        let mut listing = std::pin::pin!(self.keep_offers(connection, on_change));
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Over::Stopped,
                how = connection.ended() => return Over::Lost(how),
                () = connection.list_changed() => {
                    let listing = tokio::time::timeout(self.settings.limits.start, connection.tools(&self.settings));
                    match listing.await {
                        Ok(Ok(specs)) => if self.take_up(specs).await {
                            on_change();
                        },
                        Ok(Err(reason)) => tracing::warn!("{}: {reason}", self.settings.name),
                        Err(_) => tracing::warn!("{}: its tools cannot be listed in time", self.settings.name),
                    }
                }
                never = &mut listing => match never {},
                () = self.wanted.notified() => {}
                () = tokio::time::sleep(idle), if self.settings.start == Start::Lazy => {
                    let is_unused = self.room.available_permits() == self.settings.limits.in_flight;
                    if is_unused && self.follows.is_empty() {
                        return Over::Idle;
                    }
                }
            }
        }
    }

    /// Lists prompts and forms of URIs again whenever the server says that they, or its resources, are others.
    async fn keep_offers(&self, connection: &Connection, on_change: &(dyn Fn() + Send + Sync)) -> Infallible {
        loop {
            self.follows.list_changed.notified().await;
            tokio::time::sleep(RELIST_PAUSE).await;
            if self.offers.set(connection.offers(&self.namespace).await) {
                on_change();
            }
            self.follows.tell(ResourceChange::List);
        }
    }

    /// Has it run where it sleeps.
    pub(super) fn wake(&self) {
        if matches!(*self.phase.borrow(), Phase::Idle) {
            self.wanted.notify_one();
        }
    }

    /// A connection where there is one, or may soon be: whoever asks has others to ask, too. A server gets
    /// that long once when it is started, not at every try.
    pub(super) async fn connected_soon(&self, patience: Duration) -> Option<Arc<Connection>> {
        let patience = match &*self.phase.borrow() {
            Phase::Failed { .. } | Phase::LoginNeeded { .. } | Phase::Stopped => return None,
            // Whoever lists everything should not start everything.
            Phase::Idle => return None,
            Phase::Connecting => patience.saturating_sub(self.since.elapsed()),
            Phase::Ready(_) => patience,
        };
        tokio::time::timeout(patience, self.connected()).await.ok()?.ok()
    }

    fn with_known<T>(&self, work: impl FnOnce(&mut Known) -> T) -> T {
        work(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn failed(&self, message: impl std::fmt::Display) -> ToolError {
        ToolError::new(ErrorKind::Tool, format!("{}: {message}", self.settings.name))
    }

    fn refused(&self, need: &Need) -> ToolError {
        ToolError::new(ErrorKind::Tool, need.told(&self.settings.name))
    }

    /// A connection on which a call got no further, since a person must do something first.
    fn let_go(&self, connection: &Connection) -> ToolError {
        let need = self.authority.as_ref().and_then(|authority| match authority.need() {
            // The rest of it works as it did.
            Some(Need::Scopes(_)) => authority.take_need(),
            need => {
                connection.drop_it();
                need
            }
        });
        self.refused(&need.unwrap_or(Need::Login))
    }

    /// Room for one call.
    async fn admit(&self) -> Result<SemaphorePermit<'_>, ToolError> {
        if let Ok(permit) = self.room.try_acquire() {
            return Ok(permit);
        }
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        let full = || {
            let message = format!("{}: too many calls at once", self.settings.name);
            ToolError::new(ErrorKind::Overloaded, message).retry_after(RETRY_AFTER)
        };
        if before >= self.settings.limits.waiting {
            return Err(full());
        }
        self.room.acquire().await.map_err(|_| full())
    }

    /// A connection; one try to make it, where there is none.
    async fn connected(&self) -> Result<Arc<Connection>, ToolError> {
        let mut phase = self.phase.subscribe();
        let mut asked_after = None;
        loop {
            let now = phase.borrow_and_update().clone();
            match now {
                Phase::Ready(connection) if !connection.has_ended() => return Ok(connection),
                Phase::Ready(_) | Phase::Connecting => {}
                Phase::Idle => self.wanted.notify_one(),
                Phase::Failed { attempt, reason, .. } => match asked_after {
                    None => {
                        asked_after = Some(attempt);
                        self.wanted.notify_one();
                    }
                    Some(before) if attempt > before => return Err(self.failed(reason)),
                    Some(_) => {}
                },
                Phase::LoginNeeded { attempt, need } => match (asked_after, &self.authority) {
                    (None, Some(authority)) if authority.has_news().await => {
                        asked_after = Some(attempt);
                        self.wanted.notify_one();
                    }
                    (Some(before), _) if attempt == before => {}
                    _ => return Err(self.refused(&need)),
                },
                Phase::Stopped => return Err(self.failed("it was shut down")),
            }
            if phase.changed().await.is_err() {
                return Err(self.failed("it was shut down"));
            }
        }
    }

    pub(super) async fn call(
        &self,
        spec: &ToolSpec,
        arguments: Map<String, Value>,
        call: &Call,
    ) -> Result<Output, ToolError> {
        let params = CallToolRequestParams::new(spec.name.clone()).with_arguments(arguments);
        match self.ask(Asked::Tool(params), may_repeat(spec), call).await? {
            ServerResult::CallToolResult(result) => {
                convert::output(result, |block| self.namespace.rename(block))
                    .map_err(|error| self.named(error))
            }
            _ => Err(self.failed("its answer is not that of a tool")),
        }
    }

    fn named(&self, error: ToolError) -> ToolError {
        ToolError::new(error.kind(), format!("{}: {error}", self.settings.name))
    }

    /// Asks it, once more if the connection is lost meanwhile and what may have run `may_repeat`.
    pub(super) async fn ask(
        &self,
        asked: Asked,
        may_repeat: bool,
        call: &Call,
    ) -> Result<ServerResult, ToolError> {
        let _room = self.admit().await?;
        if self.settings.start == Start::Lazy {
            // Its time to be idle begins again.
            self.wanted.notify_one();
        }
        let connection = self.connected().await?;
        self.allow(&asked).await?;
        let lost = match connection.ask(asked.clone(), call).await {
            Ok(answer) => return answer.map_err(|error| self.named(error)),
            Err(Lost::Refused) => return Err(self.let_go(&connection)),
            Err(lost) => lost,
        };
        connection.drop_it();
        if matches!(lost, Lost::Unanswered) && !may_repeat {
            let what = asked.name();
            return Err(self.failed(format!(
                "the connection was lost during the call; `{what}` may have run, and is not called again by itself"
            )));
        }
        tracing::info!("{}: the connection was lost during a call, which is made again", self.settings.name);
        connection.ended().await;
        let connection = self.connected().await?;
        self.allow(&asked).await?;
        match connection.ask(asked, call).await {
            Ok(answer) => answer.map_err(|error| self.named(error)),
            Err(Lost::Refused) => Err(self.let_go(&connection)),
            Err(_) => {
                connection.drop_it();
                Err(self
                    .failed("the connection was lost during the call, and once more when it was repeated"))
            }
        }
    }
}

/// Whether a call that may have run may be made again: unless the server says otherwise.
fn may_repeat(spec: &ToolSpec) -> bool {
    let hints = spec.annotations;
    let changes_each_time = hints.idempotent == Some(false) && hints.read_only == Some(false);
    hints.destructive != Some(true) && !changes_each_time
}
