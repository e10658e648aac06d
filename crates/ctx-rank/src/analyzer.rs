//! Text analysis: the same tokens for documents, queries and snippets.

use crate::folding::fold;
use crate::recent_stems::RecentStems;
use crate::words::WordRanges;
use frostem::{Algorithm, Stemmer};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Words of this many bytes or more are not indexed.
const WORD_BYTES_MAX: usize = 100;
/// Maximum number of query terms; the rest of a very long query is ignored.
const QUERY_TERMS_MAX: usize = 64;
/// Maximum bytes of a query that are analysed.
const QUERY_BYTES_MAX: usize = 16 << 10;

/// Minimum number of digits of an identifier such as `429`; a shorter number is an amount.
const NUMBER_DIGITS_MIN: usize = 3;
/// Minimum characters of a prefix; a shorter one matches too many words.
const PREFIX_CHARS_MIN: usize = 2;

/// Stop words, and the remains of contractions. Removed from queries only, so that a query of nothing but stop words
/// still finds something. Sorted.
const STOP_WORDS: [&str; 125] = [
    "a", "about", "after", "all", "also", "am", "an", "and", "any", "are", "aren", "as", "at", "be",
    "because", "been", "between", "both", "but", "by", "can", "could", "couldn", "d", "did", "didn", "do",
    "does", "doesn", "don", "during", "each", "few", "for", "from", "get", "gets", "got", "had", "hadn",
    "has", "hasn", "have", "haven", "he", "her", "his", "how", "i", "if", "in", "into", "is", "isn", "it",
    "its", "just", "ll", "m", "many", "may", "me", "might", "more", "most", "much", "must", "my", "no",
    "not", "of", "on", "only", "or", "other", "our", "own", "re", "s", "same", "shall", "she", "should",
    "shouldn", "so", "some", "such", "t", "than", "that", "the", "their", "them", "then", "there", "these",
    "they", "this", "through", "to", "too", "until", "us", "ve", "very", "was", "wasn", "we", "were",
    "weren", "what", "when", "where", "which", "while", "who", "whom", "why", "will", "with", "won", "would",
    "wouldn", "you", "your",
];

/// Abbreviations, with the words that pages spell out. Sorted.
const ABBREVIATIONS: &[(&str, &[&str])] = &[
    ("admin", &["administrator"]),
    ("auth", &["authentication"]),
    ("cert", &["certificate"]),
    ("certs", &["certificates"]),
    ("config", &["configuration"]),
    ("creds", &["credentials"]),
    ("db", &["database"]),
    ("dir", &["directory"]),
    ("docs", &["documentation"]),
    ("env", &["environment"]),
    ("infra", &["infrastructure"]),
    ("k8s", &["kubernetes"]),
    ("perf", &["performance"]),
    ("postgres", &["postgresql"]),
    ("pr", &["pull", "request"]),
    ("prod", &["production"]),
    ("prs", &["pull", "requests"]),
    ("repo", &["repository"]),
    ("repos", &["repositories"]),
];

/// Splits texts into tokens: words, in lower case, without accents, and stemmed (English) if configured.
#[derive(Clone, Copy, Debug)]
pub struct Analyzer {
    single_letters: bool,
    stems: bool,
}

impl Analyzer {
    /// Analysis of documents: stems, and single letters of scripts without spaces.
    pub const DOCUMENTS: Self = Self { single_letters: true, stems: true };

    /// Analysis without stemming; queries also go without single letters.
    pub(crate) const fn without_stemming(single_letters: bool) -> Self {
        Self { single_letters, stems: false }
    }

    /// The tokens of a text, in order.
    pub fn tokens<'a>(&self, text: &'a str) -> Tokens<'a> {
        Tokens {
            text,
            words: WordRanges::new(text, self.single_letters),
            stemmer: self.stems.then(|| Stemmer::new(Algorithm::English)),
            recent_stems: None,
            position: 0,
            buffer: String::new(),
        }
    }

    /// The tokens of a text, in order; stems are looked up in the cache first.
    pub fn tokens_with<'a>(&self, text: &'a str, recent_stems: &'a mut RecentStems) -> Tokens<'a> {
        Tokens { recent_stems: Some(recent_stems), ..self.tokens(text) }
    }
}

