//! Keeps a server connected: reconnects with backoff, stops it when idle, and lists its tools, prompts and
//! resources again when they have changed.

use super::super::connection::{
    ConnectTarget, Connection, ConnectionFactory, ProtocolEra, start_timeout_reason,
};
use super::super::definition::{ServerDefinition, ToolDefinition};
use super::super::settings::StartMode;
use super::super::startup::cpu_adjusted_timeout;
use super::{ConnectionPhase, ServerFacts, Upstream};
use backon::{BackoffBuilder, ExponentialBuilder};
use ctx_core::{ResourceChange, escape_line};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The first backoff delay; each is twice as long as the one before.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// The longest backoff delay.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// A connection that has lasted this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// The delay before lists are read again after a `list_changed` notification (debounce); doubled each time that another
/// one follows soon.
const RELIST_PAUSE: Duration = Duration::from_millis(50);
/// The longest debounce delay.
const RELIST_PAUSE_MAX: Duration = Duration::from_secs(30);
/// The debounce delay starts over after this long without a notification.
const RELIST_QUIET: Duration = Duration::from_secs(60);
/// Lines of stderr that are shown with a failure.
const STDERR_LINES_SHOWN: usize = 5;

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

/// Why [`Upstream::watch`] has ended.
enum ConnectionEnd {
    Lost(String),
    Idle,
    Stopped,
}

