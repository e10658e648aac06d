//! The fill: computes missing vectors, after a sync, in the background of a server, or on request.
//!
//! Processes documents in the order of their keys, one batch of chunks at a time, outside any transaction. Each batch
//! is stored at once, so that a kill costs one batch. A document that is written meanwhile is processed again.

use super::{Effort, EmbedError, EmbeddingInput, RegisteredModel};
use crate::chunk::{self, Chunking};
use backon::{BackoffBuilder, ExponentialBuilder};
use ctx_store::{
    DocumentVectors, Generation, Lease, LeaseGuard, NewVector, PendingDocument, PendingQuery, Store,
    StoreError, TextHash, UnreadableChunk,
};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Documents read from the store at a time.
const DOCUMENTS_PAGE: usize = 16;
/// Consecutive passes over all documents that find nothing although the store reports missing vectors, before the
/// fill ends.
const EMPTY_PASSES_MAX: usize = 3;
/// Retries after a temporary failure.
const RETRIES: usize = 4;
/// Pause before the first retry; it doubles with each retry, with jitter.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(250);
/// A text that every model accepts.
const PROBE_TEXT: &str = "harbour";
/// Maximum pause that a service may request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Progress of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FillProgress {
    /// Chunks with a vector.
    pub done: u64,
    /// All chunks.
    pub chunks: u64,
}

/// Result of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FillReport {
    /// Number of vectors that were computed.
    pub made: u64,
    /// Whether every document now has all of its vectors, except for texts that the model rejects.
    pub complete: bool,
}

/// A failed fill; vectors stored before remain.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// Another process is computing vectors.
    #[error("another process is computing embeddings")]
    Busy,
    /// Another process has opened the store with another model, and removed this one's vectors.
    #[error("another process has changed the embedding model of this workspace; restart this one to use it")]
    Replaced,
    /// The embedder failed.
    #[error("{0}")]
    Embedder(#[from] EmbedError),
    /// The lease could not be requested.
    #[error("cannot acquire the lease on the vectors")]
    Lock(#[source] StoreError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Acquires the lease for computing or deleting vectors, which one process holds at a time.
pub(crate) fn acquire_lease(store: &dyn Store) -> Result<LeaseGuard, FillError> {
    store.lease(&Lease::Embedding).map_err(FillError::Lock)?.ok_or(FillError::Busy)
}

/// A fill of one model, with everything it needs.
pub(crate) struct FillJob<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) model: &'a RegisteredModel,
    /// Whether this is the workspace's own model, for which the store marks complete documents.
    pub(crate) is_configured_model: bool,
    pub(crate) chunking: Chunking,
    pub(crate) effort: Effort,
    pub(crate) cancellation: &'a CancellationToken,
}

/// The vector of a text, or the reason why the model rejects it.
type VectorResult = Result<NewVector, UnreadableChunk>;

/// A chunk waiting to be embedded.
struct PendingChunk {
    document: u64,
    generation: Generation,
    name: Arc<str>,
    input: EmbeddingInput,
}

