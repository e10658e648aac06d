//! Every question to the store.

use super::{ChunkPlace, Span, Store, StoreError};
use ctx_core::{Cursor, SourceName};
use jiff::Timestamp;
use rusqlite::blob::Blob;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Seek, SeekFrom};
use uuid::Uuid;

/// A stored document, whole; its JSON is the answer of `get`.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct StoredDocument {
    /// Its id, the same as long as source and name are.
    #[schemars(with = "String", extend("format" = "uuid"))]
    pub id: Uuid,
    /// The source it came from.
    pub source: String,
    /// Its name within the source.
    pub source_id: String,
    /// Where a person can open it.
    pub source_url: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// Who wrote it.
    pub author: Option<String>,
    /// When it came to be.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub created_at: Timestamp,
    /// When it last changed.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub updated_at: Timestamp,
    /// Its media type.
    pub content_type: String,
    /// Its text.
    pub body: String,
    /// Anything else its source tells.
    pub metadata: Map<String, Value>,
    /// The pieces that are indexed.
    pub chunks: Vec<Chunk>,
    /// Labels to filter by; not part of the answer.
    #[serde(skip)]
    pub tags: Vec<String>,
}

/// A piece of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Chunk {
    /// Its place in the document, from 0.
    pub index: usize,
    /// Its text.
    pub text: String,
}

/// A document as people name it: by its id, by `source:source_id`, or by its `source_id` alone, which
/// other sources may have too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDocument {
    /// Its id.
    pub id: Uuid,
    /// `source:source_id`, which no other document has.
    pub full_name: String,
}

/// What decides whether a document must be read or written again.
#[derive(Clone, Debug)]
pub(crate) struct Stamp {
    pub(crate) hash: Vec<u8>,
    pub(crate) fingerprint: Option<String>,
}

/// What there is to say of a document in the state of this fingerprint.
#[derive(Clone, Debug)]
pub(crate) struct PassedOver {
    pub(crate) fingerprint: String,
    /// Why it could not be read, or not wholly; without one it has no text.
    pub(crate) reason: Option<String>,
}

/// A document as a keyword view needs it.
pub(crate) struct IndexedDocument {
    pub(crate) key: u64,
    pub(crate) source: String,
    pub(crate) title: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) updated_at: i64,
    pub(crate) body: String,
    pub(crate) chunks: Vec<Span>,
}

/// What a hit shows of its document.
#[derive(Clone, Debug)]
pub(crate) struct HitRow {
    pub(crate) key: u64,
    pub(crate) id: Uuid,
    pub(crate) source: String,
    pub(crate) source_id: String,
    pub(crate) source_url: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) updated_at: Timestamp,
    /// What near-duplicates are recognised by.
    pub(crate) sketch: Option<Vec<u8>>,
}

/// A chunk's text and the headings it stands under.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkText {
    pub(crate) heading: String,
    pub(crate) text: String,
}

/// What is known of a source that was synced at least once.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceRow {
    pub(crate) cursor: Option<Cursor>,
    pub(crate) synced_at: Option<Timestamp>,
    pub(crate) error: Option<String>,
    pub(crate) warnings: usize,
}

/// Documents, chunks and bytes of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) documents: u64,
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
}

impl Store {
    /// The number of the last change.
    pub(crate) fn generation(&self) -> Result<u64, StoreError> {
        self.read(|connection| Ok(generations(connection)?.0))
    }

