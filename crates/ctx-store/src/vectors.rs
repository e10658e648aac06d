//! Embedding vectors of chunks, per model.

use crate::changes::{Generation, VectorSequence};
use crate::documents::{ChunkPosition, DocumentKey, Span};
use crate::error::StoreError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The number of an embedding model within one store.
pub type ModelKey = i64;

/// Hash of the text that a vector was computed from.
pub type TextHash = [u8; 16];

/// Storage of vectors: at most one per chunk and model. A vector is never changed, only replaced by one with a higher
/// [`VectorSequence`].
pub trait VectorStore {
    /// The key of a model; `None` if the store does not know it.
    fn model(&self, id: &str) -> Result<Option<ModelKey>, StoreError>;

    /// The key of a model; an unknown model is added.
    fn ensure_model(&self, id: &str) -> Result<ModelKey, StoreError>;

    /// The number of dimensions of a model's vectors; `None` while it has no vectors.
    fn dimensions(&self, model: ModelKey) -> Result<Option<usize>, StoreError>;

    /// Removes all models except these, with their vectors, in batches.
    fn keep_models(&self, keep: &[ModelKey]) -> Result<(), StoreError>;

    /// Removes all vectors of a model, in batches.
    fn clear_model(&self, model: ModelKey) -> Result<(), StoreError>;

    /// Documents that lack vectors of a model, ordered by key.
    fn pending(&self, query: &PendingQuery) -> Result<Vec<PendingDocument>, StoreError>;

    /// Whether any document lacks vectors of `model`. Counts the vectors of each document instead of trusting its mark.
    fn lacks_vectors(&self, model: ModelKey) -> Result<bool, StoreError>;

    /// Stores vectors in one transaction; returns whether the store still knows the model. Vectors of documents that
    /// were rewritten meanwhile are dropped. With `mark`, a document that now has all its vectors is marked as
    /// complete.
    fn put_vectors(
        &self,
        model: ModelKey,
        mark: bool,
        documents: &[DocumentVectors],
    ) -> Result<bool, StoreError>;

    /// The sources with documents that are not marked as having all vectors of `model`.
    fn incomplete_sources(&self, model: ModelKey) -> Result<BTreeSet<String>, StoreError>;

    /// How many chunks and documents have vectors of a model.
    fn coverage(&self, model: ModelKey) -> Result<VectorCoverage, StoreError>;

    /// The number of chunks that a model rejects, and the first `limit` documents that contain some.
    fn unreadable(&self, model: ModelKey, limit: usize)
    -> Result<(u64, Vec<UnreadableDocument>), StoreError>;

    /// The number of vectors of `model`, and the newest of them. Cheap: called before each search.
    fn vector_state(&self, model: ModelKey) -> Result<VectorState, StoreError>;

    /// The exact values of vectors, as half-precision floats; `None` for vectors that no longer exist.
    fn exact_vectors(&self, vectors: &[VectorSequence]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;

    /// The exact values of chunks' vectors, as half-precision floats; `None` for chunks without a vector of `model`.
    fn exact_chunk_vectors(
        &self,
        model: ModelKey,
        chunks: &[ChunkPosition],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError>;
}

/// A vector ready to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NewVector {
    /// The chunk's position in its document.
    pub position: usize,
    /// Hash of the text that it was computed from.
    pub hash: TextHash,
    /// Quantisation scale: a code times the scale approximates a value.
    pub scale: f32,
    /// The values quantised to signed bytes, for the scan of a search.
    pub codes: Vec<u8>,
    /// The values as half-precision floats.
    pub half: Vec<u8>,
}

/// The vectors to store with a document.
#[derive(Clone, Debug, Default)]
pub struct NewVectors {
    /// Hash of each chunk's text; stored vectors of the same text are kept.
    pub hashes: Vec<TextHash>,
    /// New vectors, and the model that computed them.
    pub computed: Option<(ModelKey, Vec<NewVector>)>,
    /// The model whose vectors the document must have, all of them, to be marked as complete.
    pub required_model: Option<ModelKey>,
}

/// A query for documents that lack vectors of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingQuery {
    /// The model.
    pub model: ModelKey,
    /// Whether to trust the marks of complete documents; otherwise the vectors of each document are counted.
    pub trusts_marks: bool,
    /// Only documents with a higher key than this.
    pub after: DocumentKey,
    /// Maximum number of documents.
    pub limit: usize,
}

