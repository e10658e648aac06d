//! Vectors in memory.

use super::{DocumentEntry, MemoryStore, StoreContent, StoredVector};
use crate::changes::VectorSequence;
use crate::documents::{ChunkPosition, DocumentKey};
use crate::error::StoreError;
use crate::vectors::{
    DocumentVectors, ModelKey, NewVector, NewVectors, PendingDocument, PendingQuery, UnreadableChunk,
    UnreadableDocument, VectorCoverage, VectorState, VectorStore,
};
use std::collections::BTreeSet;

impl VectorStore for MemoryStore {
    fn model(&self, id: &str) -> Result<Option<ModelKey>, StoreError> {
        Ok(self.content().model(id))
    }

    fn ensure_model(&self, id: &str) -> Result<ModelKey, StoreError> {
        let mut content = self.content();
        if let Some(key) = content.model(id) {
            return Ok(key);
        }
        content.last_model += 1;
        let key = content.last_model;
        content.models.insert(key, id.to_owned());
        Ok(key)
    }

    fn dimensions(&self, model: ModelKey) -> Result<Option<usize>, StoreError> {
        let content = self.content();
        let newest = content.vectors.values().rev().find(|vector| vector.model == model);
        Ok(newest.map(|vector| vector.vector.codes.len()))
    }

    fn keep_models(&self, keep: &[ModelKey]) -> Result<(), StoreError> {
        let mut content = self.content();
        let dropped: Vec<ModelKey> =
            content.models.keys().copied().filter(|key| !keep.contains(key)).collect();
        for key in dropped {
            content.clear(key);
            content.models.remove(&key);
        }
        Ok(())
    }

    fn clear_model(&self, model: ModelKey) -> Result<(), StoreError> {
        self.content().clear(model);
        Ok(())
    }

    fn pending(&self, query: &PendingQuery) -> Result<Vec<PendingDocument>, StoreError> {
        let PendingQuery { model, trusts_marks: marked, after, limit } = *query;
        let content = self.content();
        let lacking = content.documents.iter().filter(|(key, entry)| {
            **key > after
                && match marked {
                    true => entry.embedded != model,
                    false => content.lacks_vectors_of(**key, entry, model),
                }
        });
        let pending = lacking.take(limit).map(|(key, entry)| {
            let settled = content.settled_positions(*key, entry, model);
            let chunks = entry.document.chunks.iter().cloned().enumerate();
            PendingDocument {
                key: *key,
                generation: entry.generation,
                name: format!("{}:{}", entry.document.source, entry.document.source_id),
                title: entry.document.title.clone(),
                body: entry.document.body.clone(),
                chunks: chunks.filter(|(position, _)| !settled.contains(position)).collect(),
            }
        });
        Ok(pending.collect())
    }

    fn lacks_vectors(&self, model: ModelKey) -> Result<bool, StoreError> {
        let content = self.content();
        Ok(content.documents.iter().any(|(key, entry)| content.lacks_vectors_of(*key, entry, model)))
    }

    fn put_vectors(
        &self,
        model: ModelKey,
        mark: bool,
        documents: &[DocumentVectors],
    ) -> Result<bool, StoreError> {
        let mut content = self.content();
        if !content.models.contains_key(&model) {
            return Ok(false);
        }
        for document in documents {
            let Some(entry) = content.documents.get_mut(&document.document) else { continue };
            if entry.generation != document.generation {
                continue;
            }
            for chunk in &document.unreadable {
                let is_same = |(of, known): &(ModelKey, UnreadableChunk)| {
                    *of == model && known.position == chunk.position
                };
                entry.unreadable.retain(|known| !is_same(known));
                entry.unreadable.push((model, chunk.clone()));
            }
            for vector in &document.vectors {
                content.insert(model, document.document, vector.clone());
            }
            if mark {
                content.mark_complete(model, document.document);
            }
        }
        Ok(true)
    }

    fn incomplete_sources(&self, model: ModelKey) -> Result<BTreeSet<String>, StoreError> {
        let content = self.content();
        let incomplete = content.documents.values().filter(|entry| entry.embedded != model);
        Ok(incomplete.map(|entry| entry.document.source.clone()).collect())
    }

    fn coverage(&self, model: ModelKey) -> Result<VectorCoverage, StoreError> {
        let content = self.content();
        let entries = || content.documents.values();
        Ok(VectorCoverage {
            chunks: entries().map(|entry| entry.document.chunks.len() as u64).sum(),
            vectors: content.state(model).live,
            pending_documents: entries().filter(|entry| entry.embedded != model).count() as u64,
        })
    }

    fn unreadable(
        &self,
        model: ModelKey,
        limit: usize,
    ) -> Result<(u64, Vec<UnreadableDocument>), StoreError> {
        let content = self.content();
        let of_entry = |entry: &DocumentEntry| {
            let reasons = entry.unreadable.iter().filter(|(of, _)| *of == model);
            let reasons: Vec<String> = reasons.map(|(_, chunk)| chunk.reason.clone()).collect();
            Some(UnreadableDocument {
                source: entry.document.source.clone(),
                source_id: entry.document.source_id.clone(),
                chunks: reasons.len() as u64,
                reason: reasons.into_iter().min()?,
            })
        };
        let mut documents: Vec<UnreadableDocument> =
            content.documents.values().filter_map(of_entry).collect();
        let count = documents.iter().map(|document| document.chunks).sum();
        documents.sort_by(|a, b| (&a.source, &a.source_id).cmp(&(&b.source, &b.source_id)));
        documents.truncate(limit);
        Ok((count, documents))
    }

