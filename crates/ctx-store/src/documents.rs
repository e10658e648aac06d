//! Documents: the mutations that a sync applies, and the queries of search, lists and display.

use crate::changes::Generation;
use crate::error::StoreError;
use crate::files::{FilePosition, SourceFile};
use crate::filters::Filters;
use crate::vectors::NewVectors;
use ctx_core::{Cursor, SourceName};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Globally unique id of a document, derived from its source and its name there.
pub type DocumentId = Uuid;

/// The number of a document within one store; never reused after a deletion.
pub type DocumentKey = u64;

/// A chunk: the key of its document and its position there.
pub type ChunkPosition = (DocumentKey, u64);

/// Storage of documents and of the sync state of their sources.
pub trait DocumentStore {
    /// Applies mutations in order, several in one transaction. If one fails, those before it are applied. After a crash,
    /// the first of them are applied and the others are not; each is whole or absent.
    fn apply(&self, mutations: &[Mutation]) -> Result<ApplyResult, StoreError>;

    /// The stamps of these documents, in the order of `ids`.
    fn stamps(&self, ids: &[DocumentId]) -> Result<Vec<DocumentStamp>, StoreError>;

    /// A document with its whole text and chunks.
    fn document(&self, id: DocumentId) -> Result<Option<StoredDocument>, StoreError>;

    /// A document's text, left out if it is longer than `bytes_max`.
    fn text(&self, id: DocumentId, bytes_max: usize) -> Result<Option<DocumentText>, StoreError>;

    /// At most `limit` documents after the key `after`, in insertion order.
    fn list(&self, after: DocumentKey, limit: usize) -> Result<Vec<ListedDocument>, StoreError>;

    /// At most `limit` document names after `after`, ordered by source and then by name.
    fn names(&self, after: Option<&DocumentName>, limit: usize) -> Result<Vec<DocumentName>, StoreError>;

    /// At most `limit` files of a source after `after`, ordered by name: its documents and its skipped files. Files
    /// whose names an earlier version did not store come last, ordered by id.
    fn files(
        &self,
        source: &SourceName,
        after: Option<&FilePosition>,
        limit: usize,
    ) -> Result<Vec<SourceFile>, StoreError>;

    /// Adds names to skipped files that an earlier version stored without them, in one transaction. Files that have a
    /// name keep it.
    fn name_skipped(&self, names: &[(DocumentId, String)]) -> Result<(), StoreError>;

    /// Summaries of documents for search hits, in one snapshot; deleted documents are left out.
    fn summaries(&self, keys: &[DocumentKey]) -> Result<Vec<DocumentSummary>, StoreError>;

    /// The texts of chunks with their headings; empty for chunks that no longer exist.
    fn chunk_texts(&self, chunks: &[ChunkPosition]) -> Result<Vec<ChunkText>, StoreError>;

    /// The documents that match the filters and, if `sources` is given, belong to one of these sources.
    fn documents_within(
        &self,
        filters: &Filters,
        sources: Option<&BTreeSet<String>>,
    ) -> Result<DocumentSet, StoreError>;

    /// The sync state of each source that was ever synced.
    fn sources(&self) -> Result<BTreeMap<String, SourceRecord>, StoreError>;

    /// The sources that have documents, found without reading all documents.
    fn sources_with_documents(&self) -> Result<BTreeSet<String>, StoreError>;

    /// The number of documents, chunks and bytes per source. The cost does not depend on the number of documents.
    fn counts(&self) -> Result<BTreeMap<String, SourceCounts>, StoreError>;

    /// Records the end of a sync: cursor and outcome. Called after the last document that they cover is stored: a crash
    /// before it costs a repeated sync, never a lost document.
    fn finish_sync(&self, source: &SourceName, outcome: &SyncOutcome) -> Result<(), StoreError>;

    /// Deletes the sync state of a source. The caller deletes its documents first.
    fn forget_source(&self, source: &SourceName) -> Result<(), StoreError>;

    /// Prunes the records of deleted documents, keeping the newest `keep`. Not done with each deletion: the query walks
    /// over the kept records, and a view that has not read a pruned deletion must be rebuilt.
    fn forget_old_deletions(&self, keep: usize) -> Result<(), StoreError>;
}

