//! Filling in vectors that are missing: after a sync, behind a server, or when asked to.
//!
//! Works on documents in the order of their keys, a batch of chunks at a time, outside any
//! transaction; each batch is stored at once, so that a kill costs one batch. A document that is
//! written meanwhile is done again.

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

/// Documents read ahead.
const DOCUMENTS_AHEAD: usize = 16;
/// Walks through all documents that find nothing to do while something seems to be missing.
const EMPTY_PASSES_MAX: usize = 3;
/// How often an embedder is asked again after a failure that may pass.
const RETRIES: usize = 4;
/// The first rest before that; each is twice as long as the one before, and a little longer by chance.
const RETRY_FIRST: Duration = Duration::from_millis(250);
/// What any model reads.
const HARMLESS: &str = "harbour";
/// The longest rest that an embedder may ask for.
const RETRY_LAST: Duration = Duration::from_secs(60);

/// How far filling in has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FillProgress {
    /// Chunks that have a vector.
    pub done: u64,
    /// Chunks in all.
    pub chunks: u64,
}

/// What filling in did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Filled {
    /// Vectors that were made.
    pub made: u64,
    /// Whether every document now has all of its vectors, but those of texts that the model refuses.
    pub complete: bool,
}

/// Vectors that could not be filled in; those stored before stay.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// Another process is at it.
    #[error("another process is making vectors")]
    Busy,
    /// Somebody has opened the store with another model since, and removed this one's vectors.
    #[error("another process has changed the model of this workspace; start this one again to use it")]
    Replaced,
    /// The embedder failed.
    #[error("{0}")]
    Embedder(#[from] EmbedError),
    /// The lock file cannot be used.
    #[error("cannot lock the vectors")]
    Lock(#[source] StoreError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Held by whoever makes or removes vectors; there is only one at a time.
pub(crate) fn lease(store: &dyn Store) -> Result<LeaseGuard, FillError> {
    store.lease(&Lease::Fill).map_err(FillError::Lock)?.ok_or(FillError::Busy)
}

/// Everything filling in works with.
pub(crate) struct FillJob<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) model: &'a Numbered,
    /// Whether this is the workspace's own model, whose documents are marked when they are complete.
    pub(crate) own: bool,
    pub(crate) chunking: Chunking,
    pub(crate) effort: Effort,
    pub(crate) cancellation: &'a CancellationToken,
}

/// A chunk's position, what a model reads of it, and what tells that from other texts.
type Text = (usize, String, TextHash);

/// What became of a text.
type Made = Result<NewVector, UnreadableChunk>;

/// A chunk on its way to the embedder.
struct Piece {
    document: u64,
    generation: Generation,
    name: Arc<str>,
    text: Text,
}

impl FillJob<'_> {
    /// Makes what is missing until nothing is or it is cancelled. Only for whoever has the lock.
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
                // Documents may have come in behind.
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
                    // Whoever looks for what is missing will be back.
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

    /// Marks the documents that lack nothing, as after a change of models and back.
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

    /// Makes and stores the vectors of a batch; tells how many, or nothing when it was cancelled before.
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

    /// The vectors of these texts. Of several that are refused together, halves are asked for until
    /// those are found that are to blame.
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
        // A model that refuses this too has nothing against our texts: something else is wrong.
        let Some(_) = self.vectors(&[(0, HARMLESS.to_owned(), TextHash::default())])? else {
            return Ok(None);
        };
        Ok(Some(vec![Err(UnreadableChunk { position: *position, hash: *hash, reason })]))
    }

    fn put(&self, batch: &[DocumentVectors]) -> Result<(), FillError> {
        match self.store.put_vectors(self.model.key, self.own, batch)? {
            true => Ok(()),
            // All that is made from now on would be for nothing, and may cost money.
            false => Err(FillError::Replaced),
        }
    }

    /// The vectors of these texts, asked for again after failures that may pass; `None` when it was
    /// cancelled meanwhile.
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

/// Sleeps in small steps, so that a cancellation is noticed. Blocks.
pub fn rest(duration: Duration, cancellation: &CancellationToken) {
    const STEP: Duration = Duration::from_millis(50);
    let mut left = duration;
    while !left.is_zero() && !cancellation.is_cancelled() {
        thread::sleep(STEP.min(left));
        left = left.saturating_sub(STEP);
    }
}
