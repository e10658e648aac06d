//! Writes to documents and sources. Each is part of one transaction; several mutations of documents share one.

use super::SqliteStore;
use super::{counts, vectors};
use crate::changes::Generation;
use crate::documents::{ApplyResult, DocumentId, Mutation, NewDocument, SourceCounts, SyncOutcome};
use crate::error::StoreError;
use ctx_core::SourceName;
use jiff::Timestamp;
use rusqlite::{OptionalExtension, Transaction, params};

/// Mutations in one transaction: a bound on how long other writers wait.
const TRANSACTION_MUTATIONS_MAX: usize = 128;

impl SqliteStore {
    pub(super) fn apply_all(&self, mutations: &[Mutation]) -> Result<ApplyResult, StoreError> {
        let mut applied = ApplyResult::default();
        for mutations in mutations.chunks(TRANSACTION_MUTATIONS_MAX) {
            let mut finished = 0;
            let result = self.write(|transaction| apply_in(transaction, mutations, &mut finished));
            let result = result.inspect_err(|_| {
                // The transaction was rolled back. Those before the mutation that failed are applied without it; if that
                // fails too, the first error is still the one to report.
                let before = mutations.get(..finished).filter(|before| before.len() < mutations.len());
                if let Some(before) = before.filter(|before| !before.is_empty()) {
                    drop(self.write(|transaction| apply_in(transaction, before, &mut 0)));
                }
            })?;
            applied.deleted += result.deleted;
            applied.generation = applied.generation.max(result.generation);
        }
        Ok(applied)
    }

    pub(super) fn remove_source(&self, source: &SourceName) -> Result<(), StoreError> {
        self.write(|transaction| {
            let source = source.to_string();
            transaction.execute("DELETE FROM sources WHERE name = ?1", [&source])?;
            counts::forget(transaction, &source)
        })
    }

    pub(super) fn prune_deletions(&self, keep: usize) -> Result<(), StoreError> {
        let oldest = self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT generation FROM deletions ORDER BY generation DESC LIMIT 1 OFFSET ?1",
                )?
                .query_row([keep], |row| row.get::<_, i64>(0))
                .optional()
        })?;
        let Some(forgotten) = oldest else { return Ok(()) };
        self.write(|transaction| {
            transaction.execute("DELETE FROM deletions WHERE generation <= ?1", [forgotten])?;
            transaction.execute("UPDATE meta SET forgotten = max(forgotten, ?1)", [forgotten]).map(drop)
        })
    }

    pub(super) fn end_sync(&self, source: &SourceName, outcome: &SyncOutcome) -> Result<(), StoreError> {
        let synced_at = outcome.error.is_none().then(now);
        self.write(|transaction| {
            transaction
                .prepare_cached(
                    "INSERT INTO sources (name, cursor, synced_at, error, warnings)
                     VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (name) DO UPDATE SET
                       cursor = iif(?6, excluded.cursor, cursor),
                       synced_at = coalesce(excluded.synced_at, synced_at),
                       error = excluded.error, warnings = excluded.warnings",
                )?
                .execute(params![
                    source.to_string(),
                    outcome.cursor.iter().flatten().next().map(|cursor| &cursor.0),
                    synced_at,
                    outcome.error,
                    outcome.warnings,
                    outcome.cursor.is_some(),
                ])
                .map(drop)
        })
    }
}

/// Applies mutations in order; `finished` is the number of those that did not fail.
fn apply_in(
    transaction: &Transaction<'_>,
    mutations: &[Mutation],
    finished: &mut usize,
) -> rusqlite::Result<ApplyResult> {
    let mut applied = ApplyResult::default();
    for mutation in mutations {
        let generation = apply(transaction, mutation)?;
        applied.deleted += u64::from(generation.is_some() && matches!(mutation, Mutation::Delete(_)));
        applied.generation = generation.unwrap_or(applied.generation);
        *finished += 1;
    }
    Ok(applied)
}

