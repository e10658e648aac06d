//! Queries for documents and sources.

use super::SqliteStore;
use super::vectors::sources_with_documents;
use crate::documents::{
    ApplyResult, Chunk, ChunkPosition, ChunkText, DocumentId, DocumentKey, DocumentName, DocumentSet,
    DocumentStamp, DocumentStore, DocumentSummary, DocumentText, ListedDocument, Mutation, SkipNote,
    SourceCounts, SourceRecord, Span, StoredDocument, StoredStamp, SyncOutcome,
};
use crate::error::StoreError;
use crate::files::{FilePosition, SourceFile};
use crate::filters::Filters;
use ctx_core::{Cursor, SourceName};
use jiff::Timestamp;
use rusqlite::blob::Blob;
use rusqlite::{Connection, OptionalExtension, Row, Statement, params, params_from_iter};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{Read, Seek, SeekFrom};
use uuid::Uuid;

/// Number of ids in one query for stamps. Shorter lists are padded, so that there is one prepared statement.
const STAMPS_AT_ONCE: usize = 256;
/// Fewer ids than this are queried one by one.
const STAMPS_FEW: usize = 16;

impl DocumentStore for SqliteStore {
    fn apply(&self, mutations: &[Mutation]) -> Result<ApplyResult, StoreError> {
        self.apply_all(mutations)
    }

    fn stamps(&self, ids: &[DocumentId]) -> Result<Vec<DocumentStamp>, StoreError> {
        self.read(|connection| {
            // One snapshot for both tables.
            let snapshot = connection.unchecked_transaction()?;
            // Only two list sizes, so that statements stay prepared. A few single queries are cheaper than one padded
            // list.
            let size = if ids.len() < STAMPS_FEW { 1 } else { STAMPS_AT_ONCE };
            let list = vec!["?"; size].join(", ");
            let mut stored = snapshot.prepare_cached(&format!(
                "SELECT id, hash, fingerprint FROM documents WHERE id IN ({list})"
            ))?;
            let mut skipped = snapshot.prepare_cached(&format!(
                "SELECT id, fingerprint, reason, source_id IS NOT NULL FROM passed_over WHERE id IN ({list})"
            ))?;
            let mut found: HashMap<Uuid, DocumentStamp> = HashMap::with_capacity(ids.len());
            for batch in ids.chunks(size) {
                for_each_row(&mut stored, batch, size, |id, row| {
                    let stamp = StoredStamp { hash: row.get(1)?, fingerprint: row.get(2)? };
                    found.entry(id).or_default().stored = Some(stamp);
                    Ok(())
                })?;
                for_each_row(&mut skipped, batch, size, |id, row| {
                    let note =
                        SkipNote { fingerprint: row.get(1)?, reason: row.get(2)?, is_named: row.get(3)? };
                    found.entry(id).or_default().skipped = Some(note);
                    Ok(())
                })?;
            }
            // Cloned, not removed: `ids` may contain an id twice.
            Ok(ids.iter().map(|id| found.get(id).cloned().unwrap_or_default()).collect())
        })
    }

