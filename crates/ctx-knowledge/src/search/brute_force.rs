//! Reference retriever for tests: has no index, and scans all chunks for each query.
//!
//! It implements BM25 a second time, so that agreement with the keyword index is meaningful.

use super::retriever::{DocumentScope, QueryVector, Retriever};
use super::{Candidate, Filters, SearchError, analyzer};
use ctx_embed::vector;
use ctx_rank::Analyzer;
use ctx_store::{ChangeCursor, ChangeScope, ChunkPosition, IndexedDocument, Store};
use std::collections::{HashMap, HashSet};

/// The usual constants of BM25: term frequency saturation, and length normalisation.
const K1: f32 = 1.2;
const B: f32 = 0.75;
/// Boost of identifiers against ordinary words.
const IDENTIFIER_WEIGHT: f32 = 2.0;

/// The documents of a store as they were when it was read.
struct BruteForceRetriever<'a> {
    store: &'a dyn Store,
    documents: Vec<IndexedDocument>,
    chunks: Vec<ChunkTerms>,
}

/// The term frequencies of a chunk.
struct ChunkTerms {
    place: ChunkPosition,
    frequencies: HashMap<String, u32>,
    length: u32,
}

impl ChunkTerms {
    fn new(place: ChunkPosition, text: &str) -> Self {
        let mut chunk = Self { place, frequencies: HashMap::new(), length: 0 };
        let mut tokens = Analyzer::DOCUMENTS.tokens(text);
        let mut term = String::new();
        while tokens.next_into(&mut term).is_some() {
            *chunk.frequencies.entry(term.clone()).or_default() += 1;
            chunk.length += 1;
        }
        chunk
    }
}

impl<'a> BruteForceRetriever<'a> {
    fn new(store: &'a dyn Store) -> Self {
        let page = store.changes(ChangeCursor::START, ChangeScope::Documents, usize::MAX);
        let documents = page.unwrap().unwrap().written;
        let mut chunks = Vec::new();
        for document in &documents {
            let title = document.title.as_deref().unwrap_or_default();
            for (position, span) in (0u64..).zip(&document.chunks) {
                let text = format!("{title}\n{}\n{}", span.heading, span.of(&document.body));
                chunks.push(ChunkTerms::new((document.key, position), &text));
            }
        }
        Self { store, documents, chunks }
    }

    /// The BM25 scores of the chunks with any of the terms, ordered by place.
    fn bm25(&self, terms: &[String]) -> Vec<Candidate> {
        let chunks = &self.chunks;
        let count = chunks.len() as f32;
        let average_length = chunks.iter().map(|chunk| chunk.length).sum::<u32>() as f32 / count;
        let weights: Vec<f32> = terms
            .iter()
            .map(|term| {
                let containing =
                    chunks.iter().filter(|chunk| chunk.frequencies.contains_key(term)).count() as f32;
                let rarity = (1.0 + (count - containing + 0.5) / (containing + 0.5)).ln();
                rarity * (1.0 + K1) * if analyzer::is_identifier(term) { IDENTIFIER_WEIGHT } else { 1.0 }
            })
            .collect();
        let score = |chunk: &ChunkTerms| {
            let norm = K1 * (1.0 - B + B * chunk.length as f32 / average_length);
            let term_scores = terms.iter().zip(&weights).filter_map(|(term, weight)| {
                let frequency = *chunk.frequencies.get(term)? as f32;
                Some(weight * frequency / (frequency + norm))
            });
            term_scores.sum::<f32>()
        };
        let scored = chunks.iter().map(|chunk| Candidate { place: chunk.place, score: score(chunk) });
        scored.filter(|candidate| candidate.score > 0.0).collect()
    }

    fn within(&self, is_within: impl Fn(&IndexedDocument) -> bool) -> HashSet<u64> {
        self.documents.iter().filter(|document| is_within(document)).map(|document| document.key).collect()
    }