/// One change to a document.
#[derive(Clone, Debug)]
pub enum Mutation {
    /// Stores a new or changed document. A stored `created_at` is kept.
    Put(Box<NewDocument>),
    /// Stores a new fingerprint and note for a document whose content has not changed. Not a change in the change feed.
    Refresh {
        /// The document.
        id: DocumentId,
        /// Its source.
        source: SourceName,
        /// Its name within the source.
        source_id: String,
        /// Changes whenever the content does.
        fingerprint: Option<String>,
        /// Why the text is incomplete, if it is.
        note: Option<String>,
    },
    /// Records that the document has no text, so that it is not read again until it changes. Deletes what was stored of
    /// it.
    SkipEmpty {
        /// The document.
        id: DocumentId,
        /// Its source.
        source: SourceName,
        /// Its name within the source.
        source_id: String,
        /// The fingerprint at which it has no text.
        fingerprint: String,
    },
    /// Records that the document cannot be read, so that it is not retried until it changes. Keeps what was stored of
    /// it.
    SkipUnreadable {
        /// The document.
        id: DocumentId,
        /// Its source.
        source: SourceName,
        /// Its name within the source.
        source_id: String,
        /// The fingerprint at which it cannot be read.
        fingerprint: String,
        /// Why it cannot be read.
        reason: String,
    },
    /// Deletes the document and its skip note.
    Delete(DocumentId),
}

impl Mutation {
    /// The document that it changes.
    pub fn id(&self) -> DocumentId {
        match self {
            Self::Put(document) => document.id,
            Self::Refresh { id, .. }
            | Self::SkipEmpty { id, .. }
            | Self::SkipUnreadable { id, .. }
            | Self::Delete(id) => *id,
        }
    }
}

/// The effect of applied mutations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyResult {
    /// Number of documents that were deleted.
    pub deleted: u64,
    /// The generation of the newest change; zero if there was none.
    pub generation: Generation,
}

/// A document ready to be stored.
#[derive(Clone, Debug)]
pub struct NewDocument {
    /// Its id.
    pub id: DocumentId,
    /// The source it came from.
    pub source: String,
    /// Its name within the source.
    pub source_id: String,
    /// URL at which a person can open it.
    pub source_url: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// Who wrote it.
    pub author: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Its media type.
    pub content_type: String,
    /// Other metadata from the source: a JSON object.
    pub metadata: String,
    /// Labels to filter by: a JSON array.
    pub tags: String,
    /// Its text.
    pub body: String,
    /// The chunks that are indexed.
    pub chunks: Vec<Span>,
    /// Its vectors.
    pub vectors: NewVectors,
    /// The MinHash signature that near-duplicates are recognised by.
    pub sketch: Vec<u8>,
    /// Hash of everything that is stored, except the times.
    pub hash: [u8; 32],
    /// Changes whenever the content does.
    pub fingerprint: Option<String>,
    /// Why the text is incomplete, if it is.
    pub note: Option<String>,
}

/// A chunk of a body, as byte offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Start offset.
    pub start: usize,
    /// End offset.
    pub end: usize,
    /// The headings above it, outermost first, joined.
    pub heading: String,
}

impl Span {
    /// The part of `body` that the span covers; empty if the offsets do not fit.
    pub fn of<'a>(&self, body: &'a str) -> &'a str {
        body.get(self.start..self.end).unwrap_or_default()
    }
}

/// The stored fingerprint, hash and note of a document, which decide whether it must be read or written again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentStamp {
    /// The stamp of the stored document; `None` if it is not stored.
    pub stored: Option<StoredStamp>,
    /// Why it was skipped, or indexed only in part.
    pub skipped: Option<SkipNote>,
}

/// The fingerprint and hash of a stored document, to compare with the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredStamp {
    /// Hash of everything that is stored, except the times.
    pub hash: Vec<u8>,
    /// Changes whenever the content does.
    pub fingerprint: Option<String>,
}

/// Why a document was skipped, or indexed only in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipNote {
    /// The fingerprint of the document that the note is about.
    pub fingerprint: String,
    /// Why it could not be read, or only in part; `None` if it has no text.
    pub reason: Option<String>,
    /// Whether its name is stored; earlier versions did not store it.
    pub is_named: bool,
}

