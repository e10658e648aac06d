//! Bytes that are kept for a while outside of answers, for whoever made the call.

use crate::{Call, Caller, Identity, ToolError};
use std::fmt;
use std::sync::Arc;

/// What the URIs of kept files begin with.
pub const FILE_PREFIX: &str = "ctx://file/";

/// Bytes, and what is known of them.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// What it is called, where it is: a name without a path.
    pub name: Option<String>,
    /// What kind of content it is.
    pub content_type: String,
    /// The content.
    pub bytes: Arc<[u8]>,
}

/// Without the bytes.
impl fmt::Debug for KeptFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeptFile({:?}, {}, {} bytes)", self.name, self.content_type, self.bytes.len())
    }
}

/// Keeps files, each for the one whose it is.
pub trait Keeper: Send + Sync + 'static {
    /// Keeps a file, and gives the URI that it is read by; nobody can guess it.
    fn keep(&self, file: KeptFile, owner: Option<&Identity>) -> String;

    /// The file that was kept under a URI for this reader; `not_found` where there is none.
    fn kept(&self, uri: &str, reader: Option<&Identity>) -> Result<KeptFile, ToolError>;
}

impl Call {
    /// Keeps a file for whoever made the call, and gives its URI. None where nobody keeps files; nor for a command in
    /// a terminal, with which whoever keeps them would end.
    pub fn keep(&self, file: &KeptFile) -> Option<String> {
        let is_command = *self.caller() == Caller::Cli && self.depth() == 0;
        let keeper = self.catalog().keeper().filter(|_| !is_command)?;
        Some(keeper.keep(file.clone(), self.identity()))
    }

    /// The file that was kept under a URI for whoever made the call.
    pub fn kept(&self, uri: &str) -> Result<KeptFile, ToolError> {
        match self.catalog().keeper() {
            Some(keeper) => keeper.kept(uri, self.identity()),
            None => Err(ToolError::not_found("no files are kept here")),
        }
    }
}
