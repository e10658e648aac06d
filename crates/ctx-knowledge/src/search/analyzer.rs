//! Text to index terms: the same for documents, queries and snippets.

use std::collections::HashSet;
use tantivy::tokenizer::{
    AsciiFoldingFilter, Language, LowerCaser, RemoveLongFilter, SimpleTokenizer, Stemmer, TextAnalyzer,
};

/// Words longer than this many bytes are not indexed.
const WORD_LENGTH_MAX: usize = 100;
/// Terms of a query that are looked for; the rest of a very long one is ignored.
const QUERY_TERMS_MAX: usize = 64;
/// Bytes of a query that are read at all.
const QUERY_BYTES_MAX: usize = 16 << 10;

/// Words that say nothing about what is asked. Dropped from queries only, so that a query of
/// nothing else still finds something.
const STOP_WORDS: [&str; 76] = [
    "a", "about", "after", "all", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by",
    "can", "could", "did", "do", "does", "for", "from", "had", "has", "have", "he", "her", "his", "how", "i",
    "if", "in", "into", "is", "it", "its", "me", "my", "no", "not", "of", "on", "or", "our", "she", "should",
    "so", "some", "such", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this",
    "to", "was", "we", "were", "what", "when", "where", "which", "who", "whom", "why", "will", "with",
    "would", "you", "your", "us",
];

/// Splits into words, lowercases, folds accents, stems English.
pub(super) fn analyzer() -> TextAnalyzer {
    TextAnalyzer::builder(SimpleTokenizer::default())
        .filter(RemoveLongFilter::limit(WORD_LENGTH_MAX))
        .filter(LowerCaser)
        .filter(AsciiFoldingFilter)
        .filter(Stemmer::new(Language::English))
        .build()
}

/// The same without stemming.
fn words() -> TextAnalyzer {
    TextAnalyzer::builder(SimpleTokenizer::default())
        .filter(RemoveLongFilter::limit(WORD_LENGTH_MAX))
        .filter(LowerCaser)
        .filter(AsciiFoldingFilter)
        .build()
}

/// The distinct terms of a query, in order.
pub(super) fn query_terms(text: &str) -> Vec<String> {
    let text = &text[..text.floor_char_boundary(QUERY_BYTES_MAX)];
    let words = tokens(&mut self::words(), text);
    let telling: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| !STOP_WORDS.contains(word)).collect();
    let chosen = if telling.is_empty() { words.iter().map(String::as_str).collect() } else { telling };

    let mut stemmer = analyzer();
    let mut seen = HashSet::new();
    chosen
        .into_iter()
        .flat_map(|word| tokens(&mut stemmer, word))
        .filter(|term| seen.insert(term.clone()))
        .take(QUERY_TERMS_MAX)
        .collect()
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
    fn accents_and_case_do_not_matter() {
        assert_eq!(query_terms("Café"), query_terms("cafe"));
    }
}
