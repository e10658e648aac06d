//! Calls of an upstream: bounded concurrency, waiting for a connection, and one retry after a lost
//! connection.

use super::super::connection::Connection;
use super::super::oauth::LoginRequirement;
use super::super::pinning::PinnedDefinitions;
use super::super::request::{CallFailure, UpstreamRequest};
use super::super::settings::StartMode;
use super::{ConnectionPhase, Upstream};
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
        match self.request(UpstreamRequest::Tool(params), may_retry(spec), call).await? {
            ServerResult::CallToolResult(result) => {
                convert::output(result, |block| self.namespace.rewrite_uris(block))
                    .map_err(|error| self.prefixed_error(error))
            }
            _ => Err(self.error("its response is not a `tools/call` result")),
        }
    }

    /// Sends a request; once more if the connection is lost meanwhile. A request that may have run already is
    /// repeated only if it `may_retry`.
    pub(in crate::client) async fn request(
        &self,
        request: UpstreamRequest,
        may_retry: bool,
        call: &Call,
    ) -> Result<ServerResult, ToolError> {
        let _permit = self.acquire_permit().await?;
        if self.settings.start == StartMode::Lazy {
            // The idle timeout begins again.
            self.demand.notify_one();
        }
        let connection = self.wait_for_connection().await?;
        self.check_definition(&request).await?;
        let failure = match connection.request_for_call(request.clone(), call).await {
            Ok(result) => return Ok(result),
            Err(CallFailure::Refused(error)) => return Err(self.prefixed_error(error)),
            Err(CallFailure::LoginRequired) => return Err(self.handle_login_required(&connection)),
            Err(failure) => failure,
        };
        connection.begin_close();
        if matches!(failure, CallFailure::ConnectionLost) && !may_retry {
            let name = request.name();
            return Err(self.error(format!(
                "the connection was lost during the call; `{name}` may have run, and is not retried automatically"
            )));
        }
        tracing::info!("{}: the connection was lost during a call, which is retried", self.settings.name);
        connection.wait_for_end().await;
        let connection = self.wait_for_connection().await?;
        self.check_definition(&request).await?;
        match connection.request_for_call(request, call).await {
            Ok(result) => Ok(result),
            Err(CallFailure::Refused(error)) => Err(self.prefixed_error(error)),
            Err(CallFailure::LoginRequired) => Err(self.handle_login_required(&connection)),
            Err(CallFailure::NotSent | CallFailure::ConnectionLost) => {
                connection.begin_close();
                Err(self.error("the connection was lost during the call, and again during the retry"))
            }
        }
    }

    fn prefixed_error(&self, error: ToolError) -> ToolError {
        let prefixed = ToolError::new(error.kind(), format!("{}: {error}", self.settings.name));
        match error.question_error() {
            Some(why) => prefixed.with_question_error(why),
            None => prefixed,
        }
    }

    /// Refuses a tool or prompt whose definition is not the accepted one, if the `changes` setting says so.
    async fn check_definition(&self, request: &UpstreamRequest) -> Result<(), ToolError> {
        let block_reason = |definitions: &PinnedDefinitions| match request {
            UpstreamRequest::Tool(params) => definitions.tool_block_reason(&params.name),
            UpstreamRequest::Prompt(params) => definitions.prompt_block_reason(&params.name),
            UpstreamRequest::Resource(_) => None,
        };
        if block_reason(&self.definitions).is_none() {
            return Ok(());
        }
        let definitions = self.definitions.clone();
        self.with_definition_store(move || definitions.reload_accepted()).await;
        block_reason(&self.definitions).map_or(Ok(()), |reason| {
            let message = format!("{}: {reason}", self.settings.name);
            Err(ToolError::new(ErrorKind::Forbidden, message))
        })
    }

    fn login_error(&self, requirement: &LoginRequirement) -> ToolError {
        ToolError::new(ErrorKind::Tool, requirement.describe(&self.settings.name))
    }

    /// The error for a call that the server refuses until the user logs in. Closes the connection, unless
    /// only scopes are missing.
    fn handle_login_required(&self, connection: &Connection) -> ToolError {
        let requirement = self.oauth.as_ref().and_then(|oauth| match oauth.login_requirement() {
            // Other calls still work on this connection.
            Some(LoginRequirement::Scopes(_)) => oauth.take_login_requirement(),
            requirement => {
                connection.begin_close();
                requirement
            }
        });
        self.login_error(&requirement.unwrap_or(LoginRequirement::Login))
    }

    /// Waits for a permit for one call; refuses the call if too many wait already.
    async fn acquire_permit(&self) -> Result<SemaphorePermit<'_>, ToolError> {
        if let Ok(permit) = self.call_permits.try_acquire() {
            return Ok(permit);
        }
        struct WaitingCallGuard<'a>(&'a AtomicUsize);
        impl Drop for WaitingCallGuard<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = self.waiting_calls.fetch_add(1, Ordering::Relaxed);
        let _waiting = WaitingCallGuard(&self.waiting_calls);
        let overloaded = || {
            let message = format!("{}: too many calls at once", self.settings.name);
            ToolError::new(ErrorKind::Overloaded, message).with_retry_after(RETRY_AFTER)
        };
        if before >= self.settings.limits.waiting {
            return Err(overloaded());
        }
        self.call_permits.acquire().await.map_err(|_| overloaded())
    }

    /// The connection. If there is none, waits for one attempt to connect.
    pub(super) async fn wait_for_connection(&self) -> Result<Arc<Connection>, ToolError> {
        let mut phase = self.phase.subscribe();
        let mut tried_after = None;
        loop {
            let current = phase.borrow_and_update().clone();
            match current {
                ConnectionPhase::Ready(connection) if !connection.has_ended() => return Ok(connection),
                ConnectionPhase::Ready(_) | ConnectionPhase::Connecting => {}
                ConnectionPhase::Idle => self.demand.notify_one(),
                ConnectionPhase::Failed { attempt, reason, .. } => match tried_after {
                    None => {
                        tried_after = Some(attempt);
                        self.demand.notify_one();
                    }
                    Some(before) if attempt > before => return Err(self.error(reason)),
                    Some(_) => {}
                },
                ConnectionPhase::LoginNeeded { attempt, requirement } => match (tried_after, &self.oauth) {
                    (None, Some(oauth)) if oauth.has_usable_login().await => {
                        tried_after = Some(attempt);
                        self.demand.notify_one();
                    }
                    (Some(before), _) if attempt == before => {}
                    _ => return Err(self.login_error(&requirement)),
                },
                ConnectionPhase::Stopped => return Err(self.error("it was shut down")),
            }
            if phase.changed().await.is_err() {
                return Err(self.error("it was shut down"));
            }
        }
    }

    /// The connection, if there is one within `patience`, for callers that ask several servers. While a
    /// server connects, `patience` counts from the creation of this upstream: reconnects are not waited for.
    pub(in crate::client) async fn connection_within(&self, patience: Duration) -> Option<Arc<Connection>> {
        let patience = match &*self.phase.borrow() {
            ConnectionPhase::Failed { .. }
            | ConnectionPhase::LoginNeeded { .. }
            | ConnectionPhase::Stopped => return None,
            // Listing all servers must not start the idle ones.
            ConnectionPhase::Idle => return None,
            ConnectionPhase::Connecting => patience.saturating_sub(self.created_at.elapsed()),
            ConnectionPhase::Ready(_) => patience,
        };
        tokio::time::timeout(patience, self.wait_for_connection()).await.ok()?.ok()
    }
}

/// Whether a call that may have run may be repeated: unless the tool is annotated as destructive, or as
/// neither idempotent nor read-only.
fn may_retry(spec: &ToolSpec) -> bool {
    let hints = spec.annotations;
    let changes_each_time = hints.idempotent == Some(false) && hints.read_only == Some(false);
    hints.destructive != Some(true) && !changes_each_time
}
