//! `ctx embed`: computes embeddings in the foreground, with all processors.

use super::stats;
use crate::cli::{GlobalOptions, examples};
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::{CommandOutput, count};
use crate::progress::ProgressMeter;
use crate::signals::{Signals, until_interrupted};
use crate::workspace::Workspace;
use clap::Subcommand;
use ctx_knowledge::{Effort, FillProgress, FillReport};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long the current batch may take after Ctrl-C: a remote model may be slow. A second Ctrl-C does not wait.
const BATCH_GRACE_PERIOD: Duration = Duration::from_secs(60);

/// Compute embeddings, the vectors for search by meaning.
///
/// A server computes them in the background while it runs, so this is only needed to have them sooner, or to
/// recompute them.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Compute missing embeddings", "ctx embed pending"),
    ("Recompute all embeddings", "ctx embed rebuild"),
]))]
pub(crate) struct Embed {
    #[command(subcommand)]
    action: EmbedAction,
}

#[derive(Debug, Subcommand)]
enum EmbedAction {
    /// Compute missing embeddings.
    ///
    /// Can be interrupted with Ctrl-C and run again: finished embeddings are kept.
    #[command(after_help = examples(&[
        ("Compute missing embeddings, with progress", "ctx embed pending"),
        ("Compute them without progress", "ctx embed pending --quiet"),
    ]))]
    Pending,
    /// Delete all embeddings and compute them again.
    #[command(after_help = examples(&[
        ("Recompute all embeddings, with progress", "ctx embed rebuild"),
        ("Recompute them and print the result as JSON", "ctx embed rebuild --json"),
    ]))]
    Rebuild,
}

impl Embed {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let signals = Signals::listen()?;
        let mut workspace = global.open()?;
        let output = global.output();
        if workspace.knowledge.fill_mode().is_none() {
            return Err(CommandError::usage("embeddings are disabled here")
                .hint("set `embedding.provider` to \"builtin\" in ctx.toml"));
        }
        if let EmbedAction::Rebuild = self.action {
            workspace.knowledge.clear_vectors()?;
            // Reopened: the model's vectors may now have another dimension.
            workspace = global.open()?;
        }
        let cancellation = CancellationToken::new();
        let filling = fill(&workspace, &cancellation, output);
        let filled = until_interrupted(signals, BATCH_GRACE_PERIOD, &cancellation, filling).await?;
        let stats = workspace.knowledge.stats()?;
        let pending = stats.vectors.as_ref().map_or(0, |vectors| vectors.pending_documents);
        let unreadable = stats.vectors.as_ref().map(stats::unreadable_text).unwrap_or_default();
        output.print_result(&filled, || match filled.complete {
            true => format!(
                "computed {}; every document is embedded{unreadable}",
                count(filled.made, "embedding")
            ),
            false => format!(
                "computed {}; {} not embedded yet; run the command again",
                count(filled.made, "embedding"),
                count(pending, "document")
            ),
        })
    }
}

/// Computes missing embeddings with all processors, with progress. Cancellation takes effect between two batches, and
/// is an error.
pub(crate) async fn fill(
    workspace: &Workspace,
    cancellation: &CancellationToken,
    output: CommandOutput,
) -> CommandResult<FillReport> {
    let filling = {
        let (knowledge, cancellation) = (workspace.knowledge.clone(), cancellation.clone());
        move || {
            let meter = ProgressMeter::start(output);
            knowledge.fill(Effort::Full, &cancellation, &|progress: FillProgress| {
                meter.show(progress.done, Some(progress.chunks), "chunks embedded");
            })
        }
    };
    let filled = tokio::task::spawn_blocking(filling)
        .await
        .map_err(|error| CommandError::new(format!("cannot compute embeddings: {error}")))??;
    if filled.complete || !cancellation.is_cancelled() {
        return Ok(filled);
    }
    let made = count(filled.made, "embedding");
    let error = CommandError::new(format!("interrupted; {made} computed and stored"));
    Err(CommandError { exit: Exit::Interrupted, ..error }.hint("`ctx embed pending` continues from here"))
}
