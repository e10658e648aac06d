//! In-memory backends for tests: the second implementation of the storage traits, as simple as possible.
//!
//! Everything is behind one lock and found by linear scan, so that it is easy to check against the documentation of the
//! traits.

mod documents;
mod state;
mod vectors;

pub use state::MemoryState;

use crate::changes::{
    ChangeCursor, ChangeFeed, ChangePage, ChangeScope, ChangedDocuments, Checkpoint, Generation,
    VectorSequence,
};
use crate::documents::{
    DocumentId, DocumentKey, IndexedDocument, NewDocument, SkipNote, SourceCounts, SourceRecord,
};
use crate::error::StoreError;
use crate::lease::{Lease, LeaseGuard};
use crate::store::{Store, StoreIdentity};
use crate::vectors::{ModelKey, NewVector, UnreadableChunk, VectorRow};
use jiff::Timestamp;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// A store that lasts until its last clone is dropped. Clones share their content.
#[derive(Clone)]
pub struct MemoryStore {
    about: StoreIdentity,
    content: Arc<Mutex<StoreContent>>,
    leases: Arc<Mutex<HashSet<Lease>>>,
}

/// Everything that is stored.
#[derive(Default)]
struct StoreContent {
    generation: u64,
    forgotten: u64,
    last_key: DocumentKey,
    last_vector: u64,
    last_model: ModelKey,
    documents: BTreeMap<DocumentKey, DocumentEntry>,
    deletions: BTreeMap<u64, (DocumentKey, DocumentId)>,
    skipped: BTreeMap<DocumentId, SkippedFile>,
    sources: BTreeMap<String, SourceRecord>,
    /// Counters per source, changed with each document.
    counts: BTreeMap<String, SourceCounts>,
    models: BTreeMap<ModelKey, String>,
    vectors: BTreeMap<u64, StoredVector>,
}

/// A stored document.
struct DocumentEntry {
    document: NewDocument,
    generation: Generation,
    read_at: Timestamp,
    /// The model for which the document has all vectors; 0 is none.
    embedded: ModelKey,
    unreadable: Vec<(ModelKey, UnreadableChunk)>,
}

/// A file that was skipped, or indexed only in part.
struct SkippedFile {
    source: String,
    source_id: String,
    note: SkipNote,
    read_at: Timestamp,
}

/// A stored vector.
struct StoredVector {
    model: ModelKey,
    document: DocumentKey,
    vector: NewVector,
}

impl Default for MemoryStore {
    fn default() -> Self {
        let about = StoreIdentity { id: Uuid::new_v4(), location: "memory".to_owned() };
        Self { about, content: Arc::default(), leases: Arc::default() }
    }
}

impl MemoryStore {
    /// Releases a lease, as the end of its holder's process does.
    #[cfg(test)]
    pub(crate) fn free_lease(&self, lease: &Lease) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).remove(lease);
    }

    fn content(&self) -> MutexGuard<'_, StoreContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreContent {
    fn next_generation(&mut self) -> Generation {
        self.generation += 1;
        Generation(self.generation)
    }

    fn key_of(&self, id: DocumentId) -> Option<DocumentKey> {
        self.documents.iter().find(|(_, entry)| entry.document.id == id).map(|(key, _)| *key)
    }

    fn entry(&self, id: DocumentId) -> Option<&DocumentEntry> {
        self.documents.values().find(|entry| entry.document.id == id)
    }
}

impl DocumentEntry {
    fn tags(&self) -> Vec<String> {
        serde_json::from_str(&self.document.tags).unwrap_or_default()
    }
}

/// A held lease, released on drop.
struct HeldLease {
    lease: Lease,
    leases: Arc<Mutex<HashSet<Lease>>>,
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.lease);
    }
}

impl Store for MemoryStore {
    fn identity(&self) -> &StoreIdentity {
        &self.about
    }

    fn writable(&self) -> bool {
        true
    }

    fn size_bytes(&self) -> u64 {
        self.content().documents.values().map(|entry| entry.document.body.len() as u64).sum()
    }

    fn problems(&self) -> Result<Vec<String>, StoreError> {
        let content = self.content();
        let is_sound = content.counts == content.recount();
        Ok(if is_sound { Vec::new() } else { vec!["the document counts are wrong".to_owned()] })
    }

    fn lease(&self, lease: &Lease) -> Result<Option<LeaseGuard>, StoreError> {
        let is_free = self.leases.lock().unwrap_or_else(PoisonError::into_inner).insert(lease.clone());
        let held = || LeaseGuard::new(HeldLease { lease: lease.clone(), leases: self.leases.clone() });
        Ok(is_free.then(held))
    }
}