    fn vector_state(&self, model: ModelKey) -> Result<VectorState, StoreError> {
        Ok(self.content().state(model))
    }

    fn exact_vectors(&self, vectors: &[VectorSequence]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let content = self.content();
        let half = |key: &VectorSequence| Some(content.vectors.get(&key.0)?.vector.half.clone());
        Ok(vectors.iter().map(half).collect())
    }

    fn exact_chunk_vectors(
        &self,
        model: ModelKey,
        chunks: &[ChunkPosition],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let content = self.content();
        let half = |(document, position): &ChunkPosition| {
            let mut vectors = content.vectors_of(*document, model);
            let found = vectors.find(|vector| vector.position as u64 == *position);
            found.map(|vector| vector.half.clone())
        };
        Ok(chunks.iter().map(half).collect())
    }
}

impl StoreContent {
    fn model(&self, id: &str) -> Option<ModelKey> {
        self.models.iter().find(|(_, known)| *known == id).map(|(key, _)| *key)
    }

    fn state(&self, model: ModelKey) -> VectorState {
        let of_model = || self.vectors.iter().filter(|(_, vector)| vector.model == model);
        let newest = of_model().next_back().map(|(key, _)| VectorSequence(*key)).unwrap_or_default();
        VectorState {
            live: of_model().count() as u64,
            newest,
            last_assigned: VectorSequence(self.last_vector),
        }
    }

    fn vectors_of(&self, document: DocumentKey, model: ModelKey) -> impl Iterator<Item = &NewVector> {
        let of = move |vector: &&StoredVector| vector.document == document && vector.model == model;
        self.vectors.values().filter(of).map(|vector| &vector.vector)
    }

    /// Positions of the chunks that have a vector of a model or are rejected by it.
    fn settled_positions(&self, key: DocumentKey, entry: &DocumentEntry, model: ModelKey) -> BTreeSet<usize> {
        let unreadable = entry.unreadable.iter().filter(|(of, _)| *of == model);
        let embedded_positions = self.vectors_of(key, model).map(|vector| vector.position);
        embedded_positions.chain(unreadable.map(|(_, chunk)| chunk.position)).collect()
    }

    fn lacks_vectors_of(&self, key: DocumentKey, entry: &DocumentEntry, model: ModelKey) -> bool {
        let unreadable = entry.unreadable.iter().filter(|(of, _)| *of == model).count();
        entry.document.chunks.len() != self.vectors_of(key, model).count() + unreadable
    }

    fn insert(&mut self, model: ModelKey, document: DocumentKey, vector: NewVector) {
        if self.vectors_of(document, model).any(|known| known.position == vector.position) {
            return;
        }
        self.last_vector += 1;
        self.vectors.insert(self.last_vector, StoredVector { model, document, vector });
    }

    fn mark_complete(&mut self, model: ModelKey, key: DocumentKey) {
        let is_incomplete =
            self.documents.get(&key).is_some_and(|entry| self.lacks_vectors_of(key, entry, model));
        if let Some(entry) = self.documents.get_mut(&key) {
            entry.embedded = if is_incomplete { 0 } else { model };
        }
    }

    fn clear(&mut self, model: ModelKey) {
        self.vectors.retain(|_, vector| vector.model != model);
        for entry in self.documents.values_mut() {
            entry.unreadable.retain(|(of, _)| *of != model);
            entry.embedded = if entry.embedded == model { 0 } else { entry.embedded };
        }
    }

    /// Replaces a document's vectors: those of unchanged texts are kept under new sequence numbers, new ones are added.
    pub(super) fn replace_vectors(&mut self, key: DocumentKey, vectors: &NewVectors) {
        let made = vectors.computed.as_ref().map(|(model, _)| *model);
        let old: Vec<(ModelKey, NewVector)> = self
            .vectors
            .values()
            .filter(|vector| vector.document == key)
            .map(|vector| (vector.model, vector.vector.clone()))
            .collect();
        self.vectors.retain(|_, vector| vector.document != key);
        for (position, hash) in vectors.hashes.iter().enumerate() {
            for (model, vector) in
                old.iter().filter(|(model, vector)| vector.hash == *hash && Some(*model) != made)
            {
                self.insert(*model, key, NewVector { position, ..vector.clone() });
            }
        }
        if let Some(entry) = self.documents.get_mut(&key) {
            let before = std::mem::take(&mut entry.unreadable);
            for (position, hash) in vectors.hashes.iter().enumerate() {
                for (model, chunk) in before.iter().filter(|(_, chunk)| chunk.hash == *hash) {
                    let is_known = |(of, known): &(ModelKey, UnreadableChunk)| {
                        *of == *model && known.position == position
                    };
                    if !entry.unreadable.iter().any(is_known) {
                        entry.unreadable.push((*model, UnreadableChunk { position, ..chunk.clone() }));
                    }
                }
            }
        }
        if let Some((model, made)) = &vectors.computed
            && self.models.contains_key(model)
        {
            made.iter().for_each(|vector| self.insert(*model, key, vector.clone()));
        }
        if let Some(model) = vectors.required_model {
            self.mark_complete(model, key);
        }
    }
}
