//! `ctx sync`

use super::embed;
use super::filling::Filling;
use super::refresh::{Kept, News, Outcome, Refresh, Tell};
use crate::cli::Global;
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::{Output, count};
use crate::signals::{Signals, until_stop_deadline};
use crate::trust::{self, SYNC_GROUPS};
use crate::workspace::{Freshness, Workspace};
use clap::ValueEnum;
use ctx_core::{SourceName, nearest};
use ctx_knowledge::{Fill, FillError, Knowledge, Progress, SyncError, SyncOptions, SyncReport, parse_time};
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Sources read at once.
pub(super) const PARALLEL: usize = 4;
/// How long to wait for another process that syncs the source, and how often to look.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
const BUSY_LOOK: Duration = Duration::from_millis(50);
/// How long a cancelled sync may take to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Documents between two lines of JSON progress.
const JSON_PROGRESS_EVERY: u64 = 100;
/// Warnings shown for each source; the rest are counted.
const WARNINGS_SHOWN: usize = 20;

/// Bring documents in from their sources.
#[derive(Debug, clap::Args)]
pub(crate) struct Sync {
    /// What to sync: `all`, a kind (`filesystem`) or one source (`filesystem:notes`).
    #[arg(default_value = "all")]
    sources: Vec<String>,
    /// Read everything again, whatever is known.
    #[arg(long)]
    full: bool,
    /// Write nothing; show what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Only documents changed at this time or later.
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Timestamp>,
    /// Only documents changed at this time or earlier.
    #[arg(long, value_name = "TIME", value_parser = until)]
    until: Option<Timestamp>,
    /// Stop after this many new or changed documents of each source.
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    /// Go on until Ctrl-C: sync again whenever something changes, and what cannot be watched as often
    /// as its `every` says.
    #[arg(long, conflicts_with_all = ["dry_run", "since", "until", "limit"])]
    watch: bool,
    /// How to show progress on stderr.
    #[arg(long, value_enum, default_value_t = ProgressKind::Human)]
    progress: ProgressKind,
}

/// How to show progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressKind {
    /// A line that moves, in a terminal.
    Human,
    /// One JSON object a line.
    Json,
    /// Nothing.
    None,
}

impl Sync {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let signals = Signals::listen()?;
        let workspace = global.open_for(SYNC_GROUPS)?;
        let output = global.output();
        let names = choose(&self.sources, &workspace)?;
        let options = SyncOptions {
            full: self.full,
            dry_run: self.dry_run,
            since: self.since,
            until: self.until,
            limit: self.limit,
        };
        let progress = if output.quiet { ProgressKind::None } else { self.progress };
        let cancellation = CancellationToken::new();
        let syncing = async {
            let (knowledge, chosen) = (&workspace.knowledge, names.clone());
            let outcomes = sync_all(knowledge, chosen, options, progress, cancellation.clone()).await;
            match self.watch && !cancellation.is_cancelled() {
                true => watch(&workspace, &names, &outcomes, output, &cancellation).await.map(|()| None),
                false => Ok(Some(outcomes)),
            }
        };
        let outcomes = tokio::select! {
            outcomes = syncing => outcomes?,
            () = stopped_twice(signals, &cancellation) => {
                return Err(CommandError::new("stopped; the next sync picks up where this one was"));
            }
        };
        let Some(outcomes) = outcomes else { return Ok(()) };
        if self.dry_run {
            output.say("dry run: nothing is written; a sync would do this");
            return tell(&output, outcomes);
        }
        let told = tell(&output, outcomes);
        if cancellation.is_cancelled() {
            return told;
        }
        let made = vectors(&workspace, &output).await;
        // A source that failed is told before vectors that did.
        told.and(made)
    }
}

