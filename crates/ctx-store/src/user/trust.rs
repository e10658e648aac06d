//! Trust: the user's approvals of configurations, for all workspaces.

use crate::error::StoreError;
use crate::sqlite::{connect_state, create_state, state_error};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use std::path::{Path, PathBuf};

/// Migrations of the file: each leads from the format of its index to the next.
const MIGRATIONS: &[&str] = &[
    "CREATE TABLE trusted (
       config TEXT PRIMARY KEY,
       hash TEXT NOT NULL,
       trusted_at INTEGER NOT NULL
     ) STRICT, WITHOUT ROWID;",
    // Trust is granted per section now; a hash of the whole configuration cannot be converted.
    "DELETE FROM trusted; ALTER TABLE trusted RENAME COLUMN hash TO grants;",
];

/// The configurations that the user trusts.
#[derive(Clone, Debug)]
pub struct Trust {
    path: PathBuf,
}

/// The approval of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustRecord {
    /// Grants as the caller serialized them; opaque to this crate.
    pub grants: String,
    /// When the grants were last changed.
    pub trusted_at: Timestamp,
}

impl Trust {
    /// The approvals in this file, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The approval of a configuration, by its path without symbolic links.
    pub fn get(&self, config: &Path) -> Result<Option<TrustRecord>, StoreError> {
        // Reading must not create the file.
        if !self.path.exists() {
            return Ok(None);
        }
        self.with_connection(|connection| {
            let row = connection.query_row(
                "SELECT grants, trusted_at FROM trusted WHERE config = ?1",
                [key(config)],
                |row| Ok((row.get(0)?, row.get(1)?)),
            );
            let found: Option<(String, i64)> = row.optional()?;
            Ok(found.map(|(grants, at)| TrustRecord {
                grants,
                trusted_at: Timestamp::from_millisecond(at).unwrap_or(Timestamp::UNIX_EPOCH),
            }))
        })
    }

    /// Replaces the grants for a configuration by what `change` makes of the stored ones, in one transaction: a running
    /// server that records an edit must not bring back grants that were revoked meanwhile. `None` changes nothing.
    pub fn update(
        &self,
        config: &Path,
        change: impl FnOnce(Option<&str>) -> Option<String>,
    ) -> Result<(), StoreError> {
        create_state(&self.path)?;
        self.with_connection(|connection| {
            let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
            let stored: Option<String> = transaction
                .query_row("SELECT grants FROM trusted WHERE config = ?1", [key(config)], |row| row.get(0))
                .optional()?;
            if let Some(grants) = change(stored.as_deref()) {
                transaction.execute(
                    "INSERT OR REPLACE INTO trusted VALUES (?1, ?2, ?3)",
                    params![key(config), grants, Timestamp::now().as_millisecond()],
                )?;
            }
            transaction.commit()
        })
    }

    /// Revokes the approval of a configuration; returns whether there was one.
    pub fn forget(&self, config: &Path) -> Result<bool, StoreError> {
        if !self.path.exists() {
            return Ok(false);
        }
        self.with_connection(|connection| {
            connection.execute("DELETE FROM trusted WHERE config = ?1", [key(config)])
        })
        .map(|removed| removed > 0)
    }

    fn with_connection<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let connection = connect_state(&self.path, MIGRATIONS)?;
        work(&connection).map_err(|source| state_error(&self.path, source))
    }
}

/// A unique key for a path, also if it is not UTF-8.
fn key(config: &Path) -> String {
    match config.to_str() {
        Some(text) => text.to_owned(),
        None => format!("{config:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_configuration_is_trusted_until_it_is_forgotten_and_no_other_is() {
        let folder = tempfile::tempdir().unwrap();
        let trust = Trust::new(folder.path().join("state/ctx/trust.sqlite"));
        let (mine, other) = (Path::new("/w/ctx.toml"), Path::new("/other/ctx.toml"));
        assert_eq!(trust.get(mine).unwrap(), None);
        assert!(!trust.forget(mine).unwrap());
        trust.update(mine, |stored| stored.map(|_| "edited".to_owned())).unwrap();
        assert_eq!(trust.get(mine).unwrap(), None, "there was nothing to change");
        trust.update(mine, |_| Some("one".to_owned())).unwrap();
        trust.update(mine, |stored| stored.map(|stored| format!("{stored} two"))).unwrap();
        assert_eq!(trust.get(mine).unwrap().unwrap().grants, "one two");
        assert_eq!(trust.get(other).unwrap(), None);
        assert!(trust.forget(mine).unwrap());
        assert_eq!(trust.get(mine).unwrap(), None);
    }

    #[test]
    fn grants_of_the_newest_format_are_kept_and_hashes_of_whole_files_are_dropped() {
        let config = Path::new("/home/user/w/ctx.toml");
        for format in 1..=MIGRATIONS.len() {
            let (_folder, path) = crate::fixtures::load("trust", &MIGRATIONS[..format]);
            let trust = Trust::new(path);
            let record = trust.get(config).unwrap();
            assert_eq!(record.is_some(), format >= 2, "format {format}");
            if let Some(record) = record {
                let grants = r#"{"connectors.script.wiki":{"hash":"5d41402abc4b2a76b9719d911017c592","files":{"wiki.lua":"7d793037a0760186574b0282f2f435e7"}}}"#;
                assert_eq!(record.grants, grants);
                assert_eq!(record.trusted_at, Timestamp::from_millisecond(1_795_034_020_000).unwrap());
            }
            trust.update(config, |_| Some("new".to_owned())).unwrap();
            assert_eq!(trust.get(config).unwrap().unwrap().grants, "new");
        }
    }

    #[test]
    fn asking_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trust.sqlite");
        assert_eq!(Trust::new(path.clone()).get(Path::new("/w/ctx.toml")).unwrap(), None);
        assert!(!path.exists());
    }

    #[cfg(unix)]
    #[test]
    fn the_file_is_the_users_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trust.sqlite");
        Trust::new(path.clone()).update(Path::new("/w/ctx.toml"), |_| Some("one".to_owned())).unwrap();
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
