//! Counters of each source: its documents, their chunks and bytes of text. Changed in the transaction that changes a
//! document, so that reading them costs the same however many documents there are.

use super::SqliteStore;
use crate::documents::SourceCounts;
use crate::error::StoreError;
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use std::collections::BTreeMap;

impl SqliteStore {
    pub(super) fn source_counts(&self) -> Result<BTreeMap<String, SourceCounts>, StoreError> {
        self.read(stored)
    }
}

/// A stored document's part of the counters of its source; `None` if it has no text yet.
pub(super) fn of_document(
    transaction: &Transaction<'_>,
    document: u64,
) -> rusqlite::Result<Option<SourceCounts>> {
    transaction
        .prepare_cached(
            "SELECT octet_length(body), (SELECT count(*) FROM chunks WHERE chunks.document = bodies.document)
             FROM bodies WHERE document = ?1",
        )?
        .query_row([document], |row| {
            Ok(SourceCounts { documents: 1, bytes: row.get(0)?, chunks: row.get(1)? })
        })
        .optional()
}

/// Replaces a document's part of the counters of its source.
pub(super) fn replace(
    transaction: &Transaction<'_>,
    source: &str,
    before: SourceCounts,
    after: SourceCounts,
) -> rusqlite::Result<()> {
    let difference = |part: fn(&SourceCounts) -> u64| part(&after).wrapping_sub(part(&before)).cast_signed();
    transaction
        .prepare_cached(
            "INSERT INTO source_counts (source, documents, chunks, bytes) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (source) DO UPDATE SET documents = documents + excluded.documents,
               chunks = chunks + excluded.chunks, bytes = bytes + excluded.bytes",
        )?
        .execute(params![
            source,
            difference(|counts| counts.documents),
            difference(|counts| counts.chunks),
            difference(|counts| counts.bytes),
        ])
        .map(drop)
}

/// Deletes the counters of a source without documents.
pub(super) fn forget(transaction: &Transaction<'_>, source: &str) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM source_counts WHERE source = ?1 AND documents = 0")?
        .execute([source])
        .map(drop)
}

/// The sources whose counters differ from a recount of all documents, as problems of the store.
pub(super) fn problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    // One snapshot for both.
    let snapshot = connection.unchecked_transaction()?;
    let (stored, recounted) = (stored(&snapshot)?, recount(&snapshot)?);
    let mut names: Vec<&String> = stored.keys().chain(recounted.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let wrong = names.into_iter().filter(|name| stored.get(*name) != recounted.get(*name));
    Ok(wrong.map(|name| format!("the document counts of {name} are wrong")).collect())
}

fn stored(connection: &Connection) -> rusqlite::Result<BTreeMap<String, SourceCounts>> {
    let sql = "SELECT source, documents, chunks, bytes FROM source_counts WHERE documents > 0";
    read(connection, sql)
}

fn recount(connection: &Connection) -> rusqlite::Result<BTreeMap<String, SourceCounts>> {
    read(
        connection,
        "SELECT source, count(*), sum((SELECT count(*) FROM chunks WHERE chunks.document = key)),
           sum(octet_length(body))
         FROM documents JOIN bodies ON document = key GROUP BY source",
    )
}

fn read(connection: &Connection, sql: &str) -> rusqlite::Result<BTreeMap<String, SourceCounts>> {
    connection
        .prepare_cached(sql)?
        .query_map([], |row| {
            let counts = SourceCounts { documents: row.get(1)?, chunks: row.get(2)?, bytes: row.get(3)? };
            Ok((row.get(0)?, counts))
        })?
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::samples::document;
    use crate::documents::{DocumentStore, Mutation};
    use crate::store::Store;

    #[test]
    fn wrong_counters_are_a_problem_of_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("store.sqlite")).unwrap();
        store.apply(&[Mutation::Put(Box::new(document(1, "a", "one\ntwo\n")))]).unwrap();
        assert!(store.problems().unwrap().is_empty());
        for wrong in [
            "UPDATE source_counts SET bytes = bytes + 1",
            "DELETE FROM source_counts",
            "INSERT INTO source_counts VALUES ('contract:s1', 1, 1, 8), ('gone', 1, 1, 1)",
        ] {
            store.write(|transaction| transaction.execute(wrong, [])).unwrap();
            assert!(!store.problems().unwrap().is_empty(), "{wrong}");
        }
    }
}
