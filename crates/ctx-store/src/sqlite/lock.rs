//! Lock files: held while they are open, released even by a crash.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

/// A lock that is held.
pub(super) struct Lock(File);

/// Takes the lock, or `None` while somebody else has it.
pub(super) fn try_lock(path: &Path) -> io::Result<Option<Lock>> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a process that is just being started has the file open too, until it
        // is another program.
        let _ = self.0.unlock();
    }
}