/// Keeps the chosen sources fresh after their first sync, until it is cancelled.
async fn watch(
    workspace: &Workspace,
    names: &[SourceName],
    outcomes: &[Outcome],
    output: Output,
    cancellation: &CancellationToken,
) -> CommandResult {
    let tell: Tell = Arc::new(move |news| match news {
        News::Synced(report) => {
            let line =
                if output.json { serde_json::to_string(report).unwrap_or_default() } else { summary(report) };
            // Whoever cannot read it may still want the documents.
            output.print(&line).unwrap_or_else(|error| output.fail(&error));
        }
        News::Warned(report) => warn(&output, report),
        News::Failed(error) => output.fail(error),
    });
    let mut told = Vec::new();
    let mut kept = Vec::new();
    for (name, outcome) in names.iter().zip(outcomes) {
        match outcome {
            Ok(report) => {
                tell(News::Warned(report));
                tell(News::Synced(report));
            }
            Err(error) => tell(News::Failed(error)),
        }
        let every = workspace.freshness.iter().find(|source| source.name == *name).and_then(|own| own.every);
        let watch = workspace.knowledge.can_watch(name);
        if !watch && every.is_none() {
            output.say(&format!("{name} cannot be watched; with an `every` it would be synced on schedule"));
            continue;
        }
        kept.push(Kept::after(&Freshness { name: name.clone(), every, watch }, outcome));
        told.push(name.to_string());
    }
    if kept.is_empty() {
        return Err(CommandError::usage("there is nothing to watch"));
    }
    output.say(&format!("watching {}; Ctrl-C stops", told.join(", ")));
    let filling = Filling::start(workspace.knowledge.clone(), cancellation.clone());
    Refresh::start(&workspace.knowledge, kept, &tell, cancellation).end().await;
    filling.end().await;
    Ok(())
}