/// Applies one mutation; returns the generation of its change, or `None` if views need not know of it.
fn apply(transaction: &Transaction<'_>, mutation: &Mutation) -> rusqlite::Result<Option<Generation>> {
    match mutation {
        Mutation::Put(document) => put(transaction, document).map(Some),
        Mutation::Refresh { id, source, source_id, fingerprint, note } => {
            transaction
                .prepare_cached("UPDATE documents SET fingerprint = ?2, read_at = ?3 WHERE id = ?1")?
                .execute(params![id.as_bytes().as_slice(), fingerprint, now()])?;
            let file = FileRef { id: *id, source: &source.to_string(), source_id };
            replace_skip_note(transaction, file, fingerprint.as_deref(), note.as_deref())?;
            Ok(None)
        }
        Mutation::SkipEmpty { id, source, source_id, fingerprint } => {
            let generation = delete(transaction, *id)?;
            let file = FileRef { id: *id, source: &source.to_string(), source_id };
            insert_skip_note(transaction, file, fingerprint, None)?;
            Ok(generation)
        }
        Mutation::SkipUnreadable { id, source, source_id, fingerprint, reason } => {
            let file = FileRef { id: *id, source: &source.to_string(), source_id };
            insert_skip_note(transaction, file, fingerprint, Some(reason))?;
            Ok(None)
        }
        Mutation::Delete(id) => delete(transaction, *id),
    }
}

fn put(transaction: &Transaction<'_>, document: &NewDocument) -> rusqlite::Result<Generation> {
    let generation = next_generation(transaction)?;
    let key: u64 = transaction
        .prepare_cached(
            "INSERT INTO documents (id, source, source_id, source_url, title, author, created_at,
               updated_at, content_type, metadata, tags, hash, fingerprint, generation, sketch, read_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
             ON CONFLICT (source, source_id) DO UPDATE SET
               source_url = excluded.source_url, title = excluded.title, author = excluded.author,
               updated_at = excluded.updated_at, content_type = excluded.content_type,
               metadata = excluded.metadata, tags = excluded.tags, hash = excluded.hash,
               fingerprint = excluded.fingerprint, generation = excluded.generation,
               sketch = excluded.sketch, read_at = excluded.read_at, embedded = 0
             RETURNING key",
        )?
        .query_row(
            params![
                document.id.as_bytes().as_slice(),
                document.source,
                document.source_id,
                document.source_url,
                document.title,
                document.author,
                document.created_at.as_millisecond(),
                document.updated_at.as_millisecond(),
                document.content_type,
                document.metadata,
                document.tags,
                document.hash.as_slice(),
                document.fingerprint,
                generation,
                document.sketch,
                now(),
            ],
            |row| row.get(0),
        )?;
    let before = counts::of_document(transaction, key)?.unwrap_or_default();
    counts::replace(transaction, &document.source, before, SourceCounts::of(document))?;
    transaction
        .prepare_cached("INSERT OR REPLACE INTO bodies VALUES (?1, ?2)")?
        .execute(params![key, document.body])?;
    transaction.prepare_cached("DELETE FROM chunks WHERE document = ?1")?.execute([key])?;
    let mut insert = transaction.prepare_cached("INSERT INTO chunks VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for (position, chunk) in document.chunks.iter().enumerate() {
        insert.execute(params![key, position, chunk.start, chunk.end - chunk.start, chunk.heading])?;
    }
    drop(insert);
    vectors::replace(transaction, key, &document.vectors)?;
    let (fingerprint, note) = (document.fingerprint.as_deref(), document.note.as_deref());
    let file = FileRef { id: document.id, source: &document.source, source_id: &document.source_id };
    replace_skip_note(transaction, file, fingerprint, note)?;
    Ok(Generation(generation))
}

fn next_generation(transaction: &Transaction<'_>) -> rusqlite::Result<u64> {
    transaction
        .prepare_cached("UPDATE meta SET generation = generation + 1 RETURNING generation")?
        .query_row([], |row| row.get(0))
}

