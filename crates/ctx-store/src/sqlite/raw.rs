//! A file as another program has it open, for tests that lock, damage or age one. Only with the feature `raw`.

use super::classify::Classify;
use crate::error::StoreError;
use rusqlite::Connection;
use std::path::{Path, PathBuf};

/// A connection to an SQLite file that obeys none of our rules.
pub struct RawConnection {
    path: PathBuf,
    connection: Connection,
}

impl RawConnection {
    /// Opens a file, creating it where there is none.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let connection = Connection::open(path).classify(path)?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Runs statements.
    pub fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.connection.execute_batch(sql).classify(&self.path)
    }
}
