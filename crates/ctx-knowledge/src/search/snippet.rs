//! Snippets: the part of a chunk that shows why it matched.

use crate::chunk;
use ctx_rank::SnippetMatcher;
use ctx_store::ChunkText;

/// Finds the terms of a query in chunks.
pub(super) struct ChunkSnippetMatcher<'a>(SnippetMatcher<'a>);

impl<'a> ChunkSnippetMatcher<'a> {
    pub(super) fn new(terms: &'a [String]) -> Self {
        Self(SnippetMatcher::new(terms))
    }

    /// The headings below the document's title, then the part of the chunk with the most distinct query terms, on one
    /// line.
    pub(super) fn snippet(&mut self, chunk: &ChunkText, title: Option<&str>) -> String {
        // The heading at the start of the text is already in the heading path.
        let text = match chunk.text.split_once('\n') {
            Some((first, rest))
                if chunk::atx_heading(first).is_some_and(|(_, own)| chunk.heading.ends_with(own)) =>
            {
                rest
            }
            _ => &chunk.text,
        };
        self.0.snippet(&chunk.heading, text, title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snippet_under(heading: &str, text: &str, terms: &[String]) -> String {
        let chunk = ChunkText { heading: heading.to_owned(), text: text.to_owned() };
        ChunkSnippetMatcher::new(terms).snippet(&chunk, Some("Guide"))
    }

    #[test]
    fn a_snippet_says_under_which_headings_it_stands() {
        let terms = ["button".to_owned()];
        assert_eq!(
            snippet_under("Guide › Deploy", "## Deploy\nPush the button.", &terms),
            "Deploy: Push the button."
        );
        assert_eq!(snippet_under("Guide", "# Guide\nPush the button.", &terms), "Push the button.");
        assert_eq!(snippet_under("Guides", "Push the button.", &terms), "Guides: Push the button.");
        assert_eq!(snippet_under("Guide › Empty", "## Empty\n", &terms), "Empty");
    }
}
