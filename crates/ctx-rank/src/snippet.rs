//! Snippets: the part of a text that matches a query, and highlighting of the matched words.

use crate::analyzer::{Analyzer, query_prefix, query_terms};
use std::collections::HashSet;
use std::ops::Range;

/// Approximate length of a snippet in bytes.
const SNIPPET_BYTES: usize = 280;
/// Bytes of a snippet before the first match.
const LEAD_BYTES: usize = 60;
/// Maximum bytes of the heading path in a snippet.
const PATH_BYTES_MAX: usize = 120;

/// Finds the words of a query in search results.
pub struct Highlighter {
    terms: Vec<String>,
    prefix: Option<String>,
}

impl Highlighter {
    /// A highlighter for a query; with `prefix`, its last word also matches words that start with it.
    pub fn new(query: &str, prefix: bool) -> Self {
        let prefix = if prefix { query_prefix(query) } else { None };
        Self { terms: query_terms(query), prefix }
    }

    /// Byte ranges of the matched words, in order; those that touch or overlap are merged.
    pub fn ranges(&self, text: &str) -> Vec<Range<usize>> {
        let mut matcher =
            SnippetMatcher { prefix: self.prefix.as_deref(), ..SnippetMatcher::new(&self.terms) };
        matcher.initials.extend(self.prefix.iter().filter_map(|prefix| prefix.bytes().next()));
        let mut merged: Vec<Range<usize>> = Vec::new();
        for (range, _) in matcher.matches(text) {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }
}

/// Finds query terms in texts.
pub struct SnippetMatcher<'a> {
    terms: &'a [String],
    /// First bytes of all terms, to reject words without analysis.
    initials: Vec<u8>,
    /// A prefix that tokens may match instead of a term.
    prefix: Option<&'a str>,
    /// Buffer of the token that is being compared.
    token: String,
}

impl<'a> SnippetMatcher<'a> {
    /// A matcher for terms from [`query_terms`].
    pub fn new(terms: &'a [String]) -> Self {
        let initials = terms.iter().filter_map(|term| term.bytes().next()).collect();
        Self { terms, initials, prefix: None, token: String::new() }
    }

    /// The headings below the document's title, then the window of the text with the most distinct query terms, on one
    /// line.
    pub fn snippet(&mut self, heading: &str, text: &str, title: Option<&str>) -> String {
        let window = self.window(text);
        let path = strip_title(heading, title.unwrap_or_default());
        let path = &path[..path.floor_char_boundary(PATH_BYTES_MAX)];
        match (path, window.as_str()) {
            ("", window) => window.to_owned(),
            (path, "") => path.to_owned(),
            (path, window) => format!("{path}: {window}"),
        }
    }

    fn window(&mut self, text: &str) -> String {
        let matches: Vec<(usize, usize)> =
            self.matches(text).into_iter().map(|(range, term)| (range.start, term)).collect();
        let first = best_window(&matches);
        let start = word_start(text, first.saturating_sub(LEAD_BYTES));
        let end = word_end(text, (start + SNIPPET_BYTES).min(text.len()));
        let mut snippet = text[start..end].split_whitespace().collect::<Vec<_>>().join(" ");
        if start > 0 && !text[..start].trim().is_empty() {
            snippet.insert(0, '…');
        }
        if !text[end..].trim().is_empty() {
            snippet.push('…');
        }
        snippet
    }

    /// Matches of query terms: byte range, and index of the term.
    fn matches(&mut self, text: &str) -> Vec<(Range<usize>, usize)> {
        let mut found = Vec::new();
        let mut offset = 0;
        for word in text.split(char::is_whitespace) {
            let start = offset;
            // With the whitespace character that ended the word.
            offset += word.len() + text[offset + word.len()..].chars().next().map_or(0, char::len_utf8);
            if !self.may_match(word) {
                continue;
            }
            let mut tokens = Analyzer::DOCUMENTS.tokens(word);
            while let Some(place) = tokens.next_into(&mut self.token) {
                let is_prefixed = self.prefix.is_some_and(|prefix| self.token.starts_with(prefix));
                let term = self.terms.iter().position(|term| *term == self.token);
                if let Some(term) = term.or(is_prefixed.then_some(self.terms.len())) {
                    found.push((start + place.range.start..start + place.range.end, term));
                }
            }
        }
        // The analyzer returns a compound name after its parts.
        found.sort_unstable_by_key(|(range, term)| (range.start, *term));
        found
    }

