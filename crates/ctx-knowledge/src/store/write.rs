//! Every change to the store; each is one transaction.

use super::vectors::{self, NewVectors};
use super::{Store, StoreError};
use ctx_core::{Cursor, SourceName};
use jiff::Timestamp;
use rusqlite::{OptionalExtension, Transaction, params};
use uuid::Uuid;

/// Deletions remembered for views that lag behind; an older view is built anew.
const DELETIONS_MAX: i64 = 10_000;

/// A document ready to be stored.
#[derive(Clone, Debug)]
pub(crate) struct NewDocument {
    pub(crate) id: Uuid,
    pub(crate) source: String,
    pub(crate) source_id: String,
    pub(crate) source_url: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) author: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) content_type: String,
    pub(crate) metadata: String,
    pub(crate) tags: String,
    pub(crate) body: String,
    pub(crate) chunks: Vec<Span>,
    pub(crate) vectors: NewVectors,
    /// What near-duplicates are recognised by.
    pub(crate) sketch: Vec<u8>,
    pub(crate) hash: [u8; 32],
    pub(crate) fingerprint: Option<String>,
    /// Why it is not the whole, where it is not.
    pub(crate) note: Option<String>,
}

/// A piece of a body, by byte offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The headings it stands under, outermost first, joined.
    pub(crate) heading: String,
}

/// How a sync of a source ended.
#[derive(Clone, Debug)]
pub(crate) struct SyncOutcome {
    /// Where to resume from; the outer `None` keeps what is stored.
    pub(crate) cursor: Option<Option<Cursor>>,
    pub(crate) error: Option<String>,
    pub(crate) warnings: usize,
}

