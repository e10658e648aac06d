//! Kept files: binary content that is stored for a limited time outside of results, for the caller that made it.

use crate::{Call, Caller, Identity, ToolError};
use std::fmt;
use std::sync::Arc;

/// URI prefix of kept files.
pub const FILE_PREFIX: &str = "ctx://file/";

/// A file's content, with its name and media type.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// File name without a path, if there is one.
    pub name: Option<String>,
    /// Media type.
    pub content_type: String,
    /// The content.
    pub bytes: Arc<[u8]>,
}

/// Omits the bytes.
impl fmt::Debug for StoredFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeptFile({:?}, {}, {} bytes)", self.name, self.content_type, self.bytes.len())
    }
}

/// Stores files, each for its owner.
pub trait FileStore: Send + Sync + 'static {
    /// Stores a file and returns its URI, which cannot be guessed.
    fn store(&self, file: StoredFile, owner: Option<&Identity>) -> String;

    /// The file with this URI, if this reader may read it; otherwise `not_found`.
    fn load(&self, uri: &str, reader: Option<&Identity>) -> Result<StoredFile, ToolError>;
}

impl Call {
    /// Stores a file for the caller of this call, and returns its URI. `None` if the catalog has no store for files,
    /// and for a CLI command: the store would end with its process.
    pub fn store_file(&self, file: &StoredFile) -> Option<String> {
        let is_command = *self.caller() == Caller::Cli && self.depth() == 0;
        let files = self.catalog().file_store().filter(|_| !is_command)?;
        Some(files.store(file.clone(), self.identity()))
    }

    /// The file with this URI that was stored for the caller of this call.
    pub fn load_file(&self, uri: &str) -> Result<StoredFile, ToolError> {
        match self.catalog().file_store() {
            Some(files) => files.load(uri, self.identity()),
            None => Err(ToolError::not_found("there is no file store")),
        }
    }
}
