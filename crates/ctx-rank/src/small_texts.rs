//! In-memory search of small texts, such as the descriptions of all functions: BM25 and embeddings, fused as for
//! documents.
//!
//! The index is rebuilt whenever the texts change, and never stored. A user who looks for a function does not know its
//! words. So query words are expanded by synonyms and by the nearest terms in the embedding space, and the verb of the
//! query is compared with the verb of the function.

use crate::analyzer::{Analyzer, StemCache, expand_abbreviation, is_identifier, query_words};
use crate::fuse::{ScorePair, fuse};
use crate::synonyms::synonyms;
use crate::verbs;
use ctx_embed::Model;
use ctx_embed::vector::{dots, quantize};
use std::collections::{HashMap, HashSet};
use std::thread;

/// Weights of a word by the part of the text in which it stands.
const NAME_WEIGHT: f32 = 3.0;
const LEAD_WEIGHT: f32 = 2.0;
const REST_WEIGHT: f32 = 0.5;
const DETAIL_WEIGHT: f32 = 0.3;

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

/// An in-memory index of small texts.
pub struct SmallTextIndex {
    postings: HashMap<String, Vec<Posting>>,
    /// Weighted number of words of each text.
    lengths: Vec<f32>,
    length_mean: f32,
    /// The action of each text, by its verbs.
    actions: Vec<u8>,
    vectors: Vec<Vec<f32>>,
    vocabulary: TermEmbeddings,
}

/// A posting: a term's occurrences in one text.
struct Posting {
    text: usize,
    /// Number of occurrences, each with the weight of its part of the text.
    weight: f32,
}

/// The terms of names and first paragraphs, each with the embedding of a word that has it as its stem.
#[derive(Default)]
struct TermEmbeddings {
    terms: Vec<String>,
    /// Quantized vectors, one row for each term, and the scale of each row.
    codes: Vec<i8>,
    scales: Vec<f32>,
}

