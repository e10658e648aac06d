//! Files of state: opened in the newest format, or refused with a reason.

use rusqlite::Connection;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A file of state that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A newer version wrote it.
    #[error("{} was written by a newer ctx (format {found}, this one knows {known})", path.display())]
    Newer {
        /// Where it lies.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format we know.
        known: i64,
    },
    /// There is no thread for the writer.
    #[error("cannot start the writer of runs: {0}")]
    Writer(String),
    /// Its folder, or the file itself, cannot be made.
    #[error("cannot make {}: {source}", path.display())]
    Create {
        /// What.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Anything else.
    #[error("cannot use {}: {source}", path.display())]
    Sqlite {
        /// Where it lies.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
}

/// Makes a file of the user's before SQLite does, so that it is never anybody else's to read or to write.
pub(crate) fn create(path: &Path) -> Result<(), StateError> {
    let failed = |source| StateError::Create { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder).map_err(failed)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
        _ => Ok(()),
    }
}

/// Opens a file, creating it where there is none, in the newest format. Each step of `migrations` leads
/// from its index to the next.
pub(crate) fn connect(path: &Path, migrations: &[&str]) -> Result<Connection, StateError> {
    let failed = |source| StateError::Sqlite { path: path.to_owned(), source };
    let connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    let known = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    let version = |connection: &Connection| -> rusqlite::Result<i64> {
        connection.pragma_query_value(None, "user_version", |row| row.get(0))
    };
    let found = version(&connection).map_err(failed)?;
    if found > known {
        return Err(StateError::Newer { path: path.to_owned(), found, known });
    }
    if found < known {
        migrate(&connection, migrations, version).map_err(failed)?;
    }
    connection.execute_batch("PRAGMA synchronous = NORMAL").map_err(failed)?;
    Ok(connection)
}

fn migrate(
    connection: &Connection,
    migrations: &[&str],
    version: impl Fn(&Connection) -> rusqlite::Result<i64>,
) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    let behavior = rusqlite::TransactionBehavior::Immediate;
    let transaction = rusqlite::Transaction::new_unchecked(connection, behavior)?;
    // Asked again inside the lock: another process may have been faster.
    let found = usize::try_from(version(&transaction)?).unwrap_or(usize::MAX);
    for step in migrations.iter().skip(found) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", migrations.len())?;
    transaction.commit()
}
