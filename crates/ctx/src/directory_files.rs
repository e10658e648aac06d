//! Stores what the discovery of functions is made of, so that a later start need not make it again.

use crate::cli::state_folder;
use ctx_gateway::DirectoryStore;
use ctx_openapi::FileCache;
use std::sync::Arc;

/// Maximum number of files in the folder, one for each large provider; the oldest are evicted.
const FILES_MAX: usize = 64;

/// The file name extension.
const EXTENSION: &str = "directory";

/// Directory parts in files of the user. They are not in the workspace: a repository could otherwise bring functions that
/// seem to do something else than they do.
struct DirectoryFiles(FileCache);

/// The store in the user's state folder, if there is one.
pub(crate) fn store() -> Option<Arc<dyn DirectoryStore>> {
    let folder = state_folder()?.join("functions");
    Some(Arc::new(DirectoryFiles(FileCache::in_folder(folder, FILES_MAX))))
}

impl DirectoryStore for DirectoryFiles {
    fn load(&self, key: &str) -> Option<Vec<u8>> {
        self.0.read(&self.0.path(key, EXTENSION))
    }

    fn save(&self, key: &str, part: &[u8]) {
        self.0.write(&self.0.path(key, EXTENSION), |file| file.write_all(part));
    }
}
