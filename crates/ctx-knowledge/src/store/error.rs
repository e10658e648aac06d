//! What can be wrong with a store, told apart as far as somebody can act on it.

use rusqlite::ErrorCode;
use std::path::{Path, PathBuf};

/// A store that cannot be used, or cannot be used so.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A newer version wrote it.
    #[error("the store {} was written by a newer ctx (format {found}, this one knows {known})", path.display())]
    Newer {
        /// Where it lies.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format we know.
        known: i64,
    },
    /// It is not a database, or a damaged one.
    #[error("the store {} is damaged: {reason}", path.display())]
    Corrupt {
        /// Where it lies.
        path: PathBuf,
        /// What SQLite says.
        reason: String,
    },
    /// It can be read but not written.
    #[error("the store {} cannot be written", path.display())]
    ReadOnly {
        /// Where it lies.
        path: PathBuf,
    },
    /// The disk is full.
    #[error("no space left to write the store {}", path.display())]
    Full {
        /// Where it lies.
        path: PathBuf,
    },
    /// Another process keeps it locked.
    #[error("the store {} is locked by another process", path.display())]
    Busy {
        /// Where it lies.
        path: PathBuf,
    },
    /// It cannot be opened at all.
    #[error("cannot open the store {}: {reason}", path.display())]
    Open {
        /// Where it lies.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Its `application_id` or schema is that of another program.
    #[error("{} is a database of another program", path.display())]
    Foreign {
        /// Path of the file.
        path: PathBuf,
    },
    /// The SQLite this program was built with is too old.
    #[error("SQLite {found} is too old for a store with two writers; 3.51.3 is the oldest that is safe")]
    OldSqlite {
        /// Its version.
        found: String,
    },
    /// Anything else that SQLite reports.
    #[error("the store {} failed", path.display())]
    Sqlite {
        /// Where it lies.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
}

/// Tells SQLite's errors apart.
pub(super) trait Classify<T> {
    fn classify(self, path: &Path) -> Result<T, StoreError>;
}

impl<T> Classify<T> for rusqlite::Result<T> {
    fn classify(self, path: &Path) -> Result<T, StoreError> {
        self.map_err(|source| {
            let path = path.to_owned();
            match source.sqlite_error_code() {
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                    StoreError::Corrupt { path, reason: source.to_string() }
                }
                Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreError::ReadOnly { path },
                Some(ErrorCode::DiskFull) => StoreError::Full { path },
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy { path },
                Some(ErrorCode::CannotOpen) => StoreError::Open { path, reason: source.to_string() },
                _ => StoreError::Sqlite { path, source },
            }
        })
    }
}

/// Whether somebody else holds the lock.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether less access might still work.
pub(super) fn is_access_problem(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen))
        || is_space_problem(error)
}

/// Whether the disk may be full. SQLite needs space even to read, for the index of its WAL, and may report a
/// full disk as an I/O error.
pub(super) fn is_space_problem(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure))
}
