//! The SQLite backend: documents in one file, which is the source of truth for every index.

mod changes;
mod classify;
mod counts;
#[cfg(test)]
mod earlier_formats;
mod files;
mod list;
mod lock;
#[cfg(feature = "raw")]
mod raw;
mod read;
mod schema;
mod state;
mod unreadable;
mod vectors;
mod write;

#[cfg(feature = "raw")]
pub use raw::RawConnection;
pub use state::{SqliteState, StateFiles};

pub(crate) use state::{connect_state, create_state, state_error, state_place};

use crate::error::StoreError;
use crate::lease::{Lease, LeaseGuard, source_file_stem};
use crate::private;
use crate::store::{Store, StoreIdentity};
use classify::{Classify, place};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Before this version, WAL mode can corrupt a database with two writers.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// How long a writer waits for another process to finish its transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between attempts where SQLite does not wait itself.
const BUSY_POLL: Duration = Duration::from_millis(20);
/// Minimum time between two attempts to reopen a store after the disk was full.
const REOPEN_INTERVAL: Duration = Duration::from_secs(2);
/// Idle connections kept for readers.
const READERS_MAX: usize = 8;

/// A store in a SQLite file. Leases are lock files next to it.
pub struct SqliteStore {
    path: PathBuf,
    about: StoreIdentity,
    connections: RwLock<Connections>,
}

/// The connections of a store.
struct Connections {
    access: Access,
    /// `None` when the file or its folder cannot be written.
    writer: Option<Mutex<Connection>>,
    readers: Mutex<Vec<Connection>>,
    /// Whether the store is not writable because the disk was full when it was opened.
    is_disk_full: bool,
    opened_at: Instant,
}

/// How the file can be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    ReadWrite,
    /// The file cannot be written, but its folder's WAL files can be used.
    ReadOnly,
    /// The disk is full, so the WAL index cannot be created. SQLite keeps it in memory instead, which needs an
    /// exclusive lock: a single connection.
    Exclusive,
    /// Nothing in the folder can be written: the file is read as it is, without its WAL.
    Immutable,
}

impl SqliteStore {
    /// Opens the store at `path`. Creates or migrates it where that is possible.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let started = Instant::now();
        loop {
            match Self::try_open(path) {
                // SQLite refuses some locks without waiting, such as when two processes create a store at once.
                Err(StoreError::Busy { .. }) if started.elapsed() < BUSY_TIMEOUT => thread::sleep(BUSY_POLL),
                opened => return opened,
            }
        }
    }

    fn try_open(path: &Path) -> Result<Self, StoreError> {
        if rusqlite::version_number() < SQLITE_VERSION_MIN {
            let found = rusqlite::version();
            let reason = format!(
                "SQLite {found} is too old for a store with two writers; 3.51.3 is the oldest that is safe"
            );
            return Err(StoreError::Unsupported { reason });
        }
        schema::refuse_foreign(path)?;
        let (id, connections) = Connections::open(path)?;
        let about = StoreIdentity { id, location: path.display().to_string() };
        Ok(Self { path: path.to_owned(), about, connections: RwLock::new(connections) })
    }

    fn connections(&self) -> RwLockReadGuard<'_, Connections> {
        self.connections.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reopens a store for writing that was opened on a full disk, at most once per [`REOPEN_INTERVAL`].
    fn reopen_if_disk_was_full(&self) {
        let is_due = |connections: &Connections| {
            connections.is_disk_full && connections.opened_at.elapsed() >= REOPEN_INTERVAL
        };
        if !is_due(&self.connections()) {
            return;
        }
        let mut connections = self.connections.write().unwrap_or_else(PoisonError::into_inner);
        if !is_due(&connections) {
            return;
        }
        connections.opened_at = Instant::now();
        // Closed first: its exclusive lock would block the new connection.
        connections.readers.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        if let Ok((id, reopened)) = Connections::open(&self.path)
            && id == self.about.id
        {
            *connections = reopened;
        }
    }

    fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let connections = self.connections();
        if connections.access == Access::Exclusive {
            let mut readers = connections.readers.lock().unwrap_or_else(PoisonError::into_inner);
            if readers.is_empty() {
                readers
                    .push(connect(&self.path, connections.access, OpenFlags::empty()).classify(&self.path)?);
            }
            let only = readers.first().ok_or_else(|| StoreError::Busy { place: place(&self.path) })?;
            return work(only).classify(&self.path);
        }
        let idle = connections.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => connect(&self.path, connections.access, OpenFlags::empty()).classify(&self.path)?,
        };
        let result = work(&connection).classify(&self.path).map_err(|error| {
            // The query may fail because a newer version has migrated the file. Then that is the error to report.
            schema::refuse_newer(&connection, &self.path).err().unwrap_or(error)
        });
        let mut readers = connections.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < READERS_MAX {
            readers.push(connection);
        }
        result
    }

    /// Runs `work` in one transaction; an error rolls it back.
    fn write<T>(&self, work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        self.reopen_if_disk_was_full();
        let connections = self.connections();
        let writer = connections.writer.as_ref().ok_or_else(|| match connections.is_disk_full {
            true => StoreError::Full { place: place(&self.path) },
            false => StoreError::ReadOnly { place: place(&self.path) },
        })?;
        let mut connection = writer.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = transaction.classify(&self.path)?;
        // A newer version may have migrated the file since it was opened.
        schema::refuse_newer(&transaction, &self.path)?;
        let result = work(&transaction).classify(&self.path)?;
        transaction.commit().classify(&self.path)?;
        Ok(result)
    }
}