impl SmallTextIndex {
    /// Indexes the texts. Blocks, for some milliseconds per hundred texts.
    pub fn new(texts: &[SmallText<'_>]) -> Self {
        let (words, mut stems) = (Analyzer::without_stemming(true), StemCache::default());
        let mut postings_by_term: HashMap<String, Vec<Posting>> = HashMap::new();
        // A word for each term, in order of appearance.
        let mut term_words: Vec<(String, String)> = Vec::new();
        let mut seen: HashSet<String> = HashSet::new();
        let (mut lengths, mut actions) = (Vec::with_capacity(texts.len()), Vec::with_capacity(texts.len()));
        for (text, small) in texts.iter().enumerate() {
            let (lead, rest) = small.lead();
            let parts = [
                (small.name, NAME_WEIGHT),
                (lead, LEAD_WEIGHT),
                (rest, REST_WEIGHT),
                (small.detail, DETAIL_WEIGHT),
            ];
            let parts = parts.map(|(part, weight)| (words.tokens(part).collect::<Vec<_>>(), weight));
            let [(name, _), (lead, _), ..] = &parts;
            actions.push(verbs::function_actions(
                name.iter().map(String::as_str),
                lead.first().map(String::as_str),
            ));
            let mut length = 0.0;
            for (words, weight) in &parts {
                for word in words {
                    length += weight;
                    let term = stems.stem(word);
                    if *weight >= LEAD_WEIGHT && is_plain(word) && !seen.contains(term) {
                        seen.insert(term.to_owned());
                        term_words.push((term.to_owned(), word.clone()));
                    }
                    match postings_by_term.get_mut(term) {
                        Some(postings) => add_occurrence(postings, text, *weight),
                        None => drop(
                            postings_by_term.insert(term.to_owned(), vec![Posting { text, weight: *weight }]),
                        ),
                    }
                }
            }
            lengths.push(length);
        }
        let length_mean = (lengths.iter().sum::<f32>() / lengths.len().max(1) as f32).max(1.0);
        let embedded_texts: Vec<String> = texts.iter().map(embedded_text).collect();
        let embedded_texts: Vec<&str> = embedded_texts.iter().map(String::as_str).collect();
        let vocabulary = TermEmbeddings::of(term_words);
        Self {
            postings: postings_by_term,
            lengths,
            length_mean,
            actions,
            vectors: embed(&embedded_texts),
            vocabulary,
        }
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
            let action = self.actions.get(one.place.0 as usize).copied().unwrap_or_default();
            one.score += VERB_WEIGHT * verbs::agreement(query_action, action);
        }
        fused.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.place.cmp(&b.place)));
        fused.into_iter().take(limit).map(|one| one.place.0 as usize).collect()
    }

    /// BM25 score of each text, with weights by where words stand. A word of the query counts once, in the form that
    /// matches a text best: itself, a synonym or a neighbour.
    fn keyword_scores(&self, query: &str) -> Vec<f32> {
        let mut scores = vec![0.0; self.lengths.len()];
        let mut stems = StemCache::default();
        for (word, counts) in query_words(query) {
            let others = expand_abbreviation(&word).iter().chain(synonyms(&word));
            let mut forms: Vec<(String, f32)> =
                others.map(|other| (stems.stem(other).to_owned(), 1.0)).collect();
            if counts {
                forms.push((stems.stem(&word).to_owned(), 1.0));
                forms.extend(self.vocabulary.nearest_terms(&word));
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
        let postings = self.postings.get(term).map(Vec::as_slice).unwrap_or_default();
        let (all, matching) = (self.lengths.len() as f32, postings.len() as f32);
        let idf = (1.0 + (all - matching + 0.5) / (matching + 0.5)).ln();
        let factor = if is_identifier(term) { IDENTIFIER_WEIGHT } else { 1.0 };
        postings.iter().map(move |Posting { text, weight }| {
            let length = self.lengths.get(*text).copied().unwrap_or_default() / self.length_mean;
            let saturation = BM25_K1 * (1.0 - BM25_B + BM25_B * length);
            (*text, factor * idf * weight / (weight + saturation))
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
        let near = |vector: &Vec<f32>| vector.iter().zip(&query).map(|(a, b)| a * b).sum::<f32>();
        self.vectors.iter().map(near).collect()
    }
}

impl TermEmbeddings {
    /// Embeds terms, each by the word that comes with it.
    fn of(term_words: Vec<(String, String)>) -> Self {
        let words: Vec<&str> = term_words.iter().map(|(_, word)| word.as_str()).collect();
        let mut embeddings = Self::default();
        for vector in embed(&words) {
            let (codes, scale) = quantize(&vector);
            embeddings.codes.extend(codes);
            embeddings.scales.push(scale);
        }
        embeddings.terms = term_words.into_iter().map(|(term, _)| term).collect();
        embeddings
    }

    /// The terms nearest to a word, with their weights.
    fn nearest_terms(&self, word: &str) -> Vec<(String, f32)> {
        if !is_plain(word) {
            return Vec::new();
        }
        let (query, scale) = quantize(&embed_one(word));
        let mut products = vec![0; self.scales.len()];
        dots(&query, &self.codes, &mut products);
        let nearness = products.iter().zip(&self.scales).map(|(product, row)| *product as f32 * scale * row);
        let mut near: Vec<(f32, &String)> =
            nearness.zip(&self.terms).filter(|(nearness, _)| *nearness >= NEIGHBOUR_MIN).collect();
        near.sort_by(|(a, a_term), (b, b_term)| b.total_cmp(a).then(a_term.cmp(b_term)));
        near.truncate(NEIGHBOURS_MAX);
        near.into_iter().map(|(nearness, term)| (term.clone(), NEIGHBOUR_WEIGHT * nearness)).collect()
    }
}

/// Embeds texts with the built-in model that is fast enough for callers to wait.
fn embed(texts: &[&str]) -> Vec<Vec<f32>> {
    Model::Fast.embed(texts, thread::available_parallelism().map_or(1, usize::from))
}

fn embed_one(text: &str) -> Vec<f32> {
    embed(&[text]).pop().unwrap_or_default()
}

/// Adds an occurrence of a term to a text.
fn add_occurrence(postings: &mut Vec<Posting>, text: usize, weight: f32) {
    match postings.last_mut().filter(|last| last.text == text) {
        Some(last) => last.weight += weight,
        None => postings.push(Posting { text, weight }),
    }
}

/// Whether a word has only letters, unlike an identifier or compound name.
fn is_plain(word: &str) -> bool {
    word.chars().all(char::is_alphabetic)
}

/// The text that is embedded: the name as separate words, and the first paragraph.
fn embedded_text(text: &SmallText<'_>) -> String {
    format!("{}: {}", text.name.replace(['_', '.'], " "), text.lead().0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
