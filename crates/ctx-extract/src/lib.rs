//! Text extraction from untrusted documents: bytes in, structured text out. No files, no network, no panics.
//!
//! `EXTRACTORS` has one entry per format; the first that accepts a document is used. [`extract`] contains panics.
//! Formats other than plain text ([`RawDocument::needs_worker`]) should be read in a sandboxed process, because parsers
//! may hang, exhaust memory or overflow the stack; `job` defines the protocol for that.

mod archive;
mod bounds;
mod composer;
mod csv;
mod docx;
mod drawing;
mod epub;
mod format;
mod front_matter;
mod html;
mod job;
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

pub use bounds::{CancelCheck, ExtractLimits};
pub use job::{ReplyHeader, decode_reply, encode_job, run_job};
pub use markdown::atx_heading;

use bounds::Bounds;
use format::FileFormat;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Incremented whenever the same bytes may give another text, so that documents are read again.
pub const EXTRACTION_VERSION: u32 = 3;

/// Minimum stack size for a thread that runs [`extract`]: parsers of nested formats are recursive.
pub const STACK_BYTES: usize = 16 << 20;

/// File extensions of readable documents, the most common first.
const DOCUMENT_EXTENSIONS: [&str; 22] = [
    "md", "markdown", "mdx", "txt", "rst", "adoc", "pdf", "docx", "pptx", "xlsx", "odt", "odp", "ods",
    "epub", "html", "htm", "xhtml", "ipynb", "csv", "tsv", "tex", "org",
];

/// File extensions of readable documents.
pub fn document_extensions() -> impl Iterator<Item = &'static str> {
    DOCUMENT_EXTENSIONS.into_iter()
}

/// File extensions of readable documents, then of source code and data. The format is detected by content; extensions
/// only help to choose files.
pub fn readable_extensions() -> impl Iterator<Item = &'static str> {
    document_extensions().chain(text::code_extensions())
}

/// A document before its text is extracted.
#[derive(Serialize, Deserialize)]
pub struct RawDocument {
    #[serde(skip)]
    bytes: Vec<u8>,
    /// The document's name in its source; its extension is a hint.
    name: String,
    /// The media type without parameters, unless it is too generic to be a hint.
    content_type: Option<String>,
    /// The character set that came with the media type.
    charset: Option<String>,
    #[serde(rename = "form")]
    format: FileFormat,
    /// The media type of a document given as text, which is kept unless the content shows another one.
    given_type: Option<String>,
}

impl RawDocument {
    /// A document with its name and the media type given by its source, if any. Both are hints.
    pub fn new(bytes: Vec<u8>, name: &str, content_type: Option<&str>) -> Self {
        let format = FileFormat::detect(&bytes);
        Self { format, ..Self::from_parts(bytes, name, content_type) }
    }

    /// A document given as text.
    pub fn from_text(text: &str, name: &str, content_type: Option<&str>) -> Self {
        let bytes = text.replace('\0', "").into_bytes();
        Self { given_type: content_type.map(str::to_owned), ..Self::from_parts(bytes, name, content_type) }
    }

    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether its format must be read in a sandboxed process: every format except plain text, Markdown, CSV and source
    /// code.
    pub fn needs_worker(&self) -> bool {
        match self.format {
            FileFormat::Archive => true,
            _ => extractor(self).is_ok_and(|extractor| extractor.needs_worker),
        }
    }

    fn from_parts(bytes: Vec<u8>, name: &str, content_type: Option<&str>) -> Self {
        let declared = content_type.unwrap_or_default();
        let (content_type, parameters) = declared.split_once(';').unwrap_or((declared, ""));
        let content_type = content_type.trim().to_ascii_lowercase();
        let is_generic =
            matches!(&*content_type, "" | "text/plain" | "application/octet-stream" | "text/*" | "*/*");
        let charset = parameters.split(';').filter_map(|parameter| parameter.trim().split_once('='));
        Self {
            bytes,
            name: name.to_owned(),
            content_type: (!is_generic).then_some(content_type),
            charset: charset
                .filter(|(name, _)| name.eq_ignore_ascii_case("charset"))
                .map(|(_, value)| value.trim_matches('"').to_owned())
                .next(),
            format: FileFormat::Text,
            given_type: None,
        }
    }

    /// Replaces [`FileFormat::Archive`] by the package format that the members of the archive show.
    fn with_package_format(self) -> Self {
        let format = if self.format == FileFormat::Archive {
            FileFormat::detect_in_archive(&self.bytes)
        } else {
            self.format
        };
        Self { format, ..self }
    }

    fn is_text(&self) -> bool {
        self.format == FileFormat::Text
    }

    /// Whether the source declares one of these media types or, without a declaration, the name has one of these
    /// extensions.
    fn matches_hints(&self, content_types: &[&str], extensions: &[&str]) -> bool {
        match &self.content_type {
            Some(content_type) => content_types.contains(&content_type.as_str()),
            None => extensions.contains(&extension(&self.name).as_str()),
        }
    }

    /// The last part of its name.
    fn file_name(&self) -> &str {
        self.name.rsplit(['/', '\\']).next().unwrap_or_default()
    }
}

/// The structure of a body, by which it is split into chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextStructure {
    /// Markdown with headings and fenced code.
    Markdown,
    /// Prose: paragraphs and sentences.
    #[default]
    Plain,
    /// Source code or data: lines.
    Code,
}

