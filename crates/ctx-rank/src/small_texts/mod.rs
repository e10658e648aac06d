//! In-memory search of small texts, such as the descriptions of all functions: BM25 and embeddings, fused as for
//! documents.
//!
//! The texts are in segments (`segment`), for example one for each provider of functions: when some texts change, only
//! their segment is made again. A user who looks for a function does not know its words. So query words are expanded by
//! synonyms and by the nearest terms in the embedding space, and the verb of the query is compared with the verb of the
//! function.

mod segment;
mod segment_bytes;

pub use segment::SmallTextSegment;

use crate::analyzer::{Analyzer, StemCache, expand_abbreviation, is_identifier, query_words};
use crate::fuse::{ScorePair, fuse};
use crate::synonyms::synonyms;
use crate::verbs;
use ctx_embed::Model;
use ctx_embed::vector::{dots, quantize};
use segment::Posting;
use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

/// Weights of a word by the part of the text in which it stands.
const NAME_WEIGHT: f32 = 3.0;
const LEAD_WEIGHT: f32 = 2.0;

/// Weight of an identifier relative to an ordinary word, as in the index of documents.
const IDENTIFIER_WEIGHT: f32 = 2.0;

/// Weight of a neighbour (a term near a word of the query), multiplied by its cosine.
const NEIGHBOUR_WEIGHT: f32 = 0.8;
/// Minimum cosine of a neighbour, and maximum number of neighbours of a word.
const NEIGHBOUR_MIN: f32 = 0.4;
const NEIGHBOURS_MAX: usize = 8;

/// Weight of embeddings against BM25, and weight of verb agreement on top of both.
const VECTOR_WEIGHT: f64 = 0.45;
const VERB_WEIGHT: f64 = 0.65;

/// BM25 parameters: term frequency saturation (k1) and length normalisation (b).
const BM25_K1: f32 = 1.2;
const BM25_B: f32 = 0.5;

/// Number of candidates that are taken by words, and by meaning, for fusion.
const CANDIDATES: usize = 100;

/// Minimum cosine of a text without any word of the query.
const COSINE_MIN: f32 = 0.4;

/// Maximum bytes of the first paragraph of a description, which weighs more than the rest.
const LEAD_BYTES_MAX: usize = 300;
/// Maximum bytes of a query that are embedded.
const EMBEDDED_QUERY_BYTES_MAX: usize = 1_000;

/// A small text to search for.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmallText<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its description; the first paragraph weighs most.
    pub description: &'a str,
    /// Further words by which it can be found.
    pub detail: &'a str,
}

impl<'a> SmallText<'a> {
    /// The first paragraph of the description, and the rest.
    fn lead(&self) -> (&'a str, &'a str) {
        let about = self.description.trim();
        let end = about.find("\n\n").unwrap_or(about.len()).min(LEAD_BYTES_MAX);
        about.split_at(about.floor_char_boundary(end))
    }
}

/// An in-memory index of small texts. A text's index counts through the texts of all segments.
pub struct SmallTextIndex {
    segments: Vec<IndexedSegment>,
    /// The number of texts.
    texts: usize,
    length_mean: f32,
}

/// A segment of an index.
struct IndexedSegment {
    /// The index of its first text.
    start: usize,
    segment: Arc<SmallTextSegment>,
}

