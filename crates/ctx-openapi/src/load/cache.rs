//! Disk cache of parsed descriptions and of texts from the web. Reading a parsed description is many times
//! faster than parsing its text.

use super::file_cache::FileCache;
use crate::document::{Fetch, RootLocation};
use crate::operation::Description;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// To be increased whenever the same text gives other operations, or their serialization changes.
const FORMAT: u32 = 3;

/// Maximum number of files in the cache folder; the oldest are evicted.
const FILES_MAX: usize = 1_024;

/// File name extensions: of parsed descriptions, and of texts from the web.
const OPERATIONS_EXTENSION: &str = "operations";
const TEXT_EXTENSION: &str = "text";

/// A hash that identifies the text of a document, or all texts of a description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint(String);

/// Another document that a description refers to, by address; without fingerprint if it could not be fetched.
pub(super) type DocumentFingerprint = (String, Option<Fingerprint>);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Fingerprint {
    /// The fingerprint of a root document: its text, its address, and the version of this parser.
    pub(super) fn of_root(location: &RootLocation, text: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        let parts = [env!("CARGO_PKG_VERSION"), &FORMAT.to_string(), &location.address(), text];
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        Self(hasher.finalize().to_hex().to_string())
    }

    fn of_text(text: &str) -> Self {
        Self(blake3::hash(text.as_bytes()).to_hex().to_string())
    }

    /// The fingerprint of the root document and of all others together.
    pub(super) fn with_documents(self, others: &[DocumentFingerprint]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.0.as_bytes());
        for (address, fingerprint) in others {
            hasher.update(
                format!("\n{address}\n{}", fingerprint.as_ref().map_or("", |fingerprint| &fingerprint.0))
                    .as_bytes(),
            );
        }
        Self(hasher.finalize().to_hex().to_string())
    }
}

/// A [`Fetch`] that records which documents are fetched, with their fingerprints.
pub(super) struct RecordingFetch<'a> {
    fetch: &'a dyn Fetch,
    fingerprints: RefCell<Vec<DocumentFingerprint>>,
}

impl<'a> RecordingFetch<'a> {
    pub(super) fn new(fetch: &'a dyn Fetch) -> Self {
        Self { fetch, fingerprints: RefCell::default() }
    }

    pub(super) fn into_fingerprints(self) -> Vec<DocumentFingerprint> {
        self.fingerprints.into_inner()
    }
}

impl Fetch for RecordingFetch<'_> {
    fn fetch(&self, address: &str) -> Result<String, String> {
        let fetched = self.fetch.fetch(address);
        let fingerprint = fetched.as_ref().ok().map(|text| Fingerprint::of_text(text));
        self.fingerprints.borrow_mut().push((address.to_owned(), fingerprint));
        fetched
    }
}

/// The cache folder.
#[derive(Clone, Debug)]
pub(crate) struct DescriptionCache {
    files: FileCache,
}

impl DescriptionCache {
    /// A cache in this folder, which is created on the first write.
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self { files: FileCache::in_folder(folder, FILES_MAX) }
    }

    /// The cached description of a root document, if all other documents that it was made of are unchanged.
    pub(super) fn get(
        &self,
        root: &Fingerprint,
        fetch: &dyn Fetch,
    ) -> Option<(Description, Vec<DocumentFingerprint>)> {
        let path = self.path(root);
        let bytes = self.files.read(&path)?;
        let line = memchr::memchr(b'\n', &bytes)?;
        let others: Vec<DocumentFingerprint> = serde_json::from_slice(bytes.get(..line)?).ok()?;
        let is_same = |(address, fingerprint): &DocumentFingerprint| {
            fetch.fetch(address).ok().map(|text| Fingerprint::of_text(&text)) == *fingerprint
        };
        if !others.iter().all(is_same) {
            return None;
        }
        let description = serde_json::from_slice(bytes.get(line + 1..)?).ok()?;
        Some((description, others))
    }

    /// Caches a parsed description. If that fails, the text is parsed again next time.
    pub(super) fn put(&self, root: &Fingerprint, others: &[DocumentFingerprint], description: &Description) {
        let path = self.path(root);
        self.write(&path, |file| {
            serde_json::to_writer(&mut *file, others)?;
            file.write_all(b"\n")?;
            serde_json::to_writer(file, description)?;
            Ok(())
        });
    }

    /// Writes a file of the cache.
    pub(super) fn write(&self, path: &Path, fill: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) {
        self.files.write(path, fill);
    }

    fn path(&self, root: &Fingerprint) -> PathBuf {
        self.files.path(&root.0, OPERATIONS_EXTENSION)
    }

    /// The path of a cached text from the web.
    pub(super) fn text_path(&self, address: &str) -> PathBuf {
        self.files.path(&Fingerprint::of_text(address).0, TEXT_EXTENSION)
    }
}
