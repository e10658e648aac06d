//! `ctx sync`: syncs sources once, or continuously with `--watch`.

use super::embed;
use super::embedding_thread::EmbeddingThread;
use super::refresh::{RefreshTasks, SourceRefresh, SyncEvent, SyncReporter, SyncResult};
use crate::admin::{self, SourceOutcome, SyncSources, SyncSourcesRequest};
use crate::cli::{GlobalOptions, examples};
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::{CommandOutput, count};
use crate::progress::ProgressMeter;
use crate::signals::{STOP_GRACE_PERIOD, Signals, until_interrupted};
use crate::trust::SYNC_GROUPS;
use crate::workspace::{SourceFreshness, Workspace};
use clap::ValueEnum;
use ctx_core::{Call, Caller, Peer};
use ctx_knowledge::{FillError, FillMode, Progress, SyncReport, parse_time};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Number of documents between two lines of JSON progress.
const JSON_PROGRESS_EVERY: u64 = 100;
/// Maximum number of warnings shown per source; further ones are only counted.
const WARNINGS_SHOWN: usize = 20;

/// Sync documents from their sources into the index.
///
/// Reads new and changed documents, deletes those that were removed from the source, and skips all others.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Sync every source", "ctx sync"),
    ("Show what a sync of one source would change", "ctx sync filesystem:handbook --dry-run"),
    ("Keep all sources up to date until Ctrl-C", "ctx sync --watch"),
]))]
pub(crate) struct Sync {
    /// The sources to sync: `all`, a kind (`filesystem`) or a single source (`filesystem:notes`).
    #[arg(default_value = "all")]
    sources: Vec<String>,
    /// Read every document again, including unchanged ones.
    #[arg(long)]
    full: bool,
    /// Show what a sync would change, without writing anything.
    #[arg(long)]
    dry_run: bool,
    /// Only documents changed at this time or later.
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Timestamp>,
    /// Only documents changed at this time or earlier.
    #[arg(long, value_name = "TIME", value_parser = until)]
    until: Option<Timestamp>,
    /// Stop after this number of new or changed documents per source.
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    /// Continue until Ctrl-C: sync watched sources when they change, and others at the interval in their `every`.
    #[arg(long, conflicts_with_all = ["dry_run", "since", "until", "limit"])]
    watch: bool,
    /// Format of the progress on stderr.
    #[arg(long, value_enum, default_value_t = ProgressFormat::Human)]
    progress: ProgressFormat,
}

/// Format of the progress on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressFormat {
    /// A progress bar in a terminal, occasional lines elsewhere.
    Human,
    /// One JSON object per line.
    Json,
    /// No progress.
    None,
}

impl Sync {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let signals = Signals::listen()?;
        let workspace = global.open_for(SYNC_GROUPS)?;
        let output = global.output();
        let request = SyncSourcesRequest {
            sources: self.sources,
            full: self.full,
            dry_run: self.dry_run,
            since: self.since,
            until: self.until,
            limit: self.limit,
        };
        let progress = if output.quiet { ProgressFormat::None } else { self.progress };
        let cancellation = CancellationToken::new();
        let syncing = async {
            let outcomes = sync_sources(&workspace, request, progress, &cancellation).await?;
            if self.watch && !cancellation.is_cancelled() {
                return watch(&workspace, outcomes, output, &cancellation).await;
            }
            let outcomes = outcomes.into_iter().map(SourceOutcome::into_result).collect();
            if self.dry_run {
                output.say("dry run: nothing is written; a sync would do this");
                return print_outcomes(&output, outcomes);
            }
            let printed = print_outcomes(&output, outcomes);
            if cancellation.is_cancelled() {
                return printed;
            }
            let embedded = embed_after_sync(&workspace, &output, &cancellation).await;
            // The error of a source takes precedence over an error of embedding.
            printed.and(embedded)
        };
        until_interrupted(signals, STOP_GRACE_PERIOD, &cancellation, syncing).await
    }
}

