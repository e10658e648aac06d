//! Answers: a query in, hits out.
//!
//! Filters apply inside the index, before anything is cut off. Scores are in [0, 1]; each mode has
//! one monotone mapping, documented in the search guide.

mod analyzer;
mod directory;
mod entries;
mod snippet;
mod view;

pub(crate) use view::View;
pub use view::ViewError;

use crate::store::{HitRow, Store, StoreError};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use uuid::Uuid;

/// Most hits one query gets; a larger `limit` is cut to this.
pub(crate) const LIMIT_MAX: usize = 100;
/// The BM25 score that maps to one half.
const KEYWORD_HALF_SCORE: f64 = 8.0;
/// Chunks looked at beyond two for each document wanted.
const CANDIDATES_SPARE: usize = 8;
/// Chunks looked at while whole documents are still missing, as a multiple of the first try.
const CANDIDATE_GROWTH_MAX: usize = 16;
/// At least this many are looked at before a document is given up.
const CANDIDATES_MAX: usize = 4096;

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
}

/// What may be found at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// A source (`git:platform`) or a kind (`git`).
    pub source: Option<String>,
    /// All of these must be among the document's tags.
    pub tags: Vec<String>,
    /// Changed at this time or later.
    pub since: Option<Timestamp>,
    /// Changed at this time or earlier.
    pub until: Option<Timestamp>,
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
    /// The BM25 score of the best chunk.
    pub keyword_score: f64,
    /// Which chunk that is.
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
    pub(crate) document: u64,
    pub(crate) chunk: u64,
    pub(crate) score: f32,
}

/// Answers by words.
pub(crate) fn keyword(view: &View, store: &Store, query: &Query) -> Result<Vec<Hit>, SearchError> {
    let terms = analyzer::query_terms(&query.text);
    if terms.is_empty() {
        return Ok(Vec::new());
    }
    // An index that has seen nothing finds nothing, which would be a wrong answer.
    if view.is_blank()? && store.generation()? > 0 {
        return Err(SearchError::Building);
    }
    let limit = query.limit.min(LIMIT_MAX);
    let best = best_chunks(view, &terms, &query.filters, limit)?;

    let keys: Vec<u64> = best.iter().map(|candidate| candidate.document).collect();
    let rows: HashMap<u64, HitRow> = store.hit_rows(&keys)?.into_iter().map(|row| (row.key, row)).collect();
    let mut ranked: Vec<(f64, &HitRow, Candidate)> = best
        .iter()
        .filter_map(|candidate| {
            Some((keyword_score(candidate.score), rows.get(&candidate.document)?, *candidate))
        })
        .collect();
    ranked.sort_by(|(a_score, a, _), (b_score, b, _)| {
        b_score.total_cmp(a_score).then(b.updated_at.cmp(&a.updated_at)).then(a.id.cmp(&b.id))
    });

    ranked.truncate(limit);
    let chunks: Vec<(u64, u64)> = ranked.iter().map(|(_, _, best)| (best.document, best.chunk)).collect();
    let texts = store.chunk_texts(&chunks)?;
    let mut matcher = snippet::Matcher::new(&terms);
    let hits = ranked.into_iter().zip(texts).map(|((score, row, candidate), text)| Hit {
        id: row.id,
        score,
        title: row.title.clone(),
        source: row.source.clone(),
        source_id: row.source_id.clone(),
        updated_at: row.updated_at,
        snippet: matcher.snippet(&text),
        source_url: row.source_url.clone(),
        explain: query.explain.then(|| Explanation {
            mode: Mode::Keyword,
            keyword_score: f64::from(candidate.score),
            chunk: candidate.chunk,
            terms: terms.clone(),
        }),
    });
    Ok(hits.collect())
}

/// The best chunk of each document. Long documents may fill the first candidates with their own
/// chunks, so more are asked for until there are enough documents or no more chunks.
fn best_chunks(
    view: &View,
    terms: &[String],
    filters: &Filters,
    limit: usize,
) -> Result<Vec<Candidate>, ViewError> {
    // Few are faster than many: the index skips what cannot be among so few.
    let mut wanted = limit * 2 + CANDIDATES_SPARE;
    let wanted_max = (wanted * CANDIDATE_GROWTH_MAX).max(CANDIDATES_MAX);
    loop {
        let candidates = view.search(terms, filters, wanted)?;
        let exhausted = candidates.len() < wanted;
        let mut seen = std::collections::HashSet::new();
        let best: Vec<Candidate> =
            candidates.into_iter().filter(|candidate| seen.insert(candidate.document)).collect();
        // Where the last candidates score like the last hit, more of them may be newer than it.
        let undecided = match (limit.checked_sub(1).and_then(|last| best.get(last)), best.last()) {
            (Some(hit), Some(last)) => hit.score <= last.score,
            _ => limit > 0,
        };
        if !undecided || exhausted || wanted >= wanted_max {
            return Ok(best);
        }
        wanted *= 4;
    }
}

/// BM25 to [0, 1): one half at [`KEYWORD_HALF_SCORE`], four decimals.
fn keyword_score(bm25: f32) -> f64 {
    let bm25 = f64::from(bm25.max(0.0));
    (bm25 / (bm25 + KEYWORD_HALF_SCORE) * 10_000.0).round() / 10_000.0
}
