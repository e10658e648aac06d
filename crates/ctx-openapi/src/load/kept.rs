//! What was made of texts, kept in a folder: reading it back is many times faster than making it again.

use crate::document::{Fetch, Home};
use crate::operation::Description;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fs;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Changes whenever the same text gives other operations, or they are written in another way.
const FORMAT: u32 = 2;

/// Files in the folder; the oldest give way.
const FILES_MAX: usize = 64;

/// What tells texts apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint(String);

/// Another text that a description refers to; no fingerprint where there was none to be had.
pub(super) type Part = (String, Option<Fingerprint>);

impl Fingerprint {
    /// Of the first text of a description.
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

    /// Of the first text and the others together.
    pub(super) fn with(self, parts: &[Part]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.0.as_bytes());
        for (address, part) in parts {
            hasher.update(format!("\n{address}\n{}", part.as_ref().map_or("", |part| &part.0)).as_bytes());
        }
        Self(hasher.finalize().to_hex().to_string())
    }
}

/// Passes on texts, and remembers which.
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

/// A folder of what was made of texts.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    folder: PathBuf,
}

impl Kept {
    /// In this folder, which is created when there is something to keep.
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// What is kept of a text, if all others that it was made of are still the same.
    pub(super) fn get(&self, first: &Fingerprint, fetch: &dyn Fetch) -> Option<(Description, Fingerprint)> {
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
        // It is used, so it is not the oldest.
        let touched = fs::File::options().append(true).open(&path);
        let _ = touched.and_then(|file| file.set_modified(SystemTime::now()));
        Some((description, first.clone().with(&parts)))
    }

    /// Keeps what was made of texts. Where that fails, it is made again next time.
    pub(super) fn put(&self, first: &Fingerprint, parts: &[Part], description: &Description) {
        let path = self.path(first);
        let written = write(&path, |file| {
            serde_json::to_writer(&mut *file, parts)?;
            file.write_all(b"\n")?;
            serde_json::to_writer(file, description)?;
            Ok(())
        });
        if let Err(error) = written {
            tracing::debug!("{} cannot be written: {error}", path.display());
        }
        drop_oldest(&self.folder);
    }

    fn path(&self, first: &Fingerprint) -> PathBuf {
        self.folder.join(format!("{}.operations", first.0))
    }

    /// Where texts of the web are kept.
    pub(super) fn text_path(&self, address: &str) -> PathBuf {
        self.folder.join(format!("{}.text", Fingerprint::of_part(address).0))
    }
}

/// Writes a file at once or not at all: others may read it meanwhile.
pub(super) fn write(path: &Path, fill: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)?;
    let mut file = BufWriter::new(tempfile::NamedTempFile::new_in(folder)?);
    fill(&mut file)?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.persist(path)?;
    Ok(())
}

/// Keeps the folder small.
fn drop_oldest(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let dated = |entry: fs::DirEntry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()));
    let mut files: Vec<(SystemTime, PathBuf)> = entries.filter_map(dated).collect();
    files.sort();
    let too_many = files.len().saturating_sub(FILES_MAX);
    for (_, path) in files.into_iter().take(too_many) {
        // Somebody else may have been first.
        let _ = fs::remove_file(path);
    }
}