    /// Fast rejection of most words, because analysis is slow. Analysis never changes the first letter of an ASCII
    /// word, and the words within a name start with a capital letter or after a character that is no letter.
    fn may_match(&self, word: &str) -> bool {
        let mut after_letter = false;
        !word.is_ascii()
            || word.bytes().any(|byte| {
                let starts_word = !after_letter || byte.is_ascii_uppercase();
                after_letter = byte.is_ascii_alphabetic();
                starts_word && self.initials.contains(&byte.to_ascii_lowercase())
            })
    }
}

/// A heading path without the document's title at its start.
fn strip_title<'a>(path: &'a str, title: &str) -> &'a str {
    match path.strip_prefix(title) {
        Some(rest) => rest.strip_prefix(" › ").unwrap_or(if rest.is_empty() { "" } else { path }),
        None => path,
    }
}

/// Offset of the match at which a snippet covers the most distinct terms.
fn best_window(matches: &[(usize, usize)]) -> usize {
    let mut best = (0, 0);
    for (index, (offset, _)) in matches.iter().enumerate() {
        let covered: HashSet<usize> = matches[index..]
            .iter()
            .take_while(|(other, _)| other - offset < SNIPPET_BYTES - LEAD_BYTES)
            .map(|(_, term)| *term)
            .collect();
        if covered.len() > best.0 {
            best = (covered.len(), *offset);
        }
    }
    best.1
}

fn word_start(text: &str, near: usize) -> usize {
    let near = text.floor_char_boundary(near);
    if near == 0 {
        return 0;
    }
    let window = &text[near..text.len().min(text.ceil_char_boundary(near + LEAD_BYTES))];
    window.find(char::is_whitespace).map_or(near, |space| near + space)
}

fn word_end(text: &str, near: usize) -> usize {
    let near = text.floor_char_boundary(near);
    if near == text.len() {
        return near;
    }
    let from = text.floor_char_boundary(near.saturating_sub(LEAD_BYTES));
    text[from..near].rfind(char::is_whitespace).map_or(near, |space| from + space)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn around(text: &str, terms: &[String]) -> String {
        SnippetMatcher::new(terms).snippet("", text, Some("Guide"))
    }

    #[test]
    fn a_snippet_finds_parts_of_names_and_of_runs() {
        let text = format!("{} then maxConnections rises", "filler ".repeat(100));
        assert!(around(&text, &query_terms("connections")).contains("maxConnections rises"));
        let text = format!("{}\u{3002}障害の復旧手順を読む", "本文".repeat(200));
        assert!(around(&text, &query_terms("復旧手順")).contains("復旧手順"));
    }

    #[test]
    fn a_snippet_shows_what_matched() {
        let text = format!("{} the queue backlog alert fires {}", "filler ".repeat(200), "more ".repeat(200));
        let snippet = around(&text, &query_terms("queue backlog"));
        assert!(snippet.contains("queue backlog alert"), "{snippet}");
        assert!(snippet.starts_with('…') && snippet.ends_with('…'));
    }

    fn highlighted<'t>(query: &str, prefix: bool, text: &'t str) -> Vec<&'t str> {
        Highlighter::new(query, prefix).ranges(text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn the_words_that_matched_are_highlighted() {
        assert_eq!(highlighted("how to restore", false, "To Restoring a store"), ["Restoring"]);
        assert_eq!(highlighted("connections", false, "maxConnections = 5"), ["Connections"]);
        assert_eq!(highlighted("max_connections", false, "set max_connections"), ["max_connections"]);
        assert_eq!(highlighted("back", false, "a backup"), [""; 0]);
        assert_eq!(highlighted("back", true, "a backup"), ["backup"]);
    }

    #[test]
    fn a_short_text_is_shown_whole() {
        assert_eq!(around("Push the\n  button.", &["button".to_owned()]), "Push the button.");
        assert_eq!(around("", &["button".to_owned()]), "");
    }

    proptest! {
        #[test]
        fn any_text_has_a_snippet(text in "(\\PC|\\s){0,600}", query in "\\PC{0,20}") {
            let snippet = around(&text, &query_terms(&query));
            prop_assert!(snippet.len() <= SNIPPET_BYTES + 16);
        }

        #[test]
        fn highlights_are_in_order_and_whole(text in "(\\PC|\\s){0,200}", query in "\\PC{0,20}", prefix: bool) {
            let mut end = 0;
            for range in Highlighter::new(&query, prefix).ranges(&text) {
                prop_assert!(end <= range.start && text.get(range.clone()).is_some());
                end = range.end;
            }
        }
    }
}
