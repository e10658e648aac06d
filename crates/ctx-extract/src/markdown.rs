//! Markdown. Front matter supplies the metadata; without a title there, the first heading is the title.

use super::bounds::Bounds;
use super::{ExtractError, ExtractedText, Extractor, RawDocument, TextStructure, front_matter, text};

pub(super) const EXTRACTOR: Extractor = Extractor { accepts, extract, needs_worker: false };

/// Maximum bytes of a heading, because it is repeated in every chunk below it.
const HEADING_BYTES_MAX: usize = 300;

fn accepts(raw: &RawDocument) -> bool {
    raw.is_text()
        && raw
            .matches_hints(&["text/markdown", "text/x-markdown"], &["md", "markdown", "mdown", "mkd", "mdx"])
}

fn extract(raw: &RawDocument, _: &Bounds) -> Result<ExtractedText, ExtractError> {
    let whole = text::decode(&raw.bytes, raw.charset.as_deref())?;
    let (mut extracted, body) = front_matter::split(&whole);
    extracted.title = extracted.title.or_else(|| title(body));
    Ok(ExtractedText {
        body: body.to_owned(),
        structure: TextStructure::Markdown,
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
        if !in_fence && let Some((_, title)) = atx_heading(line) {
            return Some(title.to_owned());
        }
    }
    None
}

/// The level and text of an ATX heading (`## Text`).
pub fn atx_heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let rest = line.get(level..)?;
    if !(1..=6).contains(&level) || !rest.starts_with([' ', '\t']) {
        return None;
    }
    let title = rest.trim().trim_end_matches('#').trim_end();
    let title = &title[..title.floor_char_boundary(HEADING_BYTES_MAX)];
    (!title.is_empty()).then_some((level, title))
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