/// Makes the vectors that are to be made before a sync ends, and tells of those that are not.
async fn vectors(workspace: &Workspace, output: &Output) -> CommandResult {
    let knowledge = workspace.knowledge.clone();
    match knowledge.fill_mode() {
        Some(Fill::Wait) if knowledge.lacks_vectors()? => {
            let filled = embed::fill(workspace, Signals::listen()?, output.quiet).await?;
            output.say(&format!("made {}", count(filled.made, "vector")));
        }
        Some(Fill::Behind) => {
            let filling = {
                let knowledge = knowledge.clone();
                move || knowledge.fill_quickly(&CancellationToken::new())
            };
            match tokio::task::spawn_blocking(filling).await {
                // Whoever makes vectors already will make these too.
                Ok(Err(FillError::Busy)) | Err(_) => {}
                Ok(filled) => filled?,
            }
            let stats = knowledge.stats()?.vectors.filter(|vectors| vectors.pending_documents > 0);
            if let Some(vectors) = stats {
                output.say(&format!(
                    "vectors of {} are missing for {}: a server makes them while it runs, `ctx embed pending` does it now",
                    vectors.model,
                    count(vectors.pending_documents, "document")
                ));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Syncs these sources, a few at a time; one failure does not stop the others.
pub(crate) async fn sync_all(
    knowledge: &Knowledge,
    names: Vec<SourceName>,
    options: SyncOptions,
    progress: ProgressKind,
    cancellation: CancellationToken,
) -> Vec<Outcome> {
    let bar = Arc::new(Bar::new(progress));
    let syncs = names.into_iter().map(|name| {
        let (bar, cancellation) = (bar.clone(), cancellation.clone());
        async move {
            let told = Arc::new(move |progress| bar.tell(&progress));
            let started = Instant::now();
            loop {
                let synced = knowledge.sync(&name, options, told.clone(), cancellation.clone()).await;
                match synced {
                    // A server that keeps the source fresh is done in a moment.
                    Err(SyncError::Busy { .. }) if started.elapsed() < BUSY_PATIENCE => {
                        cancellation.run_until_cancelled(sleep(BUSY_LOOK)).await;
                    }
                    synced => return synced.map_err(CommandError::from),
                }
            }
        }
    });
    let outcomes = futures::stream::iter(syncs).buffered(PARALLEL).collect().await;
    bar.finish();
    outcomes
}

/// Prints what was done, and fails if any source did.
fn tell(output: &Output, outcomes: Vec<Outcome>) -> CommandResult {
    let mut reports = Vec::new();
    let mut failure: Option<CommandError> = None;
    for outcome in outcomes {
        match outcome {
            Ok(report) => {
                warn(output, &report);
                reports.push(report);
            }
            Err(error) => match &mut failure {
                None => failure = Some(error),
                Some(first) => {
                    // A failure outweighs a source that was merely busy.
                    first.exit = if first.exit == Exit::Busy { error.exit } else { first.exit };
                    first.messages.extend(error.messages);
                    first.hints.extend(error.hints);
                    first.hints.dedup();
                }
            },
        }
    }
    output.answer(&json!({ "sources": reports }), || {
        reports.iter().map(|report| summary(report) + "\n").collect()
    })?;
    failure.map_or(Ok(()), Err)
}

/// Tells what could not be read.
pub(crate) fn warn(output: &Output, report: &SyncReport) {
    for warning in report.warnings.iter().take(WARNINGS_SHOWN) {
        output.warn(&format!("{}: {}: {}", report.source, warning.source_id, warning.reason));
    }
    let more = report.warning_count.saturating_sub(WARNINGS_SHOWN as u64);
    if more > 0 {
        output.warn(&format!("{}: {} more could not be read", report.source, more));
    }
}

/// What a sync did, in one line.
pub(crate) fn summary(report: &SyncReport) -> String {
    let parts = [
        (report.added, "added"),
        (report.updated, "updated"),
        (report.deleted, "deleted"),
        (report.unchanged, "unchanged"),
        (report.skipped, "without text"),
    ];
    let mut told: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if report.warning_count > 0 {
        told.push(count(report.warning_count, "warning"));
    }
    if told.is_empty() {
        told.push("nothing there".to_owned());
    }
    format!("{}: {}", report.source, told.join(", "))
}

/// The configured sources that are meant.
fn choose(wanted: &[String], workspace: &Workspace) -> CommandResult<Vec<SourceName>> {
    let known: Vec<&SourceName> = workspace.freshness.iter().map(|source| &source.name).collect();
    let left_out = workspace.knowledge.source_names().find(|name| !known.contains(name));
    if known.is_empty() && left_out.is_none() {
        return Err(CommandError::usage("no source is configured")
            .hint("add a [connectors.filesystem.<name>] section with a `root` to ctx.toml"));
    }
    let mut chosen: Vec<SourceName> = Vec::new();
    for text in wanted {
        let mut found: Vec<SourceName> = known
            .iter()
            .filter(|name| text == "all" || name.matches(text))
            .map(|name| (*name).clone())
            .collect();
        if found.is_empty() && left_out.is_some_and(|name| text == "all" || name.matches(text)) {
            return Err(CommandError::new(format!("{text} cannot be synced: {}", trust::refusal())));
        }
        if found.is_empty() {
            let names: Vec<String> = known.iter().map(ToString::to_string).collect();
            let error = CommandError::usage(format!("no source named `{text}`"));
            return Err(match nearest(text, names.iter().map(String::as_str)) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error.hint(format!("configured: {}", names.join(", "))),
            });
        }
        found.retain(|name| !chosen.contains(name));
        chosen.append(&mut found);
    }
    Ok(chosen)
}

/// The first Ctrl-C or SIGTERM cancels a sync, even within a document; the second one, or the end of [`STOP_PATIENCE`],
/// abandons it.
async fn stopped_twice(mut signals: Signals, cancellation: &CancellationToken) {
    signals.next().await;
    cancellation.cancel();
    until_stop_deadline(signals.next(), cancellation, STOP_PATIENCE).await;
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

/// Progress on stderr.
struct Bar {
    kind: ProgressKind,
    bar: ProgressBar,
}

impl Bar {
    fn new(kind: ProgressKind) -> Self {
        let bar =
            if kind == ProgressKind::Human { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}  {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { kind, bar }
    }

    fn tell(&self, progress: &Progress) {
        match self.kind {
            ProgressKind::Human if !self.bar.is_hidden() => {
                self.bar.set_message(format!(
                    "{}: {} read, {} written",
                    progress.source, progress.seen, progress.written
                ));
            }
            ProgressKind::Json if progress.seen.is_multiple_of(JSON_PROGRESS_EVERY) => {
                let line = serde_json::to_string(progress).unwrap_or_default();
                Output::default().say(&line);
            }
            _ => {}
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