/// A document that lacks vectors of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingDocument {
    /// Its key.
    pub key: DocumentKey,
    /// The generation of its last write; the document may be rewritten while vectors are computed.
    pub generation: Generation,
    /// `source:source_id`.
    pub name: String,
    /// Its title.
    pub title: Option<String>,
    /// Its text.
    pub body: String,
    /// The chunks without a vector, with their positions.
    pub chunks: Vec<(usize, Span)>,
}

/// New vectors for chunks of a document, and the chunks that the model rejects.
#[derive(Clone, Debug)]
pub struct DocumentVectors {
    /// The document.
    pub document: DocumentKey,
    /// The generation of the text that the vectors were computed from.
    pub generation: Generation,
    /// The vectors.
    pub vectors: Vec<NewVector>,
    /// Chunks that the model rejects. They count as complete, and are not retried until all vectors are recomputed or
    /// their text changes.
    pub unreadable: Vec<UnreadableChunk>,
}

/// A chunk that a model rejects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableChunk {
    /// Its position in its document.
    pub position: usize,
    /// Hash of its text.
    pub hash: TextHash,
    /// Why the model rejects it.
    pub reason: String,
}

/// A document that a model refuses to read some of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreadableDocument {
    /// Its source.
    pub source: String,
    /// Its name in the source.
    pub source_id: String,
    /// How many of its chunks are refused.
    pub chunks: u64,
    /// Why one of them is.
    pub reason: String,
}

/// How many chunks and documents have vectors of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorCoverage {
    /// Number of chunks in the store.
    pub chunks: u64,
    /// Number of vectors of the model.
    pub vectors: u64,
    /// Number of documents that are not marked as having all vectors of the model.
    pub pending_documents: u64,
}

/// The number of vectors of a model, and the sequence numbers of the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorState {
    /// Number of vectors.
    pub live: u64,
    /// The newest vector.
    pub newest: VectorSequence,
    /// The highest sequence number assigned so far, of any model, also if that vector was removed. It decreases only when
    /// the store is restored from a copy.
    pub last_assigned: VectorSequence,
}

/// Quantised vectors for the search index, back to back in few allocations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VectorBatch {
    rows: Vec<(VectorSequence, ChunkPosition, f32)>,
    /// End offset of each row's codes.
    ends: Vec<usize>,
    codes: Vec<u8>,
}

/// One vector of a [`VectorBatch`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VectorRow<'a> {
    /// Its sequence number, in commit order.
    pub sequence: VectorSequence,
    /// Its chunk.
    pub place: ChunkPosition,
    /// Quantisation scale: a code times the scale approximates a value.
    pub scale: f32,
    /// The values quantised to signed bytes.
    pub codes: &'a [u8],
}

impl VectorBatch {
    /// Appends a vector.
    pub fn push(&mut self, row: VectorRow<'_>) {
        self.rows.push((row.sequence, row.place, row.scale));
        self.codes.extend_from_slice(row.codes);
        self.ends.push(self.codes.len());
    }

    /// The vectors, in the order of insertion.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = VectorRow<'_>> {
        self.rows.iter().enumerate().map(|(index, (sequence, place, scale))| {
            let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
            let codes = &self.codes[start..self.ends[index]];
            VectorRow { sequence: *sequence, place: *place, scale: *scale, codes }
        })
    }

    /// Number of vectors.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether the batch has no vectors.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}
