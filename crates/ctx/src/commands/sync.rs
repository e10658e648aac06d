//! `ctx sync`

use crate::cli::Global;
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::{Output, count};
use crate::signals::Signals;
use clap::ValueEnum;
use ctx_core::{SourceName, nearest};
use ctx_knowledge::{Knowledge, Progress, SyncOptions, SyncReport, parse_time};
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Sources read at once.
const PARALLEL: usize = 4;
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
        let workspace = global.open()?;
        let output = global.output();
        let names = choose(&self.sources, &workspace.knowledge)?;
        let options = SyncOptions {
            full: self.full,
            dry_run: self.dry_run,
            since: self.since,
            until: self.until,
            limit: self.limit,
        };
        let progress = if output.quiet { ProgressKind::None } else { self.progress };
        let cancellation = CancellationToken::new();
        let outcomes = tokio::select! {
            outcomes = sync_all(&workspace.knowledge, names, options, progress, cancellation.clone()) => outcomes,
            () = stopped_twice(signals, &cancellation) => {
                return Err(CommandError::new("stopped; the next sync picks up where this one was"));
            }
        };
        if self.dry_run {
            output.say("dry run: nothing is written; a sync would do this");
        }
        tell(&output, outcomes)
    }
}

/// Syncs these sources, a few at a time; one failure does not stop the others.
pub(crate) async fn sync_all(
    knowledge: &Knowledge,
    names: Vec<SourceName>,
    options: SyncOptions,
    progress: ProgressKind,
    cancellation: CancellationToken,
) -> Vec<Result<SyncReport, CommandError>> {
    let bar = Arc::new(Bar::new(progress));
    let syncs = names.into_iter().map(|name| {
        let (bar, cancellation) = (bar.clone(), cancellation.clone());
        async move {
            let told = Arc::new(move |progress| bar.tell(&progress));
            knowledge.sync(&name, options, told, cancellation).await.map_err(CommandError::from)
        }
    });
    let outcomes = futures::stream::iter(syncs).buffered(PARALLEL).collect().await;
    bar.finish();
    outcomes
}

/// Prints what was done, and fails if any source did.
fn tell(output: &Output, outcomes: Vec<Result<SyncReport, CommandError>>) -> CommandResult {
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
fn choose(wanted: &[String], knowledge: &Knowledge) -> CommandResult<Vec<SourceName>> {
    let known: Vec<&SourceName> = knowledge.source_names().collect();
    if known.is_empty() {
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

/// Ctrl-C and SIGTERM end a sync between two documents; a second one ends it at once.
async fn stopped_twice(mut signals: Signals, cancellation: &CancellationToken) {
    signals.next().await;
    cancellation.cancel();
    signals.next().await;
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
