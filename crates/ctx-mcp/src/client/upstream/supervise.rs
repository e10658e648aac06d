//! Keeps a server connected: reconnects with backoff, stops it when idle, and lists its tools, prompts and
//! resources again when they have changed.

use super::super::connection::{Connection, Era, Maker, Reachable, too_late};
use super::super::definition::{ServerDefinition, ToolDefinition};
use super::super::settings::Start;
use super::super::startup::within;
use super::{Known, Phase, Upstream};
use backon::{BackoffBuilder, ExponentialBuilder};
use ctx_core::{ResourceChange, escape_line};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The first backoff delay; each is twice as long as the one before.
const WAIT_MIN: Duration = Duration::from_millis(500);
/// The longest backoff delay.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A connection that has lasted this long resets the backoff.
const HELD: Duration = Duration::from_secs(30);
/// The delay before lists are read again after a `list_changed` notification (debounce); doubled each time that another
/// one follows soon.
const RELIST_PAUSE: Duration = Duration::from_millis(50);
/// The longest debounce delay.
const RELIST_PAUSE_MAX: Duration = Duration::from_secs(30);
/// The debounce delay starts over after this long without a notification.
const RELIST_QUIET: Duration = Duration::from_secs(60);
/// Lines of stderr that are shown with a failure.
const SAID_TOLD: usize = 5;

/// Debounce of `list_changed` notifications: a server that sends them without pause is asked ever less often.
#[derive(Default)]
struct RelistDebounce {
    pause: Duration,
    last: Option<Instant>,
}

impl RelistDebounce {
    async fn wait(&mut self) {
        let is_soon = self.last.is_some_and(|last| last.elapsed() < RELIST_QUIET);
        self.pause = match is_soon {
            true => (self.pause * 2).min(RELIST_PAUSE_MAX),
            false => RELIST_PAUSE,
        };
        tokio::time::sleep(self.pause).await;
        self.last = Some(Instant::now());
    }
}

/// Why [`Upstream::attend`] has ended.
enum Over {
    Lost(String),
    Idle,
    Stopped,
}