impl SmallTextIndex {
    /// Indexes the texts. Blocks, for some milliseconds per hundred texts.
    pub fn new(texts: &[SmallText<'_>]) -> Self {
        Self::of_segments(vec![Arc::new(SmallTextSegment::new(texts))])
    }

    /// An index of the texts of all segments, which finds what one segment of all these texts would. Takes no time to
    /// speak of.
    pub fn of_segments(segments: Vec<Arc<SmallTextSegment>>) -> Self {
        // One sum in the order of the texts, so that it does not depend on their segments.
        let sum: f32 = segments.iter().flat_map(|segment| &segment.lengths).sum();
        let mut texts = 0;
        let start_of = |segment: Arc<SmallTextSegment>| {
            let start = texts;
            texts += segment.len();
            IndexedSegment { start, segment }
        };
        let segments = segments.into_iter().map(start_of).collect();
        Self { segments, texts, length_mean: (sum / texts.max(1) as f32).max(1.0) }
    }

    /// Indices of the texts that match best, best first, among those that are `wanted`.
    pub fn best(&self, query: &str, limit: usize, is_candidate: impl Fn(usize) -> bool) -> Vec<usize> {
        let keyword_scores = self.keyword_scores(query);
        let vector_scores = self.vector_scores(query);
        let mut candidates: HashSet<usize> = HashSet::new();
        for scores in [&keyword_scores, &vector_scores] {
            let mut best: Vec<(usize, f32)> =
                scores.iter().copied().enumerate().filter(|(text, _)| is_candidate(*text)).collect();
            best.sort_by(|(a, a_score), (b, b_score)| b_score.total_cmp(a_score).then(a.cmp(b)));
            candidates.extend(best.into_iter().take(CANDIDATES.max(limit)).map(|(text, _)| text));
        }
        let pairs: Vec<ScorePair> = candidates
            .into_iter()
            .map(|text| ScorePair {
                chunk: (text as u64, 0),
                keyword: keyword_scores.get(text).copied().unwrap_or_default(),
                vector: vector_scores.get(text).copied(),
                group: 0,
            })
            .collect();
        let mut fused = fuse(&pairs, &[VECTOR_WEIGHT]);
        // Texts far from the query take part in fusion, because scores are standardised over all candidates.
        fused.retain(|one| one.keyword > 0.0 || one.vector.is_some_and(|score| score >= COSINE_MIN));
        let words: Vec<String> = Analyzer::without_stemming(false).tokens(query).collect();
        let query_action = verbs::query_action(words.iter().map(String::as_str));
        for one in &mut fused {
            one.score += VERB_WEIGHT * verbs::agreement(query_action, self.action(one.place.0 as usize));
        }
        fused.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.place.cmp(&b.place)));
        fused.into_iter().take(limit).map(|one| one.place.0 as usize).collect()
    }

    /// BM25 score of each text, with weights by where words stand. A word of the query counts once, in the form that
    /// matches a text best: itself, a synonym or a neighbour.
    fn keyword_scores(&self, query: &str) -> Vec<f32> {
        let mut scores = vec![0.0; self.texts];
        let mut stems = StemCache::default();
        for (word, counts) in query_words(query) {
            let others = expand_abbreviation(&word).iter().chain(synonyms(&word));
            let mut forms: Vec<(String, f32)> =
                others.map(|other| (stems.stem(other).to_owned(), 1.0)).collect();
            if counts {
                forms.push((stems.stem(&word).to_owned(), 1.0));
                forms.extend(self.nearest_terms(&word));
            }
            let mut best = vec![0.0_f32; scores.len()];
            for (term, factor) in forms {
                for (text, score) in self.term_scores(&term) {
                    let Some(best) = best.get_mut(text) else { continue };
                    *best = best.max(factor * score);
                }
            }
            scores.iter_mut().zip(best).for_each(|(score, best)| *score += best);
        }
        scores
    }

    /// Score of one term in each text that has it.
    fn term_scores(&self, term: &str) -> impl Iterator<Item = (usize, f32)> {
        let postings: Vec<(&IndexedSegment, &[Posting])> =
            self.segments.iter().map(|indexed| (indexed, indexed.segment.postings(term))).collect();
        let matching = postings.iter().map(|(_, postings)| postings.len()).sum::<usize>() as f32;
        let idf = (1.0 + (self.texts as f32 - matching + 0.5) / (matching + 0.5)).ln();
        let factor = if is_identifier(term) { IDENTIFIER_WEIGHT } else { 1.0 };
        postings.into_iter().flat_map(move |(indexed, postings)| {
            postings.iter().map(move |Posting { text, weight }| {
                let text = *text as usize;
                let length =
                    indexed.segment.lengths.get(text).copied().unwrap_or_default() / self.length_mean;
                let saturation = BM25_K1 * (1.0 - BM25_B + BM25_B * length);
                (indexed.start + text, factor * idf * weight / (weight + saturation))
            })
        })
    }

    /// Similarity of each text's embedding to the query's.
    fn vector_scores(&self, query: &str) -> Vec<f32> {
        let mut query = query[..query.floor_char_boundary(EMBEDDED_QUERY_BYTES_MAX)].to_owned();
        for (word, _) in query_words(&query) {
            for other in expand_abbreviation(&word).iter().chain(synonyms(&word)) {
                query.push(' ');
                query.push_str(other);
            }
        }
        let query = embed_one(&query);
        let near = |vector: &[f32]| vector.iter().zip(&query).map(|(a, b)| a * b).sum::<f32>();
        let vectors = |indexed: &'_ IndexedSegment| {
            indexed.segment.vectors.chunks_exact(query.len().max(1)).map(near).collect::<Vec<_>>()
        };
        self.segments.iter().flat_map(vectors).collect()
    }

    /// The action of a text.
    fn action(&self, text: usize) -> u8 {
        let last = self.segments.partition_point(|indexed| indexed.start <= text).checked_sub(1);
        let indexed = last.and_then(|last| self.segments.get(last));
        let action = indexed.and_then(|indexed| indexed.segment.actions.get(text - indexed.start));
        action.copied().unwrap_or_default()
    }

    /// The terms nearest to a word, with their weights.
    fn nearest_terms(&self, word: &str) -> Vec<(String, f32)> {
        if !is_plain(word) {
            return Vec::new();
        }
        let (query, scale) = quantize(&embed_one(word));
        let mut near: Vec<(f32, &str)> = Vec::new();
        for (place, IndexedSegment { segment, .. }) in self.segments.iter().enumerate() {
            let vocabulary = &segment.vocabulary;
            let mut products = vec![0; vocabulary.scales.len()];
            dots(&query, &vocabulary.codes, &mut products);
            let nearness =
                products.iter().zip(&vocabulary.scales).map(|(product, row)| *product as f32 * scale * row);
            let terms = vocabulary.terms.iter().map(|term| segment.term(*term as usize));
            let earlier = self.segments.get(..place).unwrap_or_default();
            // A term has the embedding of its first word in all texts.
            let is_first = |term: &str| !earlier.iter().any(|indexed| indexed.segment.has_embedding(term));
            near.extend(
                nearness.zip(terms).filter(|(nearness, term)| *nearness >= NEIGHBOUR_MIN && is_first(term)),
            );
        }
        near.sort_by(|(a, a_term), (b, b_term)| b.total_cmp(a).then(a_term.cmp(b_term)));
        near.truncate(NEIGHBOURS_MAX);
        near.into_iter().map(|(nearness, term)| (term.to_owned(), NEIGHBOUR_WEIGHT * nearness)).collect()
    }
}

