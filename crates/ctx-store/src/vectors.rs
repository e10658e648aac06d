//! Vectors of chunks, by the model that made them.

use crate::changes::{Generation, VectorSequence};
use crate::documents::{ChunkPlace, DocumentKey, Span};
use crate::error::StoreError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A model, as a store numbers it.
pub type ModelKey = i64;

/// Tells the text that a vector was made of.
pub type TextHash = [u8; 16];

/// Vectors: at most one for each chunk and model. One is never changed, only replaced by one with a higher
/// [`VectorSequence`].
pub trait VectorStore {
    /// The number of a model, if the store knows it.
    fn model(&self, id: &str) -> Result<Option<ModelKey>, StoreError>;

    /// The number of a model; one that is new gets one.
    fn ensure_model(&self, id: &str) -> Result<ModelKey, StoreError>;

    /// How many numbers a model's vectors have; `None` while there are none.
    fn dimensions(&self, model: ModelKey) -> Result<Option<usize>, StoreError>;

    /// Removes all models but these, and their vectors, a few at a time.
    fn keep_models(&self, keep: &[ModelKey]) -> Result<(), StoreError>;

    /// Removes the vectors of a model, a few at a time.
    fn clear_model(&self, model: ModelKey) -> Result<(), StoreError>;

    /// Documents that lack vectors of a model, in the order of their keys.
    fn pending(&self, query: &PendingQuery) -> Result<Vec<PendingDocument>, StoreError>;

    /// Whether any document lacks vectors of `model`; every document is counted.
    fn lacks_vectors(&self, model: ModelKey) -> Result<bool, StoreError>;

    /// Stores vectors, in one transaction; tells whether the store still knows the model. Those of documents that were
    /// written meanwhile are dropped; with `mark`, a document that now has all of them is marked.
    fn put_vectors(
        &self,
        model: ModelKey,
        mark: bool,
        documents: &[DocumentVectors],
    ) -> Result<bool, StoreError>;

    /// The sources that have documents that are not marked as having all vectors of `model`.
    fn incomplete_sources(&self, model: ModelKey) -> Result<BTreeSet<String>, StoreError>;

    /// How far a model has come.
    fn coverage(&self, model: ModelKey) -> Result<VectorCoverage, StoreError>;

    /// How many chunks a model refuses, and the first few documents that have some.
    fn unreadable(&self, model: ModelKey, limit: usize)
    -> Result<(u64, Vec<UnreadableDocument>), StoreError>;

    /// How many vectors of `model` there are, and the newest of them. Cheap: asked before each search.
    fn vector_state(&self, model: ModelKey) -> Result<VectorState, StoreError>;

    /// The exact values of vectors, as half-precision floats; `None` for those that are gone.
    fn exact_vectors(&self, vectors: &[VectorSequence]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;

    /// The exact values of chunks' vectors, as half-precision floats; `None` for those without one of `model`.
    fn exact_chunk_vectors(
        &self,
        model: ModelKey,
        chunks: &[ChunkPlace],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError>;
}

/// A vector ready to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NewVector {
    /// The chunk's position in its document.
    pub position: usize,
    /// Tells the text that it was made of.
    pub hash: TextHash,
    /// A code times this is a value.
    pub scale: f32,
    /// A signed byte for each value, for scanning.
    pub codes: Vec<u8>,
    /// The values as half-precision floats.
    pub half: Vec<u8>,
}

/// What a document's vectors are to be.
#[derive(Clone, Debug, Default)]
pub struct NewVectors {
    /// What each chunk's vector is made of; a vector of the same text is kept.
    pub hashes: Vec<TextHash>,
    /// New vectors, and the model that made them.
    pub made: Option<(ModelKey, Vec<NewVector>)>,
    /// The model that the document must have all vectors of.
    pub wanted: Option<ModelKey>,
}

/// Which documents that lack vectors to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingQuery {
    /// The model.
    pub model: ModelKey,
    /// Whether documents that have all of them are marked, or must be counted.
    pub marked: bool,
    /// Only documents behind this one.
    pub after: DocumentKey,
    /// At most this many.
    pub limit: usize,
}

/// A document that lacks vectors of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingDocument {
    /// Its key.
    pub key: DocumentKey,
    /// When it was last written; it may be written again while vectors are made.
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

/// Vectors for some chunks of a document, and the chunks for which there will be none.
#[derive(Clone, Debug)]
pub struct DocumentVectors {
    /// The document.
    pub document: DocumentKey,
    /// When it was last written, as far as whoever made them knows.
    pub generation: Generation,
    /// The vectors.
    pub vectors: Vec<NewVector>,
    /// Chunks that the model refuses to read: neither waited for nor asked for again, until all vectors are made anew
    /// or their text changes.
    pub unreadable: Vec<UnreadableChunk>,
}

/// A chunk that a model refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableChunk {
    /// Its position in its document.
    pub position: usize,
    /// Tells its text.
    pub hash: TextHash,
    /// Why.
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

/// How far a model has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorCoverage {
    /// Chunks in all.
    pub chunks: u64,
    /// Vectors of the model.
    pub vectors: u64,
    /// Documents that are not marked as having all of them.
    pub pending_documents: u64,
}

/// The vectors of a model at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorState {
    /// How many there are.
    pub live: u64,
    /// The newest of them.
    pub newest: VectorSequence,
}

/// Vectors as searching needs them, one after the other in few allocations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VectorBatch {
    rows: Vec<(VectorSequence, ChunkPlace, f32)>,
    /// Where the codes of each row end.
    ends: Vec<usize>,
    codes: Vec<u8>,
}

/// A vector as searching needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VectorRow<'a> {
    /// Its place in the order of commits.
    pub sequence: VectorSequence,
    /// Its chunk.
    pub place: ChunkPlace,
    /// A code times this is a value.
    pub scale: f32,
    /// A signed byte for each value.
    pub codes: &'a [u8],
}

impl VectorBatch {
    /// Adds a vector behind the others.
    pub fn push(&mut self, row: VectorRow<'_>) {
        self.rows.push((row.sequence, row.place, row.scale));
        self.codes.extend_from_slice(row.codes);
        self.ends.push(self.codes.len());
    }

    /// The vectors in their order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = VectorRow<'_>> {
        self.rows.iter().enumerate().map(|(index, (sequence, place, scale))| {
            let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
            let codes = &self.codes[start..self.ends[index]];
            VectorRow { sequence: *sequence, place: *place, scale: *scale, codes }
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}
