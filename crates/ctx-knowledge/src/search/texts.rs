//! Small texts in memory, ranked as documents are: by words and by meaning, made one.
//!
//! For lists that are made anew whenever they change and never stored, as that of all functions is.

use super::analyzer;
use super::fuse::{Pair, fuse};
use crate::embed::{Effort, EmbedError, Embedder, fast};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How much a word counts where it stands.
const NAME_WEIGHT: f32 = 3.0;
const ABOUT_WEIGHT: f32 = 1.0;
const DETAIL_WEIGHT: f32 = 0.4;

/// How much more a name that somebody made up counts than a word, as in the index of documents.
const IDENTIFIER_WEIGHT: f32 = 2.0;

/// BM25's two numbers: how soon a word that comes again stops counting, and how much length matters.
const SATURATION: f32 = 1.2;
const LENGTH_WEIGHT: f32 = 0.5;

/// Texts taken by words, and by meaning, to be weighed.
const CANDIDATES: usize = 100;

/// What has none of the words must be at least so near in meaning, as a cosine.
const MEANING_MIN: f32 = 0.4;

/// Bytes of what is said of a text that its meaning is made of.
const MEANING_BYTES_MAX: usize = 1_000;

/// One small text.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmallText<'a> {
    /// What it is called.
    pub name: &'a str,
    /// What is said of it.
    pub about: &'a str,
    /// Further words that it may be found by.
    pub detail: &'a str,
}

/// Many small texts.
pub struct SmallTexts {
    words: HashMap<String, Vec<Posting>>,
    /// Weighted words of each text.
    lengths: Vec<f32>,
    length_mean: f32,
    vectors: Vec<Vec<f32>>,
    embedder: Arc<dyn Embedder>,
}

/// A word's place in one text.
struct Posting {
    text: usize,
    /// How often, weighted by where.
    weight: f32,
    in_name: bool,
}