    fn in_scope(&self, scope: &DocumentScope<'_>) -> HashSet<u64> {
        self.within(|document| {
            allows(scope.filters, document)
                && scope.sources.as_ref().is_none_or(|sources| sources.contains(&document.source))
        })
    }
}

impl Retriever for BruteForceRetriever<'_> {
    fn is_ready(&self) -> Result<bool, SearchError> {
        Ok(true)
    }

    fn complete_prefix(&self, prefix: &str) -> Result<Vec<String>, SearchError> {
        let mut words: HashMap<String, usize> = HashMap::new();
        for term in self.chunks.iter().flat_map(|chunk| chunk.frequencies.keys()) {
            if term.starts_with(prefix) {
                *words.entry(term.clone()).or_default() += 1;
            }
        }
        let mut words: Vec<(String, usize)> = words.into_iter().collect();
        words.sort_by(|(a, a_count), (b, b_count)| b_count.cmp(a_count).then(a.cmp(b)));
        Ok(words.into_iter().map(|(word, _)| word).collect())
    }

    fn keyword(
        &self,
        terms: &[String],
        filters: &Filters,
        limit: usize,
    ) -> Result<Vec<Candidate>, SearchError> {
        let within = self.within(|document| allows(filters, document));
        let mut candidates = self.bm25(terms);
        candidates.retain(|candidate| within.contains(&candidate.place.0));
        Ok(top_candidates(candidates, limit))
    }

    fn keyword_scores(
        &self,
        terms: &[String],
        places: &[ChunkPosition],
    ) -> Result<Vec<Candidate>, SearchError> {
        let mut candidates = self.bm25(terms);
        candidates.retain(|candidate| places.contains(&candidate.place));
        Ok(candidates)
    }

    fn nearest(
        &self,
        query: QueryVector<'_>,
        scope: &DocumentScope<'_>,
        limit: usize,
    ) -> Result<Vec<Candidate>, SearchError> {
        let places: Vec<ChunkPosition> = self.chunks.iter().map(|chunk| chunk.place).collect();
        let cosines = self.cosines(query, scope, &places)?.into_iter();
        let scored = cosines.filter_map(|(place, cosine)| Some(Candidate { place, score: cosine? }));
        Ok(top_candidates(scored.collect(), limit))
    }

    fn cosines(
        &self,
        query: QueryVector<'_>,
        scope: &DocumentScope<'_>,
        places: &[ChunkPosition],
    ) -> Result<Vec<(ChunkPosition, Option<f32>)>, SearchError> {
        let within = self.in_scope(scope);
        let places = places.iter().copied().filter(|place| within.contains(&place.0));
        places
            .map(|place| {
                let exact = self.store.exact_chunk_vectors(query.model, &[place])?.pop().flatten();
                Ok((place, exact.and_then(|half| vector::dot_half(query.values, &half))))
            })
            .collect()
    }
}

fn allows(filters: &Filters, document: &IndexedDocument) -> bool {
    filters.allows_source(&document.source)
        && filters.tags.iter().all(|tag| document.tags.contains(tag))
        && filters.since.is_none_or(|since| document.updated_at >= since.as_millisecond())
        && filters.until.is_none_or(|until| document.updated_at <= until.as_millisecond())
}

/// The first `limit` by score, then by place.
fn top_candidates(mut candidates: Vec<Candidate>, limit: usize) -> Vec<Candidate> {
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.place.cmp(&b.place)));
    candidates.truncate(limit);
    candidates
}

pub(super) mod tests {
    use super::*;
    use crate::chunk::{self, Chunking};
    use crate::embed::{Effort, EmbedError, Embedder, EmbeddingModels, EmbeddingOptions, FillJob, FillMode};
    use crate::minhash;
    use crate::search::{
        Hit, Ranker, SearchMode, SearchQuery, SearchTuning, VectorIndex, View, ViewRetriever,
    };
    use ctx_store::{MemoryStore, Mutation, NewDocument, NewVectors, Span};
    use jiff::Timestamp;
    use std::sync::Arc;
    use tokio_util::sync::CancellationToken;
    use uuid::Uuid;