/// Keeps the selected sources fresh after their first sync, until cancelled.
async fn watch(
    workspace: &Workspace,
    outcomes: Vec<SourceOutcome>,
    output: CommandOutput,
    cancellation: &CancellationToken,
) -> CommandResult {
    let report_event: SyncReporter = Arc::new(move |event| match event {
        SyncEvent::Synced(report) => {
            let line =
                if output.json { serde_json::to_string(report).unwrap_or_default() } else { summary(report) };
            // A closed stdout must not stop the syncs.
            output.print(&line).unwrap_or_else(|error| output.fail(&error));
        }
        SyncEvent::Warned(report) => print_warnings(&output, report),
        SyncEvent::Failed(error) => output.fail(error),
    });
    let mut watched = Vec::new();
    let mut refreshes = Vec::new();
    for outcome in outcomes {
        let is_of_outcome = |source: &&SourceFreshness| source.name.to_string() == outcome.source;
        let Some(SourceFreshness { name, every, .. }) = workspace.freshness.iter().find(is_of_outcome) else {
            continue;
        };
        let outcome = outcome.into_result();
        match &outcome {
            Ok(report) => {
                report_event(SyncEvent::Warned(report));
                report_event(SyncEvent::Synced(report));
            }
            Err(error) => report_event(SyncEvent::Failed(error)),
        }
        let watch = workspace.knowledge.can_watch(name);
        if !watch && every.is_none() {
            output.say(&format!("{name} cannot be watched; set `every` to sync it on a schedule"));
            continue;
        }
        refreshes.push(SourceRefresh::after_sync(
            &SourceFreshness { name: name.clone(), every: *every, watch },
            &outcome,
        ));
        watched.push(name.to_string());
    }
    if refreshes.is_empty() {
        return Err(CommandError::usage("there is nothing to watch"));
    }
    output.say(&format!("watching {}; Ctrl-C stops", watched.join(", ")));
    let embedding_thread = EmbeddingThread::start(workspace.knowledge.clone(), cancellation.clone());
    RefreshTasks::start(workspace, refreshes, &report_event, cancellation).end().await;
    embedding_thread.end().await;
    Ok(())
}

