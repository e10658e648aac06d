//! Ranking: turns candidate chunks into hits, in keyword, semantic and hybrid mode.
//!
//! Leaves finding and scoring chunks to a [`Retriever`], and the fusion of scores to [`fuse`].

use super::retriever::{DocumentScope, QueryVector, Retriever};
use super::{
    Candidate, Explanation, Hit, LIMIT_MAX, SearchError, SearchMode, SearchQuery, SearchTuning, analyzer,
    snippet,
};
use crate::embed::{EmbeddingModels, RegisteredModel};
use crate::minhash;
use ctx_rank::{ScorePair, fuse};
use ctx_store::{ChunkPosition, DocumentSummary, Store};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The BM25 score that maps to 0.5.
const KEYWORD_HALF_SCORE: f64 = 8.0;
/// Candidate chunks beyond two for each requested document.
const CANDIDATES_SPARE: usize = 8;
/// Bound on the candidates when retrieval is repeated to find more documents, as a multiple of the first attempt.
const CANDIDATE_GROWTH_MAX: usize = 16;
/// Keyword search examines at least this many candidates before it returns fewer documents than requested.
const CANDIDATES_MAX: usize = 4096;
/// Documents ranked beyond the limit, since near-duplicates are left out.
const DUPLICATES_SPARE: usize = 6;

/// A query, and everything needed to answer it.
pub(crate) struct Ranker<'a> {
    pub(crate) retriever: &'a dyn Retriever,
    /// For the rows and texts of hits, and to know which sources have all vectors.
    pub(crate) store: &'a dyn Store,
    pub(crate) tuning: SearchTuning,
    pub(crate) query: &'a SearchQuery,
}

/// A document with its best chunk and scores, before it becomes a hit.
struct RankedDocument {
    place: ChunkPosition,
    score: f64,
    keyword: Option<f32>,
    vector: Option<f32>,
    model: Option<String>,
    alpha: Option<f64>,
}

/// The query's vector of one model, and the documents that are compared with it.
struct ModelGroup<'a> {
    model: &'a RegisteredModel,
    query: Vec<f32>,
    scope: DocumentScope<'a>,
}

impl ModelGroup<'_> {
    fn query_vector(&self) -> QueryVector<'_> {
        QueryVector { model: self.model.key, values: &self.query }
    }
}

