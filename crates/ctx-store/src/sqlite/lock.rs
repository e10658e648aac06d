//! Lock files. The operating system releases a lock when its holder crashes.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

/// A held lock, released on drop.
pub(super) struct FileLock(File);

/// Takes the lock; `None` while another holder has it.
pub(super) fn try_lock(path: &Path) -> io::Result<Option<FileLock>> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(FileLock(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process between fork and exec still has it open.
        let _ = self.0.unlock();
    }
}