/// Computes the embeddings that belong to a sync, and reports how many documents still lack them. With `fill = "wait"`
/// these are all embeddings; with `fill = "behind"` only those of the fast model.
async fn embed_after_sync(
    workspace: &Workspace,
    output: &CommandOutput,
    cancellation: &CancellationToken,
) -> CommandResult {
    let knowledge = workspace.knowledge.clone();
    match knowledge.fill_mode() {
        Some(FillMode::Wait) if knowledge.lacks_vectors()? => {
            let filled = embed::fill(workspace, cancellation, *output).await?;
            output.say(&format!("computed {}", count(filled.made, "embedding")));
        }
        Some(FillMode::Behind) => {
            let embedding = {
                let (knowledge, cancellation) = (knowledge.clone(), cancellation.clone());
                move || knowledge.fill_fast_vectors(&cancellation)
            };
            match tokio::task::spawn_blocking(embedding).await {
                // Another process that computes embeddings will compute these as well.
                Ok(Err(FillError::Busy)) | Err(_) => {}
                Ok(filled) => filled?,
            }
            let stats = knowledge.stats()?.vectors.filter(|vectors| vectors.pending_documents > 0);
            if let Some(vectors) = stats {
                output.say(&format!(
                    "embeddings of {} are missing for {}: a running server computes them, \
                     `ctx embed pending` does so now",
                    vectors.model,
                    count(vectors.pending_documents, "document")
                ));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Syncs the requested sources by a call through the catalog, with progress on stderr.
pub(super) async fn sync_sources(
    workspace: &Workspace,
    request: SyncSourcesRequest,
    progress: ProgressFormat,
    cancellation: &CancellationToken,
) -> CommandResult<Vec<SourceOutcome>> {
    let display = Arc::new(ProgressDisplay::start(progress));
    let call = Call::new(workspace.catalog.current(), Caller::Cli)
        .with_peer(display.clone())
        .with_cancellation(cancellation);
    Ok(admin::call_with::<SyncSources>(call, request).await?.sources)
}

/// Prints a report for each source, and fails if any source failed.
fn print_outcomes(output: &CommandOutput, outcomes: Vec<SyncResult>) -> CommandResult {
    let mut reports = Vec::new();
    let mut failure: Option<CommandError> = None;
    for outcome in outcomes {
        match outcome {
            Ok(report) => {
                print_warnings(output, &report);
                reports.push(report);
            }
            Err(error) => match &mut failure {
                None => failure = Some(error),
                Some(first) => {
                    first.exit = worse_exit(first.exit, error.exit);
                    first.messages.extend(error.messages);
                    first.hints.extend(error.hints);
                    first.hints.dedup();
                }
            },
        }
    }
    output.print_result(&json!({ "sources": reports }), || {
        reports.iter().map(|report| summary(report) + "\n").collect()
    })?;
    failure.map_or(Ok(()), Err)
}

/// The exit code for two failures: an interruption outweighs everything, and any failure outweighs a busy source.
fn worse_exit(one: Exit, other: Exit) -> Exit {
    match (one, other) {
        (_, Exit::Interrupted) | (Exit::Busy, _) => other,
        _ => one,
    }
}

/// Prints the warnings of a sync: documents that could not be read.
pub(crate) fn print_warnings(output: &CommandOutput, report: &SyncReport) {
    for warning in report.warnings.iter().take(WARNINGS_SHOWN) {
        output.warn(&format!("{}: {}: {}", report.source, warning.source_id, warning.reason));
    }
    let more = report.warning_count.saturating_sub(WARNINGS_SHOWN as u64);
    if more > 0 {
        output.warn(&format!("{}: {} more could not be read", report.source, more));
    }
}

/// A line about the result of a sync.
pub(crate) fn summary(report: &SyncReport) -> String {
    let parts = [
        (report.added, "added"),
        (report.updated, "updated"),
        (report.deleted, "deleted"),
        (report.unchanged, "unchanged"),
        (report.skipped, "without text"),
    ];
    let mut described_parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, label)| format!("{count} {label}"))
        .collect();
    if report.secret_files > 0 {
        described_parts.push(format!("{} left out", count(report.secret_files, "secret file")));
    }
    if report.warning_count > 0 {
        described_parts.push(count(report.warning_count, "warning"));
    }
    if described_parts.is_empty() {
        described_parts.push("no documents found".to_owned());
    }
    format!("{}: {}", report.source, described_parts.join(", "))
}

fn since(text: &str) -> Result<Timestamp, String> {
    time(text, false)
}

fn until(text: &str) -> Result<Timestamp, String> {
    time(text, true)
}

fn time(text: &str, end_of_day: bool) -> Result<Timestamp, String> {
    parse_time(text, end_of_day)
        .ok_or_else(|| "write a time like 2026-01-31 or 2026-01-31T12:00:00Z".to_owned())
}

/// Shows the progress that the sync operation reports.
struct ProgressDisplay {
    kind: ProgressFormat,
    meter: ProgressMeter,
    /// Number of documents seen so far, by source.
    seen: Mutex<HashMap<String, u64>>,
}

impl ProgressDisplay {
    fn start(kind: ProgressFormat) -> Self {
        let meter = ProgressMeter::start(CommandOutput { json: false, quiet: kind != ProgressFormat::Human });
        Self { kind, meter, seen: Mutex::default() }
    }
}

impl Peer for ProgressDisplay {
    fn progress(&self, progress: ctx_core::Progress) {
        self.meter.show(progress.done as u64, progress.total.map(|total| total as u64), "files");
    }

    fn event(&self, event: &Value) {
        if self.kind != ProgressFormat::Json {
            return;
        }
        let Ok(progress) = Progress::deserialize(event) else { return };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.get(&progress.source).copied().unwrap_or_default();
        if progress.seen / JSON_PROGRESS_EVERY > before / JSON_PROGRESS_EVERY {
            CommandOutput::default().say(&serde_json::to_string(&progress).unwrap_or_default());
        }
        seen.insert(progress.source, progress.seen);
    }
}