impl Store {
    /// Stores a document, new or changed. Its `created_at` survives.
    pub(crate) fn put(&self, document: &NewDocument) -> Result<(), StoreError> {
        self.write(|transaction| {
            let generation = advance(transaction)?;
            let key: u64 = transaction
                .prepare_cached(
                    "INSERT INTO documents (id, source, source_id, source_url, title, author, created_at,
                       updated_at, content_type, metadata, tags, hash, fingerprint, generation, sketch)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
                     ON CONFLICT (source, source_id) DO UPDATE SET
                       source_url = excluded.source_url, title = excluded.title, author = excluded.author,
                       updated_at = excluded.updated_at, content_type = excluded.content_type,
                       metadata = excluded.metadata, tags = excluded.tags, hash = excluded.hash,
                       fingerprint = excluded.fingerprint, generation = excluded.generation,
                       sketch = excluded.sketch, embedded = 0
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
                    ],
                    |row| row.get(0),
                )?;
            transaction
                .prepare_cached("INSERT OR REPLACE INTO bodies VALUES (?1, ?2)")?
                .execute(params![key, document.body])?;
            transaction.prepare_cached("DELETE FROM chunks WHERE document = ?1")?.execute([key])?;
            let mut insert = transaction.prepare_cached("INSERT INTO chunks VALUES (?1, ?2, ?3, ?4, ?5)")?;
            for (position, chunk) in document.chunks.iter().enumerate() {
                insert.execute(params![
                    key,
                    position,
                    chunk.start,
                    chunk.end - chunk.start,
                    chunk.heading
                ])?;
            }
            drop(insert);
            vectors::replace(transaction, key, &document.vectors)?;
            remark(transaction, document)
        })
    }

    /// Notes that a document has no text, so that it is not read again until it changes. What was
    /// stored of it goes.
    pub(crate) fn pass_over(
        &self,
        id: Uuid,
        source: &SourceName,
        fingerprint: &str,
    ) -> Result<(), StoreError> {
        self.write(|transaction| {
            delete(transaction, id)?;
            pass_over(transaction, id, &source.to_string(), fingerprint, None)
        })
    }

    /// Notes that a document cannot be read, so that it is not tried again until it changes. What
    /// was stored of it stays.
    pub(crate) fn give_up(
        &self,
        id: Uuid,
        source: &SourceName,
        fingerprint: &str,
        reason: &str,
    ) -> Result<(), StoreError> {
        self.write(|transaction| pass_over(transaction, id, &source.to_string(), fingerprint, Some(reason)))
    }

    /// Notes a new fingerprint for content that has not changed; views need not know.
    pub(crate) fn refresh(&self, document: &NewDocument) -> Result<(), StoreError> {
        self.write(|transaction| {
            transaction
                .prepare_cached("UPDATE documents SET fingerprint = ?2 WHERE id = ?1")?
                .execute(params![document.id.as_bytes().as_slice(), document.fingerprint])?;
            remark(transaction, document)
        })
    }

    /// Removes a document and every trace of it; tells whether it was stored.
    pub(crate) fn delete(&self, id: Uuid) -> Result<bool, StoreError> {
        self.write(|transaction| delete(transaction, id))
    }

    /// Forgets that a source was ever synced; its documents are deleted one by one before.
    pub(crate) fn forget_source(&self, source: &SourceName) -> Result<(), StoreError> {
        self.write(|transaction| {
            transaction.execute("DELETE FROM sources WHERE name = ?1", [source.to_string()]).map(drop)
        })
    }

    /// Forgets which documents were deleted long ago. Not with each deletion: finding out costs as
    /// much as there are, and a view that is still to follow would have to be built anew.
    pub(crate) fn forget_old_deletions(&self) -> Result<(), StoreError> {
        let oldest = self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT generation FROM deletions ORDER BY generation DESC LIMIT 1 OFFSET ?1",
                )?
                .query_row([DELETIONS_MAX], |row| row.get::<_, i64>(0))
                .optional()
        })?;
        let Some(forgotten) = oldest else { return Ok(()) };
        self.write(|transaction| {
            transaction.execute("DELETE FROM deletions WHERE generation <= ?1", [forgotten])?;
            transaction.execute("UPDATE meta SET forgotten = max(forgotten, ?1)", [forgotten]).map(drop)
        })
    }

    /// Ends a sync: cursor and outcome, in one transaction after the last document it covers. A
    /// crash before it costs a repeated sync, never a lost document.
    pub(crate) fn finish_sync(&self, source: &SourceName, outcome: &SyncOutcome) -> Result<(), StoreError> {
        let synced_at = outcome.error.is_none().then(|| Timestamp::now().as_millisecond());
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

fn advance(transaction: &Transaction<'_>) -> rusqlite::Result<i64> {
    transaction
        .prepare_cached("UPDATE meta SET generation = generation + 1 RETURNING generation")?
        .query_row([], |row| row.get(0))
}

fn delete(transaction: &Transaction<'_>, id: Uuid) -> rusqlite::Result<bool> {
    remember_text(transaction, id)?;
    let key: Option<i64> = transaction
        .prepare_cached("DELETE FROM documents WHERE id = ?1 RETURNING key")?
        .query_row([id.as_bytes().as_slice()], |row| row.get(0))
        .optional()?;
    let Some(key) = key else { return Ok(false) };
    let generation = advance(transaction)?;
    transaction
        .prepare_cached("INSERT INTO deletions (generation, document, id) VALUES (?1, ?2, ?3)")?
        .execute(params![generation, key, id.as_bytes().as_slice()])?;
    Ok(true)
}

fn pass_over(
    transaction: &Transaction<'_>,
    id: Uuid,
    source: &str,
    fingerprint: &str,
    reason: Option<&str>,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO passed_over (id, source, fingerprint, reason) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![id.as_bytes().as_slice(), source, fingerprint, reason])
        .map(drop)
}

/// Takes back whatever was said of a document that is stored now, and says what there is to say.
fn remark(transaction: &Transaction<'_>, document: &NewDocument) -> rusqlite::Result<()> {
    remember_text(transaction, document.id)?;
    match (&document.fingerprint, &document.note) {
        (Some(fingerprint), Some(note)) => {
            pass_over(transaction, document.id, &document.source, fingerprint, Some(note))
        }
        _ => Ok(()),
    }
}

/// Takes back that a document has no text.
fn remember_text(transaction: &Transaction<'_>, id: Uuid) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM passed_over WHERE id = ?1")?
        .execute([id.as_bytes().as_slice()])
        .map(drop)
}
