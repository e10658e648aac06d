//! Disk cache of parsed descriptions and of texts from the web. Reading a parsed description is many times
//! faster than parsing its text.

use crate::document::{Fetch, Home};
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
const OPERATIONS: &str = "operations";
const TEXT: &str = "text";

/// A hash that identifies the text of a document, or all texts of a description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint(String);

/// Another document that a description refers to, by address; without fingerprint if it could not be fetched.
pub(super) type Part = (String, Option<Fingerprint>);

impl Fingerprint {
    /// The fingerprint of a root document: its text, its address, and the version of this parser.
    pub(super) fn of_text(home: &Home, text: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        let parts = [env!("CARGO_PKG_VERSION"), &FORMAT.to_string(), &home.address(), text];
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        Self(hasher.finalize().to_hex().to_string())
    }

    fn of_part(text: &str) -> Self {
        Self(blake3::hash(text.as_bytes()).to_hex().to_string())
    }

    /// The fingerprint of the root document and of all others together.
    pub(super) fn with(self, parts: &[Part]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.0.as_bytes());
        for (address, part) in parts {
            hasher.update(format!("\n{address}\n{}", part.as_ref().map_or("", |part| &part.0)).as_bytes());
        }
        Self(hasher.finalize().to_hex().to_string())
    }
}

/// A [`Fetch`] that records which documents are fetched, with their fingerprints.
pub(super) struct Seen<'a> {
    fetch: &'a dyn Fetch,
    parts: RefCell<Vec<Part>>,
}

impl<'a> Seen<'a> {
    pub(super) fn new(fetch: &'a dyn Fetch) -> Self {
        Self { fetch, parts: RefCell::default() }
    }

    pub(super) fn into_parts(self) -> Vec<Part> {
        self.parts.into_inner()
    }
}

impl Fetch for Seen<'_> {
    fn fetch(&self, address: &str) -> Result<String, String> {
        let fetched = self.fetch.fetch(address);
        let fingerprint = fetched.as_ref().ok().map(|text| Fingerprint::of_part(text));
        self.parts.borrow_mut().push((address.to_owned(), fingerprint));
        fetched
    }
}

/// The cache folder.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    folder: PathBuf,
}

impl Kept {
    /// A cache in this folder, which is created on the first write.
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The cached description of a root document, if all other documents that it was made of are unchanged.
    pub(super) fn get(&self, first: &Fingerprint, fetch: &dyn Fetch) -> Option<(Description, Vec<Part>)> {
        let path = self.path(first);
        let bytes = fs::read(&path).ok()?;
        let line = memchr::memchr(b'\n', &bytes)?;
        let parts: Vec<Part> = serde_json::from_slice(bytes.get(..line)?).ok()?;
        let is_same = |(address, kept): &Part| {
            fetch.fetch(address).ok().map(|text| Fingerprint::of_part(&text)) == *kept
        };
        if !parts.iter().all(is_same) {
            return None;
        }
        let description = serde_json::from_slice(bytes.get(line + 1..)?).ok()?;
        touch(&path);
        Some((description, parts))
    }

    /// Caches a parsed description. If that fails, the text is parsed again next time.
    pub(super) fn put(&self, first: &Fingerprint, parts: &[Part], description: &Description) {
        let path = self.path(first);
        self.write(&path, |file| {
            serde_json::to_writer(&mut *file, parts)?;
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
        drop_oldest(&self.folder);
    }

    fn path(&self, first: &Fingerprint) -> PathBuf {
        self.folder.join(format!("{}.{OPERATIONS}", first.0))
    }

    /// The path of a cached text from the web.
    pub(super) fn text_path(&self, address: &str) -> PathBuf {
        self.folder.join(format!("{}.{TEXT}", Fingerprint::of_part(address).0))
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
fn is_ours(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let Some((stem, ending)) = name.to_str().and_then(|name| name.split_once('.')) else { return false };
    let is_fingerprint =
        stem.len() == 2 * blake3::OUT_LEN && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    // `file_type` does not follow symbolic links.
    let is_file = || entry.file_type().is_ok_and(|kind| kind.is_file());
    is_fingerprint && [OPERATIONS, TEXT].contains(&ending) && is_file()
}

/// Evicts the oldest files beyond [`FILES_MAX`].
fn drop_oldest(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let dated = |entry: fs::DirEntry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()));
    let mut files: Vec<(SystemTime, PathBuf)> = entries.filter(is_ours).filter_map(dated).collect();
    files.sort();
    let too_many = files.len().saturating_sub(FILES_MAX);
    for (_, path) in files.into_iter().take(too_many) {
        // Another process may have removed it first.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn only_files_that_are_written_here_give_way() {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        let hash = "0".repeat(64);
        let others =
            ["notes.text", "a.operations", &format!("{hash}.txt"), &format!("{hash}.text.bak"), ".tmpAbc"];
        for name in others {
            fs::write(path(name), "").unwrap();
        }
        let (inside, link) = (format!("{hash}.operations"), format!("{hash}.text"));
        fs::create_dir(path(&inside)).unwrap();
        std::os::unix::fs::symlink(path("notes.text"), path(&link)).unwrap();

        let kept = Kept::in_folder(folder.path().to_owned());
        for number in 0..FILES_MAX + 3 {
            kept.write(&kept.text_path(&number.to_string()), |_| Ok(()));
        }
        let ours = fs::read_dir(folder.path()).unwrap().flatten().filter(is_ours).count();
        assert_eq!(ours, FILES_MAX);
        for name in others.into_iter().chain([inside.as_str(), link.as_str()]) {
            assert!(fs::symlink_metadata(path(name)).is_ok(), "{name}");
        }
    }
}
