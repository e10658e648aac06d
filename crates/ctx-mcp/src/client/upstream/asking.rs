//! Calls of an upstream: bounded concurrency, waiting for a connection, and one retry after a lost
//! connection.

use super::super::connection::Connection;
use super::super::definitions::Definitions;
use super::super::exchange::{Asked, Lost};
use super::super::oauth::Need;
use super::super::settings::Start;
use super::{Phase, Upstream};
use crate::convert;
use ctx_core::{Call, ErrorKind, Output, ToolError, ToolSpec};
use rmcp::model::{CallToolRequestParams, ServerResult};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::SemaphorePermit;

/// The retry delay that is named to a call that is refused because of too many calls.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Upstream {
    pub(in crate::client) async fn call(
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

    /// Sends a request; once more if the connection is lost meanwhile. A request that may have run already is
    /// repeated only if it `may_repeat`.
    pub(in crate::client) async fn ask(
        &self,
        asked: Asked,
        may_repeat: bool,
        call: &Call,
    ) -> Result<ServerResult, ToolError> {
        let _room = self.admit().await?;
        if self.settings.start == Start::Lazy {
            // The idle timeout begins again.
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

    fn named(&self, error: ToolError) -> ToolError {
        let named = ToolError::new(error.kind(), format!("{}: {error}", self.settings.name));
        match error.unanswered() {
            Some(why) => named.with_unanswered(why),
            None => named,
        }
    }

    /// Refuses a tool or prompt whose definition is not the accepted one, if the `changes` setting says so.
    async fn allow(&self, asked: &Asked) -> Result<(), ToolError> {
        let objection = |definitions: &Definitions| match asked {
            Asked::Tool(params) => definitions.objection(&params.name),
            Asked::Prompt(params) => definitions.prompt_objection(&params.name),
            Asked::Resource(_) => None,
        };
        if objection(&self.definitions).is_none() {
            return Ok(());
        }
        let definitions = self.definitions.clone();
        self.remembering(move || definitions.look_again()).await;
        objection(&self.definitions).map_or(Ok(()), |objection| {
            let message = format!("{}: {objection}", self.settings.name);
            Err(ToolError::new(ErrorKind::Forbidden, message))
        })
    }

    fn refused(&self, need: &Need) -> ToolError {
        ToolError::new(ErrorKind::Tool, need.describe(&self.settings.name))
    }

    /// The error for a call that the server refuses until the user logs in. Closes the connection, unless
    /// only scopes are missing.
    fn let_go(&self, connection: &Connection) -> ToolError {
        let need = self.authority.as_ref().and_then(|authority| match authority.need() {
            // Other calls still work on this connection.
            Some(Need::Scopes(_)) => authority.take_need(),
            need => {
                connection.drop_it();
                need
            }
        });
        self.refused(&need.unwrap_or(Need::Login))
    }

    /// Waits for a permit for one call; refuses the call if too many wait already.
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

    /// The connection. If there is none, waits for one attempt to connect.
    pub(super) async fn connected(&self) -> Result<Arc<Connection>, ToolError> {
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

    /// The connection, if there is one within `patience`, for callers that ask several servers. While a
    /// server connects, `patience` counts from the creation of this upstream: reconnects are not waited for.
    pub(in crate::client) async fn connected_soon(&self, patience: Duration) -> Option<Arc<Connection>> {
        let patience = match &*self.phase.borrow() {
            Phase::Failed { .. } | Phase::LoginNeeded { .. } | Phase::Stopped => return None,
            // Listing all servers must not start the idle ones.
            Phase::Idle => return None,
            Phase::Connecting => patience.saturating_sub(self.since.elapsed()),
            Phase::Ready(_) => patience,
        };
        tokio::time::timeout(patience, self.connected()).await.ok()?.ok()
    }
}

/// Whether a call that may have run may be repeated: unless the tool is annotated as destructive, or as
/// neither idempotent nor read-only.
fn may_repeat(spec: &ToolSpec) -> bool {
    let hints = spec.annotations;
    let changes_each_time = hints.idempotent == Some(false) && hints.read_only == Some(false);
    hints.destructive != Some(true) && !changes_each_time
}
