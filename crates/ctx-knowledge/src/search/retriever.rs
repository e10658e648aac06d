//! [`Retriever`]: the interface between indexes of chunks and the ranking of documents.
//!
//! A retriever finds chunks and scores them. `ranker.rs` decides for every retriever alike which documents become
//! hits, in which order and with which snippet. A new retriever must agree with `brute_force.rs`.

use super::{Candidate, Filters, SearchError};
use ctx_store::{ChunkPosition, DocumentSet, ModelKey, Store, StoreError};
use std::cell::OnceCell;
use std::collections::BTreeSet;

/// Finds chunks by keywords and by vectors. Terms are those of [`ctx_rank::query_terms`].
pub(crate) trait Retriever: Send + Sync {
    /// Whether keyword search covers the store; `false` while the index has not been built.
    fn is_ready(&self) -> Result<bool, SearchError>;

    /// Indexed words with this prefix, the most common first, at most as many as a query can use.
    fn complete_prefix(&self, prefix: &str) -> Result<Vec<String>, SearchError>;

    /// The chunks with any of the terms that have the highest BM25 scores, best first.
    fn keyword(
        &self,
        terms: &[String],
        filters: &Filters,
        limit: usize,
    ) -> Result<Vec<Candidate>, SearchError>;

    /// The BM25 scores of these chunks, in any order; chunks without any of the terms are left out.
    fn keyword_scores(
        &self,
        terms: &[String],
        places: &[ChunkPosition],
    ) -> Result<Vec<Candidate>, SearchError>;

    /// The chunks in `scope` with the highest cosines to the query, best first; ties are ordered by place.
    fn nearest(
        &self,
        query: QueryVector<'_>,
        scope: &DocumentScope<'_>,
        limit: usize,
    ) -> Result<Vec<Candidate>, SearchError>;

    /// The cosines of those of these chunks that are in `scope`, in the same order; `None` for a chunk without a
    /// vector.
    fn cosines(
        &self,
        query: QueryVector<'_>,
        scope: &DocumentScope<'_>,
        places: &[ChunkPosition],
    ) -> Result<Vec<(ChunkPosition, Option<f32>)>, SearchError>;
}

/// The vector of a query, and the model that computed it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryVector<'a> {
    pub(crate) model: ModelKey,
    /// A unit vector.
    pub(crate) values: &'a [f32],
}

/// The documents that a vector search is restricted to.
#[derive(Debug)]
pub(crate) struct DocumentScope<'a> {
    pub(crate) filters: &'a Filters,
    /// `None` means all sources.
    pub(crate) sources: Option<BTreeSet<String>>,
    documents: OnceCell<DocumentSet>,
}

impl<'a> DocumentScope<'a> {
    pub(crate) fn new(filters: &'a Filters, sources: Option<BTreeSet<String>>) -> Self {
        Self { filters, sources, documents: OnceCell::new() }
    }

    /// The documents in scope, read from the store once; `None` when all are in scope. For retrievers that cannot
    /// apply filters themselves.
    pub(crate) fn documents(&self, store: &dyn Store) -> Result<Option<&DocumentSet>, StoreError> {
        if self.filters.are_empty() && self.sources.is_none() {
            return Ok(None);
        }
        if let Some(documents) = self.documents.get() {
            return Ok(Some(documents));
        }
        let documents = store.documents_within(self.filters, self.sources.as_ref())?;
        Ok(Some(self.documents.get_or_init(|| documents)))
    }
}