impl SmallTexts {
    /// Reads them all. Blocks for as long as that takes: some milliseconds for a thousand.
    pub fn new(texts: &[SmallText<'_>]) -> Result<Self, EmbedError> {
        let mut analyzer = analyzer::analyzer();
        let mut words: HashMap<String, Vec<Posting>> = HashMap::new();
        let mut lengths = Vec::with_capacity(texts.len());
        for (text, small) in texts.iter().enumerate() {
            let mut length = 0.0;
            let parts =
                [(small.name, NAME_WEIGHT), (small.about, ABOUT_WEIGHT), (small.detail, DETAIL_WEIGHT)];
            for (place, (part, weight)) in parts.into_iter().enumerate() {
                for word in analyzer::tokens(&mut analyzer, part) {
                    length += weight;
                    let postings = words.entry(word).or_default();
                    match postings.last_mut().filter(|last| last.text == text) {
                        Some(last) => last.weight += weight,
                        None => postings.push(Posting { text, weight, in_name: place == 0 }),
                    }
                }
            }
            lengths.push(length);
        }
        let length_mean = (lengths.iter().sum::<f32>() / lengths.len().max(1) as f32).max(1.0);
        let embedder = fast();
        let meanings: Vec<String> = texts.iter().map(meaning).collect();
        let meanings: Vec<&str> = meanings.iter().map(String::as_str).collect();
        let vectors = embedder.embed(&meanings, Effort::Full)?;
        Ok(Self { words, lengths, length_mean, vectors, embedder })
    }

    /// The places of those that answer best, best first, of those that are `wanted`.
    pub fn best(
        &self,
        query: &str,
        limit: usize,
        wanted: impl Fn(usize) -> bool,
    ) -> Result<Vec<usize>, EmbedError> {
        let by_words = self.by_words(query, &wanted);
        let by_meaning = self.by_meaning(query, &wanted)?;
        let mut candidates: HashSet<usize> = HashSet::new();
        for scores in [&by_words, &by_meaning] {
            let mut best: Vec<(&usize, &f32)> = scores.iter().collect();
            best.sort_by(|(a, a_score), (b, b_score)| b_score.total_cmp(a_score).then(a.cmp(b)));
            candidates.extend(best.into_iter().take(CANDIDATES.max(limit)).map(|(text, _)| *text));
        }
        let pairs: Vec<Pair> = candidates
            .into_iter()
            .map(|text| Pair {
                place: (text as u64, 0),
                keyword: by_words.get(&text).copied().unwrap_or_default(),
                vector: by_meaning.get(&text).copied(),
                group: 0,
            })
            .collect();
        let mut fused = fuse(&pairs, &[self.embedder.weight()]);
        // What is far from the query is weighed with the others, since they are measured by it.
        fused.retain(|one| one.keyword > 0.0 || one.vector.is_some_and(|score| score >= MEANING_MIN));
        fused.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.place.cmp(&b.place)));
        Ok(fused.into_iter().take(limit).map(|one| one.place.0 as usize).collect())
    }

    /// The score of each text that has some of the words (BM25, with weights for where they stand).
    fn by_words(&self, query: &str, wanted: impl Fn(usize) -> bool) -> HashMap<usize, f32> {
        let telling = analyzer::query_terms(query);
        // `get` says nothing in a sentence and much in a name.
        let others = analyzer::every_term(query).into_iter().filter(|term| !telling.contains(term));
        let terms = telling.iter().map(|term| (term.clone(), false)).chain(others.map(|term| (term, true)));
        let mut scores: HashMap<usize, f32> = HashMap::new();
        for (term, only_in_names) in terms {
            let Some(postings) = self.words.get(&term) else { continue };
            let (all, having) = (self.lengths.len() as f32, postings.len() as f32);
            let rarity = (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
            let factor = if analyzer::is_identifier(&term) { IDENTIFIER_WEIGHT } else { 1.0 };
            let counts = |posting: &&Posting| (posting.in_name || !only_in_names) && wanted(posting.text);
            for Posting { text, weight, .. } in postings.iter().filter(counts) {
                let length = self.lengths.get(*text).copied().unwrap_or_default() / self.length_mean;
                let saturation = SATURATION * (1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * length);
                *scores.entry(*text).or_default() += factor * rarity * weight / (weight + saturation);
            }
        }
        scores
    }

    /// How near each text is in meaning; none where the query means nothing.
    fn by_meaning(
        &self,
        query: &str,
        wanted: impl Fn(usize) -> bool,
    ) -> Result<HashMap<usize, f32>, EmbedError> {
        let query = &query[..query.floor_char_boundary(MEANING_BYTES_MAX)];
        let query = self.embedder.embed_query(query)?;
        let near = |vector: &[f32]| vector.iter().zip(&query).map(|(a, b)| a * b).sum::<f32>();
        let wanted = self.vectors.iter().enumerate().filter(|(text, _)| wanted(*text));
        Ok(wanted.map(|(text, vector)| (text, near(vector))).collect())
    }
}

/// What the meaning is made of: names as the words that they are of.
fn meaning(text: &SmallText<'_>) -> String {
    let about = &text.about[..text.about.floor_char_boundary(MEANING_BYTES_MAX)];
    format!("{}: {about}", text.name.replace(['_', '.'], " "))
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
        SmallText { name, about, detail }
    }

    fn best(query: &str) -> Vec<&'static str> {
        let texts = SmallTexts::new(&TEXTS).unwrap();
        texts.best(query, 10, |_| true).unwrap().into_iter().map(|text| TEXTS[text].name).collect()
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
        let texts = SmallTexts::new(&TEXTS).unwrap();
        assert_eq!(texts.best("create", 10, |text| text != 0).unwrap()[0], 3);
        assert_eq!(texts.best("issue", 1, |_| true).unwrap().len(), 1);
        assert!(texts.best("issue", 0, |_| true).unwrap().is_empty());
    }

    #[test]
    fn nonsense_and_nothing_find_nothing() {
        for query in ["", "  ", "?!", "zxqvy", "😀"] {
            assert_eq!(best(query), [""; 0], "{query}");
        }
        let none = SmallTexts::new(&[]).unwrap();
        assert!(none.best("anything", 5, |_| true).unwrap().is_empty());
    }
}