/// Embeds texts with the built-in model that is fast enough for callers to wait.
fn embed(texts: &[&str]) -> Vec<Vec<f32>> {
    Model::Fast.embed(texts, thread::available_parallelism().map_or(1, usize::from))
}

fn embed_one(text: &str) -> Vec<f32> {
    embed(&[text]).pop().unwrap_or_default()
}

/// Whether a word has only letters, unlike an identifier or compound name.
fn is_plain(word: &str) -> bool {
    word.chars().all(char::is_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXTS: [SmallText<'_>; 6] = [
        small("github create_issue", "Opens a new issue in a repository.", "title body labels assignees"),
        small("github get_issue", "Reads one issue.", "number Issue title state"),
        small("github merge_pull_request", "Merges a pull request.", "number method"),
        small("calendar create_event", "Adds an appointment.", "start end attendees"),
        small("weather forecast", "Tells the temperature of the next days.", "city days"),
        small("files read", "The content of a file.", "path encoding"),
    ];

    const fn small(name: &'static str, about: &'static str, detail: &'static str) -> SmallText<'static> {
        SmallText { name, description: about, detail }
    }

    fn best(query: &str) -> Vec<&'static str> {
        let texts = SmallTextIndex::new(&TEXTS);
        texts.best(query, 10, |_| true).into_iter().map(|text| TEXTS[text].name).collect()
    }

    #[test]
    fn a_name_finds_exactly_that() {
        for text in TEXTS {
            assert_eq!(best(text.name)[0], text.name);
        }
        assert_eq!(best("create_issue")[0], "github create_issue");
        assert_eq!(best("get issue")[0], "github get_issue");
    }

    #[test]
    fn fields_and_other_words_find_too() {
        assert_eq!(best("who is invited: attendees")[0], "calendar create_event");
        assert_eq!(best("merging pull requests")[0], "github merge_pull_request");
        assert_eq!(best("how warm will it be tomorrow, weather?")[0], "weather forecast");
        assert_eq!(best("temperatures")[0], "weather forecast");
    }

    #[test]
    fn what_is_not_wanted_is_not_found() {
        let texts = SmallTextIndex::new(&TEXTS);
        assert_eq!(texts.best("create", 10, |text| text != 0)[0], 3);
        assert_eq!(texts.best("issue", 1, |_| true).len(), 1);
        assert!(texts.best("issue", 0, |_| true).is_empty());
    }

    #[test]
    fn nonsense_and_nothing_find_nothing() {
        for query in ["", "  ", "?!", "zxqvy", "😀"] {
            assert_eq!(best(query), [""; 0], "{query}");
        }
        let none = SmallTextIndex::new(&[]);
        assert!(none.best("anything", 5, |_| true).is_empty());
    }

    proptest! {
        /// However the texts are divided into segments, the same are found in the same order.
        #[test]
        fn segments_find_what_one_segment_of_all_texts_finds(
            mut ends in prop::collection::vec(0..=TEXTS.len(), 0..4),
            query in "(merg|read|open)(s|ing|ed)? (the )?(issue|pull request|content|file|weather|appointments)",
        ) {
            ends.sort_unstable();
            ends.push(TEXTS.len());
            let mut start = 0;
            let segments = ends.into_iter().map(|end| {
                let segment = SmallTextSegment::new(&TEXTS[start..end]);
                start = end;
                Arc::new(segment)
            });
            let divided = SmallTextIndex::of_segments(segments.collect());
            prop_assert_eq!(divided.best(&query, 6, |_| true), SmallTextIndex::new(&TEXTS).best(&query, 6, |_| true));
        }
    }
}
