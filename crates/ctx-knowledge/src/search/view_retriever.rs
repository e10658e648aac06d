//! The retriever of a workspace: the keyword index next to the store, and the vectors in memory.

use super::retriever::{DocumentScope, QueryVector, Retriever};
use super::{Candidate, Filters, SearchError, VectorIndex, View};
use ctx_embed::vector;
use ctx_store::{ChunkPosition, Generation, Store};

/// Retrieves from views that follow the store's change feed. A damaged index is an error for which
/// [`ViewError::is_damage`](super::ViewError::is_damage) holds; the caller rebuilds it.
pub(crate) struct ViewRetriever<'a> {
    pub(crate) view: &'a View,
    pub(crate) vectors: &'a VectorIndex,
    pub(crate) store: &'a dyn Store,
}

impl Retriever for ViewRetriever<'_> {
    fn is_ready(&self) -> Result<bool, SearchError> {
        // An empty index is right only for a store that never held anything.
        Ok(!self.view.is_empty()? || self.store.generation()? == Generation::default())
    }

    fn complete_prefix(&self, prefix: &str) -> Result<Vec<String>, SearchError> {
        Ok(self.view.words_with_prefix(prefix)?)
    }

    fn keyword(
        &self,
        terms: &[String],
        filters: &Filters,
        limit: usize,
    ) -> Result<Vec<Candidate>, SearchError> {
        Ok(self.view.search(terms, filters, limit)?)
    }

    fn keyword_scores(
        &self,
        terms: &[String],
        places: &[ChunkPosition],
    ) -> Result<Vec<Candidate>, SearchError> {
        Ok(self.view.scores(terms, places)?)
    }

    fn nearest(
        &self,
        query: QueryVector<'_>,
        scope: &DocumentScope<'_>,
        limit: usize,
    ) -> Result<Vec<Candidate>, SearchError> {
        let within = scope.documents(self.store)?;
        Ok(self.vectors.nearest(self.store, query.model, query.values, within, limit)?)
    }

    fn cosines(
        &self,
        query: QueryVector<'_>,
        scope: &DocumentScope<'_>,
        places: &[ChunkPosition],
    ) -> Result<Vec<(ChunkPosition, Option<f32>)>, SearchError> {
        let within = scope.documents(self.store)?;
        let is_within = |place: &ChunkPosition| within.is_none_or(|documents| documents.contains(place.0));
        let places: Vec<ChunkPosition> = places.iter().copied().filter(is_within).collect();
        let exact = self.store.exact_chunk_vectors(query.model, &places)?;
        let cosine = |half: Option<Vec<u8>>| half.and_then(|half| vector::dot_half(query.values, &half));
        Ok(places.into_iter().zip(exact.into_iter().map(cosine)).collect())
    }
}
