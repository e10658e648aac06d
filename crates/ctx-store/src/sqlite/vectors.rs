//! Vectors: one row per chunk and model.
//!
//! Rows are never changed, only replaced by rows with higher keys. A key is assigned under the write lock, so a higher
//! key was committed later.

use super::SqliteStore;
use super::read::spans;
use super::unreadable;
use crate::changes::{Generation, VectorSequence};
use crate::documents::ChunkPosition;
use crate::error::StoreError;
use crate::vectors::{
    DocumentVectors, ModelKey, NewVector, NewVectors, PendingDocument, PendingQuery, TextHash,
    UnreadableDocument, VectorCoverage, VectorState, VectorStore,
};
use rusqlite::{Connection, OptionalExtension, ToSql, Transaction, params, params_from_iter};
use std::collections::{BTreeSet, HashMap};

/// Rows deleted in one transaction: a bound on how long other writers wait.
const DELETE_BATCH: usize = 5_000;

/// SQL condition: the document lacks vectors of the model `?1`. Chunks that the model rejects need none.
const LACKS_VECTORS: &str = "(SELECT count(*) FROM chunks WHERE document = documents.key)
  <> (SELECT count(*) FROM vectors WHERE document = documents.key AND model = ?1)
   + (SELECT count(*) FROM unreadable_chunks WHERE document = documents.key AND model = ?1)";

impl VectorStore for SqliteStore {
    fn model(&self, id: &str) -> Result<Option<ModelKey>, StoreError> {
        self.read(|connection| model(connection, id))
    }

    fn ensure_model(&self, id: &str) -> Result<ModelKey, StoreError> {
        if let Some(key) = self.model(id)? {
            return Ok(key);
        }
        self.write(|transaction| {
            transaction
                .execute("INSERT OR IGNORE INTO models (id, dimensions, vectors) VALUES (?1, 0, 0)", [id])?;
            Ok(model(transaction, id)?.unwrap_or_default())
        })
    }

    fn dimensions(&self, key: ModelKey) -> Result<Option<usize>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached("SELECT dimensions FROM models WHERE key = ?1 AND vectors > 0")?
                .query_row([key], |row| row.get(0))
                .optional()
        })
    }

    fn keep_models(&self, keep: &[ModelKey]) -> Result<(), StoreError> {
        let known: Vec<ModelKey> = self.read(|connection| {
            connection.prepare_cached("SELECT key FROM models")?.query_map([], |row| row.get(0))?.collect()
        })?;
        known.into_iter().filter(|key| !keep.contains(key)).try_for_each(|key| self.drop_model(key))
    }

    fn clear_model(&self, key: ModelKey) -> Result<(), StoreError> {
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
        // A sync may have marked a document as complete while its vectors were still there.
        unmark()
    }

    fn pending(&self, query: &PendingQuery) -> Result<Vec<PendingDocument>, StoreError> {
        let PendingQuery { model, trusts_marks: marked, after, limit } = *query;
        let lacks = match marked {
            true => "embedded <> ?1",
            false => LACKS_VECTORS,
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
                let settled = settled_positions(&snapshot, model, key)?;
                let chunks = spans(&snapshot, row.get(0)?)?.into_iter().enumerate();
                pending.push(PendingDocument {
                    key,
                    generation: Generation(row.get(1)?),
                    title: row.get(2)?,
                    body: row.get(3)?,
                    name: row.get(4)?,
                    chunks: chunks.filter(|(position, _)| !settled.contains(position)).collect(),
                });
            }
            Ok(pending)
        })
    }

    fn lacks_vectors(&self, model: ModelKey) -> Result<bool, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached(&format!("SELECT 1 FROM documents WHERE {LACKS_VECTORS}"))?
                .exists([model])
        })
    }

    fn put_vectors(
        &self,
        model: ModelKey,
        mark: bool,
        documents: &[DocumentVectors],
    ) -> Result<bool, StoreError> {
        self.write(|transaction| {
            if !is_known(transaction, model)? {
                return Ok(false);
            }
            for document in documents {
                let current = transaction
                    .prepare_cached("SELECT 1 FROM documents WHERE key = ?1 AND generation = ?2")?
                    .exists(params![document.document, document.generation.0])?;
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

    fn incomplete_sources(&self, model: ModelKey) -> Result<BTreeSet<String>, StoreError> {
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

    fn coverage(&self, model: ModelKey) -> Result<VectorCoverage, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached(
                    // Two ranges of the index instead of `<>`: only pending documents are counted.
                    "SELECT (SELECT coalesce(sum(chunks), 0) FROM source_counts),
                       coalesce((SELECT vectors FROM models WHERE key = ?1), 0),
                       (SELECT coalesce(sum(
                           (SELECT count(*) FROM documents WHERE source = name AND embedded < ?1)
                         + (SELECT count(*) FROM documents WHERE source = name AND embedded > ?1)), 0)
                        FROM (SELECT source AS name FROM source_counts))",
                )?
                .query_row([model], |row| {
                    Ok(VectorCoverage {
                        chunks: row.get(0)?,
                        vectors: row.get(1)?,
                        pending_documents: row.get(2)?,
                    })
                })
        })
    }

    fn vector_state(&self, model: ModelKey) -> Result<VectorState, StoreError> {
        self.read(|connection| vector_state(connection, model))
    }

    fn exact_vectors(&self, vectors: &[VectorSequence]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let mut statement = snapshot.prepare_cached("SELECT half FROM exact_vectors WHERE key = ?1")?;
            vectors.iter().map(|vector| exact_vector(&mut statement, params![vector.0])).collect()
        })
    }

    fn exact_chunk_vectors(
        &self,
        model: ModelKey,
        chunks: &[ChunkPosition],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let mut statement = snapshot.prepare_cached(
                "SELECT half FROM exact_vectors WHERE key =
                   (SELECT key FROM vectors WHERE document = ?1 AND model = ?2 AND position = ?3)",
            )?;
            chunks
                .iter()
                .map(|(document, position)| exact_vector(&mut statement, params![document, model, position]))
                .collect()
        })
    }

    fn unreadable(
        &self,
        model: ModelKey,
        limit: usize,
    ) -> Result<(u64, Vec<UnreadableDocument>), StoreError> {
        self.unreadable_chunks(model, limit)
    }
}

