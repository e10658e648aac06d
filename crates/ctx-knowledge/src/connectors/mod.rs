//! The built-in connectors: one file or folder each, one line in [`KINDS`].

mod filesystem;
mod folder_watcher;
mod git;
mod globs;
mod names;
mod s3;
mod survey;

pub(crate) use filesystem::file_url;
pub use survey::{FolderSurvey, SurveyLimits};

use ctx_core::Connector;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A type of connector, as named in the configuration.
pub struct ConnectorKind {
    /// `filesystem` in `[connectors.filesystem.notes]`.
    pub name: &'static str,
    /// A description for users.
    pub summary: &'static str,
    /// JSON Schema of its settings.
    pub schema: fn() -> Value,
    /// Creates a connector from settings; the error names the wrong setting.
    pub open: fn(&Value, OpenOptions<'_>) -> ConnectorResult,
}

/// A connector, or the error in its settings.
pub type ConnectorResult = Result<Arc<dyn Connector>, String>;

/// Paths, variables and limits that a connector is opened with, besides its settings.
#[derive(Clone, Copy)]
pub struct OpenOptions<'a> {
    /// The workspace folder, to which relative paths refer.
    pub workspace_root: &'a Path,
    /// Folder for data that the connector keeps between syncs; see [`crate::cache_path`]. It may be deleted at any
    /// time.
    pub cache: &'a Path,
    /// Looks up environment variables, for tools that are configured there.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// Maximum size of a document in bytes.
    pub document_bytes_max: u64,
    /// Path prefixes of ctx's own files, which are neither read nor watched, in folders and in the repository of the
    /// workspace.
    pub own_files: &'a [PathBuf],
}

/// All built-in connectors.
pub const KINDS: &[ConnectorKind] = &[filesystem::KIND, git::KIND, s3::KIND];
