//! Documents: what is written and what is read of them.

use crate::changes::Generation;
use crate::error::StoreError;
use crate::files::{FilePlace, KnownFile};
use crate::filters::Filters;
use crate::vectors::NewVectors;
use ctx_core::{Cursor, SourceName};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Tells a document from every other, in every store: made of its source and its name there.
pub type DocumentId = Uuid;

/// The number of a document in one store; never used again after it was deleted.
pub type DocumentKey = u64;

/// A chunk, by its document's key and its position.
pub type ChunkPlace = (DocumentKey, u64);

/// Documents and their sources.
pub trait DocumentStore {
    /// Applies mutations in their order, each in a transaction of its own. After a failure those before it stay.
    fn apply(&self, mutations: &[Mutation]) -> Result<Applied, StoreError>;

    /// The stamp of each of these documents, in their order.
    fn stamps(&self, ids: &[DocumentId]) -> Result<Vec<Stamp>, StoreError>;

    /// One document, whole.
    fn document(&self, id: DocumentId) -> Result<Option<StoredDocument>, StoreError>;

    /// A document's text, if it is no longer than this.
    fn text(&self, id: DocumentId, bytes_max: usize) -> Result<Option<DocumentText>, StoreError>;

    /// At most `limit` documents behind the key `after`, in the order in which they came.
    fn list(&self, after: DocumentKey, limit: usize) -> Result<Vec<ListedDocument>, StoreError>;

    /// At most `limit` names of documents behind `after`, by source and by name within it.
    fn names(&self, after: Option<&DocumentName>, limit: usize) -> Result<Vec<DocumentName>, StoreError>;

    /// At most `limit` files of a source behind `after`, by name: its documents, and what was skipped. Those whose names
    /// an earlier version did not keep come last, by id.
    fn files(
        &self,
        source: &SourceName,
        after: Option<&FilePlace>,
        limit: usize,
    ) -> Result<Vec<KnownFile>, StoreError>;

    /// Gives names to skipped files that an earlier version stored without them, in one transaction. All others stay as
    /// they are.
    fn name_skipped(&self, names: &[(DocumentId, String)]) -> Result<(), StoreError>;

    /// Summaries of documents for hits, in one snapshot; those that are gone by now are left out.
    fn summaries(&self, keys: &[DocumentKey]) -> Result<Vec<DocumentSummary>, StoreError>;

    /// The texts of chunks with their headings; empty where there is none any more.
    fn chunk_texts(&self, chunks: &[ChunkPlace]) -> Result<Vec<ChunkText>, StoreError>;

    /// The documents that may be found: within the filters and, where `sources` is given, of these sources.
    fn documents_within(
        &self,
        filters: &Filters,
        sources: Option<&BTreeSet<String>>,
    ) -> Result<DocumentSet, StoreError>;

    /// The state of each source that was ever synced.
    fn sources(&self) -> Result<BTreeMap<String, SourceRecord>, StoreError>;

    /// The sources that have documents, without reading them all.
    fn sources_with_documents(&self) -> Result<BTreeSet<String>, StoreError>;

    /// How much each source holds.
    fn counts(&self) -> Result<BTreeMap<String, SourceCounts>, StoreError>;

    /// Ends a sync: cursor and outcome, after the last document that they cover. A crash before it costs a repeated
    /// sync, never a lost document.
    fn finish_sync(&self, source: &SourceName, outcome: &SyncOutcome) -> Result<(), StoreError>;

    /// Forgets that a source was ever synced; its documents are deleted one by one before.
    fn forget_source(&self, source: &SourceName) -> Result<(), StoreError>;

    /// Forgets which documents were deleted, but for the newest `keep`. Not with each deletion: finding out costs as much as
    /// there are, and a view that is still to follow would have to be built anew.
    fn forget_old_deletions(&self, keep: usize) -> Result<(), StoreError>;
}

/// One change to a document.
#[derive(Clone, Debug)]
pub enum Mutation {
    /// Stores it, new or changed. Its `created_at` survives.
    Put(Box<NewDocument>),
    /// Notes a new fingerprint, and what there is to say of it, for content that has not changed; views need not know.
    Refresh {
        /// The document.
        id: DocumentId,
        /// Its source.
        source: SourceName,
        /// Its name within the source.
        source_id: String,
        /// Changes whenever the content does.
        fingerprint: Option<String>,
        /// Why it is not the whole, where it is not.
        note: Option<String>,
    },
    /// Notes that it has no text, so that it is not read again until it changes. What was stored of it goes.
    SkipEmpty {
        /// The document.
        id: DocumentId,
        /// Its source.
        source: SourceName,
        /// Its name within the source.
        source_id: String,
        /// The state in which it has none.
        fingerprint: String,
    },
    /// Notes that it cannot be read, so that it is not tried again until it changes. What was stored of it stays.
    SkipUnreadable {
        /// The document.
        id: DocumentId,
        /// Its source.
        source: SourceName,
        /// Its name within the source.
        source_id: String,
        /// The state in which it cannot.
        fingerprint: String,
        /// Why.
        reason: String,
    },
    /// Removes it and every trace of it.
    Delete(DocumentId),
}

