//! The change feed: how views follow a store.

use crate::documents::{DocumentId, DocumentKey, IndexedDocument};
use crate::error::StoreError;
use crate::vectors::{ModelKey, VectorBatch};
use serde::{Deserialize, Serialize};

/// Changes in the order in which they were committed, whoever made them: what is committed later is never in front of
/// what a follower has seen already.
pub trait ChangeFeed {
    /// The newest change of a document.
    fn generation(&self) -> Result<Generation, StoreError>;

    /// A page of the changes after `cursor`, in one snapshot: about `limit` rows, and at least one if there is any.
    /// `None` when they cannot be told any more, because deletions so old have been forgotten or the store was restored
    /// from a copy: whoever follows must start over from [`ChangeCursor::START`].
    fn changes(
        &self,
        cursor: ChangeCursor,
        scope: ChangeScope,
        limit: usize,
    ) -> Result<Option<ChangePage>, StoreError>;

    /// This moment.
    fn checkpoint(&self) -> Result<Checkpoint, StoreError>;

    /// The documents that changed from one moment to another. `None` when that cannot be told, or when they are more
    /// than `limit`.
    fn changed_between(
        &self,
        since: Checkpoint,
        until: Checkpoint,
        limit: usize,
    ) -> Result<Option<ChangedDocuments>, StoreError>;
}

/// The number of a change of a document. It is taken within the transaction that makes the change, while no other can
/// commit, so that a higher one was committed later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

/// The number of a stored vector, in the order of commits as [`Generation`]. Vectors are also stored without a change of
/// their document, when they are filled in, so they have a sequence of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VectorSequence(pub u64);

/// A place in the change feed: everything before it has been seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCursor {
    /// The newest change of a document that has been seen.
    pub generation: Generation,
    /// The newest vector that has been seen.
    pub vectors: VectorSequence,
}

impl ChangeCursor {
    /// Nothing has been seen.
    pub const START: Self = Self { generation: Generation(0), vectors: VectorSequence(0) };

    /// All changes of documents up to this one have been seen.
    pub fn at(generation: Generation) -> Self {
        Self { generation, ..Self::START }
    }
}

/// The changes that a follower reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeScope {
    /// Documents that were written or deleted, with their texts.
    Documents,
    /// Vectors of this model that were added. Those that are gone are not told: their documents were written again or
    /// deleted, or all vectors of the model were removed.
    Vectors(ModelKey),
}

/// A page of the change feed.
#[derive(Clone, Debug, Default)]
pub struct ChangePage {
    /// Documents that were written, as they are now.
    pub written: Vec<IndexedDocument>,
    /// Documents that were deleted. Keys are never used again, so they may be applied before those that were written.
    pub deleted: Vec<DocumentKey>,
    /// Vectors that were added.
    pub vectors: VectorBatch,
    /// How many vectors of the model there are in all, for [`ChangeScope::Vectors`].
    pub live_vectors: u64,
    /// Where the next page begins.
    pub next: ChangeCursor,
    /// Whether there is more already.
    pub more: bool,
}

/// A moment of the store, to find out later what changed since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The newest change.
    pub generation: Generation,
    /// The highest key of a document; one that comes later has a higher one.
    pub newest_key: DocumentKey,
}

/// The documents that changed between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedDocuments {
    /// Documents that were there at the first and have another text by the second, or are gone.
    pub changed: Vec<DocumentId>,
    /// Whether documents came or went.
    pub list_changed: bool,
}