impl Upstream {
    /// Keeps the server connected until it is stopped.
    pub(in crate::client) async fn keep_connected(
        self: Arc<Self>,
        factory: Arc<ConnectionFactory>,
        on_change: Arc<dyn Fn() + Send + Sync>,
    ) {
        let backoff = ExponentialBuilder::default()
            .with_min_delay(BACKOFF_MIN)
            .with_max_delay(BACKOFF_MAX)
            .with_jitter()
            .without_max_times();
        let mut delays = backoff.build();
        // Whether clients are to be notified that its resources are available again.
        let mut notify_resources = true;
        // The failure that was logged last: repeated attempts with the same failure log no further warning.
        let mut last_warning: Option<String> = None;
        if matches!(*self.phase.borrow(), ConnectionPhase::Idle) && !self.wait_for_demand().await {
            self.phase.send_replace(ConnectionPhase::Stopped);
            return;
        }
        for attempt in 1.. {
            self.phase.send_replace(ConnectionPhase::Connecting);
            let result = tokio::select! {
                () = self.stop.cancelled() => break,
                result = self.connect(&factory, &*on_change) => result,
            };
            let reason = match result {
                Err(reason) => {
                    if let Some(requirement) = self.oauth.as_ref().and_then(|oauth| oauth.login_requirement())
                    {
                        tracing::warn!("{}", requirement.describe(&self.settings.name));
                        self.phase.send_replace(ConnectionPhase::LoginNeeded { attempt, requirement });
                        tokio::select! {
                            () = self.stop.cancelled() => break,
                            () = self.wait_for_login() => {}
                        }
                        delays = backoff.build();
                        continue;
                    }
                    reason
                }
                Ok(connection) => {
                    let connected_at = Instant::now();
                    last_warning = None;
                    self.phase.send_replace(ConnectionPhase::Ready(connection.clone()));
                    if std::mem::take(&mut notify_resources) {
                        self.subscriptions.publish(ResourceChange::List);
                    }
                    match self.watch(&connection, &*on_change).await {
                        ConnectionEnd::Lost(reason) => {
                            if connected_at.elapsed() >= STABLE_AFTER {
                                delays = backoff.build();
                            }
                            reason
                        }
                        ConnectionEnd::Stopped => {
                            self.phase.send_replace(ConnectionPhase::Stopped);
                            connection.close().await;
                            break;
                        }
                        ConnectionEnd::Idle => {
                            self.phase.send_replace(ConnectionPhase::Idle);
                            connection.close().await;
                            if !self.wait_for_demand().await {
                                break;
                            }
                            delays = backoff.build();
                            continue;
                        }
                    }
                }
            };
            notify_resources = true;
            // Text from a server may contain the secrets that it was given.
            let reason = escape_line(&factory.redactor.text(self.with_stderr(reason))).into_owned();
            let pause = delays.next().unwrap_or(BACKOFF_MAX);
            let (name, seconds) = (&self.settings.name, pause.as_secs_f32());
            if last_warning.as_ref() == Some(&reason) {
                tracing::debug!("{name}: {reason}; retrying in {seconds:.1} s");
            } else {
                tracing::warn!("{name}: {reason}; retrying in {seconds:.1} s");
                last_warning = Some(reason.clone());
            }
            let until = Instant::now() + pause;
            self.phase.send_replace(ConnectionPhase::Failed { attempt, reason, until });
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = tokio::time::sleep_until(until) => {}
                () = self.demand.notified() => {}
            }
        }
        self.phase.send_replace(ConnectionPhase::Stopped);
    }

    /// Waits until a call needs the server; returns false if it is stopped before.
    async fn wait_for_demand(&self) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = self.demand.notified() => true,
        }
    }

    /// Waits until a call needs the server and a login is stored that the server has not refused.
    async fn wait_for_login(&self) {
        loop {
            self.demand.notified().await;
            match &self.oauth {
                Some(oauth) if !oauth.has_usable_login().await => {}
                _ => return,
            }
        }
    }

    /// Connects to the server, and lists its tools, prompts and resource templates.
    async fn connect(
        &self,
        factory: &ConnectionFactory,
        on_change: &(dyn Fn() + Send + Sync),
    ) -> Result<Arc<Connection>, String> {
        let era = self.with_facts(|facts| facts.era);
        self.stderr.clear();
        if let Some(oauth) = &self.oauth {
            oauth.clear_login_requirement();
        }
        let connecting = async |server: ConnectTarget<'_>| {
            let oauth = self.oauth.as_ref();
            let connecting =
                factory.connect(&self.settings, server, oauth, era, &self.subscriptions, &self.namespace);
            let connection = Arc::new(connecting.await?);
            let (tools, features, ()) = tokio::join!(
                connection.list_tools(&self.settings),
                connection.list_features(&self.namespace),
                connection.wait_until_ready(),
            );
            match tools {
                Ok(tools) => Ok((connection, tools, features)),
                Err(reason) => {
                    connection.begin_close();
                    Err(reason)
                }
            }
        };
        let start = self.settings.limits.start;
        let result = match factory.start(&self.settings, &self.stderr).await {
            Ok(server) => cpu_adjusted_timeout(start, connecting(server))
                .await
                .unwrap_or_else(|| Err(start_timeout_reason(start))),
            Err(reason) => Err(reason),
        };
        match result {
            Ok((connection, tools, features)) => {
                let (server, protocol) = connection.server_info();
                let era = connection.era();
                let instructions = Some(connection.instructions());
                let seen = ServerDefinition { tools, instructions, ..features.definition() };
                let changed = self.apply_definition(seen).await;
                let is_new = self.with_facts(|facts| {
                    let new_facts =
                        ServerFacts { are_tools_known: true, has_tried: true, era, server, protocol };
                    !std::mem::replace(facts, new_facts).are_tools_known
                });
                let have_prompts_changed = self.features.set(features);
                if changed || have_prompts_changed || is_new {
                    on_change();
                }
                Ok(connection)
            }
            Err(reason) => {
                // The remembered era may have been the cause.
                self.with_facts(|facts| {
                    facts.era = ProtocolEra::Unknown;
                    facts.has_tried = true;
                });
                Err(reason)
            }
        }
    }

    /// The reason, with the last lines of stderr.
    fn with_stderr(&self, reason: String) -> String {
        let lines = self.stderr.lines();
        let last = lines.iter().rev().take(STDERR_LINES_SHOWN).rev().map(String::as_str).collect::<Vec<_>>();
        if last.is_empty() { reason } else { format!("{reason}; stderr: {}", last.join(" | ")) }
    }

    /// Stores the definition of the server and publishes its tools; returns whether they changed.
    async fn apply_definition(&self, seen: ServerDefinition) -> bool {
        let mut specs = seen.visible_tools();
        let definitions = self.definitions.clone();
        self.with_definition_store(move || definitions.record(seen)).await;
        specs.retain(|spec| self.settings.tools.allows(&spec.name));
        self.tools.set(specs)
    }

    async fn apply_tools(&self, tools: Vec<ToolDefinition>) -> bool {
        self.apply_definition(ServerDefinition { tools, ..ServerDefinition::default() }).await
    }

    /// Watches a connection until it is lost, idle or stopped; meanwhile lists tools, prompts and resources
    /// again when they change.
    async fn watch(&self, connection: &Connection, on_change: &(dyn Fn() + Send + Sync)) -> ConnectionEnd {
        let idle = self.settings.limits.idle;
        let mut tools = std::pin::pin!(self.relist_tools(connection, on_change));
        let mut features = std::pin::pin!(self.relist_features(connection, on_change));
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return ConnectionEnd::Stopped,
                reason = connection.wait_for_end() => return ConnectionEnd::Lost(reason),
                never = &mut tools => match never {},
                never = &mut features => match never {},
                () = self.demand.notified() => {}
                () = tokio::time::sleep(idle), if self.settings.start == StartMode::Lazy => {
                    let is_unused = self.call_permits.available_permits() == self.settings.limits.in_flight;
                    if is_unused && self.subscriptions.is_empty() {
                        return ConnectionEnd::Idle;
                    }
                }
            }
        }
    }

    /// Lists tools again after each `tools/list_changed` notification.
    async fn relist_tools(
        &self,
        connection: &Connection,
        on_change: &(dyn Fn() + Send + Sync),
    ) -> Infallible {
        let mut debounce = RelistDebounce::default();
        loop {
            connection.wait_for_tools_changed().await;
            debounce.wait().await;
            let listing =
                tokio::time::timeout(self.settings.limits.start, connection.list_tools(&self.settings));
            match listing.await {
                Ok(Ok(tools)) => {
                    if self.apply_tools(tools).await {
                        on_change();
                    }
                }
                Ok(Err(reason)) => tracing::warn!("{}: {reason}", self.settings.name),
                Err(_) => tracing::warn!("{}: listing its tools timed out", self.settings.name),
            }
        }
    }

    /// Lists prompts, resources and resource templates again after each `list_changed` notification about
    /// them.
    async fn relist_features(
        &self,
        connection: &Connection,
        on_change: &(dyn Fn() + Send + Sync),
    ) -> Infallible {
        let mut debounce = RelistDebounce::default();
        loop {
            // After the connection is made, not as part of it: listing resources may be slow.
            let resources = connection.list_resource_definitions().await;
            let (definitions, seen) =
                (self.definitions.clone(), ServerDefinition { resources, ..Default::default() });
            self.with_definition_store(move || definitions.record_features(seen)).await;
            self.subscriptions.lists_changed.notified().await;
            debounce.wait().await;
            let features = connection.list_features(&self.namespace).await;
            let (definitions, seen) = (self.definitions.clone(), features.definition());
            self.with_definition_store(move || definitions.record_features(seen)).await;
            if self.features.set(features) {
                on_change();
            }
            self.subscriptions.publish(ResourceChange::List);
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
