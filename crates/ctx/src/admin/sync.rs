//! Syncs the selected sources, a few concurrently, with progress for the caller and an outcome for each.

use super::operation_error::with_hints;
use super::{Operation, REWRITES_DERIVED_DATA};
use crate::error::{CommandError, Exit};
use crate::trust;
use crate::workspace::SourceFreshness;
use async_trait::async_trait;
use ctx_core::{Annotations, Call, ErrorKind, Peer, SourceName, ToolError, nearest};
use ctx_knowledge::{Knowledge, Progress, SyncError, SyncOptions, SyncReport};
use futures::StreamExt;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Maximum number of sources that are synced concurrently.
pub(crate) const PARALLEL_SYNCS_MAX: usize = 4;
/// How long to wait for another process that syncs the source, and the interval between attempts.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(2);
const BUSY_POLL_EVERY: Duration = Duration::from_millis(50);

/// `admin.sync`
///
/// Reports the number of processed documents of all sources to its peer ([`Peer::progress`]), and the
/// progress of each source ([`Peer::event`] with a [`Progress`]).
pub(crate) struct SyncSources {
    pub(super) knowledge: Arc<Knowledge>,
    /// The sources that may be synced, without untrusted ones.
    pub(super) freshness: Vec<SourceFreshness>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SyncSourcesRequest {
    /// The sources to sync: `all`, a kind (`filesystem`) or one source (`filesystem:notes`).
    pub(crate) sources: Vec<String>,
    /// Read all documents again, regardless of the cursor and of known versions.
    #[serde(default)]
    pub(crate) full: bool,
    /// Write nothing; only report the changes.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// Only documents changed at this time or later.
    #[schemars(with = "Option<String>")]
    pub(crate) since: Option<Timestamp>,
    /// Only documents changed at this time or earlier.
    #[schemars(with = "Option<String>")]
    pub(crate) until: Option<Timestamp>,
    /// Stop after this many new or changed documents of each source.
    pub(crate) limit: Option<u64>,
}

/// The outcome of each selected source, in the order of the request.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SyncOutcomes {
    pub(crate) sources: Vec<SourceOutcome>,
}

/// The outcome of one sync: a report or a failure.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SourceOutcome {
    /// The source's name.
    pub(crate) source: String,
    /// The changes that were made.
    pub(crate) report: Option<SyncReport>,
    /// Why the sync did not finish. Documents stored before the failure stay.
    pub(crate) failure: Option<SyncFailure>,
}

/// A sync that did not finish.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SyncFailure {
    pub(crate) cause: SyncFailureCause,
    /// Error messages.
    messages: Vec<String>,
    /// Steps that solve the problem.
    hints: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SyncFailureCause {
    /// The source or the store failed.
    Failed,
    /// Another process is syncing the source.
    Busy,
    /// The call was cancelled.
    Interrupted,
}

impl SourceOutcome {
    fn new(source: String, outcome: Result<SyncReport, SyncError>) -> Self {
        match outcome {
            Ok(report) => Self { source, report: Some(report), failure: None },
            Err(error) => Self { source, report: None, failure: Some(CommandError::from(error).into()) },
        }
    }

    /// The outcome as the result of a command.
    pub(crate) fn into_result(self) -> Result<SyncReport, CommandError> {
        match (self.report, self.failure) {
            (_, Some(failure)) => Err(failure.into()),
            (Some(report), None) => Ok(report),
            (None, None) => Err(CommandError::new(format!("{}: the sync returned no result", self.source))),
        }
    }
}

impl From<CommandError> for SyncFailure {
    fn from(error: CommandError) -> Self {
        let cause = match error.exit {
            Exit::Busy => SyncFailureCause::Busy,
            Exit::Interrupted | Exit::Terminated => SyncFailureCause::Interrupted,
            Exit::Failure | Exit::Usage => SyncFailureCause::Failed,
        };
        Self { cause, messages: error.messages, hints: error.hints }
    }
}

impl From<SyncFailure> for CommandError {
    fn from(SyncFailure { cause, messages, hints }: SyncFailure) -> Self {
        let exit = match cause {
            SyncFailureCause::Failed => Exit::Failure,
            SyncFailureCause::Busy => Exit::Busy,
            SyncFailureCause::Interrupted => Exit::Interrupted,
        };
        Self { exit, kind: None, messages, hints }
    }
}

