//! Background embedding: computes missing vectors on a separate thread with low priority, for servers and `sync
//! --watch`.

use super::low_priority::lower_priority;
use ctx_core::error_chain;
use ctx_knowledge::{Effort, FillError, Knowledge, sleep_cancellable};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How often to check for missing vectors.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Backoff after a failure: the first pause, doubled each time up to the last.
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_LAST: Duration = Duration::from_secs(300);
/// Number of vectors between two progress lines in the log.
const LOG_EVERY: u64 = 2_000;

/// The thread that computes vectors.
pub(super) struct EmbeddingThread {
    ended: oneshot::Receiver<()>,
}

impl EmbeddingThread {
    /// Starts the thread, unless embeddings are disabled; it ends soon after `shutdown`.
    pub(super) fn start(knowledge: Arc<Knowledge>, shutdown: CancellationToken) -> Self {
        let (done, ended) = oneshot::channel();
        if knowledge.fill_mode().is_some() {
            thread::spawn(move || {
                lower_priority();
                run(&knowledge, &shutdown);
                drop(done);
            });
        }
        Self { ended }
    }

    /// Waits for the end of the thread and so of its current batch, which still writes to the store.
    pub(super) async fn end(self) {
        drop(self.ended.await);
    }
}

fn run(knowledge: &Knowledge, shutdown: &CancellationToken) {
    let mut retry = RETRY_FIRST;
    while !shutdown.is_cancelled() {
        let wait = match fill_once(knowledge, shutdown) {
            // Nothing is missing any more, or another process is computing the vectors.
            Ok(()) | Err(FillError::Busy) => {
                retry = RETRY_FIRST;
                POLL_EVERY
            }
            Err(error) => {
                tracing::warn!(
                    "cannot compute embeddings: {}; retrying in {} s",
                    error_chain(&error),
                    retry.as_secs()
                );
                let wait = retry;
                retry = (retry * 2).min(RETRY_LAST);
                wait
            }
        };
        sleep_cancellable(wait, shutdown);
    }
}

fn fill_once(knowledge: &Knowledge, shutdown: &CancellationToken) -> Result<(), FillError> {
    if !knowledge.lacks_vectors()? {
        return Ok(());
    }
    let logged = std::cell::Cell::new(0);
    let filled = knowledge.fill(Effort::Low, shutdown, &|progress| {
        if progress.done >= logged.get() + LOG_EVERY {
            logged.set(progress.done);
            tracing::info!("computed {} of {} embeddings", progress.done, progress.chunks);
        }
    })?;
    if filled.complete && filled.made > 0 {
        tracing::info!("computed {} embeddings; every document is embedded", filled.made);
    }
    Ok(())
}
