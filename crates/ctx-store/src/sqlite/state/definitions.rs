//! Tool definitions of upstream servers: those seen last, and those accepted (pinned).

use super::file::{connect, sqlite_error};
use crate::error::StoreError;
use crate::state::ServerDefinitions;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use std::path::PathBuf;

/// Maximum number of records per server name, each for another way to reach it. Changing the configuration back
/// restores what was accepted.
const REACHES_MAX: i64 = 4;
/// Migrations of the file: each leads from the format of its index to the next.
const MIGRATIONS: &[&str] = &["CREATE TABLE definitions (
       server TEXT NOT NULL,
       reach TEXT NOT NULL,
       seen TEXT NOT NULL,
       seen_at INTEGER NOT NULL,
       accepted TEXT NOT NULL,
       accepted_at INTEGER NOT NULL,
       PRIMARY KEY (server, reach)
     ) STRICT;"];

/// The records of upstream servers, by name and by how the server is reached.
#[derive(Clone, Debug)]
pub(super) struct DefinitionRecords {
    path: PathBuf,
}

impl DefinitionRecords {
    /// The records in this file, which need not exist yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The record of a server.
    pub(super) fn get(&self, server: &str, reach: &str) -> Result<Option<ServerDefinitions>, StoreError> {
        // Reading must not create the file.
        if !self.path.exists() {
            return Ok(None);
        }
        self.with_connection(|connection| find_record(connection, server, reach))
    }

    /// Records the definitions that a server sent; the first ones are also accepted. Returns the updated record.
    pub(super) fn record_seen(
        &self,
        server: &str,
        reach: &str,
        seen: &str,
    ) -> Result<ServerDefinitions, StoreError> {
        self.with_connection(|connection| {
            let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
            let before = find_record(&transaction, server, reach)?;
            if let Some(before) = before.as_ref().filter(|before| before.seen == seen) {
                return Ok(before.clone());
            }
            let now = Timestamp::now().as_millisecond();
            transaction.execute(
                "INSERT INTO definitions VALUES (?1, ?2, ?3, ?4, ?3, ?4)
                 ON CONFLICT DO UPDATE SET seen = excluded.seen, seen_at = excluded.seen_at",
                params![server, reach, seen, now],
            )?;
            transaction.execute(
                "DELETE FROM definitions WHERE server = ?1 AND reach <> ?2 AND reach NOT IN (
                   SELECT reach FROM definitions WHERE server = ?1 AND reach <> ?2
                   ORDER BY seen_at DESC, reach LIMIT ?3
                 )",
                params![server, reach, REACHES_MAX - 1],
            )?;
            transaction.commit()?;
            let accepted = before.map_or_else(|| seen.to_owned(), |before| before.accepted);
            Ok(ServerDefinitions { seen: seen.to_owned(), accepted })
        })
    }

    /// Records these definitions as accepted; returns false if the server has no record.
    pub(super) fn accept(&self, server: &str, reach: &str, accepted: &str) -> Result<bool, StoreError> {
        if !self.path.exists() {
            return Ok(false);
        }
        let now = Timestamp::now().as_millisecond();
        self.with_connection(|connection| {
            connection.execute(
                "UPDATE definitions SET accepted = ?3, accepted_at = ?4 WHERE server = ?1 AND reach = ?2",
                params![server, reach, accepted, now],
            )
        })
        .map(|changed| changed > 0)
    }

    /// Replaces the accepted definitions if they still equal `before` (compare and swap); returns whether they did.
    pub(super) fn extend(
        &self,
        server: &str,
        reach: &str,
        before: &str,
        accepted: &str,
    ) -> Result<bool, StoreError> {
        if !self.path.exists() {
            return Ok(false);
        }
        self.with_connection(|connection| {
            connection.execute(
                "UPDATE definitions SET accepted = ?4 WHERE server = ?1 AND reach = ?2 AND accepted = ?3",
                params![server, reach, before, accepted],
            )
        })
        .map(|changed| changed > 0)
    }

    fn with_connection<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let connection = connect(&self.path, MIGRATIONS)?;
        work(&connection).map_err(|source| sqlite_error(&self.path, source))
    }
}