impl Ranker<'_> {
    /// Keyword search: BM25 only.
    pub(crate) fn keyword(&self) -> Result<Vec<Hit>, SearchError> {
        let terms = self.terms()?;
        if terms.is_empty() {
            return Ok(Vec::new());
        }
        self.check_ready()?;
        let best = self.best_chunks(&terms, self.limit() + DUPLICATES_SPARE)?;
        let ranked = best.into_iter().map(|candidate| RankedDocument {
            place: candidate.place,
            score: keyword_score(candidate.score),
            keyword: Some(candidate.score),
            vector: None,
            model: None,
            alpha: None,
        });
        self.build_hits(SearchMode::Keyword, &terms, ranked.collect())
    }

    /// Semantic search: cosines only.
    pub(crate) fn semantic(&self, models: &EmbeddingModels) -> Result<Vec<Hit>, SearchError> {
        // Cosines of two models are not comparable: while some sources lack vectors of the workspace's model, the
        // bridge model answers for all.
        let complete = self.store.incomplete_sources(models.configured.key)?.is_empty();
        let model = models.bridge.as_ref().filter(|_| !complete).unwrap_or(&models.configured);
        let group = self.model_group(models, model, None)?;
        let count = self.tuning.vector_candidates.max(self.limit() * 2 + CANDIDATES_SPARE);
        let nearest = self.retrieve_enough(count, |count| self.nearest_candidates(&group, count))?;
        let terms = self.terms()?;
        let mut pairs: Vec<ScorePair> = nearest
            .into_iter()
            .map(|near| ScorePair { chunk: near.place, keyword: 0.0, vector: Some(near.score), group: 0 })
            .collect();
        let groups = std::slice::from_ref(&group);
        let mut relevant = self.relevant_documents(&pairs, groups);
        if pairs.iter().any(|pair| !relevant.contains(&pair.chunk.0)) {
            self.add_keyword_scores(&terms, &mut pairs)?;
            relevant = self.relevant_documents(&pairs, groups);
        }
        pairs.retain(|pair| relevant.contains(&pair.chunk.0));
        let mut seen_documents = HashSet::new();
        let ranked =
            pairs.into_iter().filter(|pair| seen_documents.insert(pair.chunk.0)).map(|pair| RankedDocument {
                place: pair.chunk,
                score: semantic_score(pair.vector.unwrap_or_default()),
                keyword: None,
                vector: pair.vector,
                model: Some(group.model.embedder.model().to_owned()),
                alpha: None,
            });
        self.build_hits(SearchMode::Semantic, &terms, ranked.collect())
    }

    /// Hybrid search: BM25 and cosines, fused.
    pub(crate) fn hybrid(&self, models: &EmbeddingModels) -> Result<Vec<Hit>, SearchError> {
        let terms = self.terms()?;
        self.check_ready()?;
        let groups = self.model_groups(models)?;
        let pairs = self.score_pairs(&terms, &groups)?;
        let alphas: Vec<f64> = groups
            .iter()
            .map(|group| self.tuning.hybrid_alpha.unwrap_or_else(|| group.model.embedder.weight()))
            .collect();
        // Filtered after fusion: scores are standardised over all candidates, so the relevance floor must not change
        // them.
        let relevant = self.relevant_documents(&pairs, &groups);
        let fused = fuse(&pairs, &alphas).into_iter().filter(|fused| relevant.contains(&fused.place.0));
        let ranked = fused.map(|fused| RankedDocument {
            place: fused.place,
            score: hybrid_score(fused.score),
            keyword: Some(fused.keyword),
            vector: fused.vector,
            model: groups.get(fused.group).map(|group| group.model.embedder.model().to_owned()),
            alpha: alphas.get(fused.group).copied(),
        });
        self.build_hits(SearchMode::Hybrid, &terms, ranked.collect())
    }

    fn limit(&self) -> usize {
        self.query.limit.min(LIMIT_MAX)
    }

    fn terms(&self) -> Result<Vec<String>, SearchError> {
        let mut terms = analyzer::query_terms(&self.query.text);
        if self.query.prefix
            && let Some(prefix) = analyzer::query_prefix(&self.query.text)
        {
            let words = self.retriever.complete_prefix(&prefix)?;
            terms.extend(words.into_iter().filter(|word| !terms.contains(word)).collect::<Vec<_>>());
        }
        Ok(terms)
    }

    /// Fails while the keyword index is not built: an empty result would be wrong.
    fn check_ready(&self) -> Result<(), SearchError> {
        if self.retriever.is_ready()? { Ok(()) } else { Err(SearchError::Building) }
    }

    /// One group per model: the workspace's own for sources with all of its vectors, the bridge model for the rest.
    fn model_groups<'m>(&'m self, models: &'m EmbeddingModels) -> Result<Vec<ModelGroup<'m>>, SearchError> {
        let incomplete = self.store.incomplete_sources(models.configured.key)?;
        let Some(bridge) = models.bridge.as_ref().filter(|_| !incomplete.is_empty()) else {
            return Ok(vec![self.model_group(models, &models.configured, None)?]);
        };
        let sources = self.store.sources_with_documents()?;
        let is_in_filter = |source: &&String| self.query.filters.allows_source(source);
        if sources.iter().filter(is_in_filter).all(|source| incomplete.contains(source)) {
            return Ok(vec![self.model_group(models, bridge, None)?]);
        }
        let complete = &sources - &incomplete;
        let configured = self.model_group(models, &models.configured, Some(complete))?;
        Ok(vec![configured, self.model_group(models, bridge, Some(incomplete))?])
    }

    /// Embeds the query with `model`, for these sources or for all. Falls back to the bridge model if that fails.
    fn model_group<'m>(
        &'m self,
        models: &'m EmbeddingModels,
        model: &'m RegisteredModel,
        sources: Option<BTreeSet<String>>,
    ) -> Result<ModelGroup<'m>, SearchError> {
        let (model, query) = match (model.embed_query(&self.query.text), &models.bridge) {
            (Ok(query), _) => (model, query),
            (Err(_), Some(bridge)) if bridge.key != model.key => {
                (bridge, bridge.embed_query(&self.query.text)?)
            }
            (Err(error), _) => return Err(error.into()),
        };
        Ok(ModelGroup { model, query, scope: DocumentScope::new(&self.query.filters, sources) })
    }

    /// The best chunks by BM25 and by cosine, each with both scores.
    fn score_pairs(
        &self,
        terms: &[String],
        groups: &[ModelGroup<'_>],
    ) -> Result<Vec<ScorePair>, SearchError> {
        let keyword_count = self.tuning.keyword_candidates.max(self.limit() * 2);
        let vector_count = self.tuning.vector_candidates.max(self.limit() * 2);
        let keyword_candidates = match terms {
            [] => Vec::new(),
            terms => self.retrieve_enough(keyword_count, |count| self.keyword_candidates(terms, count))?,
        };
        let keyword_scores: HashMap<ChunkPosition, f32> =
            keyword_candidates.iter().map(|candidate| (candidate.place, candidate.score)).collect();
        let mut pairs = Vec::with_capacity(keyword_candidates.len() + vector_count);
        let mut vector_places = HashSet::new();
        for (index, group) in groups.iter().enumerate() {
            let nearest =
                self.retrieve_enough(vector_count, |count| self.nearest_candidates(group, count))?;
            vector_places.extend(nearest.iter().map(|near| near.place));
            pairs.extend(nearest.iter().map(|near| ScorePair {
                chunk: near.place,
                keyword: keyword_scores.get(&near.place).copied().unwrap_or_default(),
                vector: Some(near.score),
                group: index,
            }));
        }
        self.add_keyword_scores(terms, &mut pairs)?;
        let keyword_only_places: Vec<ChunkPosition> = keyword_candidates
            .iter()
            .map(|candidate| candidate.place)
            .filter(|place| !vector_places.contains(place))
            .collect();
        for (index, group) in groups.iter().enumerate() {
            let cosines = self.retriever.cosines(group.query_vector(), &group.scope, &keyword_only_places)?;
            pairs.extend(cosines.into_iter().map(|(place, vector)| ScorePair {
                chunk: place,
                keyword: keyword_scores.get(&place).copied().unwrap_or_default(),
                vector,
                group: index,
            }));
        }
        Ok(pairs)
    }

    /// Looks up the BM25 scores of chunks that have none yet.
    fn add_keyword_scores(&self, terms: &[String], pairs: &mut [ScorePair]) -> Result<(), SearchError> {
        let unscored: Vec<ChunkPosition> =
            pairs.iter().filter(|pair| pair.keyword <= 0.0).map(|pair| pair.chunk).collect();
        let scored = self.retriever.keyword_scores(terms, &unscored)?.into_iter();
        let scores: HashMap<ChunkPosition, f32> =
            scored.map(|candidate| (candidate.place, candidate.score)).collect();
        for pair in pairs {
            pair.keyword = scores.get(&pair.chunk).copied().unwrap_or(pair.keyword);
        }
        Ok(())
    }

    /// The documents that contain a query term, or have a chunk at or above the relevance floor of its model.
    fn relevant_documents(&self, pairs: &[ScorePair], groups: &[ModelGroup<'_>]) -> HashSet<u64> {
        let floors: Vec<Option<f64>> = groups
            .iter()
            .map(|group| self.tuning.min_cosine.or_else(|| group.model.embedder.relevance_floor()))
            .collect();
        let is_relevant = |pair: &&ScorePair| {
            let floor = floors.get(pair.group).copied().flatten();
            pair.keyword > 0.0
                || match (pair.vector, floor) {
                    (Some(cosine), Some(floor)) => f64::from(cosine) >= floor,
                    _ => true,
                }
        };
        pairs.iter().filter(is_relevant).map(|pair| pair.chunk.0).collect()
    }

    fn keyword_candidates(&self, terms: &[String], count: usize) -> Result<Vec<Candidate>, SearchError> {
        self.retriever.keyword(terms, &self.query.filters, count)
    }

    fn nearest_candidates(
        &self,
        group: &ModelGroup<'_>,
        count: usize,
    ) -> Result<Vec<Candidate>, SearchError> {
        self.retriever.nearest(group.query_vector(), &group.scope, count)
    }

    /// The best candidates of `best`. A few long documents may fill them with their chunks, so more are requested
    /// until there are enough documents or no more chunks, within [`CANDIDATE_GROWTH_MAX`].
    fn retrieve_enough(
        &self,
        count: usize,
        best: impl Fn(usize) -> Result<Vec<Candidate>, SearchError>,
    ) -> Result<Vec<Candidate>, SearchError> {
        let mut requested = count;
        loop {
            let candidates = best(requested)?;
            let documents: HashSet<u64> = candidates.iter().map(|candidate| candidate.place.0).collect();
            let few = documents.len() < self.limit() && candidates.len() >= requested;
            if !few || requested >= count * CANDIDATE_GROWTH_MAX {
                return Ok(candidates);
            }
            requested *= 4;
        }
    }

    /// The best chunk of each document by BM25. A few long documents may fill the first candidates with their chunks,
    /// so more are requested until there are enough documents or no more chunks.
    fn best_chunks(&self, terms: &[String], limit: usize) -> Result<Vec<Candidate>, SearchError> {
        // A small count is faster: the index skips chunks that cannot be among so few.
        let mut requested = limit * 2 + CANDIDATES_SPARE;
        let requested_max = (requested * CANDIDATE_GROWTH_MAX).max(CANDIDATES_MAX);
        loop {
            let candidates = self.keyword_candidates(terms, requested)?;
            let exhausted = candidates.len() < requested;
            let mut seen_documents = HashSet::new();
            let best: Vec<Candidate> =
                candidates.into_iter().filter(|candidate| seen_documents.insert(candidate.place.0)).collect();
            // Ties are broken by date: candidates beyond the last one may have the score of the last hit and be
            // newer.
            let undecided = match (limit.checked_sub(1).and_then(|last| best.get(last)), best.last()) {
                (Some(hit), Some(last)) => hit.score <= last.score,
                _ => limit > 0,
            };
            if !undecided || exhausted || requested >= requested_max {
                return Ok(best);
            }
            requested *= 4;
        }
    }

    /// The best documents with their rows, sorted; of near-duplicates only the first. Reads only as many rows as are
    /// needed.
    fn best_documents(
        &self,
        mut ranked: Vec<RankedDocument>,
    ) -> Result<Vec<(RankedDocument, DocumentSummary)>, SearchError> {
        ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
        let mut best: Vec<(RankedDocument, DocumentSummary)> = Vec::with_capacity(self.limit());
        while best.len() < self.limit() && !ranked.is_empty() {
            let count = (self.limit() - best.len() + DUPLICATES_SPARE).min(ranked.len());
            // Documents with equal scores are ordered by their rows, so these are read together.
            let last_score = ranked[count - 1].score;
            let ties = ranked[count..].iter().take_while(|next| next.score.total_cmp(&last_score).is_eq());
            let rest = ranked.split_off(count + ties.count());
            let keys: Vec<u64> = ranked.iter().map(|ranked| ranked.place.0).collect();
            let mut rows: HashMap<u64, DocumentSummary> =
                self.store.summaries(&keys)?.into_iter().map(|row| (row.key, row)).collect();
            let mut page: Vec<(RankedDocument, DocumentSummary)> = ranked
                .into_iter()
                .filter_map(|ranked| rows.remove(&ranked.place.0).map(|row| (ranked, row)))
                .collect();
            page.sort_by(|(a, a_row), (b, b_row)| {
                b.score
                    .total_cmp(&a.score)
                    .then(b_row.updated_at.cmp(&a_row.updated_at))
                    .then(a_row.id.cmp(&b_row.id))
            });
            for (document, row) in page {
                if best.len() < self.limit() && !is_near_duplicate(&row, &best) {
                    best.push((document, row));
                }
            }
            ranked = rest;
        }
        Ok(best)
    }

    /// Turns ranked documents into hits: sorted, without near-duplicates, at most as many as requested.
    fn build_hits(
        &self,
        mode: SearchMode,
        terms: &[String],
        ranked: Vec<RankedDocument>,
    ) -> Result<Vec<Hit>, SearchError> {
        let ranked = self.best_documents(ranked)?;
        let places: Vec<ChunkPosition> = ranked.iter().map(|(ranked, _)| ranked.place).collect();
        let texts = self.store.chunk_texts(&places)?;
        let mut matcher = snippet::ChunkSnippetMatcher::new(terms);
        let hits = ranked.into_iter().zip(texts).map(|((ranked, row), chunk)| Hit {
            id: row.id,
            score: ranked.score,
            title: row.title.clone(),
            source: row.source.clone(),
            source_id: row.source_id.clone(),
            updated_at: row.updated_at,
            snippet: matcher.snippet(&chunk, row.title.as_deref()),
            source_url: row.source_url.clone(),
            explain: self.query.explain.then(|| Explanation {
                mode,
                keyword_score: ranked.keyword.map(f64::from),
                vector_score: ranked.vector.map(f64::from),
                model: ranked.model,
                alpha: ranked.alpha,
                chunk: ranked.place.1,
                terms: terms.to_vec(),
            }),
        });
        Ok(hits.collect())
    }
}

/// Whether a document's text is almost that of one of these.
fn is_near_duplicate(document: &DocumentSummary, of: &[(RankedDocument, DocumentSummary)]) -> bool {
    of.iter().any(|(_, other)| match (&other.sketch, &document.sketch) {
        (Some(a), Some(b)) => minhash::are_near_duplicates(a, b),
        _ => false,
    })
}

/// Maps BM25 to [0, 1): 0.5 at [`KEYWORD_HALF_SCORE`].
fn keyword_score(bm25: f32) -> f64 {
    let bm25 = f64::from(bm25.max(0.0));
    round_score(bm25 / (bm25 + KEYWORD_HALF_SCORE))
}

/// Maps a cosine to [0, 1].
fn semantic_score(cosine: f32) -> f64 {
    round_score(((1.0 + f64::from(cosine)) / 2.0).clamp(0.0, 1.0))
}

/// Maps standard deviations above the average candidate to (0, 1): the average is 0.5.
fn hybrid_score(deviations: f64) -> f64 {
    round_score(1.0 / (1.0 + (-deviations).exp()))
}

/// Rounds to four decimals: more would suggest a precision that scores do not have.
fn round_score(score: f64) -> f64 {
    (score * 10_000.0).round() / 10_000.0
}