    const CHUNKING: Chunking = Chunking { max_tokens: 200, overlap_tokens: 0 };
    const TUNING: SearchTuning =
        SearchTuning { keyword_candidates: 12, vector_candidates: 12, hybrid_alpha: None, min_cosine: None };
    const WORDS: [&str; 40] = [
        "harbour",
        "ship",
        "anchor",
        "tide",
        "sailor",
        "light",
        "tower",
        "storm",
        "bread",
        "flour",
        "dough",
        "oven",
        "salt",
        "yeast",
        "deploy",
        "release",
        "button",
        "server",
        "rollback",
        "staging",
        "invoice",
        "payment",
        "refund",
        "ledger",
        "garden",
        "tomato",
        "seed",
        "rain",
        "mountain",
        "trail",
        "snow",
        "hut",
        "E4217",
        "max_connections",
        "train",
        "ticket",
        "piano",
        "violin",
        "concert",
        "stage",
    ];

    /// Embeds texts by their words only: no two different words are similar.
    struct HashedWordsEmbedder;

    impl Embedder for HashedWordsEmbedder {
        fn model(&self) -> &'static str {
            "test:hashed-words"
        }

        fn embed(&self, texts: &[&str], _effort: Effort) -> Result<Vec<Vec<f32>>, EmbedError> {
            Ok(texts.iter().map(|text| embed(text)).collect())
        }

        fn max_tokens(&self) -> usize {
            1_000
        }

        fn batch_size(&self) -> usize {
            16
        }

