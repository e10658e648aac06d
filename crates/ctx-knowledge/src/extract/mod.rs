//! Bytes to text.
//!
//! One entry in [`EXTRACTORS`] for each kind of content; the first that accepts wins. Whatever an
//! extractor does, it does within [`extract`], which contains its panics and, where a library
//! cannot be interrupted, leaves it behind when it takes too long.

mod archive;
mod bounds;
mod composer;
mod csv;
mod docx;
mod epub;
mod form;
mod front_matter;
mod html;
mod isolate;
mod markdown;
mod notebook;
mod opendocument;
mod package;
mod pdf;
mod pptx;
mod table;
mod text;
mod xlsx;
mod xml;

use bounds::{Bounds, ExtractLimits};
use form::Form;
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Changes whenever the same bytes may give another text, so that documents are read anew.
pub(crate) const VERSION: u32 = 2;

/// How much longer than its own clock says an extractor may take to hand over what it has.
const GRACE: Duration = Duration::from_secs(5);

static ABANDONED: AtomicUsize = AtomicUsize::new(0);

/// Endings of documents that can be read, the most usual first.
const DOCUMENT_ENDINGS: [&str; 22] = [
    "md", "markdown", "mdx", "txt", "rst", "adoc", "pdf", "docx", "pptx", "xlsx", "odt", "odp", "ods",
    "epub", "html", "htm", "xhtml", "ipynb", "csv", "tsv", "tex", "org",
];

/// Endings of documents, and then of source code and data, that can be read. Files are read by their content; endings only
/// help to choose files.
pub fn readable_endings() -> impl Iterator<Item = &'static str> {
    DOCUMENT_ENDINGS.into_iter().chain(text::code_endings())
}

/// What is known of content before it is read.
pub(crate) struct Raw {
    bytes: Vec<u8>,
    /// The document's name in its source; its ending is a hint.
    name: String,
    /// The media type without parameters, where the source knows one that says something.
    content_type: Option<String>,
    /// The character set that came with the media type.
    charset: Option<String>,
    form: Form,
}

impl Raw {
    pub(crate) fn new(bytes: Vec<u8>, name: &str, content_type: Option<&str>) -> Self {
        let form = Form::of(&bytes);
        Self { form, ..Self::described(bytes, name, content_type) }
    }

    fn described(bytes: Vec<u8>, name: &str, content_type: Option<&str>) -> Self {
        let given = content_type.unwrap_or_default();
        let (content_type, parameters) = given.split_once(';').unwrap_or((given, ""));
        let content_type = content_type.trim().to_ascii_lowercase();
        let vague =
            matches!(&*content_type, "" | "text/plain" | "application/octet-stream" | "text/*" | "*/*");
        let charset = parameters.split(';').filter_map(|parameter| parameter.trim().split_once('='));
        Self {
            bytes,
            name: name.to_owned(),
            content_type: (!vague).then_some(content_type),
            charset: charset
                .filter(|(name, _)| name.eq_ignore_ascii_case("charset"))
                .map(|(_, value)| value.trim_matches('"').to_owned())
                .next(),
            form: Form::Text,
        }
    }

    /// Replaces [`Form::Archive`] by the package format that the archive's members show.
    fn with_package_form(self) -> Self {
        let form = if self.form == Form::Archive { Form::of_archive(&self.bytes) } else { self.form };
        Self { form, ..self }
    }

    fn is_text(&self) -> bool {
        self.form == Form::Text
    }

    /// Whether the source says it is of one of these media types, or, where it says nothing, its
    /// name ends in one of these.
    fn hinted(&self, content_types: &[&str], endings: &[&str]) -> bool {
        match &self.content_type {
            Some(content_type) => content_types.contains(&content_type.as_str()),
            None => endings.contains(&ending(&self.name).as_str()),
        }
    }

    /// The last part of its name.
    fn file_name(&self) -> &str {
        self.name.rsplit(['/', '\\']).next().unwrap_or_default()
    }
}

/// What the structure of a body is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Structure {
    /// Headings and fences count.
    Markdown,
    /// Paragraphs and sentences.
    #[default]
    Plain,
    /// Lines.
    Code,
}

/// Text, and what it says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Extracted {
    pub(crate) body: String,
    pub(crate) structure: Structure,
    /// What the document truly is.
    pub(crate) content_type: String,
    pub(crate) title: Option<String>,
    pub(crate) author: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) updated_at: Option<Timestamp>,
    /// What is to be said of a text that is not the whole.
    pub(crate) note: Option<String>,
}