impl Upstream {
    /// Keeps the server connected until it is stopped.
    pub(in crate::client) async fn supervise(
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
        // Whether clients are to be notified that its resources are available again.
        let mut is_news = true;
        // The failure that was logged last: repeated attempts with the same failure log no further warning.
        let mut told: Option<String> = None;
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
                        tracing::warn!("{}", need.describe(&self.settings.name));
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
                    told = None;
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
            // Text from a server may contain the secrets that it was given.
            let reason = escape_line(&maker.redactor.text(self.with_said(reason))).into_owned();
            let pause = wait.next().unwrap_or(WAIT_MAX);
            let (name, seconds) = (&self.settings.name, pause.as_secs_f32());
            if told.as_ref() == Some(&reason) {
                tracing::debug!("{name}: {reason}; tried again in {seconds:.1} s");
            } else {
                tracing::warn!("{name}: {reason}; tried again in {seconds:.1} s");
                told = Some(reason.clone());
            }
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

    /// Waits until a call needs the server; returns false if it is stopped before.
    async fn is_wanted(&self) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = self.wanted.notified() => true,
        }
    }

    /// Waits until a call needs the server and a login is stored that the server has not refused.
    async fn logged_in(&self) {
        loop {
            self.wanted.notified().await;
            match &self.authority {
                Some(authority) if !authority.has_news().await => {}
                _ => return,
            }
        }
    }

    /// Connects to the server, and lists its tools, prompts and resource templates.
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
        let connecting = async |server: Reachable<'_>| {
            let authority = self.authority.as_ref();
            let connecting =
                maker.connect(&self.settings, server, authority, era, &self.follows, &self.namespace);
            let connection = Arc::new(connecting.await?);
            let (tools, offers, ()) = tokio::join!(
                connection.tools(&self.settings),
                connection.offers(&self.namespace),
                connection.ready_for_calls(),
            );
            match tools {
                Ok(tools) => Ok((connection, tools, offers)),
                Err(reason) => {
                    connection.drop_it();
                    Err(reason)
                }
            }
        };
        let start = self.settings.limits.start;
        let connected = match maker.start(&self.settings, &self.said).await {
            Ok(server) => within(start, connecting(server)).await.unwrap_or_else(|| Err(too_late(start))),
            Err(reason) => Err(reason),
        };
        match connected {
            Ok((connection, tools, offers)) => {
                let (server, protocol) = connection.server();
                let era = connection.era();
                let instructions = Some(connection.instructions());
                let seen = ServerDefinition { tools, instructions, ..offers.definition() };
                let changed = self.take_up(seen).await;
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
                // The remembered era may have been the cause.
                self.with_known(|known| {
                    known.era = Era::Unknown;
                    known.tried = true;
                });
                Err(reason)
            }
        }
    }

    /// The reason, with the last lines of stderr.
    fn with_said(&self, reason: String) -> String {
        let said = self.said.lines();
        let last = said.iter().rev().take(SAID_TOLD).rev().map(String::as_str).collect::<Vec<_>>();
        if last.is_empty() { reason } else { format!("{reason}; it said: {}", last.join(" | ")) }
    }

    /// Stores the definition of the server and publishes its tools; returns whether they changed.
    async fn take_up(&self, seen: ServerDefinition) -> bool {
        let mut specs = seen.visible_tools();
        let definitions = self.definitions.clone();
        self.remembering(move || definitions.see(seen)).await;
        specs.retain(|spec| self.settings.tools.takes(&spec.name));
        self.listed.set(specs)
    }

    async fn apply_tools(&self, tools: Vec<ToolDefinition>) -> bool {
        self.take_up(ServerDefinition { tools, ..ServerDefinition::default() }).await
    }

    /// Watches a connection until it is lost, idle or stopped; meanwhile lists tools, prompts and resources
    /// again when they change.
    async fn attend(&self, connection: &Connection, on_change: &(dyn Fn() + Send + Sync)) -> Over {
        let idle = self.settings.limits.idle;
        let mut tools = std::pin::pin!(self.keep_tools(connection, on_change));
        let mut offers = std::pin::pin!(self.keep_offers(connection, on_change));
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Over::Stopped,
                how = connection.ended() => return Over::Lost(how),
                never = &mut tools => match never {},
                never = &mut offers => match never {},
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

    /// Lists tools again after each `tools/list_changed` notification.
    async fn keep_tools(&self, connection: &Connection, on_change: &(dyn Fn() + Send + Sync)) -> Infallible {
        let mut debounce = RelistDebounce::default();
        loop {
            connection.list_changed().await;
            debounce.wait().await;
            let listing = tokio::time::timeout(self.settings.limits.start, connection.tools(&self.settings));
            match listing.await {
                Ok(Ok(tools)) => {
                    if self.apply_tools(tools).await {
                        on_change();
                    }
                }
                Ok(Err(reason)) => tracing::warn!("{}: {reason}", self.settings.name),
                Err(_) => tracing::warn!("{}: its tools cannot be listed in time", self.settings.name),
            }
        }
    }

    /// Lists prompts, resources and resource templates again after each `list_changed` notification about
    /// them.
    async fn keep_offers(&self, connection: &Connection, on_change: &(dyn Fn() + Send + Sync)) -> Infallible {
        let mut debounce = RelistDebounce::default();
        loop {
            // After the connection is made, not as part of it: listing resources may be slow.
            let resources = connection.resources().await;
            let (definitions, seen) =
                (self.definitions.clone(), ServerDefinition { resources, ..Default::default() });
            self.remembering(move || definitions.see_offers(seen)).await;
            self.follows.list_changed.notified().await;
            debounce.wait().await;
            let offers = connection.offers(&self.namespace).await;
            let (definitions, seen) = (self.definitions.clone(), offers.definition());
            self.remembering(move || definitions.see_offers(seen)).await;
            if self.offers.set(offers) {
                on_change();
            }
            self.follows.tell(ResourceChange::List);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lists_that_change_without_pause_are_listed_ever_less_often() {
        let mut debounce = RelistDebounce::default();
        let begun = Instant::now();
        let mut times = 0;
        while begun.elapsed() < Duration::from_secs(600) {
            debounce.wait().await;
            times += 1;
        }
        assert!((20..40).contains(&times), "{times}");
        tokio::time::advance(RELIST_QUIET).await;
        let before = Instant::now();
        debounce.wait().await;
        assert!(before.elapsed() < RELIST_PAUSE * 2);
    }
}
