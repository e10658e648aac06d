//! Generated hostile files: decompression bombs, deep nesting, false sizes, corruption.
//!
//! Each is small enough for a test, and exhausts memory, stack or time of a parser that trusts its claims.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper fails the test it helps")]

mod packages;
mod pdfs;
mod texts;

use std::fs;
use std::path::Path;

/// A hostile file.
#[derive(Clone, Debug)]
pub(crate) struct HostileFile {
    /// File name; the extension is the claimed format.
    pub(crate) name: String,
    /// Content.
    pub(crate) bytes: Vec<u8>,
}

impl HostileFile {
    fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }
}

/// Real files to corrupt.
const SAMPLES: [&str; 8] = [
    "sample.docx",
    "sample.pptx",
    "sample.xlsx",
    "sample.odt",
    "sample.ods",
    "sample.epub",
    "sample.pdf",
    "locked.pdf",
];

/// File extensions for files of random bytes.
const EXTENSIONS: [&str; 12] =
    ["html", "md", "csv", "ipynb", "txt", "docx", "pptx", "xlsx", "odt", "epub", "pdf", "rs"];

/// All hostile files, with unique names.
pub(crate) fn hostile_files() -> Vec<HostileFile> {
    let mut files = texts::files();
    files.extend(packages::files());
    files.extend(pdfs::files());
    files.extend(corrupted_files());
    let mut names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() == files.len() && files.len() > 150, "{} hostile files", files.len());
    files
}

/// Truncated and overwritten real files, and random bytes under every extension.
fn corrupted_files() -> Vec<HostileFile> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ctx-extract/tests/fixtures");
    let mut files = Vec::new();
    for sample in SAMPLES {
        let whole = fs::read(folder.join(sample)).expect("a sample");
        let (stem, ending) = sample.split_once('.').expect("an ending");
        for (part, length) in [("head", 64), ("half", whole.len() / 2), ("most", whole.len() - 32)] {
            files.push(HostileFile::new(
                format!("cut-{part}-{stem}.{ending}"),
                &whole[..length.min(whole.len())],
            ));
        }
        let mut overwritten = whole.clone();
        let middle = whole.len() / 3..whole.len() / 3 * 2;
        overwritten[middle.clone()].copy_from_slice(&noise(middle.len()));
        files.push(HostileFile::new(format!("noise-inside-{stem}.{ending}"), overwritten));
    }
    files.extend(EXTENSIONS.map(|ending| HostileFile::new(format!("noise.{ending}"), noise(20_000))));
    files
}

/// Deterministic pseudo-random bytes.
fn noise(length: usize) -> Vec<u8> {
    (0..length as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}
