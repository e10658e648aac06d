//! The fill: computes missing vectors, after a sync, in the background of a server, or on request.
//!
//! Processes documents in the order of their keys, one batch of chunks at a time, outside any transaction. Each batch
//! is stored at once, so that a kill costs one batch. A document that is written meanwhile is processed again.

use super::{Effort, EmbedError, Numbered};
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
const DOCUMENTS_AHEAD: usize = 16;
/// Consecutive passes over all documents that find nothing although the store reports missing vectors, before the
/// fill ends.
const EMPTY_PASSES_MAX: usize = 3;
/// Retries after a temporary failure.
const RETRIES: usize = 4;
/// Pause before the first retry; it doubles with each retry, with jitter.
const RETRY_FIRST: Duration = Duration::from_millis(250);
/// A text that every model accepts.
const HARMLESS: &str = "harbour";
/// Maximum pause that a service may request.
const RETRY_LAST: Duration = Duration::from_secs(60);

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
pub struct Filled {
    /// Number of vectors that were computed.
    pub made: u64,
    /// Whether every document now has all of its vectors, except for texts that the model rejects.
    pub complete: bool,
}

/// A failed fill; vectors stored before remain.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// Another process is computing vectors.
    #[error("another process is making vectors")]
    Busy,
    /// Another process has opened the store with another model, and removed this one's vectors.
    #[error("another process has changed the model of this workspace; start this one again to use it")]
    Replaced,
    /// The embedder failed.
    #[error("{0}")]
    Embedder(#[from] EmbedError),
    /// The lease could not be requested.
    #[error("cannot lock the vectors")]
    Lock(#[source] StoreError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Acquires the lease for computing or deleting vectors, which one process holds at a time.
pub(crate) fn lease(store: &dyn Store) -> Result<LeaseGuard, FillError> {
    store.lease(&Lease::Fill).map_err(FillError::Lock)?.ok_or(FillError::Busy)
}

/// A fill of one model, with everything it needs.
pub(crate) struct FillJob<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) model: &'a Numbered,
    /// Whether this is the workspace's own model, for which the store marks complete documents.
    pub(crate) own: bool,
    pub(crate) chunking: Chunking,
    pub(crate) effort: Effort,
    pub(crate) cancellation: &'a CancellationToken,
}

/// A chunk's position, its text as a model reads it, and the hash of that text.
type Text = (usize, String, TextHash);

/// The vector of a text, or the reason why the model rejects it.
type Made = Result<NewVector, UnreadableChunk>;

/// A chunk waiting to be embedded.
struct Piece {
    document: u64,
    generation: Generation,
    name: Arc<str>,
    text: Text,
}