    fn names(&self, after: Option<&DocumentName>, limit: usize) -> Result<Vec<DocumentName>, StoreError> {
        let (source, source_id) =
            after.map_or(("", ""), |name| (name.source.as_str(), name.source_id.as_str()));
        self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT id, source, source_id, source_url FROM documents
                     WHERE (source, source_id) > (?1, ?2) ORDER BY source, source_id LIMIT ?3",
                )?
                .query_map(params![source, source_id, limit], |row| {
                    Ok(DocumentName {
                        id: uuid(row, 0)?,
                        source: row.get(1)?,
                        source_id: row.get(2)?,
                        source_url: row.get(3)?,
                    })
                })?
                .collect()
        })
    }

    fn files(
        &self,
        source: &SourceName,
        after: Option<&FilePosition>,
        limit: usize,
    ) -> Result<Vec<SourceFile>, StoreError> {
        self.list_files(source, after, limit)
    }

    fn name_skipped(&self, names: &[(DocumentId, String)]) -> Result<(), StoreError> {
        self.name_skipped_files(names)
    }

    fn document(&self, id: DocumentId) -> Result<Option<StoredDocument>, StoreError> {
        self.read(|connection| {
            let found = connection
                .prepare_cached(
                    "SELECT key, id, source, source_id, source_url, title, author, created_at, updated_at,
                       content_type, metadata, tags, body
                     FROM documents JOIN bodies ON document = key WHERE id = ?1",
                )?
                .query_row([id.as_bytes().as_slice()], |row| Ok((row.get(0)?, stored_document(row)?)))
                .optional()?;
            let Some((key, mut document)): Option<(i64, StoredDocument)> = found else { return Ok(None) };
            document.chunks = spans(connection, key)?
                .iter()
                .enumerate()
                .map(|(index, span)| Chunk { index, text: span.of(&document.body).to_owned() })
                .collect();
            Ok(Some(document))
        })
    }

    fn summaries(&self, keys: &[DocumentKey]) -> Result<Vec<DocumentSummary>, StoreError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let mut statement = snapshot.prepare_cached(
                "SELECT key, id, source, source_id, source_url, title, updated_at, sketch FROM documents
                 WHERE key = ?1",
            )?;
            let mut rows = Vec::with_capacity(keys.len());
            for key in keys {
                let row = statement.query_row([key], |row| {
                    Ok(DocumentSummary {
                        key: row.get(0)?,
                        id: uuid(row, 1)?,
                        source: row.get(2)?,
                        source_id: row.get(3)?,
                        source_url: row.get(4)?,
                        title: row.get(5)?,
                        updated_at: timestamp(row, 6)?,
                        sketch: row.get(7)?,
                    })
                });
                rows.extend(row.optional()?);
            }
            Ok(rows)
        })
    }

    fn chunk_texts(&self, chunks: &[ChunkPosition]) -> Result<Vec<ChunkText>, StoreError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let mut statement = snapshot.prepare_cached(
                "SELECT start, length, heading FROM chunks WHERE document = ?1 AND position = ?2",
            )?;
            // One blob handle is moved from row to row: opening a handle for each would prepare a statement each time.
            let mut bodies: Option<Blob<'_>> = None;
            let mut texts = Vec::with_capacity(chunks.len());
            for (key, position) in chunks {
                let span: Option<(u64, usize, String)> = statement
                    .query_row(params![key, position], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                    .optional()?;
                let Some((start, length, heading)) = span else {
                    texts.push(ChunkText::default());
                    continue;
                };
                let row = i64::try_from(*key).unwrap_or(-1);
                let body = match bodies.take() {
                    Some(mut body) => {
                        body.reopen(row)?;
                        bodies.insert(body)
                    }
                    None => bodies.insert(snapshot.blob_open("main", "bodies", "body", row, true)?),
                };
                let mut text = vec![0; length];
                let read = body.seek(SeekFrom::Start(start)).and_then(|_| body.read_exact(&mut text));
                let text =
                    if read.is_ok() { String::from_utf8_lossy(&text).into_owned() } else { String::new() };
                texts.push(ChunkText { heading, text });
            }
            Ok(texts)
        })
    }

    fn sources(&self) -> Result<BTreeMap<String, SourceRecord>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached("SELECT name, cursor, synced_at, error, warnings FROM sources")?
                .query_map([], |row| {
                    let synced_at: Option<i64> = row.get(2)?;
                    let known = SourceRecord {
                        cursor: row.get::<_, Option<String>>(1)?.map(Cursor),
                        synced_at: synced_at.and_then(|at| Timestamp::from_millisecond(at).ok()),
                        error: row.get(3)?,
                        warnings: row.get(4)?,
                    };
                    Ok((row.get(0)?, known))
                })?
                .collect()
        })
    }

    fn counts(&self) -> Result<BTreeMap<String, SourceCounts>, StoreError> {
        self.source_counts()
    }

    fn text(&self, id: DocumentId, bytes_max: usize) -> Result<Option<DocumentText>, StoreError> {
        self.read_text(id, bytes_max)
    }

    fn list(&self, after: DocumentKey, limit: usize) -> Result<Vec<ListedDocument>, StoreError> {
        self.list_documents(after, limit)
    }

    fn documents_within(
        &self,
        filters: &Filters,
        sources: Option<&BTreeSet<String>>,
    ) -> Result<DocumentSet, StoreError> {
        self.read(|connection| {
            let mut allowed = sources_with_documents(connection)?;
            allowed.retain(|source| {
                sources.is_none_or(|sources| sources.contains(source)) && filters.allows_source(source)
            });
            let mut set = DocumentSet::default();
            let mut statement = connection.prepare_cached(
                "SELECT key, tags FROM documents
                 WHERE source = ?1 AND updated_at >= ?2 AND updated_at <= ?3",
            )?;
            for source in allowed {
                let since = filters.since.map_or(i64::MIN, |time| time.as_millisecond());
                let until = filters.until.map_or(i64::MAX, |time| time.as_millisecond());
                let mut rows = statement.query(params![source, since, until])?;
                while let Some(row) = rows.next()? {
                    if !filters.tags.is_empty() {
                        let tags: Vec<String> = json_or_default(row.get_ref(1)?.as_str()?);
                        if !filters.tags.iter().all(|tag| tags.contains(tag)) {
                            continue;
                        }
                    }
                    set.insert(row.get(0)?);
                }
            }
            Ok(set)
        })
    }

    fn sources_with_documents(&self) -> Result<BTreeSet<String>, StoreError> {
        self.read(sources_with_documents)
    }

    fn finish_sync(&self, source: &SourceName, outcome: &SyncOutcome) -> Result<(), StoreError> {
        self.end_sync(source, outcome)
    }

    fn forget_source(&self, source: &SourceName) -> Result<(), StoreError> {
        self.remove_source(source)
    }

    fn forget_old_deletions(&self, keep: usize) -> Result<(), StoreError> {
        self.prune_deletions(keep)
    }
}

