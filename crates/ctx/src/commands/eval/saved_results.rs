//! The stored results of the last evaluation of each file of questions, to compare the next one with.

use super::questions::EvalQuestion;
use ctx_core::RetrievalMetrics;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The last results of one file of questions, by mode.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(expecting = "struct Kept")]
pub(super) struct SavedResults {
    /// Path of the file of questions, for people who look into the folder.
    pub(super) file: String,
    pub(super) modes: BTreeMap<String, ModeResults>,
}

/// The results of one search mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "struct Results")]
pub(super) struct ModeResults {
    pub(super) at: Timestamp,
    pub(super) questions: Vec<MeasuredQuestion>,
}

/// A question with its metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "struct Measured")]
pub(super) struct MeasuredQuestion {
    #[serde(flatten)]
    pub(super) question: EvalQuestion,
    #[serde(flatten)]
    pub(super) figures: RetrievalMetrics,
}

impl SavedResults {
    /// The path of the results of `file`: in a folder next to the store, named by a hash of the file's path relative
    /// to the workspace, so that a moved workspace keeps them.
    pub(super) fn path(store: &Path, file: &str) -> PathBuf {
        let hash = blake3::hash(file.as_bytes()).to_hex();
        store.with_file_name("eval").join(format!("{hash}.json"))
    }

    /// Reads the stored results; empty if there are none.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes the results atomically.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let unfinished = path.with_extension("json.new");
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&unfinished, serde_json::to_vec_pretty(self)?)?;
        fs::rename(&unfinished, path)
    }
}
