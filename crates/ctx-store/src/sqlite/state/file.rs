//! State files: opened in the newest format, or refused with a reason.

use crate::error::{StoreError, StoreLocation, StorePart};
use crate::sqlite::classify::is_busy;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// SQLite `application_id` of our state files: "ctxS".
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"ctxS");

const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const BUSY_POLL: Duration = Duration::from_millis(20);

/// The location of a state file, for error messages.
pub(crate) fn place(path: &Path) -> StoreLocation {
    StoreLocation { name: path.display().to_string(), part: StorePart::State }
}

/// A SQLite error with a state file.
pub(crate) fn sqlite_error(path: &Path, source: rusqlite::Error) -> StoreError {
    StoreError::Failed { place: place(path), source: source.into() }
}

/// Creates a file with mode 0600 before SQLite does, so that other users can never read or write it.
pub(crate) fn create(path: &Path) -> Result<(), StoreError> {
    let create_error = |source| StoreError::Create { place: place(path), source };
    if let Some(folder) = path.parent() {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder).map_err(create_error)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => restrict(path),
        Err(error) if !path.exists() => return Err(create_error(error)),
        _ => {}
    }
    Ok(())
}

/// Removes group and other permissions (chmod). Best effort: the file may belong to another user.
#[cfg(unix)]
fn restrict(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o700)).ok();
    }
}

#[cfg(not(unix))]
fn restrict(_: &Path) {}

/// Opens a file and migrates it to the newest format; creates it if it does not exist. Each of `migrations` leads from
/// the format of its index to the next.
pub(crate) fn connect(path: &Path, migrations: &[&str]) -> Result<Connection, StoreError> {
    let started = Instant::now();
    loop {
        match try_connect(path, migrations) {
            // SQLite refuses some locks without waiting, such as when two processes create a file at once.
            Err(StoreError::Failed { source, .. })
                if source.downcast_ref().is_some_and(is_busy) && started.elapsed() < BUSY_TIMEOUT =>
            {
                thread::sleep(BUSY_POLL);
            }
            connected => return connected,
        }
    }
}

fn try_connect(path: &Path, migrations: &[&str]) -> Result<Connection, StoreError> {
    let failed = |source| sqlite_error(path, source);
    create(path)?;
    let connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    // The file may be attacker-made: run no function that its schema names, forbid writes to the schema tables.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).map_err(failed)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false).map_err(failed)?;
    let owner = check_owner(&connection, migrations).map_err(failed)?;
    if owner == FileOwner::Foreign {
        return Err(StoreError::Foreign { place: place(path) });
    }
    let known = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    let version = |connection: &Connection| -> rusqlite::Result<i64> {
        connection.pragma_query_value(None, "user_version", |row| row.get(0))
    };
    let found = version(&connection).map_err(failed)?;
    if found > known {
        return Err(StoreError::Newer { place: place(path), found, known });
    }
    if found < known {
        migrate(&connection, migrations, version).map_err(failed)?;
    }
    if owner == FileOwner::Unmarked {
        connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    }
    connection.execute_batch("PRAGMA synchronous = NORMAL").map_err(failed)?;
    Ok(connection)
}

/// The program that a database file belongs to.
#[derive(PartialEq, Eq)]
enum FileOwner {
    Ours,
    /// A new file, or one of ours from before the `application_id` was set.
    Unmarked,
    Foreign,
}

/// Determines the owner of a file by its `application_id`; without one, by whether it has the first table of
/// `migrations`.
fn check_owner(connection: &Connection, migrations: &[&str]) -> rusqlite::Result<FileOwner> {
    let id: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if id == APPLICATION_ID {
        return Ok(FileOwner::Ours);
    }
    let first = migrations.first().and_then(|step| step.split("CREATE TABLE ").nth(1));
    let first = first.and_then(|rest| rest.split([' ', '(']).next()).unwrap_or_default();
    let sql = "SELECT count(*), coalesce(sum(type = 'table' AND name = ?1), 0) FROM sqlite_schema";
    let (all, ours): (i64, i64) = connection.query_row(sql, [first], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(if id == 0 && (all == 0 || ours == 1) { FileOwner::Unmarked } else { FileOwner::Foreign })
}

fn migrate(
    connection: &Connection,
    migrations: &[&str],
    version: impl Fn(&Connection) -> rusqlite::Result<i64>,
) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    let behavior = rusqlite::TransactionBehavior::Immediate;
    let transaction = rusqlite::Transaction::new_unchecked(connection, behavior)?;
    // Read again inside the lock: another process may have migrated the file first.
    let found = usize::try_from(version(&transaction)?).unwrap_or(usize::MAX);
    for step in migrations.iter().skip(found) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", migrations.len())?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIGRATIONS: &[&str] = &["CREATE TABLE things (x ANY) STRICT;"];

    #[test]
    fn a_file_is_opened_while_others_open_and_close_it() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..30 {
            let path = folder.path().join(format!("{round}.sqlite"));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for number in 0..20 {
                            let connection = connect(&path, MIGRATIONS).unwrap();
                            connection.execute("INSERT INTO things (x) VALUES (?1)", [number]).unwrap();
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn a_database_of_another_program_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(matches!(connect(&path, MIGRATIONS), Err(StoreError::Foreign { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_file_without_an_application_id_is_ours_and_gets_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        Connection::open(&path)
            .unwrap()
            .execute_batch("CREATE TABLE things (x); PRAGMA user_version = 1")
            .unwrap();
        let id_of =
            |connection: Connection| connection.query_row("PRAGMA application_id", [], |row| row.get(0));
        assert_eq!(id_of(connect(&path, MIGRATIONS).unwrap()), Ok(APPLICATION_ID));
        assert_eq!(id_of(connect(&folder.path().join("new"), MIGRATIONS).unwrap()), Ok(APPLICATION_ID));
    }

    #[test]
    fn nothing_that_a_schema_brings_is_run() {
        let folder = tempfile::tempdir().unwrap();
        let connection = connect(&folder.path().join("a"), MIGRATIONS).unwrap();
        assert_eq!(connection.query_row("PRAGMA trusted_schema", [], |row| row.get(0)), Ok(0));
        connection.pragma_update(None, "writable_schema", true).unwrap();
        assert!(connection.execute("DELETE FROM sqlite_schema", []).is_err());
    }
}
