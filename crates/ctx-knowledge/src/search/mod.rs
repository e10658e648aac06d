//! Answers: a query in, hits out.
//!
//! Filters apply inside the index, before anything is cut off. Scores are in [0, 1]; each mode has
//! one monotone mapping, documented in the search guide.

mod analyzer;
mod answer;
#[cfg(test)]
mod brute_force;
mod directory;
mod entries;
mod retriever;
mod snippet;
mod vectors;
mod view;
mod view_retriever;

pub(crate) use answer::Search;
pub(crate) use vectors::Vectors;
pub(crate) use view::View;
pub use view::ViewError;
pub(crate) use view_retriever::ViewRetriever;

use crate::embed::EmbedError;
use ctx_store::{ChunkPlace, Filters, StoreError};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Most hits one query gets; a larger `limit` is cut to this.
pub(crate) const LIMIT_MAX: usize = 100;
/// How to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Mode {
    /// By words.
    Keyword,
    /// By meaning.
    Semantic,
    /// Both.
    Hybrid,
}

/// A question.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// What is asked, in plain words; nothing in it is syntax.
    pub text: String,
    /// How to search; `None` is the workspace's way.
    pub mode: Option<Mode>,
    /// How many hits at most.
    pub limit: usize,
    /// What may be found at all.
    pub filters: Filters,
    /// Whether hits say where their scores come from.
    pub explain: bool,
    /// Whether the last word may be the beginning of one.
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
    pub mode: Mode,
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

/// A search that cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// There is nothing to look for.
    #[error("the query is empty")]
    EmptyQuery,
    /// Meaning was asked for, and there are no embeddings.
    #[error("{0} search needs embeddings, and this workspace has none; use mode \"keyword\"")]
    EmbeddingsDisabled(&'static str),
    /// There is no keyword index yet; another process is at it.
    #[error("the keyword index is being built; try again in a moment")]
    Building,
    /// The query's meaning could not be had.
    #[error("cannot make a vector of the query: {0}")]
    Embedder(#[from] EmbedError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The keyword index failed, and rebuilding it did not help.
    #[error("the keyword index failed")]
    View(#[from] ViewError),
}

/// A chunk that matches, as an index sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) place: ChunkPlace,
    pub(crate) score: f32,
}

/// How candidates are gathered and weighed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// Chunks taken by words.
    pub keyword_candidates: usize,
    /// Chunks taken by meaning.
    pub vector_candidates: usize,
    /// How much meaning counts beside words, in [0, 1]; `None` leaves it to the model.
    pub hybrid_alpha: Option<f64>,
    /// The cosine below which a document without a word of the query is no hit; `None` leaves it to the model.
    pub min_cosine: Option<f64>,
}
