//! Followers of the change feed: simple views that are built only from its pages.

use crate::changes::{ChangeCursor, ChangeScope, Generation, VectorSequence};
use crate::documents::{ChunkPosition, DocumentKey, IndexedDocument};
use crate::store::Store;
use crate::vectors::ModelKey;
use std::collections::{BTreeMap, BTreeSet};

/// The documents, as reported by the change feed.
#[derive(Default)]
pub(super) struct DocumentFollower {
    cursor: ChangeCursor,
    pub(super) documents: BTreeMap<DocumentKey, IndexedDocument>,
    deleted: BTreeSet<DocumentKey>,
}

impl DocumentFollower {
    /// Reads one page; returns whether there is more.
    pub(super) fn follow(&mut self, store: &dyn Store, limit: usize) -> bool {
        let Some(page) = store.changes(self.cursor, ChangeScope::Documents, limit).unwrap() else {
            *self = Self::default();
            return true;
        };
        assert!(page.next.generation >= self.cursor.generation, "the feed goes forward");
        assert!(
            page.written.len() <= limit && page.deleted.len() <= limit,
            "a page is about as long as asked for"
        );
        let mut last = self.cursor.generation;
        for key in page.deleted {
            assert!(self.deleted.insert(key), "a key is deleted once");
            self.documents.remove(&key);
        }
        for document in page.written {
            assert!(document.generation > last, "pages are in the order of commits");
            assert!(document.generation <= page.next.generation, "a page ends where it says");
            assert!(!self.deleted.contains(&document.key), "keys are not used again");
            last = document.generation;
            self.documents.insert(document.key, document);
        }
        assert!(!page.more || page.next.generation > self.cursor.generation, "every page gets on");
        self.cursor = page.next;
        page.more
    }

    /// Reads to the end of the feed and compares the documents with the store's own list.
    pub(super) fn catch_up(&mut self, store: &dyn Store, limit: usize) {
        while self.follow(store, limit) {}
        let listed: BTreeSet<(DocumentKey, u64)> =
            store.list(0, usize::MAX >> 1).unwrap().iter().map(|one| (one.key, one.bytes)).collect();
        let followed: BTreeSet<(DocumentKey, u64)> =
            self.documents.iter().map(|(key, document)| (*key, document.body.len() as u64)).collect();
        assert_eq!(followed, listed);
        assert_eq!(self.cursor.generation, store.generation().unwrap());
    }

    /// The newest change that was read.
    pub(super) fn generation(&self) -> Generation {
        self.cursor.generation
    }
}

/// The vectors of a model, as reported by the change feed.
pub(super) struct VectorFollower {
    model: ModelKey,
    cursor: ChangeCursor,
    pub(super) vectors: BTreeMap<VectorSequence, ChunkPosition>,
}

impl VectorFollower {
    pub(super) fn new(model: ModelKey) -> Self {
        Self { model, cursor: ChangeCursor::START, vectors: BTreeMap::new() }
    }

    /// Reads one page; returns whether there is more.
    pub(super) fn follow(&mut self, store: &dyn Store, limit: usize) -> bool {
        let page = store.changes(self.cursor, ChangeScope::Vectors(self.model), limit).unwrap().unwrap();
        assert!(page.vectors.len() <= limit);
        let mut last = self.cursor.vectors;
        for row in page.vectors.rows() {
            assert!(row.sequence > last, "the feed goes forward");
            assert_eq!(row.codes.len(), 4);
            last = row.sequence;
            self.vectors.insert(row.sequence, row.place);
        }
        assert_eq!(page.next.vectors, last);
        self.cursor = page.next;
        page.more
    }

    /// Reads to the end of the feed, drops deleted vectors, and compares the rest with the store's count and values.
    pub(super) fn catch_up(&mut self, store: &dyn Store, limit: usize) {
        while self.follow(store, limit) {}
        let sequences: Vec<VectorSequence> = self.vectors.keys().copied().collect();
        let exact = store.exact_vectors(&sequences).unwrap();
        for (sequence, half) in sequences.iter().zip(&exact) {
            if half.is_none() {
                self.vectors.remove(sequence);
            }
        }
        let state = store.vector_state(self.model).unwrap();
        assert_eq!(self.vectors.len() as u64, state.live, "no vector is missed");
        assert_eq!(self.vectors.keys().next_back().copied().unwrap_or_default(), state.newest);
        let places: Vec<ChunkPosition> = self.vectors.values().copied().collect();
        let by_chunk = store.exact_chunk_vectors(self.model, &places).unwrap();
        assert_eq!(by_chunk, exact.into_iter().filter(Option::is_some).collect::<Vec<_>>());
    }
}
