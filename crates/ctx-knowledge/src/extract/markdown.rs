//! Markdown: text whose first heading is its title.

use super::{Extracted, Extractor, NoText, Raw, ending, text};
use crate::chunk;

pub(super) const EXTRACTOR: Extractor = Extractor { accepts, extract };

pub(super) fn accepts(raw: &Raw<'_>) -> bool {
    match raw.content_type {
        Some(content_type) => content_type.starts_with("text/markdown"),
        None => matches!(ending(raw.name).as_str(), "md" | "markdown" | "mdown" | "mkd"),
    }
}

fn extract(raw: &Raw<'_>) -> Result<Extracted, NoText> {
    let body = text::decode(raw.bytes)?;
    let title = title(&body);
    Ok(Extracted { body, title, content_type: "text/markdown".to_owned() })
}

/// The first heading, whatever its level, outside fenced code.
pub(super) fn title(body: &str) -> Option<String> {
    let mut in_fence = false;
    for line in body.lines() {
        if line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~") {
            in_fence = !in_fence;
        }
        if !in_fence && let Some((_, title)) = chunk::heading(line) {
            return Some(title.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_heading_outside_code_is_the_title() {
        assert_eq!(title("```\n# no\n```\ntext\n## Yes ##\n# Later"), Some("Yes".to_owned()));
        assert_eq!(title("#hashtag\nno heading"), None);
    }
}