    /// What is stored of a document, for comparison.
    pub(crate) fn stamp(&self, id: Uuid) -> Result<Option<Stamp>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached("SELECT hash, fingerprint FROM documents WHERE id = ?1")?
                .query_row([id.as_bytes().as_slice()], |row| {
                    Ok(Stamp { hash: row.get(0)?, fingerprint: row.get(1)? })
                })
                .optional()
        })
    }

    /// What there is to say of a document that has no text, or not all of it.
    pub(crate) fn passed_over(&self, id: Uuid) -> Result<Option<PassedOver>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached("SELECT fingerprint, reason FROM passed_over WHERE id = ?1")?
                .query_row([id.as_bytes().as_slice()], |row| {
                    Ok(PassedOver { fingerprint: row.get(0)?, reason: row.get(1)? })
                })
                .optional()
        })
    }

    /// The ids of all documents, by source.
    pub(crate) fn ids(&self) -> Result<Vec<Uuid>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached("SELECT id FROM documents ORDER BY source, source_id")?
                .query_map([], |row| uuid(row, 0))?
                .collect()
        })
    }

    /// Which documents are meant by each of these names; see [`NamedDocument`]. One pass over all.
    pub(crate) fn named(
        &self,
        names: &HashSet<&str>,
    ) -> Result<HashMap<String, Vec<NamedDocument>>, StoreError> {
        let mut meant: HashMap<String, Vec<NamedDocument>> = HashMap::new();
        self.each_name(|document, source_id, _| {
            let shown_id = document.id.to_string();
            for name in [shown_id.as_str(), &document.full_name, source_id] {
                if names.contains(name) {
                    meant.entry(name.to_owned()).or_default().push(document.clone());
                }
            }
        })?;
        Ok(meant)
    }

    /// Walks the names of all documents, by source: the document, its `source_id` and its `source_url`.
    pub(crate) fn each_name(
        &self,
        mut visit: impl FnMut(NamedDocument, &str, Option<&str>),
    ) -> Result<(), StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, source, source_id, source_url FROM documents ORDER BY source, source_id",
            )?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let (source, source_id): (String, String) = (row.get(1)?, row.get(2)?);
                let source_url: Option<String> = row.get(3)?;
                let document =
                    NamedDocument { id: uuid(row, 0)?, full_name: format!("{source}:{source_id}") };
                visit(document, &source_id, source_url.as_deref());
            }
            Ok(())
        })
    }

    /// The ids of everything known of a source: its documents, and what was passed over.
    pub(crate) fn known_ids(&self, source: &SourceName) -> Result<Vec<Uuid>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT id FROM documents WHERE source = ?1
                     UNION SELECT id FROM passed_over WHERE source = ?1",
                )?
                .query_map([source.to_string()], |row| uuid(row, 0))?
                .collect()
        })
    }

    /// One document, whole.
    pub(crate) fn document(&self, id: Uuid) -> Result<Option<StoredDocument>, StoreError> {
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
                .map(|(index, span)| Chunk { index, text: slice(&document.body, span).to_owned() })
                .collect();
            Ok(Some(document))
        })
    }

    /// What hits show of their documents, in one snapshot; those that are gone by now are left out.
    pub(crate) fn hit_rows(&self, keys: &[u64]) -> Result<Vec<HitRow>, StoreError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let mut statement = snapshot.prepare_cached(
                "SELECT key, id, source, source_id, source_url, title, updated_at, sketch FROM documents
                 WHERE key = ?1",
            )?;
            let mut rows = Vec::with_capacity(keys.len());
            for key in keys {
                let row = statement.query_row([key], |row| {
                    Ok(HitRow {
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

    /// The texts of chunks, each with its headings and read without the rest of its body; empty
    /// where there is none any more.
    pub(crate) fn chunk_texts(&self, chunks: &[ChunkPlace]) -> Result<Vec<ChunkText>, StoreError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let mut statement = snapshot.prepare_cached(
                "SELECT start, length, heading FROM chunks WHERE document = ?1 AND position = ?2",
            )?;
            // One handle moved from body to body: opening each would prepare a statement each time.
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

    /// Walks what changed after generation `since`, up to a generation that is returned: changed
    /// documents to `changed`, keys of deleted ones to `deleted`. `None` when deletions so old
    /// have been forgotten and the view must be built anew.
    pub(crate) fn changes<E>(
        &self,
        since: u64,
        mut changed: impl FnMut(IndexedDocument) -> Result<(), E>,
        mut deleted: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<Option<Result<u64, E>>, StoreError> {
        self.read(|connection| {
            // One snapshot for all of it.
            let snapshot = connection.unchecked_transaction()?;
            let (generation, forgotten) = generations(&snapshot)?;
            if since > generation || (since > 0 && since < forgotten) {
                return Ok(None);
            }
            let mut statement =
                snapshot.prepare_cached("SELECT document FROM deletions WHERE generation > ?1 ORDER BY generation")?;
            let mut rows = statement.query([since])?;
            while let Some(row) = rows.next()? {
                if let Err(error) = deleted(row.get(0)?) {
                    return Ok(Some(Err(error)));
                }
            }
            let mut statement = snapshot.prepare_cached(
                "SELECT key, source, title, tags, updated_at, body FROM documents JOIN bodies ON document = key
                 WHERE generation > ?1 ORDER BY generation",
            )?;
            let mut rows = statement.query([since])?;
            while let Some(row) = rows.next()? {
                let document = IndexedDocument {
                    key: row.get(0)?,
                    source: row.get(1)?,
                    title: row.get(2)?,
                    tags: json_or_default(&row.get::<_, String>(3)?),
                    updated_at: row.get(4)?,
                    body: row.get(5)?,
                    chunks: spans(&snapshot, row.get(0)?)?,
                };
                if let Err(error) = changed(document) {
                    return Ok(Some(Err(error)));
                }
            }
            Ok(Some(Ok(generation)))
        })
    }

    /// What is known of each source that was ever synced.
    pub(crate) fn source_rows(&self) -> Result<BTreeMap<String, SourceRow>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached("SELECT name, cursor, synced_at, error, warnings FROM sources")?
                .query_map([], |row| {
                    let synced_at: Option<i64> = row.get(2)?;
                    let known = SourceRow {
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

    /// How much each source holds.
    pub(crate) fn counts(&self) -> Result<BTreeMap<String, Counts>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT source, count(*), sum(octet_length(body)),
                       sum((SELECT count(*) FROM chunks WHERE chunks.document = key))
                     FROM documents JOIN bodies ON document = key GROUP BY source",
                )?
                .query_map([], |row| {
                    Ok((
                        row.get(0)?,
                        Counts { documents: row.get(1)?, bytes: row.get(2)?, chunks: row.get(3)? },
                    ))
                })?
                .collect()
        })
    }

    /// What SQLite finds wrong with the file; empty when it is sound.
    pub(crate) fn problems(&self) -> Result<Vec<String>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare("PRAGMA quick_check(20)")?;
            let found: rusqlite::Result<Vec<String>> = statement.query_map([], |row| row.get(0))?.collect();
            Ok(found?.into_iter().filter(|line| line != "ok").collect())
        })
    }
}

/// The current generation, and the newest one whose deletions have been forgotten.
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

/// The part of the body a span means; nothing when it does not fit.
pub(crate) fn slice<'a>(body: &'a str, span: &Span) -> &'a str {
    body.get(span.start..span.end).unwrap_or_default()
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
