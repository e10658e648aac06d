//! Documents as a list, page by page, and what changed in it between two moments.

use super::read::{generations, uuid};
use super::{Store, StoreError};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

/// What a list shows of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedDocument {
    /// Its place in the list: documents that come later have a higher one.
    pub(crate) key: u64,
    pub(crate) id: Uuid,
    pub(crate) source: String,
    pub(crate) source_id: String,
    pub(crate) title: Option<String>,
    pub(crate) content_type: String,
    /// How long its text is.
    pub(crate) bytes: u64,
}

/// A document's text and nothing else of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocumentText {
    pub(crate) content_type: String,
    /// How long the text is.
    pub(crate) bytes: u64,
    /// `None` where it is longer than was asked for.
    pub(crate) text: Option<String>,
}

/// A moment of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    generation: u64,
    /// The highest key of a document; one that comes later has a higher one.
    newest: u64,
}

/// What changed between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Documents that were there at the first and have another text by the second, or are gone.
    pub(crate) changed: Vec<Uuid>,
    /// Whether documents came or went.
    pub(crate) others: bool,
}

impl Store {
    /// At most `most` documents that stand behind the place `after`, in the order in which they came.
    pub(crate) fn listed(&self, after: u64, most: usize) -> Result<Vec<ListedDocument>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached(
                    // In this order of tables, so that a page costs what is on it.
                    "SELECT key, id, source, source_id, title, content_type, octet_length(body)
                     FROM documents CROSS JOIN bodies ON document = key WHERE key > ?1 ORDER BY key LIMIT ?2",
                )?
                .query_map(params![after, most], |row| {
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

    /// A document's text, if it is no longer than this.
    pub(crate) fn text(&self, id: Uuid, bytes_max: usize) -> Result<Option<DocumentText>, StoreError> {
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

    /// This moment.
    pub(crate) fn mark(&self) -> Result<Mark, StoreError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let (generation, _) = generations(&snapshot)?;
            let newest = snapshot
                .prepare_cached("SELECT coalesce(max(key), 0) FROM documents")?
                .query_row([], |row| row.get(0))?;
            Ok(Mark { generation, newest })
        })
    }

    /// What changed from one moment to another. `None` when that cannot be told, or is more than
    /// `most` documents.
    pub(crate) fn news(&self, since: Mark, until: Mark, most: usize) -> Result<Option<News>, StoreError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let (_, forgotten) = generations(&snapshot)?;
            // The store was restored from a copy, or forgot what was deleted.
            if since.generation > until.generation || since.generation < forgotten {
                return Ok(None);
            }
            // Asked for one more than fits, to see that it does not.
            let room = most.saturating_add(1);
            let deleted = gone(&snapshot, since, until, room)?;
            let others = until.newest > since.newest || !deleted.is_empty();
            let mut changed: Vec<Uuid> = deleted.into_iter().flatten().collect();
            changed.extend(rewritten(&snapshot, since, until, room)?);
            Ok((changed.len() <= most).then_some(News { changed, others }))
        })
    }
}

/// Documents of the first moment that were deleted; one that an older ctx deleted has no id.
fn gone(
    connection: &Connection,
    since: Mark,
    until: Mark,
    most: usize,
) -> rusqlite::Result<Vec<Option<Uuid>>> {
    connection
        .prepare_cached(
            "SELECT id FROM deletions WHERE generation > ?1 AND generation <= ?2 AND document <= ?3
             ORDER BY generation LIMIT ?4",
        )?
        .query_map(params![since.generation, until.generation, since.newest, most], |row| {
            let id: Option<Vec<u8>> = row.get(0)?;
            Ok(id.and_then(|bytes| Uuid::from_slice(&bytes).ok()))
        })?
        .collect()
}

/// Documents of the first moment that were written again.
fn rewritten(connection: &Connection, since: Mark, until: Mark, most: usize) -> rusqlite::Result<Vec<Uuid>> {
    connection
        .prepare_cached(
            // The plus keeps it from walking all documents by their keys.
            "SELECT id FROM documents WHERE generation > ?1 AND generation <= ?2 AND +key <= ?3
             ORDER BY generation LIMIT ?4",
        )?
        .query_map(params![since.generation, until.generation, since.newest, most], |row| uuid(row, 0))?
        .collect()
}