fn delete(transaction: &Transaction<'_>, id: DocumentId) -> rusqlite::Result<Option<Generation>> {
    delete_skip_note(transaction, id)?;
    let found: Option<(u64, String)> = transaction
        .prepare_cached("SELECT key, source FROM documents WHERE id = ?1")?
        .query_row([id.as_bytes().as_slice()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((key, source)) = found else { return Ok(None) };
    if let Some(before) = counts::of_document(transaction, key)? {
        counts::replace(transaction, &source, before, SourceCounts::default())?;
    }
    transaction.prepare_cached("DELETE FROM documents WHERE key = ?1")?.execute([key])?;
    let generation = next_generation(transaction)?;
    transaction
        .prepare_cached("INSERT INTO deletions (generation, document, id) VALUES (?1, ?2, ?3)")?
        .execute(params![generation, key, id.as_bytes().as_slice()])?;
    Ok(Some(Generation(generation)))
}

/// The file that a row of `passed_over` is about.
#[derive(Clone, Copy)]
struct FileRef<'a> {
    id: DocumentId,
    source: &'a str,
    source_id: &'a str,
}

fn insert_skip_note(
    transaction: &Transaction<'_>,
    file: FileRef<'_>,
    fingerprint: &str,
    reason: Option<&str>,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO passed_over (id, source, fingerprint, reason, source_id, read_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            file.id.as_bytes().as_slice(),
            file.source,
            fingerprint,
            reason,
            file.source_id,
            now()
        ])
        .map(drop)
}

/// Replaces the skip note of a file; without a fingerprint or a note, deletes it.
fn replace_skip_note(
    transaction: &Transaction<'_>,
    file: FileRef<'_>,
    fingerprint: Option<&str>,
    note: Option<&str>,
) -> rusqlite::Result<()> {
    delete_skip_note(transaction, file.id)?;
    match (fingerprint, note) {
        (Some(fingerprint), Some(note)) => insert_skip_note(transaction, file, fingerprint, Some(note)),
        _ => Ok(()),
    }
}

/// Deletes the skip note of a file.
fn delete_skip_note(transaction: &Transaction<'_>, id: DocumentId) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM passed_over WHERE id = ?1")?
        .execute([id.as_bytes().as_slice()])
        .map(drop)
}

fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::ChangeFeed;
    use crate::contract::samples::{document, id};
    use crate::documents::DocumentStore;
    use crate::error::StoreError;
    use crate::store::Store;

    fn put(document: NewDocument) -> Mutation {
        Mutation::Put(Box::new(document))
    }

    #[test]
    fn mutations_before_one_that_fails_are_applied_and_those_after_it_are_not() {
        for before in [0, 1, TRANSACTION_MUTATIONS_MAX - 1, TRANSACTION_MUTATIONS_MAX + 3] {
            let folder = tempfile::tempdir().unwrap();
            let store = SqliteStore::open(&folder.path().join("store.sqlite")).unwrap();
            store.apply(&[put(document(1, "taken", "one\n"))]).unwrap();
            let mut mutations: Vec<Mutation> = (0..before)
                .map(|number| put(document(1, &format!("before{number}"), "one\ntwo\n")))
                .collect();
            // Ids are unique.
            mutations.push(put(NewDocument { id: id(1, "taken"), ..document(2, "other", "one\n") }));
            mutations.push(put(document(1, "after", "one\n")));
            assert!(matches!(store.apply(&mutations), Err(StoreError::Failed { .. })));
            let stored: Vec<String> =
                store.list(0, 999).unwrap().into_iter().map(|one| one.source_id).collect();
            let expected = (0..before).map(|number| format!("before{number}"));
            assert_eq!(stored, std::iter::once("taken".to_owned()).chain(expected).collect::<Vec<_>>());
            assert_eq!(store.generation().unwrap(), Generation(1 + before as u64));
            assert!(store.problems().unwrap().is_empty());
        }
    }
}
