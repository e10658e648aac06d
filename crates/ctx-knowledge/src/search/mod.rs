//! Search: retrieves chunks by keywords and by embeddings, and ranks documents as hits.
//!
//! Filters apply during retrieval, before candidates are cut off. Scores are in [0, 1]; each mode has one monotone
//! mapping, documented in the search guide.

mod analyzer;
#[cfg(test)]
mod brute_force;
mod index_directory;
mod ranker;
mod retriever;
mod schema;
mod snippet;
mod vector_file;
mod vector_index;
mod vector_matrix;
mod view;
mod view_retriever;

pub(crate) use ranker::Ranker;
pub(crate) use vector_index::VectorIndex;
pub(crate) use view::View;
pub use view::ViewError;
pub(crate) use view_retriever::ViewRetriever;

use crate::embed::EmbedError;
use ctx_store::{ChunkPosition, Filters, StoreError};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Maximum number of hits of a query; a larger `limit` is reduced to this.
pub(crate) const LIMIT_MAX: usize = 100;
/// How to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum SearchMode {
    /// By words.
    Keyword,
    /// By meaning.
    Semantic,
    /// Both.
    Hybrid,
}

/// A search query.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchQuery {
    /// The query text, in plain words; there is no query syntax.
    pub text: String,
    /// Search mode; `None` uses the workspace's default.
    pub mode: Option<SearchMode>,
    /// Maximum number of hits.
    pub limit: usize,
    /// Restricts which documents are searched.
    pub filters: Filters,
    /// Whether hits carry an explanation of their scores.
    pub explain: bool,
    /// Whether the last word may be a prefix, as while typing.
    pub prefix: bool,
}

/// One document that answers.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Hit {
    /// The document's id.
    #[schemars(with = "String", extend("format" = "uuid"))]
    pub id: Uuid,
    /// How well it answers, in [0, 1].
    pub score: f64,
    /// The document's title.
    pub title: Option<String>,
    /// The source it came from.
    pub source: String,
    /// Its name within the source.
    pub source_id: String,
    /// When it last changed.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub updated_at: Timestamp,
    /// The part that answers.
    pub snippet: String,
    /// Where a person can open it.
    pub source_url: Option<String>,
    /// Where the score comes from; only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explain: Option<Explanation>,
}

/// Where a score comes from.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Explanation {
    /// The mode that was used.
    pub mode: SearchMode,
    /// The BM25 score of the document's words; absent when words were not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keyword_score: Option<f64>,
    /// The cosine of the document's meaning and the query's; absent when meaning was not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vector_score: Option<f64>,
    /// The model that knows the meaning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much meaning counted beside words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// The best chunk.
    pub chunk: u64,
    /// The words that were looked for, as the index knows them.
    pub terms: Vec<String>,
}

/// A failed search.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The query is empty.
    #[error("the query is empty")]
    EmptyQuery,
    /// The requested mode needs embeddings, and they are disabled.
    #[error("{0} search needs embeddings, and this workspace has none; use mode \"keyword\"")]
    EmbeddingsDisabled(&'static str),
    /// The keyword index has not been built yet, usually because another process is building it.
    #[error("the keyword index is being built; try again in a moment")]
    Building,
    /// The query could not be embedded.
    #[error("cannot make a vector of the query: {0}")]
    Embedder(#[from] EmbedError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The keyword index failed, and a rebuild did not help.
    #[error("the keyword index failed")]
    View(#[from] ViewError),
}

/// A matching chunk, with its BM25 score or its cosine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) place: ChunkPosition,
    pub(crate) score: f32,
}

/// How candidates are retrieved and scored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchTuning {
    /// Number of chunks retrieved by keywords.
    pub keyword_candidates: usize,
    /// Number of chunks retrieved by embeddings.
    pub vector_candidates: usize,
    /// Weight of the cosine against BM25 in hybrid scores, in [0, 1]; `None` uses the model's.
    pub hybrid_alpha: Option<f64>,
    /// Relevance floor: the minimum cosine of a hit that contains no query term; `None` uses the model's.
    pub min_cosine: Option<f64>,
}
