//! OAuth logins at upstream servers, shared by all workspaces of the user.

use crate::error::StoreError;
use crate::sqlite::{connect_state, create_state, state_error, state_place};
use ctx_core::Secret;
use rusqlite::{Connection, OptionalExtension, params};
use std::fs::{File, OpenOptions};
use std::path::PathBuf;

/// Migrations of the file: each leads from the format of its index to the next.
const MIGRATIONS: &[&str] = &["CREATE TABLE credentials (
       server TEXT PRIMARY KEY,
       kept TEXT NOT NULL
     ) STRICT, WITHOUT ROWID;"];
/// Characters of the server's hash in the name of its lock file.
const LOCK_NAME_CHARS: usize = 16;

/// The user's OAuth logins by server, in a file that only the user can access.
#[derive(Clone, Debug)]
pub struct Credentials {
    path: PathBuf,
}

/// A held lock on the login at one server. Released on drop, and by the operating system after a crash.
#[derive(Debug)]
pub struct CredentialLock(File);

impl Drop for CredentialLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process between fork and exec still has it open.
        let _ = self.0.unlock();
    }
}

impl Credentials {
    /// The logins in this file, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The stored login at a server.
    pub fn get(&self, server: &str) -> Result<Option<Secret>, StoreError> {
        // Reading must not create the file.
        if !self.path.exists() {
            return Ok(None);
        }
        self.with_connection(|connection| {
            let row =
                connection.query_row("SELECT kept FROM credentials WHERE server = ?1", [server], |row| {
                    row.get::<_, String>(0)
                });
            Ok(row.optional()?.map(Secret::new))
        })
    }

    /// Stores the login at a server, replacing an earlier one.
    pub fn store(&self, server: &str, login: &Secret) -> Result<(), StoreError> {
        create_state(&self.path)?;
        self.with_connection(|connection| {
            connection.execute(
                "INSERT OR REPLACE INTO credentials VALUES (?1, ?2)",
                params![server, login.expose()],
            )
        })?;
        Ok(())
    }

    /// Deletes the login at a server and erases it from the file; returns whether there was one.
    pub fn delete(&self, server: &str) -> Result<bool, StoreError> {
        if !self.path.exists() {
            return Ok(false);
        }
        self.with_connection(|connection| {
            let removed = connection.execute("DELETE FROM credentials WHERE server = ?1", [server])?;
            connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
            Ok(removed > 0)
        })
    }

    /// Waits for the lock on the login at a server, which only one holder in all processes has.
    pub fn lock(&self, server: &str) -> Result<CredentialLock, StoreError> {
        create_state(&self.path)?;
        let hash = blake3::hash(server.as_bytes()).to_hex();
        let path = self.path.with_extension(format!("{}.lock", &hash[..LOCK_NAME_CHARS]));
        let failed = |source| StoreError::Create { place: state_place(&path), source };
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(failed)?;
        file.lock().map_err(failed)?;
        Ok(CredentialLock(file))
    }

    fn with_connection<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let connection = connect_state(&self.path, MIGRATIONS)?;
        let failed = |source| state_error(&self.path, source);
        // Erases replaced and deleted values from the file.
        connection.execute_batch("PRAGMA secure_delete = ON").map_err(failed)?;
        work(&connection).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn store() -> (tempfile::TempDir, Credentials) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/ctx/credentials.sqlite");
        (folder, Credentials::new(path))
    }

    #[test]
    fn a_login_is_kept_until_it_is_forgotten_and_no_other_is() {
        let (_folder, store) = store();
        assert_eq!(store.get("a").unwrap(), None);
        assert!(!store.delete("a").unwrap());
        assert!(!store.path.exists(), "asking makes no file");
        store.store("a", &Secret::new("one")).unwrap();
        store.store("b", &Secret::new("other")).unwrap();
        store.store("a", &Secret::new("two")).unwrap();
        assert_eq!(store.get("a").unwrap(), Some(Secret::new("two")));
        assert!(store.delete("a").unwrap());
        assert_eq!(store.get("a").unwrap(), None);
        assert_eq!(store.get("b").unwrap(), Some(Secret::new("other")));
    }

    #[test]
    fn logins_of_every_format_are_kept() {
        for format in 1..=MIGRATIONS.len() {
            let (_folder, path) = crate::fixtures::load("credentials", &MIGRATIONS[..format]);
            let store = Credentials::new(path);
            let login = Some(Secret::new(r#"{"access_token":"not a real one"}"#));
            assert_eq!(store.get("https://jira.example.com/mcp").unwrap(), login);
            assert!(store.delete("https://jira.example.com/mcp").unwrap());
        }
    }

    #[test]
    fn what_is_forgotten_is_not_in_the_files_any_more() {
        let (_folder, store) = store();
        store.store("a", &Secret::new("s3cret-s3cret-s3cret")).unwrap();
        store.delete("a").unwrap();
        for entry in std::fs::read_dir(store.path.parent().unwrap()).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            assert!(!bytes.windows(6).any(|six| six == b"s3cret"));
        }
    }

    #[test]
    fn one_at_a_time_has_the_lock_of_a_server() {
        let (_folder, store) = store();
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _lock = store.lock("a").unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        let _a = store.lock("a").unwrap();
        let _b = store.lock("b").unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn files_and_folder_are_the_users_alone() {
        use std::os::unix::fs::PermissionsExt;
        let (_folder, store) = store();
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        store.store("a", &Secret::new("one")).unwrap();
        let _lock = store.lock("a").unwrap();
        let folder = store.path.parent().unwrap();
        assert_eq!(mode(folder), 0o700);
        for entry in std::fs::read_dir(folder).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
    }
}