impl ChangeFeed for MemoryStore {
    fn generation(&self) -> Result<Generation, StoreError> {
        Ok(Generation(self.content().generation))
    }

    fn changes(
        &self,
        cursor: ChangeCursor,
        scope: ChangeScope,
        limit: usize,
    ) -> Result<Option<ChangePage>, StoreError> {
        let content = self.content();
        Ok(match scope {
            ChangeScope::Documents => content.changed_documents(cursor, limit.max(1)),
            ChangeScope::Vectors(model) => Some(content.added_vectors(cursor, model, limit.max(1))),
        })
    }

    fn checkpoint(&self) -> Result<Checkpoint, StoreError> {
        let content = self.content();
        let newest_key = content.documents.keys().next_back().copied().unwrap_or_default();
        Ok(Checkpoint { generation: Generation(content.generation), newest_key })
    }

    fn changed_between(
        &self,
        since: Checkpoint,
        until: Checkpoint,
        limit: usize,
    ) -> Result<Option<ChangedDocuments>, StoreError> {
        let content = self.content();
        if since.generation > until.generation || since.generation.0 < content.forgotten {
            return Ok(None);
        }
        let within = |generation: u64| generation > since.generation.0 && generation <= until.generation.0;
        let deletions = content
            .deletions
            .iter()
            .filter(|(generation, (key, _))| within(**generation) && *key <= since.newest_key);
        let mut changed: Vec<DocumentId> = deletions.map(|(_, (_, id))| *id).collect();
        let membership_changed = until.newest_key > since.newest_key || !changed.is_empty();
        let documents = content.documents.iter();
        let written =
            documents.filter(|(key, entry)| within(entry.generation.0) && **key <= since.newest_key);
        changed.extend(written.map(|(_, entry)| entry.document.id));
        Ok((changed.len() <= limit).then_some(ChangedDocuments { changed, membership_changed }))
    }
}

impl StoreContent {
    fn changed_documents(&self, cursor: ChangeCursor, limit: usize) -> Option<ChangePage> {
        let since = cursor.generation.0;
        if since > self.generation || (since > 0 && since < self.forgotten) {
            return None;
        }
        // Writes and deletions merged by generation, so that a page is the first `limit` of them.
        let mut changes: BTreeMap<u64, DocumentKey> = BTreeMap::new();
        changes.extend(self.documents.iter().map(|(key, entry)| (entry.generation.0, *key)));
        changes.extend(self.deletions.iter().map(|(generation, (key, _))| (*generation, *key)));
        let after: Vec<(u64, DocumentKey)> =
            changes.into_iter().filter(|(number, _)| *number > since).collect();
        let more = after.len() > limit;
        let mut page = ChangePage { more, ..ChangePage::default() };
        for (_, key) in after.iter().take(limit) {
            match self.documents.get(key) {
                Some(entry) => page.written.push(indexed_document(*key, entry)),
                None => page.deleted.push(*key),
            }
        }
        let end = if more { after[limit - 1].0 } else { self.generation };
        page.next = ChangeCursor { generation: Generation(end), ..cursor };
        Some(page)
    }

    fn added_vectors(&self, cursor: ChangeCursor, model: ModelKey, limit: usize) -> ChangePage {
        let of_model = || self.vectors.iter().filter(|(_, vector)| vector.model == model);
        let mut page =
            ChangePage { live_vectors: of_model().count() as u64, next: cursor, ..ChangePage::default() };
        let mut after = of_model().filter(|(key, _)| **key > cursor.vectors.0);
        for (key, stored) in after.by_ref().take(limit) {
            page.next.vectors = VectorSequence(*key);
            page.vectors.push(VectorRow {
                sequence: VectorSequence(*key),
                place: (stored.document, stored.vector.position as u64),
                scale: stored.vector.scale,
                codes: &stored.vector.codes,
            });
        }
        page.more = after.next().is_some();
        page
    }
}

fn indexed_document(key: DocumentKey, entry: &DocumentEntry) -> IndexedDocument {
    IndexedDocument {
        key,
        generation: entry.generation,
        source: entry.document.source.clone(),
        title: entry.document.title.clone(),
        tags: entry.tags(),
        updated_at: entry.document.updated_at.as_millisecond(),
        body: entry.document.body.clone(),
        chunks: entry.document.chunks.clone(),
    }
}
