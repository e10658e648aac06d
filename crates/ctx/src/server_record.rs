//! Records the process ID and address of a running server in its workspace's data folder. A second `ctx up`
//! reports where the first one is, and an error about a taken port names the server that has it.
//!
//! The server holds a lock while it runs; a crash releases it. Without a held lock the record is stale.

use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const RECORD_FILE: &str = "server.json";
/// Not removed at exit: two processes could then hold locks on different files of this name.
const LOCK_FILE: &str = "server.lock";
/// Number and interval of attempts to lock: readers of the record hold a shared lock for a moment.
const LOCK_TRIES: u32 = 5;
const LOCK_TRY_EVERY: Duration = Duration::from_millis(10);
/// Maximum number of workspaces that are searched for the owner of a port.
const WORKSPACES_MAX: usize = 10_000;

/// A running server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunningServer {
    /// The process ID.
    pub(crate) process: u32,
    /// The listening address.
    pub(crate) address: SocketAddr,
    /// The workspace folder.
    pub(crate) workspace: PathBuf,
}

impl RunningServer {
    /// The running server of the workspace with this data folder.
    pub(crate) fn of(data_folder: &Path) -> Option<Self> {
        let lock = File::options().read(true).open(data_folder.join(LOCK_FILE)).ok()?;
        match lock.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(_)) => return None,
            Ok(()) => {
                let _ = lock.unlock();
                return None;
            }
        }
        serde_json::from_slice(&fs::read(data_folder.join(RECORD_FILE)).ok()?).ok()
    }

    /// The running server with this address, among all workspaces of the user.
    pub(crate) fn at(data_folders: &Path, address: SocketAddr) -> Option<Self> {
        let folders = fs::read_dir(data_folders).ok()?.flatten().take(WORKSPACES_MAX);
        let has_address = |server: &Self| {
            let (own, other) = (server.address.ip(), address.ip());
            let overlaps = own == other || own.is_unspecified() || other.is_unspecified();
            server.address.port() == address.port() && overlaps
        };
        folders.filter_map(|folder| Self::of(&folder.path())).find(has_address)
    }

    /// The base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// The record of this process; removed on drop.
pub(crate) struct ServerRecord {
    file: PathBuf,
    lock: File,
}

impl ServerRecord {
    /// Writes the record; `None` if another server of the workspace holds the lock.
    pub(crate) fn write(data_folder: &Path, server: &RunningServer) -> io::Result<Option<Self>> {
        let mut folder = DirBuilder::new();
        folder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700);
        folder.create(data_folder)?;
        let lock = private_file(&data_folder.join(LOCK_FILE), false)?;
        for _ in 0..LOCK_TRIES {
            match lock.try_lock() {
                Ok(()) => {
                    let file = data_folder.join(RECORD_FILE);
                    private_file(&file, true)?.write_all(&serde_json::to_vec(server)?)?;
                    return Ok(Some(Self { file, lock }));
                }
                Err(TryLockError::WouldBlock) => thread::sleep(LOCK_TRY_EVERY),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }
}

impl Drop for ServerRecord {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
        // Closing the file is not enough: a child process that is being started may still have inherited it.
        let _ = self.lock.unlock();
    }
}

fn private_file(path: &Path, truncate: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(truncate).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_while_its_server_runs_and_names_who_has_a_port() {
        let folders = tempfile::tempdir().unwrap();
        let folder = folders.path().join("notes-1");
        let server = RunningServer {
            process: 7,
            address: "127.0.0.1:7331".parse().unwrap(),
            workspace: PathBuf::from("/notes"),
        };
        assert_eq!(RunningServer::of(&folder), None);
        let record = ServerRecord::write(&folder, &server).unwrap().unwrap();
        assert_eq!(RunningServer::of(&folder), Some(server.clone()));
        assert!(ServerRecord::write(&folder, &server).unwrap().is_none());
        let at = |address: &str| RunningServer::at(folders.path(), address.parse().unwrap());
        assert_eq!(at("127.0.0.1:7331"), Some(server.clone()));
        assert_eq!(at("0.0.0.0:7331"), Some(server.clone()));
        assert_eq!((at("127.0.0.2:7331"), at("127.0.0.1:7332")), (None, None));
        drop(record);
        // The state that a killed process leaves behind.
        fs::write(folder.join(RECORD_FILE), serde_json::to_vec(&server).unwrap()).unwrap();
        assert_eq!((RunningServer::of(&folder), at("127.0.0.1:7331")), (None, None));
        assert!(ServerRecord::write(&folder, &server).unwrap().is_some());
    }
}
