//! `ctx embed`

use super::stats;
use crate::cli::Global;
use crate::error::{CommandError, CommandResult};
use crate::output::count;
use crate::signals::Signals;
use crate::workspace::Workspace;
use clap::Subcommand;
use ctx_knowledge::{Effort, FillProgress, Filled, Knowledge};
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Make the vectors that documents are found by meaning with.
#[derive(Debug, clap::Args)]
pub(crate) struct Embed {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make those that are missing.
    Pending,
    /// Throw all of them away and make them anew.
    Rebuild,
}

impl Embed {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let signals = Signals::listen()?;
        let mut workspace = global.open()?;
        let output = global.output();
        if workspace.knowledge.fill_mode().is_none() {
            return Err(CommandError::usage("embeddings are disabled here")
                .hint("set `embedding.provider` to \"builtin\" in ctx.toml"));
        }
        if let What::Rebuild = self.what {
            workspace.knowledge.clear_vectors()?;
            // A model may make vectors of another size than it did.
            workspace = global.open()?;
        }
        let filled = fill(&workspace, signals, output.quiet).await?;
        let stats = workspace.knowledge.stats()?;
        let pending = stats.vectors.as_ref().map_or(0, |vectors| vectors.pending_documents);
        let unreadable = stats.vectors.as_ref().map(stats::unreadable).unwrap_or_default();
        output.answer(&filled, || match filled.complete {
            true => format!(
                "made {}; every document has all of its vectors{unreadable}",
                count(filled.made, "vector")
            ),
            false => format!(
                "made {}; {} still wait; run the command again",
                count(filled.made, "vector"),
                count(pending, "document")
            ),
        })
    }
}

/// Fills vectors in with all the machine has; Ctrl-C ends it between two batches, a second one at once.
pub(crate) async fn fill(workspace: &Workspace, mut signals: Signals, quiet: bool) -> CommandResult<Filled> {
    let cancellation = CancellationToken::new();
    let filling = spawn_fill(workspace.knowledge.clone(), cancellation.clone(), quiet);
    let mut filling = std::pin::pin!(filling);
    tokio::select! {
        filled = &mut filling => filled,
        () = signals.next() => {
            cancellation.cancel();
            tokio::select! {
                filled = &mut filling => filled,
                () = signals.next() => {
                    Err(CommandError::new("stopped; the vectors made so far are kept"))
                }
            }
        }
    }
}

async fn spawn_fill(
    knowledge: Arc<Knowledge>,
    cancellation: CancellationToken,
    quiet: bool,
) -> CommandResult<Filled> {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos} of {len} vectors  {eta} left") {
        bar.set_style(style);
    }
    let shown = bar.clone();
    let filling = tokio::task::spawn_blocking(move || {
        knowledge.fill(Effort::Full, &cancellation, &|progress: FillProgress| {
            shown.set_length(progress.chunks);
            shown.set_position(progress.done);
        })
    });
    let filled =
        filling.await.map_err(|error| CommandError::new(format!("making vectors failed: {error}")))?;
    bar.finish_and_clear();
    Ok(filled?)
}
