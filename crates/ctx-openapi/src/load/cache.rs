//! Disk cache of parsed descriptions and of texts from the web. Reading a parsed description is many times
//! faster than parsing its text.

use crate::document::{Fetch, RootLocation};
use crate::operation::Description;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fs;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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
    folder: PathBuf,
}

impl DescriptionCache {
    /// A cache in this folder, which is created on the first write.
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The cached description of a root document, if all other documents that it was made of are unchanged.
    pub(super) fn get(
        &self,
        root: &Fingerprint,
        fetch: &dyn Fetch,
    ) -> Option<(Description, Vec<DocumentFingerprint>)> {
        let path = self.path(root);
        let bytes = fs::read(&path).ok()?;
        let line = memchr::memchr(b'\n', &bytes)?;
        let others: Vec<DocumentFingerprint> = serde_json::from_slice(bytes.get(..line)?).ok()?;
        let is_same = |(address, fingerprint): &DocumentFingerprint| {
            fetch.fetch(address).ok().map(|text| Fingerprint::of_text(&text)) == *fingerprint
        };
        if !others.iter().all(is_same) {
            return None;
        }
        let description = serde_json::from_slice(bytes.get(line + 1..)?).ok()?;
        touch(&path);
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

    /// Writes a file of the cache, then evicts the oldest files.
    pub(super) fn write(&self, path: &Path, fill: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) {
        if let Err(error) = write(path, fill) {
            tracing::debug!("{} cannot be written: {error}", path.display());
        }
        evict_oldest(&self.folder);
    }

    fn path(&self, root: &Fingerprint) -> PathBuf {
        self.folder.join(format!("{}.{OPERATIONS_EXTENSION}", root.0))
    }

    /// The path of a cached text from the web.
    pub(super) fn text_path(&self, address: &str) -> PathBuf {
        self.folder.join(format!("{}.{TEXT_EXTENSION}", Fingerprint::of_text(address).0))
    }
}

/// Writes a file atomically: other processes may read it at the same time.
fn write(path: &Path, fill: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    let mut file = BufWriter::new(tempfile::NamedTempFile::new_in(folder)?);
    fill(&mut file)?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.persist(path)?;
    Ok(())
}

/// Updates the modification time, so that a file in use is not among the oldest.
pub(super) fn touch(path: &Path) {
    let touched = fs::File::options().append(true).open(path);
    let _ = touched.and_then(|file| file.set_modified(SystemTime::now()));
}

/// Whether a file was written by this cache: the folder may be a user's, with other files in it.
fn is_cache_file(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let Some((stem, ending)) = name.to_str().and_then(|name| name.split_once('.')) else { return false };
    let is_fingerprint =
        stem.len() == 2 * blake3::OUT_LEN && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    // `file_type` does not follow symbolic links.
    let is_file = || entry.file_type().is_ok_and(|kind| kind.is_file());
    is_fingerprint && [OPERATIONS_EXTENSION, TEXT_EXTENSION].contains(&ending) && is_file()
}

/// Evicts the oldest files beyond [`FILES_MAX`].
fn evict_oldest(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let dated = |entry: fs::DirEntry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()));
    let mut files: Vec<(SystemTime, PathBuf)> = entries.filter(is_cache_file).filter_map(dated).collect();
    files.sort();
    let excess = files.len().saturating_sub(FILES_MAX);
    for (_, path) in files.into_iter().take(excess) {
        // Another process may have removed it first.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn only_cache_files_are_evicted() {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        let hash = "0".repeat(64);
        let foreign_files =
            ["notes.text", "a.operations", &format!("{hash}.txt"), &format!("{hash}.text.bak"), ".tmpAbc"];
        for name in foreign_files {
            fs::write(path(name), "").unwrap();
        }
        let (inside, link) = (format!("{hash}.operations"), format!("{hash}.text"));
        fs::create_dir(path(&inside)).unwrap();
        std::os::unix::fs::symlink(path("notes.text"), path(&link)).unwrap();

        let cache = DescriptionCache::in_folder(folder.path().to_owned());
        for number in 0..FILES_MAX + 3 {
            cache.write(&cache.text_path(&number.to_string()), |_| Ok(()));
        }
        let cache_files = fs::read_dir(folder.path()).unwrap().flatten().filter(is_cache_file).count();
        assert_eq!(cache_files, FILES_MAX);
        for name in foreign_files.into_iter().chain([inside.as_str(), link.as_str()]) {
            assert!(fs::symlink_metadata(path(name)).is_ok(), "{name}");
        }
    }
}
