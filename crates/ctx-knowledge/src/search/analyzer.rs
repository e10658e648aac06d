//! Adapts the text analysis of [`ctx_rank`] to a tokenizer of tantivy.

pub(super) use ctx_rank::{is_identifier, query_prefix, query_terms};

use ctx_rank::{Analyzer, RecentStems, Tokens};
use tantivy::tokenizer::{TextAnalyzer, Token, TokenStream, Tokenizer};

/// The analyzer that splits documents into terms.
pub(super) fn analyzer() -> TextAnalyzer {
    TextAnalyzer::builder(DocumentTokenizer::default()).build()
}

#[derive(Clone, Debug, Default)]
struct DocumentTokenizer {
    token: Token,
    recent_stems: RecentStems,
}

impl Tokenizer for DocumentTokenizer {
    type TokenStream<'a> = DocumentTokens<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> DocumentTokens<'a> {
        self.token.reset();
        let tokens = Analyzer::DOCUMENTS.tokens_with(text, &mut self.recent_stems);
        DocumentTokens { tokens, token: &mut self.token }
    }
}

struct DocumentTokens<'a> {
    tokens: Tokens<'a>,
    token: &'a mut Token,
}

impl TokenStream for DocumentTokens<'_> {
    fn advance(&mut self) -> bool {
        let Some(place) = self.tokens.next_into(&mut self.token.text) else { return false };
        self.token.position = place.position;
        self.token.offset_from = place.range.start;
        self.token.offset_to = place.range.end;
        true
    }

    fn token(&self) -> &Token {
        self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        self.token
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tantivy::tokenizer::{
        AsciiFoldingFilter, Language, LowerCaser, RawTokenizer, RemoveLongFilter, Stemmer,
    };

    /// The terms of one word by tantivy's own filters, with which the index was first built.
    fn filtered(word: &str) -> Vec<String> {
        let mut analyzer = TextAnalyzer::builder(RawTokenizer::default())
            .filter(RemoveLongFilter::limit(100))
            .filter(LowerCaser)
            .filter(AsciiFoldingFilter)
            .filter(Stemmer::new(Language::English))
            .build();
        tokens(&mut analyzer, word)
    }

    fn tokens(analyzer: &mut TextAnalyzer, text: &str) -> Vec<String> {
        let mut stream = analyzer.token_stream(text);
        let mut tokens = Vec::new();
        while let Some(token) = stream.next() {
            tokens.push(token.text.clone());
        }
        tokens
    }

    #[test]
    fn every_letter_becomes_what_the_filters_of_the_index_make_of_it() {
        let mut analyzer = analyzer();
        for letter in ('\0'..=char::MAX).filter(|char| char.is_alphanumeric()) {
            let word = letter.to_string();
            assert_eq!(tokens(&mut analyzer, &word), filtered(&word), "{letter}");
        }
    }

    proptest! {
        #[test]
        fn every_word_becomes_what_the_filters_of_the_index_make_of_it(word in "[a-zàéîßøœ]{1,24}|[A-Z]?[a-z]{1,110}") {
            prop_assert_eq!(tokens(&mut analyzer(), &word), filtered(&word));
        }
    }

    #[test]
    fn words_that_are_too_long_keep_their_place() {
        let text = format!("before {} after", "x".repeat(100));
        let mut analyzer = analyzer();
        let mut stream = analyzer.token_stream(&text);
        let mut places = Vec::new();
        while let Some(token) = stream.next() {
            places.push((token.text.clone(), token.position, token.offset_from));
        }
        assert_eq!(places, [("befor".to_owned(), 0, 0), ("after".to_owned(), 2, 108)]);
    }
}
