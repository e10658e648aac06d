//! Kinds of places that documents come from: one file or folder each, one line in [`KINDS`].

mod filesystem;
mod git;
mod globs;
mod names;
mod s3;
mod survey;
mod watch;

pub(crate) use filesystem::file_url;
pub use survey::{Survey, SurveyLimits};

use ctx_core::Connector;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A kind of connector, as the configuration knows it.
pub struct ConnectorKind {
    /// `filesystem` in `[connectors.filesystem.notes]`.
    pub name: &'static str,
    /// What it reads, for people.
    pub summary: &'static str,
    /// JSON Schema of its settings.
    pub schema: fn() -> Value,
    /// Makes a connector of settings; the error says which are wrong.
    pub open: fn(&Value, OpenOptions<'_>) -> Opened,
}

/// A connector, or what is wrong with its settings.
pub type Opened = Result<Arc<dyn Connector>, String>;

/// What a connector gets besides its settings.
#[derive(Clone, Copy)]
pub struct OpenOptions<'a> {
    /// What relative paths are relative to.
    pub workspace_root: &'a Path,
    /// A folder for what the connector keeps between syncs; see [`crate::cache_path`]. It may be
    /// removed at any time.
    pub cache: &'a Path,
    /// Looks up what the user's environment says, for tools whose own settings live there.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// The largest document that is read.
    pub document_bytes_max: u64,
    /// How the paths of our own files begin, which are neither read nor watched, also not in the repository that the
    /// workspace is in.
    pub own_files: &'a [PathBuf],
}

/// Every kind there is.
pub const KINDS: &[ConnectorKind] = &[filesystem::KIND, git::KIND, s3::KIND];
