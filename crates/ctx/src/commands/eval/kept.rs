//! The last results of each file of questions, kept beside the store to compare the next with.

use super::questions::Question;
use ctx_core::Figures;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The last results of one file of questions, by mode.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The file, for whoever looks into the folder.
    pub(super) file: String,
    pub(super) modes: BTreeMap<String, Results>,
}

/// What one mode gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Results {
    pub(super) at: Timestamp,
    pub(super) questions: Vec<Measured>,
}

/// How well one question was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    #[serde(flatten)]
    pub(super) question: Question,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

impl Kept {
    /// Where the results of `file` are kept: in a folder beside the store, under a name made from the
    /// file's place in the workspace, so that a workspace that is moved keeps them.
    pub(super) fn path(store: &Path, file: &str) -> PathBuf {
        let hash = blake3::hash(file.as_bytes()).to_hex();
        store.with_file_name("eval").join(format!("{hash}.json"))
    }

    /// What was kept, if anything was.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Keeps it. It is whole or as it was, whatever happens in between.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let unfinished = path.with_extension("json.new");
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&unfinished, serde_json::to_vec_pretty(self)?)?;
        fs::rename(&unfinished, path)
    }
}