fn find_record(
    connection: &Connection,
    server: &str,
    reach: &str,
) -> rusqlite::Result<Option<ServerDefinitions>> {
    connection
        .query_row(
            "SELECT seen, accepted FROM definitions WHERE server = ?1 AND reach = ?2",
            [server, reach],
            |row| Ok(ServerDefinitions { seen: row.get(0)?, accepted: row.get(1)? }),
        )
        .optional()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definitions() -> (tempfile::TempDir, DefinitionRecords) {
        let folder = tempfile::tempdir().unwrap();
        let definitions = DefinitionRecords::new(folder.path().join("upstreams.sqlite"));
        (folder, definitions)
    }

    fn record(seen: &str, accepted: &str) -> ServerDefinitions {
        ServerDefinitions { seen: seen.to_owned(), accepted: accepted.to_owned() }
    }

    #[test]
    fn what_is_seen_first_is_accepted_and_what_is_seen_later_is_not_until_somebody_does() {
        let (_folder, definitions) = definitions();
        assert_eq!(definitions.record_seen("up", "a", "one").unwrap(), record("one", "one"));
        assert_eq!(definitions.record_seen("up", "a", "two").unwrap(), record("two", "one"));
        assert_eq!(definitions.record_seen("up", "a", "two").unwrap(), record("two", "one"));
        // The user accepts the definitions that were shown, not those seen since.
        definitions.record_seen("up", "a", "three").unwrap();
        assert!(definitions.accept("up", "a", "two").unwrap());
        assert_eq!(definitions.get("up", "a").unwrap(), Some(record("three", "two")));
        // Definitions that are no longer accepted cannot be extended.
        assert!(!definitions.extend("up", "a", "one", "one and a prompt").unwrap());
        assert!(definitions.extend("up", "a", "two", "two and a prompt").unwrap());
        assert_eq!(definitions.get("up", "a").unwrap(), Some(record("three", "two and a prompt")));
    }

    #[test]
    fn definitions_of_every_format_are_kept() {
        for format in 1..=MIGRATIONS.len() {
            let (_folder, path) = crate::fixtures::load("upstreams", &MIGRATIONS[..format]);
            let definitions = DefinitionRecords::new(path);
            let (both, one) = (r#"{"tools":["list","drop"]}"#, r#"{"tools":["list"]}"#);
            let reach = "https://jira.example.com/mcp";
            assert_eq!(definitions.get("jira", reach).unwrap(), Some(record(both, one)));
            assert!(definitions.extend("jira", reach, one, both).unwrap());
            assert!(definitions.get("files", "npx -y server-filesystem .").unwrap().is_some());
        }
    }

    #[test]
    fn another_server_under_an_old_name_begins_anew_and_the_old_one_may_come_back() {
        let (_folder, definitions) = definitions();
        definitions.record_seen("up", "a", "one").unwrap();
        definitions.record_seen("up", "a", "two").unwrap();
        assert_eq!(definitions.get("up", "b").unwrap(), None);
        assert_eq!(definitions.record_seen("up", "b", "other").unwrap(), record("other", "other"));
        assert_eq!(definitions.get("up", "a").unwrap(), Some(record("two", "one")));
        assert_eq!(definitions.get("elsewhere", "a").unwrap(), None);
    }

    #[test]
    fn only_some_ways_to_reach_a_server_are_remembered() {
        let (_folder, definitions) = definitions();
        definitions.record_seen("other", "a", "one").unwrap();
        let reaches = ["a", "b", "c", "d", "e", "f"];
        for reach in reaches {
            definitions.record_seen("up", reach, "one").unwrap();
        }
        let known = reaches.iter().filter(|reach| definitions.get("up", reach).unwrap().is_some());
        assert_eq!(known.count() as i64, REACHES_MAX);
        assert!(definitions.get("up", "f").unwrap().is_some());
        assert!(definitions.get("other", "a").unwrap().is_some());
    }

    #[test]
    fn asking_and_accepting_make_no_file() {
        let (_folder, definitions) = definitions();
        assert_eq!(definitions.get("up", "a").unwrap(), None);
        assert!(!definitions.accept("up", "a", "one").unwrap());
        assert!(!definitions.path.exists());
    }
}