impl SqliteStore {
    /// Removes a model and its vectors.
    fn drop_model(&self, key: ModelKey) -> Result<(), StoreError> {
        self.clear_model(key)?;
        self.write(|transaction| transaction.execute("DELETE FROM models WHERE key = ?1", [key]).map(drop))
    }
}

/// Replaces a document's vectors within a transaction: those of unchanged texts are kept under new keys, new ones are
/// added.
pub(super) fn replace(
    transaction: &Transaction<'_>,
    document: u64,
    vectors: &NewVectors,
) -> rusqlite::Result<()> {
    unreadable::replace(transaction, document, &vectors.hashes)?;
    let old = vectors_of(transaction, document)?;
    transaction.prepare_cached("DELETE FROM vectors WHERE document = ?1")?.execute([document])?;
    let made = vectors.computed.as_ref().map(|(model, _)| *model);
    for (position, hash) in vectors.hashes.iter().enumerate() {
        for (model, vector) in old.get(hash).into_iter().flatten().filter(|(model, _)| Some(*model) != made) {
            insert(transaction, *model, document, &NewVector { position, ..vector.clone() })?;
        }
    }
    if let Some((model, made)) = &vectors.computed
        && is_known(transaction, *model)?
    {
        for vector in made {
            insert(transaction, *model, document, vector)?;
        }
    }
    match vectors.required_model {
        Some(model) => mark_complete(transaction, model, document),
        None => Ok(()),
    }
}

/// A document's vectors by the hash of their text; of chunks with equal text, one is enough.
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

/// Marks a document as complete if it has all vectors of a model, otherwise as incomplete.
fn mark_complete(transaction: &Transaction<'_>, model: ModelKey, document: u64) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(&format!(
            "UPDATE documents SET embedded = iif({LACKS_VECTORS}, 0, ?1) WHERE key = ?2"
        ))?
        .execute(params![model, document])
        .map(drop)
}

/// Finds each source by an index lookup from the one before it, instead of a scan of all documents.
pub(super) fn sources_with_documents(connection: &Connection) -> rusqlite::Result<BTreeSet<String>> {
    let mut statement = connection.prepare_cached("SELECT min(source) FROM documents WHERE source > ?1")?;
    let mut sources = BTreeSet::new();
    let mut last = String::new();
    while let Some(source) = statement.query_row([&last], |row| row.get::<_, Option<String>>(0))? {
        sources.insert(source.clone());
        last = source;
    }
    Ok(sources)
}

/// Whether the store still knows a model. Another process, with other models, may have removed it.
fn is_known(transaction: &Transaction<'_>, model: ModelKey) -> rusqlite::Result<bool> {
    transaction.prepare_cached("SELECT 1 FROM models WHERE key = ?1")?.exists([model])
}

fn model(connection: &Connection, id: &str) -> rusqlite::Result<Option<ModelKey>> {
    connection
        .prepare_cached("SELECT key FROM models WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()
}

pub(super) fn vector_state(connection: &Connection, model: ModelKey) -> rusqlite::Result<VectorState> {
    connection
        .prepare_cached(
            "SELECT coalesce((SELECT vectors FROM models WHERE key = ?1), 0),
               coalesce((SELECT max(key) FROM vectors WHERE model = ?1), 0),
               coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'vectors'), 0)",
        )?
        .query_row([model], |row| {
            Ok(VectorState {
                live: row.get(0)?,
                newest: sequence(row.get(1)?),
                last_assigned: sequence(row.get(2)?),
            })
        })
}

/// Positions of the chunks that have a vector of a model or are rejected by it.
fn settled_positions(
    connection: &Connection,
    model: ModelKey,
    document: u64,
) -> rusqlite::Result<BTreeSet<usize>> {
    connection
        .prepare_cached(
            "SELECT position FROM vectors WHERE document = ?1 AND model = ?2
             UNION ALL SELECT position FROM unreadable_chunks WHERE document = ?1 AND model = ?2",
        )?
        .query_map(params![document, model], |row| row.get(0))?
        .collect()
}

/// The sequence number of the vector row with this key.
pub(super) fn sequence(key: i64) -> VectorSequence {
    VectorSequence(u64::try_from(key).unwrap_or_default())
}

fn exact_vector(
    statement: &mut rusqlite::CachedStatement<'_>,
    parameters: &[&dyn ToSql],
) -> rusqlite::Result<Option<Vec<u8>>> {
    statement.query_row(params_from_iter(parameters), |row| row.get(0)).optional()
}