/// Queries the rows of up to `size` ids.
fn for_each_row(
    statement: &mut Statement<'_>,
    ids: &[Uuid],
    size: usize,
    mut each: impl FnMut(Uuid, &Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    // NULL as padding: no row has the id NULL.
    let padded = ids.iter().map(|id| Some(id.as_bytes().as_slice())).chain(std::iter::repeat(None));
    let mut rows = statement.query(params_from_iter(padded.take(size)))?;
    while let Some(row) = rows.next()? {
        each(uuid(row, 0)?, row)?;
    }
    Ok(())
}

/// The current generation, and the newest generation whose deletions were pruned.
pub(super) fn generations(connection: &Connection) -> rusqlite::Result<(u64, u64)> {
    connection
        .prepare_cached("SELECT generation, forgotten FROM meta")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
}

pub(super) fn spans(connection: &Connection, key: i64) -> rusqlite::Result<Vec<Span>> {
    connection
        .prepare_cached("SELECT start, length, heading FROM chunks WHERE document = ?1 ORDER BY position")?
        .query_map([key], |row| {
            let start: usize = row.get(0)?;
            let length: usize = row.get(1)?;
            Ok(Span { start, end: start.saturating_add(length), heading: row.get(2)? })
        })?
        .collect()
}

fn stored_document(row: &Row<'_>) -> rusqlite::Result<StoredDocument> {
    Ok(StoredDocument {
        id: uuid(row, 1)?,
        source: row.get(2)?,
        source_id: row.get(3)?,
        source_url: row.get(4)?,
        title: row.get(5)?,
        author: row.get(6)?,
        created_at: timestamp(row, 7)?,
        updated_at: timestamp(row, 8)?,
        content_type: row.get(9)?,
        metadata: json_or_default(&row.get::<_, String>(10)?),
        tags: json_or_default(&row.get::<_, String>(11)?),
        body: row.get(12)?,
        chunks: Vec::new(),
    })
}

pub(super) fn uuid(row: &Row<'_>, index: usize) -> rusqlite::Result<Uuid> {
    let bytes: Vec<u8> = row.get(index)?;
    Uuid::from_slice(&bytes).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(index, rusqlite::types::Type::Blob, Box::new(error))
    })
}

fn timestamp(row: &Row<'_>, index: usize) -> rusqlite::Result<Timestamp> {
    let milliseconds: i64 = row.get(index)?;
    Ok(Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::UNIX_EPOCH))
}

pub(super) fn json_or_default<T: serde::de::DeserializeOwned + Default>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_default()
}
