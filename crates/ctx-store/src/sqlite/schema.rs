//! The database schema, and the migrations from every older format.

use super::classify::{Classify, is_access_problem, place};
use super::{Access, connect};
use crate::error::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::path::Path;
use uuid::Uuid;

/// Each migration leads from the format of its index to the next; `user_version` is the number of those applied.
/// Released migrations never change.
pub(super) const MIGRATIONS: &[&str] = &[
    // Keys are never reused: an index may still refer to a deleted document.
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
    // Vectors. Keys only grow, so new vectors are those with higher keys. Exact values are in a table of their own: a
    // search reads the codes of all vectors, but the exact values of only a few.
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
    // Why a document could not be read, or only in part; reported until the document changes. Chunks that a model
    // rejects.
    "ALTER TABLE passed_over ADD COLUMN reason TEXT;
     CREATE TABLE unreadable_chunks (
       document INTEGER NOT NULL REFERENCES documents (key) ON DELETE CASCADE,
       model INTEGER NOT NULL REFERENCES models (key) ON DELETE CASCADE,
       position INTEGER NOT NULL,
       hash BLOB NOT NULL,
       reason TEXT NOT NULL,
       PRIMARY KEY (document, model, position)
     ) STRICT, WITHOUT ROWID;",
    // The id of a deleted document, for followers that know it by its id.
    "ALTER TABLE deletions ADD COLUMN id BLOB;",
    // The list of a source's files: names of files without text, and when each was read. Both are unknown for rows of
    // earlier versions.
    "ALTER TABLE documents ADD COLUMN read_at INTEGER;
     ALTER TABLE passed_over ADD COLUMN source_id TEXT;
     ALTER TABLE passed_over ADD COLUMN read_at INTEGER;
     CREATE INDEX passed_over_by_name ON passed_over (source, source_id);",
    // Counters of each source, so that none of its documents is read to tell how many there are.
    "CREATE TABLE source_counts (
       source TEXT PRIMARY KEY,
       documents INTEGER NOT NULL,
       chunks INTEGER NOT NULL,
       bytes INTEGER NOT NULL
     ) STRICT, WITHOUT ROWID;
     INSERT INTO source_counts
       SELECT source, count(*), sum((SELECT count(*) FROM chunks WHERE chunks.document = key)),
         sum(octet_length(body))
       FROM documents JOIN bodies ON document = key GROUP BY source;",
];

/// SQLite `application_id` of our stores: "ctxK".
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"ctxK");

/// Refuses the database of another program before changing anything in it. A store from before the `application_id` was
/// set is recognised by its tables. A file that cannot be inspected, such as one that another process keeps locked, is
/// refused too.
pub(super) fn refuse_foreign(path: &Path) -> Result<(), StoreError> {
    let is_empty = std::fs::metadata(path).map_or(true, |metadata| metadata.len() == 0);
    if is_empty {
        return Ok(());
    }
    let inspect =
        |access| connect(path, access, OpenFlags::empty()).and_then(|connection| is_foreign(&connection));
    let inspected = match inspect(Access::ReadOnly) {
        // Opened as immutable, without the WAL: the index of the WAL cannot be created in that folder.
        Err(error) if is_access_problem(&error) => inspect(Access::Immutable),
        inspected => inspected,
    };
    match inspected {
        Ok(true) => Err(StoreError::Foreign { place: place(path) }),
        Ok(false) => Ok(()),
        Err(error) if is_access_problem(&error) => {
            Err(StoreError::Open { place: place(path), reason: error.to_string() })
        }
        Err(error) => Err(error).classify(path),
    }
}

fn is_foreign(connection: &Connection) -> rusqlite::Result<bool> {
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let id = count("PRAGMA application_id")?;
    let tables = count("SELECT count(*) FROM sqlite_schema")?;
    let our_tables = count(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('meta', 'documents', 'passed_over')",
    )?;
    Ok(id != i64::from(APPLICATION_ID) && (id != 0 || (tables > 0 && our_tables < 3)))
}

/// Hardens a connection against an attacker-made file: runs no function that the schema names, and forbids writes to
/// the schema tables.
pub(super) fn harden(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    Ok(())
}

