//! Lock files: held while they are open, released even by a crash.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

/// Takes the lock, or `None` while somebody else has it.
pub(crate) fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
