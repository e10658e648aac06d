//! The tables, and the steps that lead from any older format to this one.

use super::StoreError;
use super::error::Classify;
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;
use uuid::Uuid;

/// Each step leads from the format of its index to the next; the file's `user_version` says how
/// many have been taken. Steps that were released never change.
const MIGRATIONS: &[&str] = &[
    // Keys are never reused: a view may still name a document that is gone.
    "CREATE TABLE meta (
       only INTEGER PRIMARY KEY CHECK (only = 1),
       store_id BLOB NOT NULL,
       generation INTEGER NOT NULL,
       forgotten INTEGER NOT NULL
     ) STRICT;
     CREATE TABLE documents (
       key INTEGER PRIMARY KEY AUTOINCREMENT,
       id BLOB NOT NULL UNIQUE,
       source TEXT NOT NULL,
       source_id TEXT NOT NULL,
       source_url TEXT,
       title TEXT,
       author TEXT,
       created_at INTEGER NOT NULL,
       updated_at INTEGER NOT NULL,
       content_type TEXT NOT NULL,
       metadata TEXT NOT NULL,
       tags TEXT NOT NULL,
       hash BLOB NOT NULL,
       fingerprint TEXT,
       generation INTEGER NOT NULL,
       UNIQUE (source, source_id)
     ) STRICT;
     CREATE INDEX documents_by_generation ON documents (generation);
     CREATE TABLE bodies (
       document INTEGER PRIMARY KEY REFERENCES documents (key) ON DELETE CASCADE,
       body TEXT NOT NULL
     ) STRICT;
     CREATE TABLE chunks (
       document INTEGER NOT NULL REFERENCES documents (key) ON DELETE CASCADE,
       position INTEGER NOT NULL,
       start INTEGER NOT NULL,
       length INTEGER NOT NULL,
       heading TEXT NOT NULL,
       PRIMARY KEY (document, position)
     ) STRICT, WITHOUT ROWID;
     CREATE TABLE deletions (
       generation INTEGER PRIMARY KEY,
       document INTEGER NOT NULL
     ) STRICT;
     CREATE TABLE passed_over (
       id BLOB PRIMARY KEY,
       source TEXT NOT NULL,
       fingerprint TEXT NOT NULL
     ) STRICT, WITHOUT ROWID;
     CREATE TABLE sources (
       name TEXT PRIMARY KEY,
       cursor TEXT,
       synced_at INTEGER,
       error TEXT,
       warnings INTEGER NOT NULL
     ) STRICT, WITHOUT ROWID;",
    // Vectors. Their keys only grow, so that what is new is what has a higher key. Exact values lie
    // apart: searching reads the codes of all, and the exact values of a few.
    "CREATE TABLE models (
       key INTEGER PRIMARY KEY AUTOINCREMENT,
       id TEXT NOT NULL UNIQUE,
       dimensions INTEGER NOT NULL,
       vectors INTEGER NOT NULL
     ) STRICT;
     CREATE TABLE vectors (
       key INTEGER PRIMARY KEY AUTOINCREMENT,
       model INTEGER NOT NULL REFERENCES models (key) ON DELETE CASCADE,
       document INTEGER NOT NULL REFERENCES documents (key) ON DELETE CASCADE,
       position INTEGER NOT NULL,
       hash BLOB NOT NULL,
       scale REAL NOT NULL,
       codes BLOB NOT NULL
     ) STRICT;
     CREATE UNIQUE INDEX vectors_by_chunk ON vectors (document, model, position);
     CREATE INDEX vectors_by_model ON vectors (model);
     CREATE TABLE exact_vectors (
       key INTEGER PRIMARY KEY REFERENCES vectors (key) ON DELETE CASCADE,
       half BLOB NOT NULL
     ) STRICT;
     CREATE TRIGGER vectors_counted AFTER INSERT ON vectors BEGIN
       UPDATE models SET vectors = vectors + 1, dimensions = length(new.codes) WHERE key = new.model;
     END;
     CREATE TRIGGER vectors_uncounted AFTER DELETE ON vectors BEGIN
       UPDATE models SET vectors = vectors - 1 WHERE key = old.model;
     END;
     ALTER TABLE documents ADD COLUMN embedded INTEGER NOT NULL DEFAULT 0;
     CREATE INDEX documents_by_embedded ON documents (source, embedded);
     ALTER TABLE documents ADD COLUMN sketch BLOB;",
    // Why a document could not be read, or not wholly; it is told again until the document changes.
    "ALTER TABLE passed_over ADD COLUMN reason TEXT;",
];

/// Brings the file to the newest format and returns the store's id.
pub(super) fn prepare(connection: &Connection, writable: bool, path: &Path) -> Result<Uuid, StoreError> {
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let found = version(connection).classify(path)?;
    if found > known {
        return Err(StoreError::Newer { path: path.to_owned(), found, known });
    }
    if found < known {
        if !writable {
            let reason = "it has an older format and cannot be written".to_owned();
            return Err(StoreError::Open { path: path.to_owned(), reason });
        }
        migrate(connection).classify(path)?;
    }
    connection
        .query_row("SELECT store_id FROM meta", [], |row| row.get::<_, Vec<u8>>(0))
        .classify(path)
        .map(|bytes| Uuid::from_slice(&bytes).unwrap_or_default())
}

fn migrate(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // Asked again inside the lock: another process may have been faster.
    let found = usize::try_from(version(&transaction)?).unwrap_or(usize::MAX);
    for step in MIGRATIONS.iter().skip(found) {
        transaction.execute_batch(step)?;
    }
    if found == 0 {
        transaction
            .execute("INSERT INTO meta VALUES (1, ?1, 0, 0)", [Uuid::new_v4().as_bytes().as_slice()])?;
    }
    transaction.pragma_update(None, "user_version", MIGRATIONS.len())?;
    transaction.commit()
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_older_format_leads_to_this_one() {
        for taken in 1..=MIGRATIONS.len() {
            let store = Connection::open_in_memory().unwrap();
            MIGRATIONS[..taken].iter().for_each(|step| store.execute_batch(step).unwrap());
            let id = Uuid::new_v4();
            store.execute("INSERT INTO meta VALUES (1, ?1, 0, 0)", [id.as_bytes().as_slice()]).unwrap();
            store
                .execute("INSERT INTO passed_over (id, source, fingerprint) VALUES (x'00', 's', 'f')", [])
                .unwrap();
            store.pragma_update(None, "user_version", taken).unwrap();

            assert_eq!(prepare(&store, true, Path::new("store")).unwrap(), id);
            let row = store.query_row("SELECT source, reason FROM passed_over", [], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?))
            });
            assert_eq!(row.unwrap(), ("s".to_owned(), None));
        }
    }
}
