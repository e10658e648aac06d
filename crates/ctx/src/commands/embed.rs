//! `ctx embed`

use super::stats;
use crate::cli::Global;
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::{Output, count};
use crate::progress::Meter;
use crate::signals::{Signals, until_interrupted};
use crate::workspace::Workspace;
use clap::Subcommand;
use ctx_knowledge::{Effort, FillProgress, Filled};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long the batch in hand may take after Ctrl-C: a served model may be slow. A second Ctrl-C does not wait.
const BATCH_PATIENCE: Duration = Duration::from_secs(60);

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
        let cancellation = CancellationToken::new();
        let filling = fill(&workspace, &cancellation, output);
        let filled = until_interrupted(signals, BATCH_PATIENCE, &cancellation, filling).await?;
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

/// Fills vectors in with all the machine has, with progress. Once it is cancelled it ends between two batches, and fails.
pub(crate) async fn fill(
    workspace: &Workspace,
    cancellation: &CancellationToken,
    output: Output,
) -> CommandResult<Filled> {
    let filling = {
        let (knowledge, cancellation) = (workspace.knowledge.clone(), cancellation.clone());
        move || {
            let meter = Meter::start(output);
            knowledge.fill(Effort::Full, &cancellation, &|progress: FillProgress| {
                meter.show(progress.done, Some(progress.chunks), "chunks embedded");
            })
        }
    };
    let filled = tokio::task::spawn_blocking(filling)
        .await
        .map_err(|error| CommandError::new(format!("making vectors failed: {error}")))??;
    if filled.complete || !cancellation.is_cancelled() {
        return Ok(filled);
    }
    let made = count(filled.made, "vector");
    let error = CommandError::new(format!("interrupted; {made} made, and kept"));
    Err(CommandError { exit: Exit::Interrupted, ..error }
        .hint("`ctx embed pending` goes on where this stopped"))
}