/// The effect of some mutations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// How many of those to delete were stored.
    pub deleted: u64,
    /// The newest change that they made; zero when they made none.
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
    /// Where a person can open it.
    pub source_url: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// Who wrote it.
    pub author: Option<String>,
    /// When it came to be.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Its media type.
    pub content_type: String,
    /// Anything else its source tells: a JSON object.
    pub metadata: String,
    /// Labels to filter by: a JSON array.
    pub tags: String,
    /// Its text.
    pub body: String,
    /// The pieces that are indexed.
    pub chunks: Vec<Span>,
    /// Its vectors.
    pub vectors: NewVectors,
    /// The MinHash signature that near-duplicates are recognised by.
    pub sketch: Vec<u8>,
    /// Hash of all that is stored but the times.
    pub hash: [u8; 32],
    /// Changes whenever the content does.
    pub fingerprint: Option<String>,
    /// Why it is not the whole, where it is not.
    pub note: Option<String>,
}

/// A piece of a body, by byte offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// The headings it stands under, outermost first, joined.
    pub heading: String,
}

impl Span {
    /// The part of the body it means; nothing when it does not fit.
    pub fn of<'a>(&self, body: &'a str) -> &'a str {
        body.get(self.start..self.end).unwrap_or_default()
    }
}

/// What decides whether a document must be read or written again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// What is stored of it.
    pub stored: Option<StoredStamp>,
    /// What was said of it.
    pub skipped: Option<SkipNote>,
}

/// Fingerprint and hash of a stored document, to compare with the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredStamp {
    /// Hash of all that is stored but the times.
    pub hash: Vec<u8>,
    /// Changes whenever the content does.
    pub fingerprint: Option<String>,
}

/// What there is to say of a document in the state of this fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipNote {
    /// The state.
    pub fingerprint: String,
    /// Why it could not be read, or not wholly; without one it has no text.
    pub reason: Option<String>,
    /// Whether its name is stored with it; earlier versions did not do that.
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

/// A document's text and nothing else of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentText {
    /// The document's media type.
    pub content_type: String,
    /// How long the text is.
    pub bytes: u64,
    /// `None` where it is longer than was asked for.
    pub text: Option<String>,
}

/// What a list shows of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedDocument {
    /// Its place in the list: documents that come later have a higher one.
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
    /// How long its text is.
    pub bytes: u64,
}

/// What a document is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentName {
    /// Its id.
    pub id: DocumentId,
    /// The source it came from.
    pub source: String,
    /// Its name within the source.
    pub source_id: String,
    /// Where a person can open it.
    pub source_url: Option<String>,
}

/// A document as a keyword view needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedDocument {
    /// Its key.
    pub key: DocumentKey,
    /// When it was last written.
    pub generation: Generation,
    /// The source it came from.
    pub source: String,
    /// Its title.
    pub title: Option<String>,
    /// Labels to filter by.
    pub tags: Vec<String>,
    /// When it last changed, in milliseconds.
    pub updated_at: i64,
    /// Its text.
    pub body: String,
    /// The pieces that are indexed.
    pub chunks: Vec<Span>,
}

/// What a hit shows of its document.
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
    /// Where a person can open it.
    pub source_url: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The MinHash signature that near-duplicates are recognised by.
    pub sketch: Option<Vec<u8>>,
}

/// A chunk's text and the headings it stands under.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkText {
    /// The headings.
    pub heading: String,
    /// The text.
    pub text: String,
}

/// What is known of a source that was synced at least once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceRecord {
    /// Where to resume from.
    pub cursor: Option<Cursor>,
    /// When it was last synced to the end.
    pub synced_at: Option<Timestamp>,
    /// Why the last sync failed.
    pub error: Option<String>,
    /// How many documents the last sync could not read.
    pub warnings: usize,
}

/// Documents, chunks and bytes of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Documents.
    pub documents: u64,
    /// Chunks.
    pub chunks: u64,
    /// Bytes of text.
    pub bytes: u64,
}

/// How a sync of a source ended.
#[derive(Clone, Debug)]
pub struct SyncOutcome {
    /// Where to resume from; the outer `None` keeps what is stored.
    pub cursor: Option<Option<Cursor>>,
    /// Why it failed; `None` when it went to the end.
    pub error: Option<String>,
    /// How many documents could not be read.
    pub warnings: usize,
}

/// Documents by key, as bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentSet(Vec<u64>);

impl DocumentSet {
    /// Whether a document is among them.
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
