//! Lists of documents in pages, and single texts.

use super::SqliteStore;
use super::read::uuid;
use crate::documents::{DocumentText, ListedDocument};
use crate::error::StoreError;
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

impl SqliteStore {
    /// At most `most` documents after the key `after`, in insertion order.
    pub(super) fn list_documents(&self, after: u64, limit: usize) -> Result<Vec<ListedDocument>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached(
                    // CROSS JOIN fixes the order of the tables, so that a page costs only what is on it.
                    "SELECT key, id, source, source_id, title, content_type, octet_length(body)
                     FROM documents CROSS JOIN bodies ON document = key WHERE key > ?1 ORDER BY key LIMIT ?2",
                )?
                .query_map(params![after, limit], |row| {
                    Ok(ListedDocument {
                        key: row.get(0)?,
                        id: uuid(row, 1)?,
                        source: row.get(2)?,
                        source_id: row.get(3)?,
                        title: row.get(4)?,
                        content_type: row.get(5)?,
                        bytes: row.get(6)?,
                    })
                })?
                .collect()
        })
    }

    /// A document's text, left out if it is longer than `bytes_max`.
    pub(super) fn read_text(&self, id: Uuid, bytes_max: usize) -> Result<Option<DocumentText>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT content_type, octet_length(body), iif(octet_length(body) <= ?2, body, NULL)
                     FROM documents JOIN bodies ON document = key WHERE id = ?1",
                )?
                .query_row(params![id.as_bytes().as_slice(), bytes_max], |row| {
                    Ok(DocumentText { content_type: row.get(0)?, bytes: row.get(1)?, text: row.get(2)? })
                })
                .optional()
        })
    }
}
