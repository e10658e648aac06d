//! File versions: detect changes by metadata.

use std::path::Path;
use std::time::SystemTime;

/// A file's version by metadata: modification time, size and inode. The content is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    modified: Option<SystemTime>,
    bytes: u64,
    #[cfg(unix)]
    inode: u64,
}

/// The current version of a file; none if there is no file.
pub(crate) fn version(path: &Path) -> Option<Version> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(Version {
        modified: metadata.modified().ok(),
        bytes: metadata.len(),
        #[cfg(unix)]
        inode: std::os::unix::fs::MetadataExt::ino(&metadata),
    })
}
