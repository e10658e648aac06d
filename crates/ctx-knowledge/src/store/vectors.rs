//! Vectors in the store: one row for each chunk and model.
//!
//! Rows are never changed, only replaced by rows with higher keys: whoever holds a copy reads what
//! has a higher key than it knows, and finds out what is gone by asking for the exact values.

use super::read::{json_or_default, spans};
use super::unreadable::{self, Unreadable};
use super::{Span, Store, StoreError};
use crate::search::Filters;
use ctx_embed::vector;
use rusqlite::{Connection, OptionalExtension, ToSql, Transaction, params, params_from_iter};
use std::collections::{BTreeSet, HashMap};

/// Rows deleted in one transaction, so that nobody waits long for the next.
const DELETE_BATCH: usize = 5_000;

/// Whether a document has fewer vectors of a model than chunks that the model does not refuse.
const LACKS: &str = "(SELECT count(*) FROM chunks WHERE document = documents.key)
  <> (SELECT count(*) FROM vectors WHERE document = documents.key AND model = ?1)
   + (SELECT count(*) FROM unreadable_chunks WHERE document = documents.key AND model = ?1)";

/// A model, as the store numbers it.
pub(crate) type ModelKey = i64;

/// Tells the text that a vector was made of.
pub(crate) type TextHash = [u8; 16];

/// A chunk, by its document's key and its position.
pub(crate) type ChunkPlace = (u64, u64);

/// A vector ready to be stored.
#[derive(Clone, Debug)]
pub(crate) struct NewVector {
    pub(crate) position: usize,
    pub(crate) hash: TextHash,
    scale: f32,
    codes: Vec<u8>,
    half: Vec<u8>,
}

impl NewVector {
    pub(crate) fn new(position: usize, hash: TextHash, values: &[f32]) -> Self {
        let (codes, scale) = vector::quantize(values);
        let codes = codes.into_iter().map(i8::cast_unsigned).collect();
        Self { position, hash, scale, codes, half: vector::to_half(values) }
    }
}

/// What a document's vectors are to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewVectors {
    /// What each chunk's vector is made of; a vector of the same text is kept.
    pub(crate) hashes: Vec<TextHash>,
    /// New vectors, and the model that made them.
    pub(crate) made: Option<(ModelKey, Vec<NewVector>)>,
    /// The model that the document must have all vectors of.
    pub(crate) wanted: Option<ModelKey>,
}

/// A document that lacks vectors of a model.
pub(crate) struct PendingDocument {
    pub(crate) key: u64,
    /// When it was last written; it may be written again while vectors are made.
    pub(crate) generation: u64,
    /// `source:source_id`.
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) body: String,
    /// The chunks without a vector, with their positions.
    pub(crate) chunks: Vec<(usize, Span)>,
}

/// Vectors for some chunks of a document, and those for which there will be none.
pub(crate) struct Embedded {
    pub(crate) document: u64,
    pub(crate) generation: u64,
    pub(crate) vectors: Vec<NewVector>,
    pub(crate) unreadable: Vec<Unreadable>,
}

/// A vector as searching needs it.
pub(crate) struct VectorRow<'a> {
    pub(crate) key: i64,
    pub(crate) document: u64,
    pub(crate) position: u64,
    pub(crate) scale: f32,
    pub(crate) codes: &'a [u8],
}

/// How far a model has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    pub(crate) chunks: u64,
    pub(crate) vectors: u64,
    pub(crate) pending_documents: u64,
}

/// Documents by key, as bits.
pub(crate) struct DocumentSet(Vec<u64>);

impl DocumentSet {
    pub(crate) fn contains(&self, key: u64) -> bool {
        let word = usize::try_from(key / 64).ok().and_then(|index| self.0.get(index));
        word.is_some_and(|word| word >> (key % 64) & 1 == 1)
    }

    fn insert(&mut self, key: u64) {
        let Ok(index) = usize::try_from(key / 64) else { return };
        if index >= self.0.len() {
            self.0.resize(index + 1, 0);
        }
        self.0[index] |= 1 << (key % 64);
    }
}

impl Store {
    /// The number of a model, if the store knows it.
    pub(crate) fn model(&self, id: &str) -> Result<Option<ModelKey>, StoreError> {
        self.read(|connection| model(connection, id))
    }

    /// The number of a model; one that is new gets one.
    pub(crate) fn ensure_model(&self, id: &str) -> Result<ModelKey, StoreError> {
        if let Some(key) = self.model(id)? {
            return Ok(key);
        }
        self.write(|transaction| {
            transaction
                .execute("INSERT OR IGNORE INTO models (id, dimensions, vectors) VALUES (?1, 0, 0)", [id])?;
            Ok(model(transaction, id)?.unwrap_or_default())
        })
    }