/// Iterator over the tokens of a text.
pub struct Tokens<'a> {
    text: &'a str,
    words: WordRanges<'a>,
    stemmer: Option<Stemmer>,
    recent_stems: Option<&'a mut RecentStems>,
    /// Position of the next word.
    position: usize,
    buffer: String,
}

/// Place of a token in its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPosition {
    /// Byte range in the text.
    pub range: Range<usize>,
    /// Index of the word in the text; words that are too long to be tokens count, too.
    pub position: usize,
}

impl Tokens<'_> {
    /// Writes the next token into `token` and returns its place; `None` after the last.
    pub fn next_into(&mut self, token: &mut String) -> Option<TokenPosition> {
        loop {
            let range = self.words.next()?;
            let position = self.position;
            self.position += 1;
            let word = self.text.get(range.clone()).unwrap_or_default();
            if word.len() < WORD_BYTES_MAX {
                self.normalize(word, token);
                return Some(TokenPosition { range, position });
            }
        }
    }

    fn normalize(&mut self, word: &str, token: &mut String) {
        token.clear();
        if word.is_ascii() {
            token.push_str(word);
            token.make_ascii_lowercase();
        } else {
            self.buffer.clear();
            // Letter by letter, because `str::to_lowercase` treats a final sigma differently.
            self.buffer.extend(word.chars().flat_map(char::to_lowercase));
            match self.buffer.is_ascii() {
                true => token.push_str(&self.buffer),
                false => fold(&self.buffer, token),
            }
        }
        let Some(stemmer) = &self.stemmer else { return };
        let mut stem = |word: &mut String| stem_in_place(stemmer, word, &mut self.buffer);
        match &mut self.recent_stems {
            Some(recent_stems) => recent_stems.replace(token, stem),
            None => stem(token),
        }
    }
}

impl Iterator for Tokens<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut token = String::new();
        self.next_into(&mut token).map(|_| token)
    }
}

fn stem_in_place(stemmer: &Stemmer, word: &mut String, buffer: &mut String) {
    match stemmer.stem(word) {
        Cow::Owned(stem) => *word = stem,
        Cow::Borrowed(stem) if stem.len() == word.len() => {}
        Cow::Borrowed(stem) => {
            buffer.clear();
            buffer.push_str(stem);
            std::mem::swap(word, buffer);
        }
    }
}

/// A stemmer that caches its results.
pub(crate) struct StemCache {
    stemmer: Stemmer,
    stems: HashMap<String, String>,
}

impl Default for StemCache {
    fn default() -> Self {
        Self { stemmer: Stemmer::new(Algorithm::English), stems: HashMap::new() }
    }
}

impl StemCache {
    pub(crate) fn stem(&mut self, word: &str) -> &str {
        if !self.stems.contains_key(word) {
            let stem = self.stemmer.stem(word).into_owned();
            self.stems.insert(word.to_owned(), stem);
        }
        self.stems.get(word).map(String::as_str).unwrap_or_default()
    }
}

/// The distinct words of a query, each with whether it counts. Stop words do not, unless there is nothing else.
pub(crate) fn query_words(text: &str) -> Vec<(String, bool)> {
    let text = &text[..text.floor_char_boundary(QUERY_BYTES_MAX)];
    let is_content_word = |word: &str| STOP_WORDS.binary_search(&word).is_err();
    let mut seen = HashSet::new();
    let found = Analyzer::without_stemming(false).tokens(text).filter(|word| seen.insert(word.clone()));
    let found: Vec<String> = found.take(QUERY_TERMS_MAX).collect();
    let has_content_word = found.iter().any(|word| is_content_word(word));
    found
        .into_iter()
        .map(|word| (!has_content_word || is_content_word(&word), word))
        .map(|(counts, word)| (word, counts))
        .collect()
}

