//! The change feed, derived from the generations of documents and the keys of vectors.
//!
//! Both are assigned under the write lock of the file, so their order is the commit order.

use super::SqliteStore;
use super::read::{generations, json_or_default, spans, uuid};
use super::vectors::{sequence, vector_state};
use crate::changes::{
    ChangeCursor, ChangeFeed, ChangePage, ChangeScope, ChangedDocuments, Checkpoint, Generation,
};
use crate::documents::IndexedDocument;
use crate::error::StoreError;
use crate::vectors::{ModelKey, VectorRow};
use rusqlite::{Connection, params};
use uuid::Uuid;

/// Bytes of text after which a page ends, to bound the memory of a page of large documents.
const PAGE_TEXT_BYTES: usize = 16 << 20;

impl ChangeFeed for SqliteStore {
    fn generation(&self) -> Result<Generation, StoreError> {
        self.read(|connection| Ok(Generation(generations(connection)?.0)))
    }

    fn changes(
        &self,
        cursor: ChangeCursor,
        scope: ChangeScope,
        limit: usize,
    ) -> Result<Option<ChangePage>, StoreError> {
        let limit = limit.max(1);
        self.read(|connection| {
            // One snapshot for the whole page.
            let snapshot = connection.unchecked_transaction()?;
            match scope {
                ChangeScope::Documents => changed_documents(&snapshot, cursor, limit),
                ChangeScope::Vectors(model) => added_vectors(&snapshot, cursor, model, limit).map(Some),
            }
        })
    }

    fn checkpoint(&self) -> Result<Checkpoint, StoreError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let (generation, _) = generations(&snapshot)?;
            let newest = snapshot
                .prepare_cached("SELECT coalesce(max(key), 0) FROM documents")?
                .query_row([], |row| row.get(0))?;
            Ok(Checkpoint { generation: Generation(generation), newest_key: newest })
        })
    }

    fn changed_between(
        &self,
        since: Checkpoint,
        until: Checkpoint,
        limit: usize,
    ) -> Result<Option<ChangedDocuments>, StoreError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let (_, forgotten) = generations(&snapshot)?;
            // The store was restored from a copy, or deletions after `since` were pruned.
            if since.generation > until.generation || since.generation.0 < forgotten {
                return Ok(None);
            }
            // One more than the limit, to detect that there are too many.
            let room = limit.saturating_add(1);
            let deleted = deleted_documents(&snapshot, since, until, room)?;
            let membership_changed = until.newest_key > since.newest_key || !deleted.is_empty();
            let mut changed: Vec<Uuid> = deleted.into_iter().flatten().collect();
            changed.extend(rewritten_documents(&snapshot, since, until, room)?);
            Ok((changed.len() <= limit).then_some(ChangedDocuments { changed, membership_changed }))
        })
    }
}

fn changed_documents(
    connection: &Connection,
    cursor: ChangeCursor,
    limit: usize,
) -> rusqlite::Result<Option<ChangePage>> {
    let since = cursor.generation.0;
    let (newest, forgotten) = generations(connection)?;
    if since > newest || (since > 0 && since < forgotten) {
        return Ok(None);
    }
    // Deletions and writes are read by two queries. The page ends where the first of them reaches its limit.
    let mut end = newest;
    let mut deleted: Vec<(u64, u64)> = connection
        .prepare_cached(
            "SELECT generation, document FROM deletions WHERE generation > ?1 ORDER BY generation LIMIT ?2",
        )?
        .query_map(params![since, limit], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    if let Some((last, _)) = deleted.last().filter(|_| deleted.len() == limit) {
        end = end.min(*last);
    }
    let mut statement = connection.prepare_cached(
        "SELECT key, generation, source, title, tags, updated_at, body FROM documents JOIN bodies ON document = key
         WHERE generation > ?1 AND generation <= ?2 ORDER BY generation LIMIT ?3",
    )?;
    let mut rows = statement.query(params![since, end, limit])?;
    let (mut written, mut bytes) = (Vec::new(), 0usize);
    while let Some(row) = rows.next()? {
        let document = IndexedDocument {
            key: row.get(0)?,
            generation: Generation(row.get(1)?),
            source: row.get(2)?,
            title: row.get(3)?,
            tags: json_or_default(&row.get::<_, String>(4)?),
            updated_at: row.get(5)?,
            body: row.get(6)?,
            chunks: spans(connection, row.get(0)?)?,
        };
        let generation = document.generation.0;
        bytes = bytes.saturating_add(document.body.len());
        written.push(document);
        if written.len() == limit || bytes >= PAGE_TEXT_BYTES {
            end = generation;
            break;
        }
    }
    deleted.retain(|(generation, _)| *generation <= end);
    Ok(Some(ChangePage {
        written,
        deleted: deleted.into_iter().map(|(_, key)| key).collect(),
        next: ChangeCursor { generation: Generation(end), ..cursor },
        more: end < newest,
        ..ChangePage::default()
    }))
}

fn added_vectors(
    connection: &Connection,
    cursor: ChangeCursor,
    model: ModelKey,
    limit: usize,
) -> rusqlite::Result<ChangePage> {
    let state = vector_state(connection, model)?;
    let mut statement = connection.prepare_cached(
        "SELECT key, document, position, scale, codes FROM vectors WHERE model = ?1 AND key > ?2
         ORDER BY key LIMIT ?3",
    )?;
    let mut rows = statement.query(params![model, cursor.vectors.0, limit])?;
    let mut page = ChangePage { live_vectors: state.live, next: cursor, ..ChangePage::default() };
    while let Some(row) = rows.next()? {
        page.next.vectors = sequence(row.get(0)?);
        page.vectors.push(VectorRow {
            sequence: page.next.vectors,
            place: (row.get(1)?, row.get(2)?),
            scale: row.get::<_, f64>(3)? as f32,
            codes: row.get_ref(4)?.as_blob()?,
        });
    }
    page.more = page.next.vectors < state.newest && page.vectors.len() == limit;
    Ok(page)
}

/// Documents that existed at `since` and were deleted by `until`. Deletions by an older version have no id.
fn deleted_documents(
    connection: &Connection,
    since: Checkpoint,
    until: Checkpoint,
    limit: usize,
) -> rusqlite::Result<Vec<Option<Uuid>>> {
    connection
        .prepare_cached(
            "SELECT id FROM deletions WHERE generation > ?1 AND generation <= ?2 AND document <= ?3
             ORDER BY generation LIMIT ?4",
        )?
        .query_map(params![since.generation.0, until.generation.0, since.newest_key, limit], |row| {
            let id: Option<Vec<u8>> = row.get(0)?;
            Ok(id.and_then(|bytes| Uuid::from_slice(&bytes).ok()))
        })?
        .collect()
}

/// Documents that existed at `since` and were written again by `until`.
fn rewritten_documents(
    connection: &Connection,
    since: Checkpoint,
    until: Checkpoint,
    limit: usize,
) -> rusqlite::Result<Vec<Uuid>> {
    connection
        .prepare_cached(
            // `+key` keeps SQLite from using the primary key, which would scan all documents.
            "SELECT id FROM documents WHERE generation > ?1 AND generation <= ?2 AND +key <= ?3
             ORDER BY generation LIMIT ?4",
        )?
        .query_map(params![since.generation.0, until.generation.0, since.newest_key, limit], |row| {
            uuid(row, 0)
        })?
        .collect()
}
