//! Chunks that an embedding model rejects. They are not retried until all vectors are recomputed or their text changes.

use super::SqliteStore;
use crate::error::StoreError;
use crate::vectors::{ModelKey, TextHash, UnreadableChunk, UnreadableDocument};
use rusqlite::{Transaction, params};

impl SqliteStore {
    pub(super) fn unreadable_chunks(
        &self,
        model: ModelKey,
        limit: usize,
    ) -> Result<(u64, Vec<UnreadableDocument>), StoreError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let count = snapshot
                .prepare_cached("SELECT count(*) FROM unreadable_chunks WHERE model = ?1")?
                .query_row([model], |row| row.get(0))?;
            let documents = snapshot
                .prepare_cached(
                    "SELECT source, source_id, count(*), min(reason)
                     FROM unreadable_chunks JOIN documents ON key = document
                     WHERE model = ?1 GROUP BY document ORDER BY source, source_id LIMIT ?2",
                )?
                .query_map(params![model, limit], |row| {
                    Ok(UnreadableDocument {
                        source: row.get(0)?,
                        source_id: row.get(1)?,
                        chunks: row.get(2)?,
                        reason: row.get(3)?,
                    })
                })?
                .collect::<rusqlite::Result<_>>()?;
            Ok((count, documents))
        })
    }
}

pub(super) fn insert(
    transaction: &Transaction<'_>,
    model: ModelKey,
    document: u64,
    chunk: &UnreadableChunk,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO unreadable_chunks VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![document, model, chunk.position, chunk.hash, chunk.reason])
        .map(drop)
}

/// Keeps the rejections of texts that the document still contains, at their new positions.
pub(super) fn replace(
    transaction: &Transaction<'_>,
    document: u64,
    hashes: &[TextHash],
) -> rusqlite::Result<()> {
    let old: Vec<(ModelKey, UnreadableChunk)> = transaction
        .prepare_cached("DELETE FROM unreadable_chunks WHERE document = ?1 RETURNING model, hash, reason")?
        .query_map([document], |row| {
            Ok((row.get(0)?, UnreadableChunk { position: 0, hash: row.get(1)?, reason: row.get(2)? }))
        })?
        .collect::<rusqlite::Result<_>>()?;
    for (model, chunk) in old {
        for (position, _) in hashes.iter().enumerate().filter(|(_, hash)| **hash == chunk.hash) {
            insert(transaction, model, document, &UnreadableChunk { position, ..chunk.clone() })?;
        }
    }
    Ok(())
}

pub(super) fn clear(transaction: &Transaction<'_>, model: ModelKey) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM unreadable_chunks WHERE model = ?1", [model]).map(drop)
}
