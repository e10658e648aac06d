//! The change feed, by which derived indexes (views) follow a store.

use crate::documents::{DocumentId, DocumentKey, IndexedDocument};
use crate::error::StoreError;
use crate::vectors::{ModelKey, VectorBatch};
use serde::{Deserialize, Serialize};

/// All changes in commit order, from every process. A change that is committed after a page was read comes
/// after everything on that page, so a follower that resumes from its cursor misses none.
pub trait ChangeFeed {
    /// The generation of the newest document change.
    fn generation(&self) -> Result<Generation, StoreError>;

    /// A page of the changes after `cursor`, read in one snapshot: about `limit` rows, and at least one if there is
    /// any. `None` if changes since `cursor` are missing, because old deletions were pruned or the store was restored
    /// from a copy: the follower must start over from [`ChangeCursor::START`].
    fn changes(
        &self,
        cursor: ChangeCursor,
        scope: ChangeScope,
        limit: usize,
    ) -> Result<Option<ChangePage>, StoreError>;

    /// The current checkpoint.
    fn checkpoint(&self) -> Result<Checkpoint, StoreError>;

    /// The documents that changed between two checkpoints. `None` if that is no longer known, or if there are more than
    /// `limit`.
    fn changed_between(
        &self,
        since: Checkpoint,
        until: Checkpoint,
        limit: usize,
    ) -> Result<Option<ChangedDocuments>, StoreError>;
}

/// The sequence number of a document change. It is assigned in the transaction that makes the change, under the write
/// lock, so a higher number was committed later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

/// The sequence number of a stored vector, in commit order like [`Generation`]. Vectors have their own sequence because
/// a document's vectors may be stored after the document, which does not change then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VectorSequence(pub u64);

/// A position in the change feed: everything before it has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCursor {
    /// The newest document change that has been read.
    pub generation: Generation,
    /// The newest vector that has been read.
    pub vectors: VectorSequence,
}

impl ChangeCursor {
    /// The start of the feed: nothing has been read.
    pub const START: Self = Self { generation: Generation(0), vectors: VectorSequence(0) };

    /// The position after this document change; no vectors have been read.
    pub fn after(generation: Generation) -> Self {
        Self { generation, ..Self::START }
    }
}

/// The kind of changes that a follower reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeScope {
    /// Documents that were written or deleted, with their text.
    Documents,
    /// Vectors added for this model. Removals are not reported: a vector disappears when its document is written again
    /// or deleted, or when all vectors of the model are removed.
    Vectors(ModelKey),
}

/// A page of the change feed.
#[derive(Clone, Debug, Default)]
pub struct ChangePage {
    /// Documents that were written, in their current state.
    pub written: Vec<IndexedDocument>,
    /// Keys of deleted documents. Keys are never reused, so deletions may be applied before the written documents.
    pub deleted: Vec<DocumentKey>,
    /// Vectors that were added.
    pub vectors: VectorBatch,
    /// Number of vectors of the model that are in the store now, for [`ChangeScope::Vectors`].
    pub live_vectors: u64,
    /// The cursor of the next page.
    pub next: ChangeCursor,
    /// Whether there were more changes after this page when it was read.
    pub more: bool,
}

/// A point in the history of the store, to find out later what changed since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The newest document change.
    pub generation: Generation,
    /// The highest document key; documents added later have higher keys.
    pub newest_key: DocumentKey,
}

/// The documents that changed between two checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedDocuments {
    /// Documents that existed at the first checkpoint, and were rewritten or deleted before the second one.
    pub changed: Vec<DocumentId>,
    /// Whether the set of documents changed: some were added or deleted.
    pub membership_changed: bool,
}
