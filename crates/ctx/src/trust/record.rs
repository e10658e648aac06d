//! Recorded grants for one configuration file: a hash of each trusted section and of each file that it runs.

use super::{origin, trusts_all};
use crate::cli::state_folder;
use crate::config::{TrustRequest, root_of};
use ctx_core::error_chain;
use ctx_store::{TRUST_FILE, Trust};
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
pub(crate) struct GrantRecord {
    /// The identity of the configuration file ([`identity`]).
    config: PathBuf,
    /// The workspace folder, as the paths of files begin with it.
    root: PathBuf,
    grants: Grants,
}

/// Grants by section.
type Grants = BTreeMap<String, Grant>;

/// The grant for one section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Grant {
    hash: String,
    /// Hashes of the files that it runs, by path: relative to the workspace folder if they are below it.
    files: BTreeMap<PathBuf, String>,
}

/// The user's own edit of a file that a trusted section runs.
struct FileEdit {
    section: String,
    section_hash: String,
    file: PathBuf,
    file_hash: String,
}

/// The result of comparing a file with its grant.
enum FileCheck {
    Untrusted,
    Unchanged,
    /// The content is not the trusted one, but the user wrote it.
    EditedByUser(FileEdit),
}

impl GrantRecord {
    /// Loads the record of a configuration file; empty if there is none.
    pub(crate) fn of(path: &Path) -> Result<Self, String> {
        let (config, root) = (identity(path), root_of(path));
        let found = match store() {
            Some(store) => store.get(&config).map_err(|error| error_chain(&error))?,
            None => None,
        };
        Ok(Self { config, root, grants: parse(found.as_ref().map(|found| found.grants.as_str())) })
    }

    /// Whether there is a record for a configuration file.
    pub(crate) fn exists(path: &Path) -> bool {
        store().is_some_and(|store| store.get(&identity(path)).is_ok_and(|found| found.is_some()))
    }

    /// Whether each request is trusted. The user's own edits of files are trusted, and recorded.
    pub(crate) fn evaluate(&self, requests: &[TrustRequest]) -> Vec<bool> {
        let mut edits = Vec::new();
        let mut is_trusted = |request: &TrustRequest| {
            let grant = self.grants.get(&request.section).filter(|grant| grant.hash == request.hash);
            let Some(grant) = grant else { return false };
            for path in &request.files {
                match self.check(&request.section, grant, path) {
                    FileCheck::Untrusted => return false,
                    FileCheck::Unchanged => {}
                    FileCheck::EditedByUser(edit) => edits.push(edit),
                }
            }
            true
        };
        let trusted = requests.iter().map(&mut is_trusted).collect();
        self.record(edits);
        trusted
    }

    /// Whether a file that a trusted section runs may be loaded: it has the trusted content, or the user edited it.
    pub(crate) fn allows(config: &Path, section: &str, file: &Path) -> bool {
        if trusts_all() {
            return true;
        }
        let Ok(record) = Self::of(config) else { return false };
        let Some(grant) = record.grants.get(section) else { return false };
        match record.check(section, grant, file) {
            FileCheck::Untrusted => false,
            FileCheck::Unchanged => true,
            FileCheck::EditedByUser(edit) => {
                record.record(vec![edit]);
                true
            }
        }
    }

    /// Compares a file with its grant.
    fn check(&self, section: &str, grant: &Grant, path: &Path) -> FileCheck {
        let file = self.file_key(path);
        let Some(trusted) = grant.files.get(&file) else { return FileCheck::Untrusted };
        // Hashed before its origin is judged: a checkout that begins in between is then noticed.
        let file_hash = file_hash(path);
        if *trusted == file_hash {
            return FileCheck::Unchanged;
        }
        if !origin::is_edited_here(path) {
            return FileCheck::Untrusted;
        }
        let (section, section_hash) = (section.to_owned(), grant.hash.clone());
        FileCheck::EditedByUser(FileEdit { section, section_hash, file, file_hash })
    }

    /// Adds grants for these requests as they are now.
    pub(crate) fn add(&self, requests: &[TrustRequest]) -> Result<(), String> {
        let added: Vec<(String, Grant)> = requests
            .iter()
            .map(|request| {
                let files = request.files.iter().map(|path| (self.file_key(path), file_hash(path))).collect();
                (request.section.clone(), Grant { hash: request.hash.clone(), files })
            })
            .collect();
        self.update(|stored| {
            let mut grants = parse(stored);
            grants.extend(added);
            serde_json::to_string(&grants).ok()
        })
    }

    /// Deletes the record of a configuration file.
    pub(crate) fn forget(path: &Path) -> Result<(), String> {
        store()
            .map_or(Ok(false), |store| store.forget(&identity(path)))
            .map(drop)
            .map_err(|error| error_chain(&error))
    }

    /// Records edits, where the section is still trusted.
    fn record(&self, edits: Vec<FileEdit>) {
        if edits.is_empty() {
            return;
        }
        let updated = self.update(|stored| {
            let mut grants = parse(Some(stored?));
            for edit in edits {
                if let Some(grant) =
                    grants.get_mut(&edit.section).filter(|grant| grant.hash == edit.section_hash)
                {
                    grant.files.insert(edit.file, edit.file_hash);
                }
            }
            serde_json::to_string(&grants).ok()
        });
        if let Err(problem) = updated {
            tracing::debug!("cannot record the edit of a trusted file: {problem}");
        }
    }

    fn update(&self, change: impl FnOnce(Option<&str>) -> Option<String>) -> Result<(), String> {
        let nowhere = || "there is no folder for the record: set HOME or XDG_STATE_HOME".to_owned();
        store().ok_or_else(nowhere)?.update(&self.config, change).map_err(|error| error_chain(&error))
    }

    fn file_key(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).unwrap_or(path).to_owned()
    }
}

/// Parses stored grants. A record of an older format has no grants by section; the user is asked again.
fn parse(grants: Option<&str>) -> Grants {
    grants.and_then(|grants| serde_json::from_str(grants).ok()).unwrap_or_default()
}

/// The identity of a configuration file: its workspace folder with symlinks resolved, and the path below it as named.
/// A configuration file that is a symlink to another workspace's file does not inherit the grants of that workspace.
fn identity(path: &Path) -> PathBuf {
    let root = root_of(path);
    let below = path.strip_prefix(&root).unwrap_or(path);
    root.canonicalize().unwrap_or_else(|_| root.clone()).join(below)
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
    Some(Trust::new(path()?))
}

/// The path of the file with all records.
pub(crate) fn path() -> Option<PathBuf> {
    Some(state_folder()?.join(TRUST_FILE))
}