#[async_trait]
impl Operation for SyncSources {
    const NAME: &'static str = "sync";
    const DESCRIPTION: &'static str = "Bring documents in from their sources.";
    const ANNOTATIONS: Annotations = REWRITES_DERIVED_DATA;
    /// The first sync of a large source takes hours.
    const TIME_MAX: Duration = Duration::from_secs(30 * 86_400);
    /// A cancelled sync stops after the current document.
    const STOP_GRACE: Duration = Duration::from_secs(600);
    type Request = SyncSourcesRequest;
    type Response = SyncOutcomes;

    async fn run(&self, request: SyncSourcesRequest, call: &Call) -> Result<SyncOutcomes, ToolError> {
        let names = self.select_sources(&request.sources)?;
        let SyncSourcesRequest { full, dry_run, since, until, limit, .. } = request;
        let options = SyncOptions { full, dry_run, since, until, limit };
        let progress = Arc::new(TotalProgress { peer: call.shared_peer(), sources: Mutex::default() });
        let cancellation = call.cancellation();
        let syncs = names.into_iter().map(|name| {
            let progress = progress.clone();
            async move {
                let outcome = self.sync(&name, options, progress, cancellation).await;
                SourceOutcome::new(name.to_string(), outcome)
            }
        });
        // One failure does not stop the others.
        Ok(SyncOutcomes {
            sources: futures::stream::iter(syncs).buffered(PARALLEL_SYNCS_MAX).collect().await,
        })
    }
}

impl SyncSources {
    async fn sync(
        &self,
        name: &SourceName,
        options: SyncOptions,
        progress: Arc<TotalProgress>,
        cancellation: &CancellationToken,
    ) -> Result<SyncReport, SyncError> {
        let report = Arc::new(move |source| progress.report(source));
        let started = Instant::now();
        loop {
            let synced = self.knowledge.sync(name, options, report.clone(), cancellation.clone()).await;
            match synced {
                // The lock is usually held by a server, whose sync of an up-to-date source takes a moment.
                Err(SyncError::Busy { .. }) if started.elapsed() < BUSY_WAIT_MAX => {
                    cancellation.run_until_cancelled(sleep(BUSY_POLL_EVERY)).await;
                }
                synced => return synced,
            }
        }
    }

    /// Resolves names, kinds and `all` to configured sources.
    fn select_sources(&self, selectors: &[String]) -> Result<Vec<SourceName>, ToolError> {
        let known: Vec<&SourceName> = self.freshness.iter().map(|source| &source.name).collect();
        let untrusted = self.knowledge.source_names().find(|name| !known.contains(name));
        if known.is_empty() && untrusted.is_none() {
            let hint = "add a [connectors.filesystem.<name>] section with a `root` to ctx.toml";
            return Err(with_hints(ToolError::bad_request("no source is configured"), [hint.to_owned()]));
        }
        let mut selected: Vec<SourceName> = Vec::new();
        for text in selectors {
            let is_selected = |name: &SourceName| text == "all" || name.matches(text);
            let mut matching: Vec<SourceName> =
                known.iter().filter(|name| is_selected(name)).map(|name| (*name).clone()).collect();
            if matching.is_empty() && untrusted.is_some_and(is_selected) {
                let message = format!("{text} cannot be synced: {}", trust::refusal());
                return Err(ToolError::new(ErrorKind::Forbidden, message));
            }
            if matching.is_empty() {
                let names: Vec<String> = known.iter().map(ToString::to_string).collect();
                let hint = match nearest(text, names.iter().map(String::as_str)) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("configured: {}", names.join(", ")),
                };
                return Err(with_hints(ToolError::bad_request(format!("no source named `{text}`")), [hint]));
            }
            matching.retain(|name| !selected.contains(name));
            selected.append(&mut matching);
        }
        Ok(selected)
    }
}

/// Progress of each source, summed up for the peer.
struct TotalProgress {
    peer: Arc<dyn Peer>,
    /// The latest progress of each source.
    sources: Mutex<HashMap<String, Progress>>,
}

impl TotalProgress {
    fn report(&self, source: Progress) {
        // Held while the peer is called, so that its progress never decreases.
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        self.peer.event(&serde_json::to_value(&source).unwrap_or_default());
        let message = Some(source.source.clone());
        sources.insert(source.source.clone(), source);
        let done: u64 = sources.values().map(|source| source.seen).sum();
        // The overall total is unknown while the total of one source is.
        let total: Option<u64> = sources.values().map(|source| source.total).sum();
        let (done, total) = (done as f64, total.map(|total| total as f64));
        self.peer.progress(ctx_core::Progress { done, total, message });
    }
}
