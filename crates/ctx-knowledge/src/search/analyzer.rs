//! Text to index terms: the same for documents, queries and snippets.

use super::words::Words;
use std::collections::{HashMap, HashSet};
use tantivy::tokenizer::{
    AsciiFoldingFilter, Language, LowerCaser, RawTokenizer, RemoveLongFilter, Stemmer, TextAnalyzer,
};

/// Words longer than this many bytes are not indexed.
const WORD_LENGTH_MAX: usize = 100;
/// Terms of a query that are looked for; the rest of a very long one is ignored.
const QUERY_TERMS_MAX: usize = 64;
/// Bytes of a query that are read at all.
const QUERY_BYTES_MAX: usize = 16 << 10;

/// A number of fewer digits is an amount and not a name.
const NUMBER_DIGITS_MIN: usize = 3;
/// A beginning shorter than this could be the beginning of too much.
const PREFIX_CHARS_MIN: usize = 2;

/// Words that say nothing about what is asked, and what is left of contractions. Dropped from
/// queries only, so that a query of nothing else still finds something. Sorted.
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

/// What people type for short, and the words that pages spell out. Sorted.
const SHORT_FORMS: &[(&str, &[&str])] = &[
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

/// Splits into words, lowercases, folds accents, stems English. For documents.
pub(super) fn analyzer() -> TextAnalyzer {
    TextAnalyzer::builder(Words::new(true))
        .filter(RemoveLongFilter::limit(WORD_LENGTH_MAX))
        .filter(LowerCaser)
        .filter(AsciiFoldingFilter)
        .filter(Stemmer::new(Language::English))
        .build()
}

/// The same without stemming; queries also go without single letters.
pub(super) fn words(single_letters: bool) -> TextAnalyzer {
    TextAnalyzer::builder(Words::new(single_letters))
        .filter(RemoveLongFilter::limit(WORD_LENGTH_MAX))
        .filter(LowerCaser)
        .filter(AsciiFoldingFilter)
        .build()
}

/// Stems one word.
fn stemmer() -> TextAnalyzer {
    TextAnalyzer::builder(RawTokenizer::default()).filter(Stemmer::new(Language::English)).build()
}

/// What words become by stemming, each found out once.
pub(super) struct Stems {
    stemmer: TextAnalyzer,
    known: HashMap<String, String>,
}

impl Default for Stems {
    fn default() -> Self {
        Self { stemmer: stemmer(), known: HashMap::new() }
    }
}

impl Stems {
    pub(super) fn of(&mut self, word: &str) -> &str {
        if !self.known.contains_key(word) {
            let stem = tokens(&mut self.stemmer, word).pop().unwrap_or_default();
            self.known.insert(word.to_owned(), stem);
        }
        self.known.get(word).map(String::as_str).unwrap_or_default()
    }
}

/// The distinct words of a query as they stand there, and whether they say something; when none does, all do.
pub(super) fn query_words(text: &str) -> Vec<(String, bool)> {
    let text = &text[..text.floor_char_boundary(QUERY_BYTES_MAX)];
    let says = |word: &str| STOP_WORDS.binary_search(&word).is_err();
    let mut seen = HashSet::new();
    let found = tokens(&mut words(false), text).into_iter().filter(|word| seen.insert(word.clone()));
    let found: Vec<String> = found.take(QUERY_TERMS_MAX).collect();
    let any = found.iter().any(|word| says(word));
    found.into_iter().map(|word| (!any || says(&word), word)).map(|(telling, word)| (word, telling)).collect()
}

/// The distinct terms of a query, in order.
pub(super) fn query_terms(text: &str) -> Vec<String> {
    let text = &text[..text.floor_char_boundary(QUERY_BYTES_MAX)];
    let words = tokens(&mut self::words(false), text);
    let telling: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| STOP_WORDS.binary_search(word).is_err()).collect();
    let chosen = if telling.is_empty() { words.iter().map(String::as_str).collect() } else { telling };

    let spelt_out = chosen.iter().flat_map(|word| spelt_out(word)).copied().collect::<Vec<_>>();
    let mut stemmer = stemmer();
    let mut seen = HashSet::new();
    chosen
        .into_iter()
        .chain(spelt_out)
        .flat_map(|word| tokens(&mut stemmer, word))
        .filter(|term| seen.insert(term.clone()))
        .take(QUERY_TERMS_MAX)
        .collect()
}

/// The words that a short form stands for; none for other words.
pub(super) fn spelt_out(word: &str) -> &'static [&'static str] {
    SHORT_FORMS.binary_search_by_key(&word, |(short, _)| short).map_or(&[], |found| SHORT_FORMS[found].1)
}

/// Whether a term is a name that somebody made up, like `e4033`, `429` or `park_after_failures`, and
/// not a word of a language: who asks for it wants exactly that.
pub(super) fn is_identifier(term: &str) -> bool {
    let digits = term.bytes().filter(u8::is_ascii_digit).count();
    // A hyphen joins ordinary words.
    let is_joined = term.bytes().any(|byte| byte.is_ascii_punctuation() && byte != b'-');
    is_joined || digits >= NUMBER_DIGITS_MIN || digits > 0 && digits < term.len() && term.is_ascii()
}

/// What the last word of a query may be the beginning of; nothing when it was ended by a space.
pub(super) fn query_prefix(text: &str) -> Option<String> {
    let last = text.split_whitespace().last().filter(|_| !text.ends_with(char::is_whitespace))?;
    tokens(&mut words(false), last).pop().filter(|word| word.chars().count() >= PREFIX_CHARS_MIN)
}

/// The tokens of a text, in order.
pub(super) fn tokens(analyzer: &mut TextAnalyzer, text: &str) -> Vec<String> {
    let mut stream = analyzer.token_stream(text);
    let mut tokens = Vec::new();
    while let Some(token) = stream.next() {
        tokens.push(token.text.clone());
    }
    tokens
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
    fn short_forms_are_also_looked_for_as_pages_spell_them_out() {
        assert_eq!(query_terms("How big may a PR be?"), ["big", "pr", "pull", "request"]);
        assert_eq!(query_terms("prod database db"), ["prod", "databas", "db", "product"]);
        assert!(SHORT_FORMS.is_sorted());
    }

    #[test]
    fn names_are_told_from_words() {
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
