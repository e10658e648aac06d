//! A [`FileCache`]: a folder of files that are named by a hash, the oldest of which are evicted.

use std::fs;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The file name extensions of all caches: parsed descriptions, texts from the web, and directories of functions.
const EXTENSIONS: [&str; 3] = ["operations", "text", "directory"];

/// Hexadecimal digits of the hash in the name of a file.
const HASH_DIGITS: usize = 2 * blake3::OUT_LEN;

/// A folder of cache files, named by a hash and an extension. It may be a user's, with other files in it.
#[derive(Clone, Debug)]
pub struct FileCache {
    folder: PathBuf,
    /// Maximum number of files; the oldest are evicted.
    files_max: usize,
}

impl FileCache {
    /// A cache in this folder, which is created on the first write.
    pub fn in_folder(folder: PathBuf, files_max: usize) -> Self {
        Self { folder, files_max }
    }

    /// The path of a file, by the hexadecimal hash in its name.
    pub fn path(&self, hash: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{hash}.{extension}"))
    }

    /// Reads a file, if it is there.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let bytes = fs::read(path).ok()?;
        touch(path);
        Some(bytes)
    }

    /// Writes a file, then evicts the oldest ones. If that fails, it is not there.
    pub fn write(&self, path: &Path, fill: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) {
        if let Err(error) = write(path, fill) {
            tracing::debug!("{} cannot be written: {error}", path.display());
        }
        self.evict_oldest();
    }

    /// Evicts the oldest files beyond the maximum.
    fn evict_oldest(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let dated = |entry: fs::DirEntry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()));
        let mut files: Vec<(SystemTime, PathBuf)> = entries.filter(is_cache_file).filter_map(dated).collect();
        files.sort();
        let excess = files.len().saturating_sub(self.files_max);
        for (_, path) in files.into_iter().take(excess) {
            // Another process may have removed it first.
            let _ = fs::remove_file(path);
        }
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
    let is_fingerprint = stem.len() == HASH_DIGITS && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    // `file_type` does not follow symbolic links.
    let is_file = || entry.file_type().is_ok_and(|kind| kind.is_file());
    is_fingerprint && EXTENSIONS.contains(&ending) && is_file()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const FILES_MAX: usize = 64;

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

        let cache = FileCache::in_folder(folder.path().to_owned(), FILES_MAX);
        for number in 0..FILES_MAX + 3 {
            cache.write(&cache.path(&format!("{number:064x}1").split_off(1), "text"), |_| Ok(()));
        }
        let cache_files = fs::read_dir(folder.path()).unwrap().flatten().filter(is_cache_file).count();
        assert_eq!(cache_files, FILES_MAX);
        for name in foreign_files.into_iter().chain([inside.as_str(), link.as_str()]) {
            assert!(fs::symlink_metadata(path(name)).is_ok(), "{name}");
        }
    }
}