/// Why there is no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoText {
    /// It is not a kind of content we read.
    NotText,
    /// It is, but reading it failed, and will fail again while it stays as it is.
    Failed(String),
    /// It may be readable another time.
    NotNow(String),
}

/// Fails with a reason.
fn failed<T>(reason: impl Into<String>) -> Result<T, NoText> {
    Err(NoText::Failed(reason.into()))
}

struct Extractor {
    accepts: fn(&Raw) -> bool,
    extract: fn(&Raw, &Bounds) -> Result<Extracted, NoText>,
    /// Whether it needs a thread of its own, because it cannot always watch the time.
    isolated: bool,
}

const EXTRACTORS: &[Extractor] = &[
    pdf::EXTRACTOR,
    docx::EXTRACTOR,
    pptx::EXTRACTOR,
    xlsx::EXTRACTOR,
    opendocument::EXTRACTOR,
    epub::EXTRACTOR,
    html::EXTRACTOR,
    markdown::EXTRACTOR,
    csv::EXTRACTOR,
    notebook::EXTRACTOR,
    text::EXTRACTOR,
];

/// The text of some content.
pub(crate) fn extract(raw: Raw, cancellation: &CancellationToken) -> Result<Extracted, NoText> {
    extract_within(raw, ExtractLimits::DEFAULT, cancellation)
}

fn extract_within(
    raw: Raw,
    limits: ExtractLimits,
    cancellation: &CancellationToken,
) -> Result<Extracted, NoText> {
    let bounds = Bounds::with_cancellation(limits, cancellation.clone());
    let isolated = match raw.form {
        Form::Locked => return failed("it is protected by a password"),
        Form::Archive => true,
        _ => extractor(&raw)?.isolated,
    };
    let late = bounds.too_slow();
    let work = move || {
        let raw = raw.with_package_form();
        let extracted = (extractor(&raw)?.extract)(&raw, &bounds);
        // Cancellation may have truncated the text, so it must not be stored.
        if bounds.is_cancelled() { Err(isolate::interruption()) } else { extracted }
    };
    match isolated {
        true => isolate::isolated(&ABANDONED, limits.time + GRACE, cancellation, late, work),
        false => isolate::contained(work),
    }
}

fn extractor(raw: &Raw) -> Result<&'static Extractor, NoText> {
    EXTRACTORS.iter().find(|extractor| (extractor.accepts)(raw)).ok_or(NoText::NotText)
}

/// What a text that came as text says of itself.
pub(crate) fn from_text(
    body: &str,
    name: &str,
    content_type: Option<&str>,
    cancellation: &CancellationToken,
) -> Result<Extracted, NoText> {
    let bytes = body.replace('\0', "").into_bytes();
    let extracted = extract(Raw::described(bytes, name, content_type), cancellation)?;
    Ok(match content_type {
        // Nothing in it says otherwise: the source's word stands.
        Some(given) if extracted.structure == Structure::Plain => {
            Extracted { content_type: given.to_owned(), ..extracted }
        }
        _ => extracted,
    })
}

/// Beginnings of the media types whose text is composed anew, as Markdown.
const COMPOSED: &[&str] = &[
    "application/epub",
    "application/pdf",
    "application/vnd.oasis.",
    "application/vnd.openxmlformats-",
    "application/x-ipynb+json",
    "text/csv",
    "text/html",
    "text/tab-separated-values",
];
/// How long a media type may be that a source made up.
const CONTENT_TYPE_BYTES_MAX: usize = 200;

/// The media type of the text that is kept of a document of this media type.
pub(crate) fn text_type(content_type: &str) -> &str {
    let is_sound = content_type.len() <= CONTENT_TYPE_BYTES_MAX
        && content_type.chars().all(|c| c.is_ascii_graphic() || c == ' ')
        && content_type.split_once('/').is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty());
    match content_type {
        _ if !is_sound => "text/plain",
        _ if COMPOSED.iter().any(|begin| content_type.starts_with(begin)) => "text/markdown",
        kept => kept,
    }
}

/// The ending of a name, lowercase: `md`.
fn ending(name: &str) -> String {
    name.rsplit(['/', '\\'])
        .next()
        .and_then(|file| file.rsplit_once('.'))
        .map(|(_, ending)| ending.to_ascii_lowercase())
        .unwrap_or_default()
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod samples;