/// A stored document, whole; its JSON is the answer of `get`.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct StoredDocument {
    /// Its id, the same as long as source and name are.
    #[schemars(with = "String", extend("format" = "uuid"))]
    pub id: DocumentId,
    /// The source it came from.
    pub source: String,
    /// Its name within the source.
    pub source_id: String,
    /// Where a person can open it.
    pub source_url: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// Who wrote it.
    pub author: Option<String>,
    /// When it came to be.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub created_at: Timestamp,
    /// When it last changed.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub updated_at: Timestamp,
    /// Its media type.
    pub content_type: String,
    /// Its text.
    pub body: String,
    /// Anything else its source tells.
    pub metadata: Map<String, Value>,
    /// The pieces that are indexed.
    pub chunks: Vec<Chunk>,
    /// Labels to filter by; not part of the answer.
    #[serde(skip)]
    pub tags: Vec<String>,
}

/// A piece of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Chunk {
    /// Its place in the document, from 0.
    pub index: usize,
    /// Its text.
    pub text: String,
}

/// A document's text without its other fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentText {
    /// The document's media type.
    pub content_type: String,
    /// Length of the text in bytes.
    pub bytes: u64,
    /// `None` if the text is longer than requested.
    pub text: Option<String>,
}

/// A document in a list, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedDocument {
    /// Its position in the list: documents added later have higher keys.
    pub key: DocumentKey,
    /// Its id.
    pub id: DocumentId,
    /// The source it came from.
    pub source: String,
    /// Its name within the source.
    pub source_id: String,
    /// Its title.
    pub title: Option<String>,
    /// Its media type.
    pub content_type: String,
    /// Length of its text in bytes.
    pub bytes: u64,
}

/// The id and the names of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentName {
    /// Its id.
    pub id: DocumentId,
    /// The source it came from.
    pub source: String,
    /// Its name within the source.
    pub source_id: String,
    /// URL at which a person can open it.
    pub source_url: Option<String>,
}

/// The fields of a document that the keyword index needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedDocument {
    /// Its key.
    pub key: DocumentKey,
    /// The generation of its last write.
    pub generation: Generation,
    /// The source it came from.
    pub source: String,
    /// Its title.
    pub title: Option<String>,
    /// Labels to filter by.
    pub tags: Vec<String>,
    /// When it last changed, as a Unix timestamp in milliseconds.
    pub updated_at: i64,
    /// Its text.
    pub body: String,
    /// The chunks that are indexed.
    pub chunks: Vec<Span>,
}

/// The fields of a document that a search hit shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentSummary {
    /// Its key.
    pub key: DocumentKey,
    /// Its id.
    pub id: DocumentId,
    /// The source it came from.
    pub source: String,
    /// Its name within the source.
    pub source_id: String,
    /// URL at which a person can open it.
    pub source_url: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The MinHash signature that near-duplicates are recognised by.
    pub sketch: Option<Vec<u8>>,
}

/// A chunk's text and the headings above it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkText {
    /// The headings.
    pub heading: String,
    /// The text.
    pub text: String,
}

/// The sync state of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceRecord {
    /// The cursor to resume from.
    pub cursor: Option<Cursor>,
    /// When the last complete sync ended.
    pub synced_at: Option<Timestamp>,
    /// Why the last sync failed.
    pub error: Option<String>,
    /// Number of documents that the last sync could not read.
    pub warnings: usize,
}

/// The number of documents, chunks and bytes of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Documents.
    pub documents: u64,
    /// Chunks.
    pub chunks: u64,
    /// Bytes of text.
    pub bytes: u64,
}

impl SourceCounts {
    /// A document's part of the counts of its source.
    pub(crate) fn of(document: &NewDocument) -> Self {
        Self { documents: 1, chunks: document.chunks.len() as u64, bytes: document.body.len() as u64 }
    }
}

/// How a sync of a source ended.
#[derive(Clone, Debug)]
pub struct SyncOutcome {
    /// The cursor to resume from; the outer `None` keeps the stored cursor.
    pub cursor: Option<Option<Cursor>>,
    /// Why the sync failed; `None` if it completed.
    pub error: Option<String>,
    /// Number of documents that could not be read.
    pub warnings: usize,
}

/// A set of document keys, as a bitmap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentSet(Vec<u64>);

impl DocumentSet {
    /// Whether the set contains a document.
    pub fn contains(&self, key: DocumentKey) -> bool {
        let word = usize::try_from(key / 64).ok().and_then(|index| self.0.get(index));
        word.is_some_and(|word| word >> (key % 64) & 1 == 1)
    }

    /// Adds a document.
    pub fn insert(&mut self, key: DocumentKey) {
        let Ok(index) = usize::try_from(key / 64) else { return };
        if index >= self.0.len() {
            self.0.resize(index + 1, 0);
        }
        self.0[index] |= 1 << (key % 64);
    }
}
