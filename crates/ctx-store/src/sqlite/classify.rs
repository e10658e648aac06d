//! Conversion of SQLite errors to [`StoreError`].

use crate::error::{StoreError, StoreLocation, StorePart};
use rusqlite::ErrorCode;
use std::path::Path;

/// The location of a store, for error messages.
pub(super) fn place(path: &Path) -> StoreLocation {
    StoreLocation { name: path.display().to_string(), part: StorePart::Documents }
}

/// Converts SQLite errors by their error code.
pub(super) trait Classify<T> {
    fn classify(self, path: &Path) -> Result<T, StoreError>;
}

impl<T> Classify<T> for rusqlite::Result<T> {
    fn classify(self, path: &Path) -> Result<T, StoreError> {
        self.map_err(|source| {
            let place = place(path);
            match source.sqlite_error_code() {
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                    StoreError::Corrupt { place, reason: source.to_string() }
                }
                Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreError::ReadOnly { place },
                Some(ErrorCode::DiskFull) => StoreError::Full { place },
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy { place },
                Some(ErrorCode::CannotOpen) => StoreError::Open { place, reason: source.to_string() },
                _ => StoreError::Failed { place, source: source.into() },
            }
        })
    }
}

/// Whether another connection holds the lock.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether opening with less access might still work.
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