        fn weight(&self) -> f64 {
            0.4
        }
    }

    pub(in crate::search) fn embed(text: &str) -> Vec<f32> {
        let mut values = vec![0.01_f32; 64];
        for word in text.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty()) {
            let hash = blake3::hash(word.to_lowercase().as_bytes());
            values
                .iter_mut()
                .zip(hash.as_bytes().iter().cycle())
                .for_each(|(value, byte)| *value += f32::from(*byte) - 127.5);
        }
        let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
        values.into_iter().map(|value| value / length).collect()
    }

    /// A document of a few lines, a chunk each, with words that depend on its number.
    fn document(source: &str, number: u64, models: &EmbeddingModels) -> NewDocument {
        let mut state = number * 7919 + 13;
        let mut word = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Low numbers are more common, as words are.
            let [a, b] = [(state >> 33) % 40, (state >> 49) % 40];
            WORDS[a.min(b) as usize]
        };
        let lines = 1 + number % 4;
        let body: String = (0..lines)
            .map(|line| (0..5 + (number + line) % 7).map(|_| word()).collect::<Vec<_>>().join(" ") + "\n")
            .collect();
        let title = Some(format!("Page {number}"));
        let mut chunks = Vec::new();
        let mut start = 0;
        for line in body.split_inclusive('\n') {
            chunks.push(Span { start, end: start + line.len(), heading: String::new() });
            start += line.len();
        }
        let texts: Vec<_> = chunks
            .iter()
            .enumerate()
            .map(|(position, span)| {
                let (text, hash) = chunk::embedded_text(title.as_deref(), &body, span, CHUNKING);
                (position, text, hash)
            })
            .collect();
        let vectors = models.ingest_model().vectors(&texts, Effort::Full).unwrap();
        let updated_at = Timestamp::from_second(1_700_000_000 + number as i64).unwrap();
        NewDocument {
            id: Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{source}\n{number}").as_bytes()),
            source: source.to_owned(),
            source_id: number.to_string(),
            source_url: None,
            title,
            author: None,
            created_at: updated_at,
            updated_at,
            content_type: "text/plain".to_owned(),
            metadata: "{}".to_owned(),
            tags: if number.is_multiple_of(3) { "[\"third\"]" } else { "[]" }.to_owned(),
            sketch: minhash::signature(&body),
            hash: *blake3::hash(body.as_bytes()).as_bytes(),
            body,
            chunks,
            vectors: NewVectors {
                hashes: texts.iter().map(|(_, _, hash)| *hash).collect(),
                computed: Some((models.ingest_model().key, vectors)),
                required_model: Some(models.configured.key),
            },
            fingerprint: None,
            note: None,
        }
    }

    /// A store with made documents, and the models that embed them.
    pub(in crate::search) struct Corpus {
        pub(in crate::search) store: Arc<dyn Store>,
        pub(in crate::search) models: EmbeddingModels,
    }

    impl Corpus {
        pub(in crate::search) fn new() -> Self {
            Self::of(Arc::new(MemoryStore::default()))
        }

        pub(in crate::search) fn of(store: Arc<dyn Store>) -> Self {
            let options = EmbeddingOptions { embedder: Arc::new(HashedWordsEmbedder), fill: FillMode::Wait };
            let models = EmbeddingModels::open(&options, &*store).unwrap().unwrap();
            Self { store, models }
        }

        pub(in crate::search) fn put(&self, source: &str, numbers: std::ops::Range<u64>) {
            for number in numbers {
                let document = document(source, number, &self.models);
                self.store.apply(&[Mutation::Put(Box::new(document))]).unwrap();
            }
        }

        /// Computes the missing vectors of the workspace's own model.
        pub(in crate::search) fn fill(&self) {
            let job = FillJob {
                store: &*self.store,
                model: &self.models.configured,
                is_configured_model: true,
                chunking: CHUNKING,
                effort: Effort::Full,
                cancellation: &CancellationToken::new(),
            };
            assert!(job.run(&|_| ()).unwrap().complete);
        }

        fn search(&self, retriever: &dyn Retriever, query: &SearchQuery) -> Vec<Hit> {
            let ranker = Ranker { retriever, store: &*self.store, tuning: TUNING, query };
            let hits = match query.mode {
                Some(SearchMode::Semantic) => ranker.semantic(&self.models),
                Some(SearchMode::Hybrid) => ranker.hybrid(&self.models),
                _ => ranker.keyword(),
            };
            hits.unwrap()
        }
    }

    fn queries() -> Vec<SearchQuery> {
        let at = |number: i64| Some(Timestamp::from_second(1_700_000_000 + number).unwrap());
        let none = Filters::default();
        let filters = [
            none.clone(),
            Filters { source: Some("wiki:a".to_owned()), ..none.clone() },
            Filters { source: Some("notes".to_owned()), ..none.clone() },
            Filters { tags: vec!["third".to_owned()], ..none.clone() },
            Filters { since: at(10), until: at(45), ..none },
        ];
        let texts = [
            "harbour storm",
            "bread",
            "how do I deploy a release",
            "E4217",
            "max_connections server",
            "violin tick",
        ];
        let modes = [SearchMode::Keyword, SearchMode::Semantic, SearchMode::Hybrid];
        let query = |text: &str, mode, filters: &Filters, prefix| SearchQuery {
            text: text.to_owned(),
            mode: Some(mode),
            limit: 8,
            filters: filters.clone(),
            explain: true,
            prefix,
        };
        let mut queries = Vec::new();
        for (text, mode) in texts.iter().flat_map(|text| modes.map(|mode| (text, mode))) {
            queries.extend(filters.iter().map(|filters| query(text, mode, filters, false)));
            queries.push(query(text, mode, &filters[0], true));
        }
        queries
    }

    /// Hits without their scores, and the scores.
    fn split_scores(hits: Vec<Hit>) -> (Vec<Hit>, Vec<f64>) {
        let mut scores = Vec::new();
        let unscored = hits.into_iter().map(|mut hit| {
            scores.push(std::mem::take(&mut hit.score));
            if let Some(explanation) = &mut hit.explain {
                scores.extend(explanation.keyword_score.as_mut().map(std::mem::take));
                scores.extend(explanation.vector_score.as_mut().map(std::mem::take));
            }
            hit
        });
        (unscored.collect(), scores)
    }

    /// Every query has the same hits through both retrievers; scores may differ by rounding, since terms are added in
    /// another order.
    fn assert_same_hits(corpus: &Corpus, views: &ViewRetriever<'_>) {
        let brute_force = BruteForceRetriever::new(&*corpus.store);
        for query in queries() {
            let (expected, expected_scores) = split_scores(corpus.search(&brute_force, &query));
            let (hits, scores) = split_scores(corpus.search(views, &query));
            assert_eq!(hits, expected, "{query:?}");
            assert!(!hits.is_empty(), "{query:?}");
            let near = |(a, b): (&f64, &f64)| (a - b).abs() < 0.000_2;
            assert!(
                scores.iter().zip(&expected_scores).all(near),
                "{query:?}: {scores:?} {expected_scores:?}"
            );
        }
    }

    #[test]
    fn any_retriever_gives_the_same_hits() {
        let folder = tempfile::tempdir().unwrap();
        let corpus = Corpus::new();
        corpus.put("wiki:a", 0..30);
        corpus.fill();
        // One source has all vectors of the workspace's model, the other only those of the bridge model.
        corpus.put("notes:b", 30..60);
        let view = View::next_to(&folder.path().join("store"), corpus.store.identity().id);
        view.catch_up(&*corpus.store).unwrap();
        let vectors = VectorIndex::next_to(&folder.path().join("store"), corpus.store.identity().id);
        let views = ViewRetriever { view: &view, vectors: &vectors, store: &*corpus.store };
        assert_same_hits(&corpus, &views);
        corpus.fill();
        assert_same_hits(&corpus, &views);
    }

    #[test]
    fn the_scores_of_chunks_are_those_of_a_search() {
        let folder = tempfile::tempdir().unwrap();
        let corpus = Corpus::new();
        let view = View::next_to(&folder.path().join("store"), corpus.store.identity().id);
        // Segments with deleted entries, also of chunks that were written again.
        for numbers in [0..60, 60..90, 20..40, 50..70] {
            corpus.put("wiki:a", numbers);
            view.catch_up(&*corpus.store).unwrap();
        }
        let listed = corpus.store.list(0, 100).unwrap();
        let deletions: Vec<Mutation> =
            listed.iter().step_by(7).map(|document| Mutation::Delete(document.id)).collect();
        corpus.store.apply(&deletions).unwrap();
        view.catch_up(&*corpus.store).unwrap();
        let places: Vec<ChunkPosition> =
            listed.iter().flat_map(|document| (0..5).map(|position| (document.key, position))).collect();
        for words in ["harbour storm", "bread", "E4217 max_connections tide rain", "nothing"] {
            let terms = analyzer::query_terms(words);
            let sorted = |mut candidates: Vec<Candidate>| {
                candidates.sort_by_key(|candidate| candidate.place);
                candidates
            };
            let found = sorted(view.search(&terms, &Filters::default(), 1_000).unwrap());
            let scored = sorted(view.scores(&terms, &places).unwrap());
            let places_of = |of: &[Candidate]| of.iter().map(|candidate| candidate.place).collect::<Vec<_>>();
            assert_eq!(places_of(&scored), places_of(&found), "{words}");
            // The order in which the scores of the terms are added may differ.
            let is_same = |(a, b): (&Candidate, &Candidate)| (a.score - b.score).abs() <= a.score * 1e-6;
            assert!(scored.iter().zip(&found).all(is_same), "{words}");
        }
    }

    #[test]
    fn an_empty_index_is_not_ready_for_a_store_with_documents() {
        let folder = tempfile::tempdir().unwrap();
        let corpus = Corpus::new();
        let view = View::next_to(&folder.path().join("store"), corpus.store.identity().id);
        let vectors = VectorIndex::next_to(&folder.path().join("store"), corpus.store.identity().id);
        let views = ViewRetriever { view: &view, vectors: &vectors, store: &*corpus.store };
        assert!(views.is_ready().unwrap());
        corpus.put("wiki:a", 0..1);
        assert!(!views.is_ready().unwrap());
        view.catch_up(&*corpus.store).unwrap();
        assert!(views.is_ready().unwrap());
    }
}