impl Store for SqliteStore {
    fn identity(&self) -> &StoreIdentity {
        &self.about
    }

    fn writable(&self) -> bool {
        self.connections().writer.is_some()
    }

    fn size_bytes(&self) -> u64 {
        let mut write_ahead = self.path.as_os_str().to_owned();
        write_ahead.push("-wal");
        let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        bytes(&self.path) + bytes(Path::new(&write_ahead))
    }

    fn problems(&self) -> Result<Vec<String>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare("PRAGMA quick_check(20)")?;
            let found: rusqlite::Result<Vec<String>> = statement.query_map([], |row| row.get(0))?.collect();
            let mut problems: Vec<String> = found?.into_iter().filter(|line| line != "ok").collect();
            if problems.is_empty() {
                problems = counts::problems(connection)?;
            }
            Ok(problems)
        })
    }

    fn lease(&self, lease: &Lease) -> Result<Option<LeaseGuard>, StoreError> {
        let path = match lease {
            Lease::Sync(source) => {
                let folder = self.path.with_extension("locks");
                private::create_folder(&folder).map_err(StoreError::Lease)?;
                folder.join(format!("{}.lock", source_file_stem(source)))
            }
            Lease::Embedding => self.path.with_extension("vectors.lock"),
            Lease::Index => self.path.with_extension("keyword.lock"),
        };
        let lock = lock::try_lock(&path).map_err(StoreError::Lease)?;
        Ok(lock.map(LeaseGuard::new))
    }
}

impl Connections {
    fn open(path: &Path) -> Result<(Uuid, Self), StoreError> {
        let (connection, access, is_disk_full) = open_with_most_access(path)?;
        let id = match schema::prepare(&connection, access == Access::ReadWrite, path) {
            Err(StoreError::Open { place, .. }) if is_disk_full => return Err(StoreError::Full { place }),
            prepared => prepared?,
        };
        let (writer, readers) = match access {
            Access::ReadWrite => (Some(Mutex::new(connection)), Vec::new()),
            _ => (None, vec![connection]),
        };
        let opened_at = Instant::now();
        Ok((id, Self { access, writer, readers: Mutex::new(readers), is_disk_full, opened_at }))
    }
}

/// Opens the file with the most access possible: to write, else to read, else as an immutable file. The flag tells
/// whether write access failed because of a full disk.
fn open_with_most_access(path: &Path) -> Result<(Connection, Access, bool), StoreError> {
    if let Err(error) = private::create_file(path)
        && !path.exists()
    {
        return Err(StoreError::Open { place: place(path), reason: error.to_string() });
    }
    let mut failure: Option<rusqlite::Error> = None;
    for access in [Access::ReadWrite, Access::ReadOnly, Access::Exclusive, Access::Immutable] {
        if !should_try(access, failure.as_ref()) {
            continue;
        }
        let opened = connect(path, access, OpenFlags::SQLITE_OPEN_CREATE).and_then(|connection| {
            if access == Access::ReadWrite {
                // Taking the write lock shows whether writing works, and changes nothing. A lock that another process
                // holds shows it as well.
                connection.busy_timeout(Duration::ZERO)?;
                match connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK") {
                    Err(error) if !classify::is_busy(&error) => return Err(error),
                    _ => connection.busy_timeout(BUSY_TIMEOUT)?,
                }
            } else {
                connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
            }
            Ok(connection)
        });
        match opened {
            Ok(connection) => {
                return Ok((
                    connection,
                    access,
                    failure.is_some_and(|error| classify::is_space_problem(&error)),
                ));
            }
            // The first error is the reason for the reduced access.
            Err(error) if classify::is_access_problem(&error) => drop(failure.get_or_insert(error)),
            Err(error) => {
                return Err(error).classify(path).map_err(|error| match error {
                    StoreError::Failed { place, source } => {
                        StoreError::Open { place, reason: source.to_string() }
                    }
                    other => other,
                });
            }
        }
    }
    let reason = failure.map_or_else(String::new, |error| error.to_string());
    Err(StoreError::Open { place: place(path), reason })
}