    /// How many numbers a model's vectors have; `None` while there are none.
    pub(crate) fn dimensions(&self, key: ModelKey) -> Result<Option<usize>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached("SELECT dimensions FROM models WHERE key = ?1 AND vectors > 0")?
                .query_row([key], |row| row.get(0))
                .optional()
        })
    }

    /// Removes the vectors of all models but these, a few at a time.
    pub(crate) fn keep_models(&self, keep: &[ModelKey]) -> Result<(), StoreError> {
        let known: Vec<ModelKey> = self.read(|connection| {
            connection.prepare_cached("SELECT key FROM models")?.query_map([], |row| row.get(0))?.collect()
        })?;
        known.into_iter().filter(|key| !keep.contains(key)).try_for_each(|key| self.drop_model(key))
    }

    /// Removes a model and its vectors.
    fn drop_model(&self, key: ModelKey) -> Result<(), StoreError> {
        self.clear_model(key)?;
        self.write(|transaction| transaction.execute("DELETE FROM models WHERE key = ?1", [key]).map(drop))
    }

    /// Removes the vectors of a model, a few at a time.
    pub(crate) fn clear_model(&self, key: ModelKey) -> Result<(), StoreError> {
        let unmark = || {
            self.write(|transaction| {
                unreadable::clear(transaction, key)?;
                transaction.execute("UPDATE documents SET embedded = 0 WHERE embedded = ?1", [key]).map(drop)
            })
        };
        unmark()?;
        let mut deleted = DELETE_BATCH;
        while deleted == DELETE_BATCH {
            deleted = self.write(|transaction| {
                transaction
                    .prepare_cached(
                        "DELETE FROM vectors WHERE key IN (SELECT key FROM vectors WHERE model = ?1 LIMIT ?2)",
                    )?
                    .execute(params![key, DELETE_BATCH])
            })?;
        }
        // A sync may have marked a document while its vectors were still there.
        unmark()
    }

    /// Documents after `after` that lack vectors of `model`, in the order of their keys. `marked`
    /// tells whether documents that have all of them are marked, or must be counted.
    pub(crate) fn pending(
        &self,
        model: ModelKey,
        marked: bool,
        after: u64,
        limit: usize,
    ) -> Result<Vec<PendingDocument>, StoreError> {
        let lacks = match marked {
            true => "embedded <> ?1",
            false => LACKS,
        };
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let mut statement = snapshot.prepare_cached(&format!(
                "SELECT key, generation, title, body, source || ':' || source_id FROM documents JOIN bodies ON document = key
                 WHERE key > ?2 AND {lacks} ORDER BY key LIMIT ?3"
            ))?;
            let mut rows = statement.query(params![model, after, limit])?;
            let mut pending = Vec::new();
            while let Some(row) = rows.next()? {
                let key: u64 = row.get(0)?;
                let has = positions(&snapshot, model, key)?;
                let chunks = spans(&snapshot, row.get(0)?)?.into_iter().enumerate();
                pending.push(PendingDocument {
                    key,
                    generation: row.get(1)?,
                    title: row.get(2)?,
                    body: row.get(3)?,
                    name: row.get(4)?,
                    chunks: chunks.filter(|(position, _)| !has.contains(position)).collect(),
                });
            }
            Ok(pending)
        })
    }

    /// Whether any document lacks vectors of `model`; every document is counted.
    pub(crate) fn lacks_vectors(&self, model: ModelKey) -> Result<bool, StoreError> {
        self.read(|connection| {
            connection.prepare_cached(&format!("SELECT 1 FROM documents WHERE {LACKS}"))?.exists([model])
        })
    }

    /// Stores vectors, in one transaction; tells whether the store still knows the model. Those of
    /// documents that were written meanwhile are dropped; with `mark`, a document that now has all
    /// of them is marked.
    pub(crate) fn put_vectors(
        &self,
        model: ModelKey,
        mark: bool,
        batch: &[Embedded],
    ) -> Result<bool, StoreError> {
        self.write(|transaction| {
            if !is_known(transaction, model)? {
                return Ok(false);
            }
            for document in batch {
                let current = transaction
                    .prepare_cached("SELECT 1 FROM documents WHERE key = ?1 AND generation = ?2")?
                    .exists(params![document.document, document.generation])?;
                if !current {
                    continue;
                }
                for vector in &document.vectors {
                    insert(transaction, model, document.document, vector)?;
                }
                for chunk in &document.unreadable {
                    unreadable::insert(transaction, model, document.document, chunk)?;
                }
                if mark {
                    mark_complete(transaction, model, document.document)?;
                }
            }
            Ok(true)
        })
    }

    /// The sources that have documents, without reading them all.
    pub(crate) fn sources_with_documents(&self) -> Result<BTreeSet<String>, StoreError> {
        self.read(sources_with_documents)
    }

    /// The sources that have documents without vectors of `model`.
    pub(crate) fn incomplete_sources(&self, model: ModelKey) -> Result<BTreeSet<String>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT 1 FROM documents WHERE source = ?1 AND embedded < ?2
                 UNION ALL SELECT 1 FROM documents WHERE source = ?1 AND embedded > ?2",
            )?;
            let mut incomplete = sources_with_documents(connection)?;
            let mut failure = Ok(());
            incomplete.retain(|source| {
                let lacks = statement.exists(params![source, model]);
                lacks.unwrap_or_else(|error| {
                    failure = Err(error);
                    false
                })
            });
            failure.map(|()| incomplete)
        })
    }

    /// How far a model has come.
    pub(crate) fn coverage(&self, model: ModelKey) -> Result<Coverage, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT (SELECT count(*) FROM chunks),
                       coalesce((SELECT vectors FROM models WHERE key = ?1), 0),
                       (SELECT count(*) FROM documents WHERE embedded <> ?1)",
                )?
                .query_row([model], |row| {
                    Ok(Coverage { chunks: row.get(0)?, vectors: row.get(1)?, pending_documents: row.get(2)? })
                })
        })
    }

    /// How many vectors of `model` there are, and the highest key among them.
    pub(crate) fn vector_state(&self, model: ModelKey) -> Result<(u64, i64), StoreError> {
        self.read(|connection| vector_state(connection, model))
    }

    /// Walks the vectors of `model` whose keys are above `after`; tells how many there are in all,
    /// and the highest key.
    pub(crate) fn vectors_after(
        &self,
        model: ModelKey,
        after: i64,
        mut each: impl FnMut(VectorRow<'_>),
    ) -> Result<(u64, i64), StoreError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let state = vector_state(&snapshot, model)?;
            let mut statement = snapshot.prepare_cached(
                "SELECT key, document, position, scale, codes FROM vectors WHERE model = ?1 AND key > ?2
                 ORDER BY key",
            )?;
            let mut rows = statement.query(params![model, after])?;
            while let Some(row) = rows.next()? {
                each(VectorRow {
                    key: row.get(0)?,
                    document: row.get(1)?,
                    position: row.get(2)?,
                    scale: row.get::<_, f64>(3)? as f32,
                    codes: row.get_ref(4)?.as_blob()?,
                });
            }
            Ok(state)
        })
    }

    /// The exact score of each of these vectors; `None` for those that are gone.
    pub(crate) fn exact_by_key(&self, query: &[f32], keys: &[i64]) -> Result<Vec<Option<f32>>, StoreError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let mut statement = snapshot.prepare_cached("SELECT half FROM exact_vectors WHERE key = ?1")?;
            keys.iter().map(|key| exact(&mut statement, params![key], query)).collect()
        })
    }

    /// The exact score of each of these chunks; `None` for those without a vector of `model`.
    pub(crate) fn exact_by_chunk(
        &self,
        model: ModelKey,
        query: &[f32],
        chunks: &[ChunkPlace],
    ) -> Result<Vec<Option<f32>>, StoreError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let mut statement = snapshot.prepare_cached(
                "SELECT half FROM exact_vectors WHERE key =
                   (SELECT key FROM vectors WHERE document = ?1 AND model = ?2 AND position = ?3)",
            )?;
            chunks
                .iter()
                .map(|(document, position)| exact(&mut statement, params![document, model, position], query))
                .collect()
        })
    }

    /// The documents that may be found: within the filters, of the sources that `wanted` accepts.
    pub(crate) fn documents_within(
        &self,
        filters: &Filters,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<DocumentSet, StoreError> {
        self.read(|connection| {
            let mut sources = sources_with_documents(connection)?;
            sources.retain(|source| wanted(source) && filters.allows_source(source));
            let mut set = DocumentSet(Vec::new());
            let mut statement = connection.prepare_cached(
                "SELECT key, tags FROM documents
                 WHERE source = ?1 AND updated_at >= ?2 AND updated_at <= ?3",
            )?;
            for source in sources {
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
}

/// Replaces a document's vectors within a transaction: those of unchanged texts are kept under new
/// keys, new ones are added.
pub(super) fn replace(
    transaction: &Transaction<'_>,
    document: u64,
    vectors: &NewVectors,
) -> rusqlite::Result<()> {
    unreadable::replace(transaction, document, &vectors.hashes)?;
    let old = vectors_of(transaction, document)?;
    transaction.prepare_cached("DELETE FROM vectors WHERE document = ?1")?.execute([document])?;
    let made = vectors.made.as_ref().map(|(model, _)| *model);
    for (position, hash) in vectors.hashes.iter().enumerate() {
        for (model, vector) in old.get(hash).into_iter().flatten().filter(|(model, _)| Some(*model) != made) {
            insert(transaction, *model, document, &NewVector { position, ..vector.clone() })?;
        }
    }
    if let Some((model, made)) = &vectors.made
        && is_known(transaction, *model)?
    {
        for vector in made {
            insert(transaction, *model, document, vector)?;
        }
    }
    match vectors.wanted {
        Some(model) => mark_complete(transaction, model, document),
        None => Ok(()),
    }
}

/// A document's vectors by the text they were made of; of equal texts one is enough.
fn vectors_of(
    transaction: &Transaction<'_>,
    document: u64,
) -> rusqlite::Result<HashMap<TextHash, Vec<(ModelKey, NewVector)>>> {
    let mut statement = transaction.prepare_cached(
        "SELECT model, hash, scale, codes, half FROM vectors JOIN exact_vectors USING (key) WHERE document = ?1",
    )?;
    let mut rows = statement.query([document])?;
    let mut found: HashMap<TextHash, Vec<(ModelKey, NewVector)>> = HashMap::new();
    while let Some(row) = rows.next()? {
        let model: ModelKey = row.get(0)?;
        let hash: TextHash = row.get(1)?;
        let known = found.entry(hash).or_default();
        if known.iter().all(|(other, _)| *other != model) {
            let (codes, half) = (row.get(3)?, row.get(4)?);
            let scale = row.get::<_, f64>(2)? as f32;
            known.push((model, NewVector { position: 0, hash, scale, codes, half }));
        }
    }
    Ok(found)
}

fn insert(
    transaction: &Transaction<'_>,
    model: ModelKey,
    document: u64,
    vector: &NewVector,
) -> rusqlite::Result<()> {
    let key: Option<i64> = transaction
        .prepare_cached(
            "INSERT OR IGNORE INTO vectors (model, document, position, hash, scale, codes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6) RETURNING key",
        )?
        .query_row(
            params![model, document, vector.position, vector.hash, f64::from(vector.scale), vector.codes],
            |row| row.get(0),
        )
        .optional()?;
    match key {
        Some(key) => transaction
            .prepare_cached("INSERT INTO exact_vectors VALUES (?1, ?2)")?
            .execute(params![key, vector.half])
            .map(drop),
        None => Ok(()),
    }
}

/// Notes that a document has all vectors that it will have of a model, if it has.
fn mark_complete(transaction: &Transaction<'_>, model: ModelKey, document: u64) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(&format!("UPDATE documents SET embedded = iif({LACKS}, 0, ?1) WHERE key = ?2"))?
        .execute(params![model, document])
        .map(drop)
}

/// Each source from the one before it: a step in the index, not a walk through it.
fn sources_with_documents(connection: &Connection) -> rusqlite::Result<BTreeSet<String>> {
    let mut statement = connection.prepare_cached("SELECT min(source) FROM documents WHERE source > ?1")?;
    let mut sources = BTreeSet::new();
    let mut last = String::new();
    while let Some(source) = statement.query_row([&last], |row| row.get::<_, Option<String>>(0))? {
        sources.insert(source.clone());
        last = source;
    }
    Ok(sources)
}

/// Somebody who uses other models may have removed it.
fn is_known(transaction: &Transaction<'_>, model: ModelKey) -> rusqlite::Result<bool> {
    transaction.prepare_cached("SELECT 1 FROM models WHERE key = ?1")?.exists([model])
}

fn model(connection: &Connection, id: &str) -> rusqlite::Result<Option<ModelKey>> {
    connection
        .prepare_cached("SELECT key FROM models WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()
}

fn vector_state(connection: &Connection, model: ModelKey) -> rusqlite::Result<(u64, i64)> {
    connection
        .prepare_cached(
            "SELECT coalesce((SELECT vectors FROM models WHERE key = ?1), 0),
               coalesce((SELECT max(key) FROM vectors WHERE model = ?1), 0)",
        )?
        .query_row([model], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// The chunks of a document that need no vector of a model any more.
fn positions(connection: &Connection, model: ModelKey, document: u64) -> rusqlite::Result<BTreeSet<usize>> {
    connection
        .prepare_cached(
            "SELECT position FROM vectors WHERE document = ?1 AND model = ?2
             UNION ALL SELECT position FROM unreadable_chunks WHERE document = ?1 AND model = ?2",
        )?
        .query_map(params![document, model], |row| row.get(0))?
        .collect()
}

fn exact(
    statement: &mut rusqlite::CachedStatement<'_>,
    parameters: &[&dyn ToSql],
    query: &[f32],
) -> rusqlite::Result<Option<f32>> {
    let mut rows = statement.query(params_from_iter(parameters))?;
    match rows.next()? {
        Some(row) => Ok(vector::dot_half(query, row.get_ref(0)?.as_blob()?)),
        None => Ok(None),
    }
}
