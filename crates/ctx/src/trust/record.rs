//! Recorded grants for one configuration file: a hash of each trusted section and of each file that it runs.

use super::{origin, trusts_all};
use crate::cli::state_folder;
use crate::config::TrustRequest;
use ctx_core::chain;
use ctx_state::Trust;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The hash of a file that does not exist.
const ABSENT: &str = "absent";
/// Bytes of a file that its hash covers; beyond that only its size counts.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The grants for one configuration file.
#[derive(Default)]
pub(crate) struct Record {
    path: PathBuf,
    grants: BTreeMap<String, Grant>,
}

/// The trust in one section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Grant {
    hash: String,
    /// Hashes of the files that it runs, by path.
    files: BTreeMap<PathBuf, String>,
}

impl Record {
    /// Loads the record of a configuration file; empty if there is none.
    pub(crate) fn of(path: &Path) -> Result<Self, String> {
        let path = canonical(path);
        let Some(store) = store() else { return Ok(Self { path, ..Self::default() }) };
        let found = store.of(&path).map_err(|error| chain(&error))?;
        // A record of an older format has no grants by section: the user is asked again.
        let grants = found.and_then(|found| serde_json::from_str(&found.grants).ok()).unwrap_or_default();
        Ok(Self { path, grants })
    }

    /// Whether there is a record for a configuration file.
    pub(crate) fn exists(path: &Path) -> bool {
        store().is_some_and(|store| store.of(&canonical(path)).is_ok_and(|found| found.is_some()))
    }

    /// Whether each request is trusted. The user's own edits of files are trusted, and recorded.
    pub(crate) fn evaluate(&mut self, requests: &[TrustRequest]) -> Vec<bool> {
        let mut edited = false;
        let mut is_trusted = |request: &TrustRequest| {
            let Some(grant) =
                self.grants.get_mut(&request.section).filter(|grant| grant.hash == request.hash)
            else {
                return false;
            };
            for path in &request.files {
                let Some(trusted) = grant.files.get_mut(path) else { return false };
                let now = file_hash(path);
                if *trusted == now {
                    continue;
                }
                if !origin::is_edited_here(path) {
                    return false;
                }
                *trusted = now;
                edited = true;
            }
            true
        };
        let trusted = requests.iter().map(&mut is_trusted).collect();
        if edited && let Err(problem) = self.save() {
            tracing::debug!("an edit is not remembered: {problem}");
        }
        trusted
    }

    /// Adds grants for these requests as they are now, and saves the record.
    pub(crate) fn add(&mut self, requests: &[TrustRequest]) -> Result<(), String> {
        for request in requests {
            let files = request.files.iter().map(|path| (path.clone(), file_hash(path))).collect();
            self.grants.insert(request.section.clone(), Grant { hash: request.hash.clone(), files });
        }
        self.save()
    }

    /// Deletes the record of a configuration file.
    pub(crate) fn forget(path: &Path) -> Result<(), String> {
        store()
            .map_or(Ok(false), |store| store.forget(&canonical(path)))
            .map(drop)
            .map_err(|error| chain(&error))
    }

    /// Whether a file that a trusted section runs may be loaded: it has the trusted content, or the user edited it.
    pub(crate) fn allows(config: &Path, section: &str, file: &Path) -> bool {
        if trusts_all() {
            return true;
        }
        let Ok(mut record) = Self::of(config) else { return false };
        let trusted = record.grants.get_mut(section).and_then(|grant| grant.files.get_mut(file));
        let Some(trusted) = trusted else { return false };
        let now = file_hash(file);
        if *trusted == now {
            return true;
        }
        if !origin::is_edited_here(file) {
            return false;
        }
        *trusted = now;
        if let Err(problem) = record.save() {
            tracing::debug!("an edit is not remembered: {problem}");
        }
        true
    }

    fn save(&self) -> Result<(), String> {
        let nowhere = || "there is no folder to remember it in: set HOME or XDG_STATE_HOME".to_owned();
        let grants = serde_json::to_string(&self.grants).map_err(|error| error.to_string())?;
        store().ok_or_else(nowhere)?.remember(&self.path, &grants).map_err(|error| chain(&error))
    }
}

/// Hash of a file's size and content.
fn file_hash(path: &Path) -> String {
    let hashed = || -> io::Result<String> {
        // Checked before it is opened: opening a FIFO would block.
        let metadata = std::fs::metadata(path)?;
        if !metadata.is_file() {
            return Ok(ABSENT.to_owned());
        }
        let file = File::open(path)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&metadata.len().to_le_bytes());
        hasher.update_reader(io::Read::take(file, FILE_BYTES_MAX))?;
        Ok(hasher.finalize().to_hex().to_string())
    };
    hashed().unwrap_or_else(|_| ABSENT.to_owned())
}

fn store() -> Option<Trust> {
    Some(Trust::new(state_folder()?.join("trust.sqlite")))
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