/// Whether to try this access after that failure. An exclusive lock blocks other processes, so it is tried only on a
/// full disk.
fn should_try(access: Access, failure: Option<&rusqlite::Error>) -> bool {
    access != Access::Exclusive || failure.is_some_and(classify::is_space_problem)
}

/// `create` is for the first connection only: a store that is deleted while it is open must not be created again empty.
fn connect(path: &Path, access: Access, create: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match access {
        Access::ReadWrite => {
            let flags = flags | OpenFlags::SQLITE_OPEN_READ_WRITE | create;
            Connection::open_with_flags(path, flags)?
        }
        Access::Exclusive => {
            let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE; PRAGMA query_only = ON;")?;
            connection
        }
        Access::ReadOnly => Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_READ_ONLY)?,
        Access::Immutable => {
            let flags = flags | OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            Connection::open_with_flags(format!("file:{}?immutable=1", uri_path(path)), flags)?
        }
    };
    schema::harden(&connection)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    if access == Access::ReadWrite {
        // Only a new file is changed by this; an existing one stays in WAL mode.
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    }
    connection.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;")?;
    Ok(connection)
}

/// The path with the characters escaped that are special in a URI.
fn uri_path(path: &Path) -> String {
    path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::VectorStore;

    #[test]
    fn only_a_full_disk_leads_to_an_exclusive_lock() {
        use rusqlite::ffi;
        for (code, expected) in [
            (ffi::SQLITE_FULL, true),
            (ffi::SQLITE_IOERR, true),
            (ffi::SQLITE_CANTOPEN, false),
            (ffi::SQLITE_READONLY, false),
            (ffi::SQLITE_PERM, false),
        ] {
            let failure = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(should_try(Access::Exclusive, Some(&failure)), expected, "{failure}");
            assert!(should_try(Access::Immutable, Some(&failure)), "{failure}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_lease_of_a_killed_process_is_free_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("store.sqlite")).unwrap();
        let file = folder.path().join("store.vectors.lock");
        // Another process that takes the same lock with flock(2), as older versions did.
        let mut holder =
            std::process::Command::new("flock").arg("-F").arg(&file).args(["sleep", "60"]).spawn().unwrap();
        let wait = |is_held: bool| {
            let started = Instant::now();
            while store.lease(&Lease::Embedding).unwrap().is_none() != is_held {
                assert!(started.elapsed() < Duration::from_secs(10));
                thread::sleep(Duration::from_millis(5));
            }
        };
        wait(true);
        holder.kill().unwrap();
        holder.wait().unwrap();
        wait(false);
    }

    #[test]
    fn a_store_that_had_no_space_is_read_and_written_once_there_is_some() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.sqlite");
        drop(SqliteStore::open(&path).unwrap());
        // The state in which a store is opened on a full disk.
        let connection = connect(&path, Access::Exclusive, OpenFlags::empty()).unwrap();
        let id = schema::prepare(&connection, false, &path).unwrap();
        let readers = Mutex::new(vec![connection]);
        let opened_at = Instant::now();
        let connections =
            Connections { access: Access::Exclusive, writer: None, readers, is_disk_full: true, opened_at };
        let about = StoreIdentity { id, location: String::new() };
        let store = SqliteStore { path: path.clone(), about, connections: RwLock::new(connections) };
        assert!(matches!(store.ensure_model("m"), Err(StoreError::Full { .. })));
        assert!(!store.writable());
        thread::scope(|scope| {
            (0..8).for_each(|_| drop(scope.spawn(|| assert_eq!(store.model("m").unwrap(), None))));
        });
        assert!(!folder.path().join("store.sqlite-shm").exists());

        store.connections.write().unwrap().opened_at -= REOPEN_INTERVAL;
        let key = store.ensure_model("m").unwrap();
        assert_eq!((store.connections().access, store.model("m").unwrap()), (Access::ReadWrite, Some(key)));
    }
}