/// The distinct terms of a query, in order: stems of its words without stop words, and of spelt-out abbreviations.
pub fn query_terms(text: &str) -> Vec<String> {
    let text = &text[..text.floor_char_boundary(QUERY_BYTES_MAX)];
    let words: Vec<String> = Analyzer::without_stemming(false).tokens(text).collect();
    let content_words: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| STOP_WORDS.binary_search(word).is_err()).collect();
    let query_words =
        if content_words.is_empty() { words.iter().map(String::as_str).collect() } else { content_words };

    let expansions =
        query_words.iter().flat_map(|word| expand_abbreviation(word)).copied().collect::<Vec<_>>();
    let stemmer = Stemmer::new(Algorithm::English);
    let mut seen = HashSet::new();
    query_words
        .into_iter()
        .chain(expansions)
        .map(|word| stemmer.stem(word).into_owned())
        .filter(|term| seen.insert(term.clone()))
        .take(QUERY_TERMS_MAX)
        .collect()
}

/// The words that an abbreviation stands for; none for other words.
pub(crate) fn expand_abbreviation(word: &str) -> &'static [&'static str] {
    ABBREVIATIONS.binary_search_by_key(&word, |(short, _)| short).map_or(&[], |found| ABBREVIATIONS[found].1)
}

/// Whether a term is an identifier, such as `e4033`, `429` or `park_after_failures`, and not an ordinary word. A query
/// with an identifier asks for exactly that.
pub fn is_identifier(term: &str) -> bool {
    let digits = term.bytes().filter(u8::is_ascii_digit).count();
    // A hyphen joins ordinary words.
    let is_joined = term.bytes().any(|byte| byte.is_ascii_punctuation() && byte != b'-');
    is_joined || digits >= NUMBER_DIGITS_MIN || digits > 0 && digits < term.len() && term.is_ascii()
}

/// The prefix to complete: the last word of a query, unless whitespace follows it or it is too short.
pub fn query_prefix(text: &str) -> Option<String> {
    let last = text.split_whitespace().last().filter(|_| !text.ends_with(char::is_whitespace))?;
    Analyzer::without_stemming(false)
        .tokens(last)
        .last()
        .filter(|word| word.chars().count() >= PREFIX_CHARS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_words_go_unless_they_are_all_there_is() {
        assert_eq!(query_terms("How do we restore the backups?"), ["restor", "backup"]);
        assert_eq!(query_terms("to be or not to be"), ["to", "be", "or", "not"]);
    }

    #[test]
    fn no_text_is_a_syntax_error() {
        assert_eq!(query_terms("AND"), ["and"]);
        assert_eq!(query_terms("NEAR("), ["near"]);
        for nothing in ["\"", "*", "😀", "", "()", "\u{0}"] {
            assert_eq!(query_terms(nothing), Vec::<String>::new(), "{nothing}");
        }
        assert_eq!(query_terms(&"word ".repeat(25_000)), ["word"]);
        let many: String = (0..50_000).map(|n| format!("w{n} ")).collect();
        assert_eq!(query_terms(&many).len(), QUERY_TERMS_MAX);
    }

    #[test]
    fn abbreviations_are_also_searched_spelt_out() {
        assert_eq!(query_terms("How big may a PR be?"), ["big", "pr", "pull", "request"]);
        assert_eq!(query_terms("prod database db"), ["prod", "databas", "db", "product"]);
        assert!(ABBREVIATIONS.is_sorted());
    }

    #[test]
    fn identifiers_are_distinguished_from_words() {
        for name in ["e4033", "429", "fw-17", "park_after_failures", "k8s", "src/lib.rs"] {
            assert!(is_identifier(name), "{name}");
        }
        for word in ["backup", "boundary-layer", "12", "障害", "naïve", ""] {
            assert!(!is_identifier(word), "{word}");
        }
    }

    #[test]
    fn accents_and_case_do_not_matter() {
        assert_eq!(query_terms("Café"), query_terms("cafe"));
    }
}
