//! Bytes to text.
//!
//! One entry in [`EXTRACTORS`] for each kind of content; the first that accepts wins. Whatever an
//! extractor does, it does within [`extract`], which contains its panics.

mod markdown;
mod text;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is known of content before it is read.
pub(crate) struct Raw<'a> {
    pub(crate) bytes: &'a [u8],
    /// The document's name in its source; its ending is a hint.
    pub(crate) name: &'a str,
    /// The media type, where the source knows it.
    pub(crate) content_type: Option<&'a str>,
}

/// Text, and what it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extracted {
    pub(crate) body: String,
    pub(crate) title: Option<String>,
    pub(crate) content_type: String,
}

/// Why there is no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoText {
    /// It is not a kind of content we read.
    NotText,
    /// It is, but reading it failed.
    Failed(String),
}

struct Extractor {
    accepts: fn(&Raw<'_>) -> bool,
    extract: fn(&Raw<'_>) -> Result<Extracted, NoText>,
}

const EXTRACTORS: &[Extractor] = &[markdown::EXTRACTOR, text::EXTRACTOR];

/// The text of some content.
pub(crate) fn extract(raw: &Raw<'_>) -> Result<Extracted, NoText> {
    let extractor = EXTRACTORS.iter().find(|extractor| (extractor.accepts)(raw)).ok_or(NoText::NotText)?;
    catch_unwind(AssertUnwindSafe(|| (extractor.extract)(raw)))
        .unwrap_or_else(|_| Err(NoText::Failed("the extractor panicked".to_owned())))
}

/// What a text that needs no extraction says of itself.
pub(crate) fn from_text(body: &str, name: &str, content_type: Option<&str>) -> Extracted {
    let raw = Raw { bytes: body.as_bytes(), name, content_type };
    let body = body.to_owned();
    if markdown::accepts(&raw) {
        return Extracted { title: markdown::title(&body), body, content_type: "text/markdown".to_owned() };
    }
    Extracted { body, title: None, content_type: content_type.unwrap_or("text/plain").to_owned() }
}

/// The ending of a name, lowercase: `md`.
fn ending(name: &str) -> String {
    name.rsplit(['/', '\\'])
        .next()
        .and_then(|file| file.rsplit_once('.'))
        .map(|(_, ending)| ending.to_ascii_lowercase())
        .unwrap_or_default()
}