/// The text and metadata of a document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExtractedText {
    /// The text.
    #[serde(skip)]
    pub body: String,
    /// How the body is structured.
    pub structure: TextStructure,
    /// The media type of the document, by its content.
    pub content_type: String,
    /// Its title.
    pub title: Option<String>,
    /// Its author.
    pub author: Option<String>,
    /// Its tags or keywords.
    pub tags: Vec<String>,
    /// Other metadata.
    pub metadata: Map<String, Value>,
    /// When it was written.
    pub created_at: Option<Timestamp>,
    /// When it was last changed.
    pub updated_at: Option<Timestamp>,
    /// A warning if the text is incomplete.
    pub note: Option<String>,
}

/// Why no text was extracted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExtractError {
    /// The format is not supported.
    NotText,
    /// Extraction failed, and will fail again until the document changes.
    Failed(String),
    /// Extraction failed for a temporary reason.
    NotNow(String),
}

impl ExtractError {
    /// The time limit was exceeded.
    pub fn too_slow(time: Duration) -> Self {
        Self::Failed(format!("reading it took longer than {} s", time.as_secs()))
    }

    /// The extraction was cancelled; the next sync reads the document again.
    pub fn interrupted() -> Self {
        Self::NotNow("reading it was interrupted".to_owned())
    }
}

/// An [`ExtractError::Failed`] with a reason.
fn failed<T>(reason: impl Into<String>) -> Result<T, ExtractError> {
    Err(ExtractError::Failed(reason.into()))
}

struct Extractor {
    accepts: fn(&RawDocument) -> bool,
    extract: fn(&RawDocument, &Bounds) -> Result<ExtractedText, ExtractError>,
    /// Whether it must run in a sandboxed process.
    needs_worker: bool,
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

/// Extracts the text of a document of any supported format, on this thread. A panic becomes an
/// [`ExtractError::Failed`].
pub fn extract(
    raw: RawDocument,
    limits: ExtractLimits,
    is_cancelled: CancelCheck,
) -> Result<ExtractedText, ExtractError> {
    let work = move || {
        if raw.format == FileFormat::Locked {
            return failed("it is protected by a password");
        }
        let bounds = Bounds::with_cancellation(limits, is_cancelled);
        let raw = raw.with_package_format();
        let extracted = (extractor(&raw)?.extract)(&raw, &bounds);
        // Cancellation may have truncated the text, so it must not be stored.
        if bounds.is_cancelled() {
            return Err(ExtractError::interrupted());
        }
        let mut extracted = extracted?;
        if let (Some(given_type), TextStructure::Plain) = (raw.given_type, extracted.structure) {
            extracted.content_type = given_type;
        }
        Ok(extracted)
    };
    catch_panics(work)
}

fn catch_panics(
    work: impl FnOnce() -> Result<ExtractedText, ExtractError>,
) -> Result<ExtractedText, ExtractError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| failed("the extractor panicked"))
}

fn extractor(raw: &RawDocument) -> Result<&'static Extractor, ExtractError> {
    EXTRACTORS.iter().find(|extractor| (extractor.accepts)(raw)).ok_or(ExtractError::NotText)
}

/// Prefixes of media types whose text is converted to Markdown.
const MARKDOWN_TYPES: &[&str] = &[
    "application/epub",
    "application/pdf",
    "application/vnd.oasis.",
    "application/vnd.openxmlformats-",
    "application/x-ipynb+json",
    "text/csv",
    "text/html",
    "text/tab-separated-values",
];
/// Maximum length of a media type given by a source.
const CONTENT_TYPE_BYTES_MAX: usize = 200;

/// The media type of the text extracted from a document of this media type.
pub fn stored_content_type(content_type: &str) -> &str {
    let is_sound = content_type.len() <= CONTENT_TYPE_BYTES_MAX
        && content_type.chars().all(|c| c.is_ascii_graphic() || c == ' ')
        && content_type.split_once('/').is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty());
    match content_type {
        _ if !is_sound => "text/plain",
        _ if MARKDOWN_TYPES.iter().any(|prefix| content_type.starts_with(prefix)) => "text/markdown",
        other => other,
    }
}

/// The file extension of a name, in lower case: `md`.
fn extension(name: &str) -> String {
    name.rsplit(['/', '\\'])
        .next()
        .and_then(|file| file.rsplit_once('.'))
        .map(|(_, extension)| extension.to_ascii_lowercase())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure() {
        let panicked = Err(ExtractError::Failed("the extractor panicked".to_owned()));
        assert_eq!(catch_panics(|| panic!("on purpose")), panicked);
    }

    #[test]
    fn only_plain_formats_need_no_worker() {
        let needs_worker =
            |name: &str, bytes: &[u8]| RawDocument::new(bytes.to_vec(), name, None).needs_worker();
        for name in ["a.md", "a.txt", "a.csv", "a.rs", "a.json", "a.xml", "a", "a.pdf"] {
            assert!(!needs_worker(name, b"plain text"), "{name}");
        }
        for (name, bytes) in [
            ("a.md", &b"%PDF-1.7"[..]),
            ("a.txt", b"PK\x03\x04"),
            ("a.txt", b"<!doctype html>"),
            ("a.html", b"text"),
            ("a.ipynb", b"{}"),
        ] {
            assert!(needs_worker(name, bytes), "{name}");
        }
        assert!(RawDocument::from_text("x", "a", Some("text/html; charset=utf-8")).needs_worker());
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod samples;
