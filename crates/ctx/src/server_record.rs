//! The record of a running server in its workspace's data folder: process and address, so that a second `ctx up` can say
//! where the first one is, and whoever finds a port taken by whom.
//!
//! A lock that the server holds tells whether it runs; a crash releases it. Without the lock a record means nothing.

use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const FILE: &str = "server.json";
/// Kept when the server ends: a lock file that is removed could be locked twice.
const LOCK_FILE: &str = "server.lock";
/// How often, and how far apart, the lock is tried: whoever looks at a record holds it for a moment.
const LOCK_TRIES: u32 = 5;
const LOCK_TRY_EVERY: Duration = Duration::from_millis(10);
/// The most workspaces that are looked at to find out who has a port.
const WORKSPACES_MAX: usize = 10_000;

/// A server that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunningServer {
    /// Its process id.
    pub(crate) process: u32,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// The folder that it serves.
    pub(crate) workspace: PathBuf,
}

impl RunningServer {
    /// The server of the workspace with this data folder.
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
        serde_json::from_slice(&fs::read(data_folder.join(FILE)).ok()?).ok()
    }

    /// The server that has this address, among those of the user's workspaces.
    pub(crate) fn at(data_folders: &Path, address: SocketAddr) -> Option<Self> {
        let folders = fs::read_dir(data_folders).ok()?.flatten().take(WORKSPACES_MAX);
        let has_address = |server: &Self| {
            let (own, other) = (server.address.ip(), address.ip());
            let overlaps = own == other || own.is_unspecified() || other.is_unspecified();
            server.address.port() == address.port() && overlaps
        };
        folders.filter_map(|folder| Self::of(&folder.path())).find(has_address)
    }

    /// Where it can be reached.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// The record of this process; removed when it is dropped.
pub(crate) struct ServerRecord {
    file: PathBuf,
    lock: File,
}

impl ServerRecord {
    /// Writes the record; `None` while another server of the workspace has one.
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
                    let file = data_folder.join(FILE);
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
        // Closing is not enough: a process that is just being started has the file open too.
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
        // As a process leaves it that was killed.
        fs::write(folder.join(FILE), serde_json::to_vec(&server).unwrap()).unwrap();
        assert_eq!((RunningServer::of(&folder), at("127.0.0.1:7331")), (None, None));
        assert!(ServerRecord::write(&folder, &server).unwrap().is_some());
    }
}
