//! File versions: detect changes by metadata.

use std::path::Path;
use std::time::SystemTime;

/// A file's version by metadata: modification time, size and inode. The content is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    modified: Option<SystemTime>,
    bytes: u64,
    #[cfg(unix)]
    inode: u64,
}

/// The current version of a file; none if there is no file.
pub(crate) fn file_version(path: &Path) -> Option<FileVersion> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileVersion {
        modified: metadata.modified().ok(),
        bytes: metadata.len(),
        #[cfg(unix)]
        inode: std::os::unix::fs::MetadataExt::ino(&metadata),
    })
}