impl FillJob<'_> {
    /// Computes vectors until none is missing or it is cancelled. The caller holds the lease.
    pub(crate) fn run(&self, progress: &dyn Fn(FillProgress)) -> Result<FillReport, FillError> {
        let coverage = self.store.coverage(self.model.key)?;
        let mut current = FillProgress { done: coverage.vectors, chunks: coverage.chunks };
        let mut result = FillReport { made: 0, complete: false };
        let mut queue: VecDeque<PendingChunk> = VecDeque::new();
        let mut after = 0;
        let mut exhausted = false;
        let mut empty_passes = 0;
        progress(current);
        while !self.cancellation.is_cancelled() {
            while !exhausted && queue.len() < self.model.embedder.batch_size() {
                let documents = self.store.pending(&PendingQuery {
                    model: self.model.key,
                    trusts_marks: self.is_configured_model,
                    after,
                    limit: DOCUMENTS_PAGE,
                })?;
                exhausted = documents.len() < DOCUMENTS_PAGE;
                after = documents.last().map_or(after, |document| document.key);
                self.mark_complete(&documents)?;
                queue.extend(documents.iter().flat_map(|document| self.pending_chunks(document)));
            }
            if queue.is_empty() {
                // Documents may have been stored at keys before `after`.
                let lacks_vectors = match self.is_configured_model {
                    true => !self.store.incomplete_sources(self.model.key)?.is_empty(),
                    false => self.store.lacks_vectors(self.model.key)?,
                };
                if !lacks_vectors {
                    result.complete = true;
                    return Ok(result);
                }
                empty_passes += 1;
                if empty_passes > EMPTY_PASSES_MAX {
                    // The next fill tries again.
                    return Ok(result);
                }
                (after, exhausted) = (0, false);
                continue;
            }
            empty_passes = 0;
            let size = self.model.embedder.batch_size().min(queue.len());
            let batch: Vec<PendingChunk> = queue.drain(..size).collect();
            let Some(count) = self.embed(&batch)? else { break };
            result.made += count;
            current.done += batch.len() as u64;
            current.chunks = current.chunks.max(current.done);
            progress(current);
        }
        Ok(result)
    }

    /// Marks documents that already have all vectors, as after a change of models and back.
    fn mark_complete(&self, documents: &[PendingDocument]) -> Result<(), FillError> {
        let complete: Vec<DocumentVectors> = documents
            .iter()
            .filter(|document| document.chunks.is_empty())
            .map(|document| DocumentVectors {
                document: document.key,
                generation: document.generation,
                vectors: Vec::new(),
                unreadable: Vec::new(),
            })
            .collect();
        if complete.is_empty() { Ok(()) } else { self.store_vectors(&complete) }
    }

    /// The chunks of a document that lack a vector.
    fn pending_chunks<'d>(
        &'d self,
        document: &'d PendingDocument,
    ) -> impl Iterator<Item = PendingChunk> + 'd {
        let name: Arc<str> = document.name.as_str().into();
        document.chunks.iter().map(move |(position, span)| {
            let title = document.title.as_deref();
            let (text, hash) = chunk::embedded_text(title, &document.body, span, self.chunking);
            let (document, generation, name) = (document.key, document.generation, name.clone());
            PendingChunk { document, generation, name, input: (*position, text, hash) }
        })
    }

    /// Computes and stores the vectors of a batch; returns their number, or `None` if cancelled.
    fn embed(&self, batch: &[PendingChunk]) -> Result<Option<u64>, FillError> {
        let inputs: Vec<_> = batch.iter().map(|chunk| chunk.input.clone()).collect();
        let Some(results) = self.vectors_by_bisection(&inputs)? else { return Ok(None) };
        let count = results.iter().filter(|result| result.is_ok()).count();
        let mut by_document: Vec<DocumentVectors> = Vec::new();
        for (chunk, result) in batch.iter().zip(results) {
            if by_document.last().is_none_or(|last| last.document != chunk.document) {
                by_document.push(DocumentVectors {
                    document: chunk.document,
                    generation: chunk.generation,
                    vectors: Vec::new(),
                    unreadable: Vec::new(),
                });
            }
            let Some(last) = by_document.last_mut() else { continue };
            match result {
                Ok(vector) => last.vectors.push(vector),
                Err(unreadable) => {
                    tracing::warn!("{}: cannot embed a chunk: {}", chunk.name, unreadable.reason);
                    last.unreadable.push(unreadable);
                }
            }
        }
        self.store_vectors(&by_document)?;
        Ok(Some(count as u64))
    }

    /// The vectors of these texts; `None` if cancelled. A rejected batch is bisected to find the texts that the model
    /// rejects.
    fn vectors_by_bisection(
        &self,
        texts: &[EmbeddingInput],
    ) -> Result<Option<Vec<VectorResult>>, EmbedError> {
        let reason = match self.vectors_with_retries(texts) {
            Err(EmbedError::Unreadable(reason)) => reason,
            other => return Ok(other?.map(|vectors| vectors.into_iter().map(Ok).collect())),
        };
        let [(position, _, hash)] = texts else {
            let (first, second) = texts.split_at(texts.len() / 2);
            let Some(mut results) = self.vectors_by_bisection(first)? else { return Ok(None) };
            let Some(rest) = self.vectors_by_bisection(second)? else { return Ok(None) };
            results.extend(rest);
            return Ok(Some(results));
        };
        // If the model rejects this text too, the texts are not the cause: its error is returned.
        let Some(_) = self.vectors_with_retries(&[(0, PROBE_TEXT.to_owned(), TextHash::default())])? else {
            return Ok(None);
        };
        Ok(Some(vec![Err(UnreadableChunk { position: *position, hash: *hash, reason })]))
    }

    fn store_vectors(&self, batch: &[DocumentVectors]) -> Result<(), FillError> {
        match self.store.put_vectors(self.model.key, self.is_configured_model, batch)? {
            true => Ok(()),
            // Further vectors would be wasted, and may cost money.
            false => Err(FillError::Replaced),
        }
    }

    /// The vectors of these texts, with retries after temporary failures; `None` if cancelled.
    fn vectors_with_retries(&self, texts: &[EmbeddingInput]) -> Result<Option<Vec<NewVector>>, EmbedError> {
        let mut backoff = ExponentialBuilder::default()
            .with_min_delay(RETRY_DELAY_MIN)
            .with_max_times(RETRIES)
            .with_jitter()
            .build();
        loop {
            let error = match self.model.vectors(texts, self.effort) {
                Ok(vectors) => return Ok(Some(vectors)),
                Err(error) => error,
            };
            let pause_min = match &error {
                EmbedError::Unavailable(_) => Duration::ZERO,
                EmbedError::Later { after, .. } => (*after).min(RETRY_AFTER_MAX),
                EmbedError::Refused(_) | EmbedError::Unreadable(_) => return Err(error),
            };
            let Some(pause) = backoff.next() else { return Err(error) };
            let pause = pause.max(pause_min);
            tracing::debug!(%error, "retrying in {} ms", pause.as_millis());
            sleep_cancellable(pause, self.cancellation);
            if self.cancellation.is_cancelled() {
                return Ok(None);
            }
        }
    }
}

/// Sleeps in small steps, so that a cancellation ends it. Blocks.
pub fn sleep_cancellable(duration: Duration, cancellation: &CancellationToken) {
    const STEP: Duration = Duration::from_millis(50);
    let mut left = duration;
    while !left.is_zero() && !cancellation.is_cancelled() {
        thread::sleep(STEP.min(left));
        left = left.saturating_sub(STEP);
    }
}