impl FillJob<'_> {
    /// Computes vectors until none is missing or it is cancelled. The caller holds the lease.
    pub(crate) fn run(&self, progress: &dyn Fn(FillProgress)) -> Result<Filled, FillError> {
        let coverage = self.store.coverage(self.model.key)?;
        let mut state = FillProgress { done: coverage.vectors, chunks: coverage.chunks };
        let mut filled = Filled { made: 0, complete: false };
        let mut waiting: VecDeque<Piece> = VecDeque::new();
        let mut after = 0;
        let mut exhausted = false;
        let mut empty_passes = 0;
        progress(state);
        while !self.cancellation.is_cancelled() {
            while !exhausted && waiting.len() < self.model.embedder.batch_size() {
                let documents = self.store.pending(&PendingQuery {
                    model: self.model.key,
                    marked: self.own,
                    after,
                    limit: DOCUMENTS_AHEAD,
                })?;
                exhausted = documents.len() < DOCUMENTS_AHEAD;
                after = documents.last().map_or(after, |document| document.key);
                self.mark(&documents)?;
                waiting.extend(documents.iter().flat_map(|document| self.pieces(document)));
            }
            if waiting.is_empty() {
                // Documents may have been stored at keys before `after`.
                let lacking = match self.own {
                    true => !self.store.incomplete_sources(self.model.key)?.is_empty(),
                    false => self.store.lacks_vectors(self.model.key)?,
                };
                if !lacking {
                    filled.complete = true;
                    return Ok(filled);
                }
                empty_passes += 1;
                if empty_passes > EMPTY_PASSES_MAX {
                    // The next fill tries again.
                    return Ok(filled);
                }
                (after, exhausted) = (0, false);
                continue;
            }
            empty_passes = 0;
            let size = self.model.embedder.batch_size().min(waiting.len());
            let batch: Vec<Piece> = waiting.drain(..size).collect();
            let Some(made) = self.embed(&batch)? else { break };
            filled.made += made;
            state.done += batch.len() as u64;
            state.chunks = state.chunks.max(state.done);
            progress(state);
        }
        Ok(filled)
    }

    /// Marks documents that already have all vectors, as after a change of models and back.
    fn mark(&self, documents: &[PendingDocument]) -> Result<(), FillError> {
        let whole: Vec<DocumentVectors> = documents
            .iter()
            .filter(|document| document.chunks.is_empty())
            .map(|document| DocumentVectors {
                document: document.key,
                generation: document.generation,
                vectors: Vec::new(),
                unreadable: Vec::new(),
            })
            .collect();
        if whole.is_empty() { Ok(()) } else { self.put(&whole) }
    }

    /// The chunks of a document that lack a vector.
    fn pieces<'d>(&'d self, document: &'d PendingDocument) -> impl Iterator<Item = Piece> + 'd {
        let name: Arc<str> = document.name.as_str().into();
        document.chunks.iter().map(move |(position, span)| {
            let title = document.title.as_deref();
            let (text, hash) = chunk::embedded_text(title, &document.body, span, self.chunking);
            let (document, generation, name) = (document.key, document.generation, name.clone());
            Piece { document, generation, name, text: (*position, text, hash) }
        })
    }

    /// Computes and stores the vectors of a batch; returns their number, or `None` if cancelled.
    fn embed(&self, batch: &[Piece]) -> Result<Option<u64>, FillError> {
        let texts: Vec<_> = batch.iter().map(|piece| piece.text.clone()).collect();
        let Some(made) = self.readable_vectors(&texts)? else { return Ok(None) };
        let count = made.iter().filter(|made| made.is_ok()).count();
        let mut by_document: Vec<DocumentVectors> = Vec::new();
        for (piece, made) in batch.iter().zip(made) {
            if by_document.last().is_none_or(|last| last.document != piece.document) {
                by_document.push(DocumentVectors {
                    document: piece.document,
                    generation: piece.generation,
                    vectors: Vec::new(),
                    unreadable: Vec::new(),
                });
            }
            let Some(last) = by_document.last_mut() else { continue };
            match made {
                Ok(vector) => last.vectors.push(vector),
                Err(unreadable) => {
                    tracing::warn!("{}: a part of it gets no vector: {}", piece.name, unreadable.reason);
                    last.unreadable.push(unreadable);
                }
            }
        }
        self.put(&by_document)?;
        Ok(Some(count as u64))
    }

    /// The vectors of these texts; `None` if cancelled. A rejected batch is bisected to find the texts that the model
    /// rejects.
    fn readable_vectors(&self, texts: &[Text]) -> Result<Option<Vec<Made>>, EmbedError> {
        let reason = match self.vectors(texts) {
            Err(EmbedError::Unreadable(reason)) => reason,
            other => return Ok(other?.map(|vectors| vectors.into_iter().map(Ok).collect())),
        };
        let [(position, _, hash)] = texts else {
            let (first, second) = texts.split_at(texts.len() / 2);
            let Some(mut made) = self.readable_vectors(first)? else { return Ok(None) };
            let Some(rest) = self.readable_vectors(second)? else { return Ok(None) };
            made.extend(rest);
            return Ok(Some(made));
        };
        // If the model rejects this text too, the texts are not the cause: its error is returned.
        let Some(_) = self.vectors(&[(0, HARMLESS.to_owned(), TextHash::default())])? else {
            return Ok(None);
        };
        Ok(Some(vec![Err(UnreadableChunk { position: *position, hash: *hash, reason })]))
    }

    fn put(&self, batch: &[DocumentVectors]) -> Result<(), FillError> {
        match self.store.put_vectors(self.model.key, self.own, batch)? {
            true => Ok(()),
            // Further vectors would be wasted, and may cost money.
            false => Err(FillError::Replaced),
        }
    }

    /// The vectors of these texts, with retries after temporary failures; `None` if cancelled.
    fn vectors(&self, texts: &[Text]) -> Result<Option<Vec<NewVector>>, EmbedError> {
        let mut rests = ExponentialBuilder::default()
            .with_min_delay(RETRY_FIRST)
            .with_max_times(RETRIES)
            .with_jitter()
            .build();
        loop {
            let error = match self.model.vectors(texts, self.effort) {
                Ok(vectors) => return Ok(Some(vectors)),
                Err(error) => error,
            };
            let least = match &error {
                EmbedError::Unavailable(_) => Duration::ZERO,
                EmbedError::Later { after, .. } => (*after).min(RETRY_LAST),
                EmbedError::Refused(_) | EmbedError::Unreadable(_) => return Err(error),
            };
            let Some(pause) = rests.next() else { return Err(error) };
            let pause = pause.max(least);
            tracing::debug!(%error, "asking again in {} ms", pause.as_millis());
            rest(pause, self.cancellation);
            if self.cancellation.is_cancelled() {
                return Ok(None);
            }
        }
    }
}

/// Sleeps in small steps, so that a cancellation ends it. Blocks.
pub fn rest(duration: Duration, cancellation: &CancellationToken) {
    const STEP: Duration = Duration::from_millis(50);
    let mut left = duration;
    while !left.is_zero() && !cancellation.is_cancelled() {
        thread::sleep(STEP.min(left));
        left = left.saturating_sub(STEP);
    }
}
