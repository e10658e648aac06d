//! Markdown: what stands before it speaks for it, else its first heading is its title.

use super::bounds::Bounds;
use super::{Extracted, Extractor, NoText, Raw, Structure, front_matter, text};
use crate::chunk;

pub(super) const EXTRACTOR: Extractor = Extractor { accepts, extract, isolated: false };

fn accepts(raw: &Raw) -> bool {
    raw.is_text()
        && raw.hinted(&["text/markdown", "text/x-markdown"], &["md", "markdown", "mdown", "mkd", "mdx"])
}

fn extract(raw: &Raw, _: &Bounds) -> Result<Extracted, NoText> {
    let whole = text::decode(&raw.bytes, raw.charset.as_deref())?;
    let (mut extracted, body) = front_matter::split(&whole);
    extracted.title = extracted.title.or_else(|| title(body));
    Ok(Extracted {
        body: body.to_owned(),
        structure: Structure::Markdown,
        content_type: "text/markdown".to_owned(),
        ..extracted
    })
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