/// Migrates the file to the newest format and returns the store's id.
pub(super) fn prepare(connection: &Connection, writable: bool, path: &Path) -> Result<Uuid, StoreError> {
    if refuse_newer(connection, path)? < known_version() {
        if !writable {
            let reason = "it has an older format and cannot be written".to_owned();
            return Err(StoreError::Open { place: place(path), reason });
        }
        migrate(connection).classify(path)?;
        refuse_newer(connection, path)?;
    }
    let id: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0)).classify(path)?;
    if writable && id != APPLICATION_ID {
        connection.pragma_update(None, "application_id", APPLICATION_ID).classify(path)?;
    }
    connection
        .query_row("SELECT store_id FROM meta", [], |row| row.get::<_, Vec<u8>>(0))
        .classify(path)
        .map(|bytes| Uuid::from_slice(&bytes).unwrap_or_default())
}

/// The format of the file; an error if it is newer than this version knows.
pub(super) fn refuse_newer(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let (found, known) = (version(connection).classify(path)?, known_version());
    if found > known { Err(StoreError::Newer { place: place(path), found, known }) } else { Ok(found) }
}

fn known_version() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

fn migrate(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // Read again inside the lock: another process may have migrated the file first.
    let found = usize::try_from(version(&transaction)?).unwrap_or(usize::MAX);
    if found >= MIGRATIONS.len() {
        return Ok(());
    }
    for step in MIGRATIONS.iter().skip(found) {
        transaction.execute_batch(step)?;
    }
    if found == 0 {
        transaction
            .execute("INSERT INTO meta VALUES (1, ?1, 0, 0)", [Uuid::new_v4().as_bytes().as_slice()])?;
    }
    transaction.pragma_update(None, "user_version", MIGRATIONS.len())?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.commit()
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::DocumentStore;
    use crate::sqlite::SqliteStore;
    use crate::store::Store;
    use crate::vectors::VectorStore;
    use ctx_core::SourceName;
    use std::path::PathBuf;
    use std::sync::Barrier;
    use std::thread;
    use tempfile::TempDir;

    /// Creates a database with only the first `taken` migrations and a few rows.
    fn older(store: &Connection, format: usize) -> Uuid {
        MIGRATIONS[..format].iter().for_each(|step| store.execute_batch(step).unwrap());
        let id = Uuid::new_v4();
        store.execute("INSERT INTO meta VALUES (1, ?1, 0, 0)", [id.as_bytes().as_slice()]).unwrap();
        store
            .execute("INSERT INTO passed_over (id, source, fingerprint) VALUES (x'00', 's', 'f')", [])
            .unwrap();
        store.execute("INSERT INTO sources (name, warnings) VALUES ('s', 7)", []).unwrap();
        store.pragma_update(None, "user_version", format).unwrap();
        id
    }

    /// A file in an older format, and a connection that another program has to it.
    fn older_file(folder: &TempDir, format: usize) -> (PathBuf, Connection, Uuid) {
        let path = folder.path().join("store.sqlite");
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
        let id = older(&connection, format);
        (path, connection, id)
    }

    fn warnings(store: &SqliteStore) -> usize {
        store.sources().unwrap()["s"].warnings
    }

    #[test]
    fn every_older_format_leads_to_this_one() {
        for format in 1..=MIGRATIONS.len() {
            let store = Connection::open_in_memory().unwrap();
            let id = older(&store, format);
            assert_eq!(prepare(&store, true, Path::new("store")).unwrap(), id);
            let row = store.query_row("SELECT source, reason FROM passed_over", [], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?))
            });
            assert_eq!(row.unwrap(), ("s".to_owned(), None));
        }
    }

    #[test]
    fn a_database_of_another_program_is_refused_and_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        for (name, setup) in [
            ("plain", "CREATE TABLE theirs (x)"),
            ("versioned", "CREATE TABLE theirs (x); PRAGMA user_version = 3"),
            ("marked", "PRAGMA application_id = 7; CREATE TABLE meta (x)"),
            (
                "alike",
                "CREATE TABLE meta (x); CREATE VIEW documents AS SELECT 1; CREATE TABLE passed_over (x)",
            ),
        ] {
            let path = folder.path().join(name);
            Connection::open(&path).unwrap().execute_batch(setup).unwrap();
            let before = std::fs::read(&path).unwrap();
            let refused = SqliteStore::open(&path).err().unwrap();
            assert!(matches!(refused, StoreError::Foreign { .. }), "{name}: {refused}");
            assert_eq!(std::fs::read(&path).unwrap(), before, "{name}");
        }
        let our_path = folder.path().join("ours");
        drop(SqliteStore::open(&our_path).unwrap());
        drop(SqliteStore::open(&our_path).unwrap());
    }

    #[test]
    fn a_locked_database_of_another_program_is_waited_for_and_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("theirs");
        let theirs = Connection::open(&path).unwrap();
        theirs.execute_batch("CREATE TABLE theirs (x); BEGIN EXCLUSIVE").unwrap();
        let before = std::fs::read(&path).unwrap();
        thread::scope(|scope| {
            let opening = scope.spawn(|| SqliteStore::open(&path).err());
            // Longer than the default busy timeout of rusqlite, five seconds.
            thread::sleep(std::time::Duration::from_millis(5_500));
            theirs.execute_batch("COMMIT").unwrap();
            let refused = opening.join().unwrap();
            assert!(matches!(refused, Some(StoreError::Foreign { .. })), "{refused:?}");
        });
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn nothing_that_a_schema_brings_is_run() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("store")).unwrap();
        let trusted: Result<i64, _> =
            store.read(|connection| connection.query_row("PRAGMA trusted_schema", [], |row| row.get(0)));
        assert_eq!(trusted.unwrap(), 0);
        let written = store.write(|connection| {
            connection.pragma_update(None, "writable_schema", true)?;
            connection.execute("DELETE FROM sqlite_schema", [])
        });
        assert!(written.is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_store_is_the_users_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/store");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let store = SqliteStore::open(&path).unwrap();
        store.ensure_model("m").unwrap();
        let wal = path.with_file_name("store-wal");
        assert_eq!((mode(path.parent().unwrap()), mode(&path), mode(&wal)), (0o700, 0o600, 0o600));
        drop(store);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        drop(SqliteStore::open(&path).unwrap());
        assert_eq!(mode(&path), 0o600, "one that was open to others is not any more");
    }

    #[test]
    fn an_older_store_may_be_opened_by_many_at_once_while_somebody_writes() {
        const MANY: usize = 8;
        for format in 1..MIGRATIONS.len() {
            let folder = tempfile::tempdir().unwrap();
            let (path, older, id) = older_file(&folder, format);
            older.execute_batch("BEGIN IMMEDIATE; UPDATE sources SET warnings = 8").unwrap();
            let together = Barrier::new(MANY + 1);
            let open = || {
                together.wait();
                let store = SqliteStore::open(&path).unwrap();
                assert_eq!((store.identity().id, warnings(&store)), (id, 8));
                store.ensure_model("m").unwrap();
            };
            thread::scope(|scope| {
                (0..MANY).for_each(|_| drop(scope.spawn(open)));
                together.wait();
                older.execute_batch("COMMIT").unwrap();
            });
            assert_eq!(version(&older).unwrap(), known_version());
        }
    }

    #[test]
    fn whoever_reads_an_older_format_reads_on_while_it_is_migrated() {
        for format in 1..MIGRATIONS.len() {
            let folder = tempfile::tempdir().unwrap();
            let (path, older, _) = older_file(&folder, format);
            let reader = Connection::open(&path).unwrap();
            let tables = |reader: &Connection| {
                let sql = "SELECT group_concat(sql) FROM sqlite_schema";
                reader.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap()
            };
            reader.execute_batch("BEGIN").unwrap();
            let before = (version(&reader).unwrap(), tables(&reader));
            let store = SqliteStore::open(&path).unwrap();
            older.execute("UPDATE sources SET warnings = 8", []).unwrap();
            assert_eq!((version(&reader).unwrap(), tables(&reader)), before, "all of the old");
            assert_eq!(warnings(&store), 8);
            reader.execute_batch("COMMIT").unwrap();
            assert_eq!(version(&reader).unwrap(), known_version());
            assert_ne!(tables(&reader), before.1, "all of the new");
        }
    }

    #[test]
    fn a_store_that_a_newer_ctx_migrates_meanwhile_is_read_as_far_as_possible_and_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let (path, newer, _) = older_file(&folder, MIGRATIONS.len());
        let store = SqliteStore::open(&path).unwrap();
        newer.execute_batch("ALTER TABLE models RENAME TO brains; PRAGMA user_version = 99").unwrap();
        let is_newer = |error| matches!(error, StoreError::Newer { found: 99, .. });
        let forgotten = store.forget_source(&SourceName::new("s", ""));
        assert!(is_newer(forgotten.unwrap_err()));
        assert!(is_newer(store.model("m").unwrap_err()), "it has no such table any more");
        assert_eq!(warnings(&store), 7);
    }
}
