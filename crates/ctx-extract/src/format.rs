//! Detection of the file format by content; names and media types are only hints.

use serde::{Deserialize, Serialize};
use std::io::Cursor;
use zip::ZipArchive;

/// Bytes examined to tell text from binary content.
pub(super) const SNIFF_BYTES: usize = 8 << 10;

/// Signatures of binary formats that may have no zero byte near the start.
const BINARY_SIGNATURES: &[&[u8]] = &[
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"\x1f\x8b",
    b"BZh",
    b"7z\xbc\xaf",
    b"Rar!",
    b"\xfd7zXZ",
    b"\x28\xb5\x2f\xfd",
    b"\x7fELF",
    b"\xca\xfe\xba\xbe",
    b"OggS",
    b"ID3",
    b"RIFF",
    b"wOFF",
    b"SQLite format 3\0",
    b"\0asm",
];

/// Signature of compound files: Office formats before 2007, and encrypted newer ones.
const COMPOUND_SIGNATURE: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FileFormat {
    /// Text, or no other known format.
    Text,
    Pdf,
    /// A ZIP archive whose directory has not been read yet.
    Archive,
    Docx,
    Pptx,
    Xlsx,
    OpenDocument,
    Epub,
    /// An encrypted Office file.
    Locked,
    Unknown,
}

impl FileFormat {
    pub(super) fn detect(bytes: &[u8]) -> Self {
        let head = &bytes[..bytes.len().min(SNIFF_BYTES)];
        if is_pdf(head) {
            return Self::Pdf;
        }
        if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06") {
            return Self::Archive;
        }
        if bytes.starts_with(COMPOUND_SIGNATURE) {
            let name: Vec<u8> = "EncryptedPackage".encode_utf16().flat_map(u16::to_le_bytes).collect();
            let locked = bytes.chunks_exact(64).any(|chunk| chunk.starts_with(&name));
            return if locked { Self::Locked } else { Self::Unknown };
        }
        if BINARY_SIGNATURES.iter().any(|magic| bytes.starts_with(magic)) {
            Self::Unknown
        } else {
            Self::Text
        }
    }

    /// The package format of a ZIP archive, by its members.
    pub(super) fn detect_in_archive(bytes: &[u8]) -> Self {
        let Ok(archive) = ZipArchive::new(Cursor::new(bytes)) else {
            return Self::detect_by_first_member(bytes);
        };
        let has = |name: &str| archive.index_for_name(name).is_some();
        let has_below = |folder: &str| archive.file_names().flatten().any(|name| name.starts_with(folder));
        if has("META-INF/container.xml") && has_below("OEBPS/")
            || has_mimetype_member(bytes, b"application/epub+zip")
        {
            Self::Epub
        } else if has("[Content_Types].xml") && has_below("word/") {
            Self::Docx
        } else if has("[Content_Types].xml") && has_below("ppt/") {
            Self::Pptx
        } else if has("[Content_Types].xml") && has_below("xl/") {
            Self::Xlsx
        } else if has("content.xml") && has("META-INF/manifest.xml") {
            Self::OpenDocument
        } else if has("META-INF/container.xml") {
            Self::Epub
        } else {
            Self::Unknown
        }
    }

    /// The format of a damaged archive by its first bytes, so that the damage is reported for the right format.
    fn detect_by_first_member(bytes: &[u8]) -> Self {
        let head = &bytes[..bytes.len().min(SNIFF_BYTES)];
        let has = |text: &[u8]| head.windows(text.len()).any(|window| window == text);
        if has_mimetype_member(bytes, b"application/epub+zip") {
            Self::Epub
        } else if has_mimetype_member(bytes, b"application/vnd.oasis.opendocument") {
            Self::OpenDocument
        } else if !has(b"[Content_Types].xml") {
            Self::Unknown
        } else if has(b"xl/") {
            Self::Xlsx
        } else if has(b"ppt/") {
            Self::Pptx
        } else {
            Self::Docx
        }
    }
}

/// Whether it is a PDF. Some writers put a few bytes before the `%PDF-` marker. In a text that mentions the marker, it
/// means nothing.
fn is_pdf(head: &[u8]) -> bool {
    let marked = head[..head.len().min(1024)].windows(5).position(|window| window == b"%PDF-");
    marked.is_some_and(|at| {
        let before = &head[..at];
        before.iter().all(|byte| byte.is_ascii_whitespace()) || before.contains(&0) || !before.is_ascii()
    })
}

/// Whether the member `mimetype`, which is first and uncompressed, contains this media type.
fn has_mimetype_member(bytes: &[u8], media_type: &[u8]) -> bool {
    const MIMETYPE_NAME_OFFSET: usize = 30;
    let Some(after) = bytes.get(MIMETYPE_NAME_OFFSET..).and_then(|rest| rest.strip_prefix(b"mimetype"))
    else {
        return false;
    };
    // An extra field may precede the content.
    after[..after.len().min(SNIFF_BYTES)]
        .windows(media_type.len())
        .take(256)
        .any(|window| window == media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_text_is_known_by_its_first_bytes() {
        assert_eq!(FileFormat::detect(b"\x89PNG\r\n\x1a\nabc"), FileFormat::Unknown);
        assert_eq!(FileFormat::detect(b"\n%PDF-1.4"), FileFormat::Pdf);
        assert_eq!(FileFormat::detect(b"PK\x03\x04 and then nothing"), FileFormat::Archive);
        assert_eq!(FileFormat::detect_in_archive(b"PK\x03\x04 and then nothing"), FileFormat::Unknown);
        assert_eq!(FileFormat::detect(b"a PDF begins with %PDF-1.7"), FileFormat::Text);
        assert_eq!(FileFormat::detect(b"plain"), FileFormat::Text);
        assert_eq!(FileFormat::detect(b""), FileFormat::Text);
    }
}
