//! Direct SQLite access for tests that lock or damage a file, or give it an older format. Only with the feature `raw`.

use super::classify::Classify;
use crate::error::StoreError;
use rusqlite::Connection;
use std::path::{Path, PathBuf};

/// A connection to a SQLite file that bypasses all checks of this crate.
pub struct RawConnection {
    path: PathBuf,
    connection: Connection,
}

impl RawConnection {
    /// Opens a file; creates it if it does not exist.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let connection = Connection::open(path).classify(path)?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Runs SQL statements.
    pub fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.connection.execute_batch(sql).classify(&self.path)
    }
}
