//! The keyword index (tantivy): a view derived from the store, in a folder next to it.
//!
//! It records the store generation that it covers, catches up from there, and can be deleted at any time: a missing,
//! foreign or damaged index is rebuilt from the store. Any number of processes read it while one writes; the writer
//! holds a lease of the store.

use super::index_directory::IndexDirectory;
use super::schema::IndexFields;
use super::{Candidate, Filters};
use ctx_store::{ChangeCursor, ChangeScope, ChunkPosition, Generation, Lease, LeaseGuard, Store, StoreError};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};
use tantivy::collector::TopDocs;
use tantivy::columnar::Column;
use tantivy::query::Query;
use tantivy::schema::Schema;
use tantivy::{Index, IndexWriter, ReloadPolicy, Searcher, TantivyError};
use uuid::Uuid;

/// Version of the index format, part of the folder's name. Increment it when the schema, the analyzer or tantivy's
/// format changes.
const FORMAT: u32 = 2;
/// Memory budget of the index writer, for documents not yet written to a segment.
const WRITER_BYTES: usize = 48 << 20;
/// Interval of commits during a long sync; a commit makes the documents before it searchable.
const COMMIT_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum wait while another process writes the index.
const LEASE_WAIT_MAX: Duration = Duration::from_secs(60);
const LEASE_POLL: Duration = Duration::from_millis(20);

/// Documents per page of the change feed.
const PAGE_DOCUMENTS: usize = 256;

/// The keyword index of a store.
pub(crate) struct View {
    folder: PathBuf,
    store_id: Uuid,
    fields: IndexFields,
    schema: Schema,
    snapshot: RwLock<Option<Arc<IndexSnapshot>>>,
    writer: Mutex<Option<LeasedWriter>>,
}

/// Why the keyword index cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ViewErrorKind {
    #[error(transparent)]
    Index(#[from] TantivyError),
    #[error("it is damaged")]
    Damaged,
    #[error("cannot use {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("another process has been writing it for {} s", LEASE_WAIT_MAX.as_secs())]
    Busy,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An error of the keyword index.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ViewError(Box<ViewErrorKind>);

impl ViewError {
    /// Whether a rebuild may help. It does not help against a full disk, a file without access permission, or a
    /// failing store.
    pub(crate) fn is_damage(&self) -> bool {
        match &*self.0 {
            ViewErrorKind::Damaged => true,
            ViewErrorKind::Index(error) => is_index_damage(error),
            ViewErrorKind::Store(_) | ViewErrorKind::Busy | ViewErrorKind::Io { .. } => false,
        }
    }

    /// Whether waiting for another process that writes the index timed out.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(*self.0, ViewErrorKind::Busy)
    }
}

impl<E: Into<ViewErrorKind>> From<E> for ViewError {
    fn from(error: E) -> Self {
        Self(Box::new(error.into()))
    }
}

/// An index opened for reading, as of one commit.
struct IndexSnapshot {
    searcher: Searcher,
    /// The columns `document` and `chunk`, by segment.
    columns: Vec<(Column, Column)>,
    payload: CommitPayload,
    stamp: FileStamp,
}

/// An index opened for writing, with the lease that permits it.
struct LeasedWriter {
    writer: IndexWriter,
    /// The writer has all changes up to this generation; they may not be committed yet.
    fed_generation: Generation,
    committed_generation: Generation,
    committed_at: Instant,
    /// Released when the writer is dropped.
    _lease: LeaseGuard,
}

/// The store and the generation that a commit covers; saved as the commit's payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CommitPayload {
    store: Uuid,
    generation: Generation,
}

/// Modification time, size and inode of `meta.json`, which each commit replaces.
type FileStamp = (SystemTime, u64, u64);

impl View {
    /// The keyword index of a store, in a folder next to `path`. Opens nothing yet.
    pub(crate) fn next_to(path: &Path, store_id: Uuid) -> Self {
        let (schema, fields) = IndexFields::new();
        Self {
            folder: path.with_extension(format!("keyword-v{FORMAT}")),
            store_id,
            fields,
            schema,
            snapshot: RwLock::new(None),
            writer: Mutex::new(None),
        }
    }

    /// The folder of the index.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The chunks with the highest BM25 scores for these terms, best first.
    pub(crate) fn search(
        &self,
        terms: &[String],
        filters: &Filters,
        limit: usize,
    ) -> Result<Vec<Candidate>, ViewError> {
        self.query_index(|snapshot| self.top_candidates(snapshot, &*self.fields.query(terms, filters), limit))
    }

    /// The BM25 scores of these chunks; chunks without any of the terms are left out.
    pub(crate) fn scores(
        &self,
        terms: &[String],
        places: &[ChunkPosition],
    ) -> Result<Vec<Candidate>, ViewError> {
        if places.is_empty() || terms.is_empty() {
            return Ok(Vec::new());
        }
        self.query_index(|snapshot| Ok(self.fields.chunk_scores(&snapshot.searcher, terms, places)?))
    }

    /// Indexed words with this prefix, the most common first.
    pub(crate) fn words_with_prefix(&self, prefix: &str) -> Result<Vec<String>, ViewError> {
        self.query_index(|snapshot| Ok(self.fields.words_with_prefix(&snapshot.searcher, prefix)?))
    }

    /// Runs a query on the index; the result is empty if there is no index. A damaged file can make tantivy panic:
    /// that must cost a rebuild, not the process.
    fn query_index<T>(
        &self,
        query: impl FnOnce(&IndexSnapshot) -> Result<Vec<T>, ViewError>,
    ) -> Result<Vec<T>, ViewError> {
        let Some(snapshot) = self.load()? else { return Ok(Vec::new()) };
        catch_unwind(AssertUnwindSafe(|| query(&snapshot)))
            .unwrap_or_else(|_| Err(ViewErrorKind::Damaged.into()))
    }

    /// The last generation that is visible to searches; `None` without a usable index.
    pub(crate) fn generation(&self) -> Option<Generation> {
        self.load().ok().flatten().map(|snapshot| snapshot.payload.generation)
    }

    /// Whether the index is missing, belongs to another store, or covers no change yet.
    pub(crate) fn is_empty(&self) -> Result<bool, ViewError> {
        Ok(self.load()?.is_none_or(|snapshot| snapshot.payload.generation == Generation::default()))
    }

    /// Feeds the store's changes to the index during a sync, and commits periodically. Does nothing while another
    /// process writes.
    pub(crate) fn feed_during_sync(&self, store: &dyn Store) -> Result<(), ViewError> {
        let mut slot = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            let Some(lease) = self.try_lease(store)? else { return Ok(()) };
            *slot = Some(self.open_writer(lease)?);
        }
        let Some(writer) = slot.as_mut() else { return Ok(()) };
        let mut result = self.feed(writer, store);
        if result.is_ok() && writer.committed_at.elapsed() > COMMIT_INTERVAL {
            result = self.commit(writer);
        }
        if result.is_err() {
            // A tantivy writer that failed once keeps failing; a new one may work.
            *slot = None;
        }
        result
    }

    /// Deletes the index if it is ahead of its store, which means that the store was restored from a backup. Call
    /// this before the store is written: later generations would hide the difference.
    pub(crate) fn discard_if_ahead(&self, store: &dyn Store) -> Result<(), ViewError> {
        // The index is read first: it is never ahead of a store that only moves forward.
        match self.generation() {
            Some(indexed) if indexed > store.generation()? => self.discard(store),
            _ => Ok(()),
        }
    }

    /// Rebuilds the index from the store because of `error`.
    pub(crate) fn rebuild(&self, store: &dyn Store, error: &ViewError) -> Result<(), ViewError> {
        tracing::warn!(%error, "the keyword index is rebuilt");
        self.discard(store)?;
        self.feed_to_end(store)
    }

    /// Brings the index up to date with the store and releases the writer; rebuilds a damaged index.
    pub(crate) fn catch_up(&self, store: &dyn Store) -> Result<(), ViewError> {
        match self.feed_to_end(store) {
            // Only a damaged index is deleted: one that cannot be written, as on a full disk, still answers queries.
            Err(error) if store.writable() && error.is_damage() && self.verify(store).is_err() => {
                self.rebuild(store, &error)
            }
            other => other,
        }
    }

    /// Catches up to the store's present generation. Waits while another process writes, which may do the work
    /// itself.
    fn feed_to_end(&self, store: &dyn Store) -> Result<(), ViewError> {
        let mut slot = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        // Changes that others store from here on are theirs to index.
        let target = store.generation()?;
        loop {
            let indexed = self.generation().unwrap_or_default();
            if slot.is_none() && indexed >= target && indexed <= store.generation()? {
                return Ok(());
            }
            let lease = if slot.is_some() { None } else { self.try_lease(store)? };
            if let Some(lease) = lease {
                *slot = Some(self.open_writer(lease)?);
            }
            if let Some(mut writer) = slot.take() {
                self.feed(&mut writer, store)?;
                self.commit(&mut writer)?;
                writer.writer.wait_merging_threads()?;
                return Ok(());
            }
            if started.elapsed() > LEASE_WAIT_MAX {
                return Err(ViewErrorKind::Busy.into());
            }
            std::thread::sleep(LEASE_POLL);
        }
    }

    /// Catches up if the index is behind and no other process is writing it.
    pub(crate) fn catch_up_if_idle(&self, store: &dyn Store) -> Result<(), ViewError> {
        if !store.writable() || self.is_current(store)? {
            return Ok(());
        }
        // `catch_up` waits for the lease: a long sync in another process must not block this one.
        match self.try_lease(store)? {
            Some(lease) => drop(lease),
            None => return Ok(()),
        }
        self.catch_up(store)
    }

    /// Whether the index covers the store's present generation.
    pub(crate) fn is_current(&self, store: &dyn Store) -> Result<bool, ViewError> {
        let generation = store.generation()?;
        // A store that never held anything needs no index.
        Ok(self.generation().unwrap_or_default() == generation)
    }

    /// Reads all files of the index and verifies their checksums.
    pub(crate) fn verify(&self, store: &dyn Store) -> Result<(), ViewError> {
        // While another process writes, files come and go. A lease that fails is ignored: in a read-only folder
        // nobody writes.
        let lease = self.try_lease(store);
        if matches!(lease, Ok(None)) || !self.folder.join("meta.json").exists() {
            return Ok(());
        }
        let damaged = catch_unwind(AssertUnwindSafe(|| self.open_index()?.validate_checksum()))
            .map_err(|_| ViewErrorKind::Damaged)??;
        if damaged.is_empty() { Ok(()) } else { Err(ViewErrorKind::Damaged.into()) }
    }

    /// Deletes the index; the next catch-up rebuilds it.
    pub(crate) fn discard(&self, store: &dyn Store) -> Result<(), ViewError> {
        let mut slot = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = None;
        let lease = self.lease(store)?;
        self.delete_files()?;
        drop(lease);
        Ok(())
    }

    fn delete_files(&self) -> Result<(), ViewError> {
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = None;
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.io_error(error)),
            _ => Ok(()),
        }
    }

    /// The index as of its last commit; `None` if there is none of this store.
    fn load(&self) -> Result<Option<Arc<IndexSnapshot>>, ViewError> {
        let snapshot = self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone();
        let stamp = file_stamp(&self.folder.join("meta.json"));
        match (&snapshot, stamp) {
            (Some(snapshot), Some(stamp)) if snapshot.stamp == stamp => return Ok(Some(snapshot.clone())),
            // Deleted, or being replaced: the loaded index still answers queries.
            (Some(snapshot), None) => return Ok(Some(snapshot.clone())),
            (None, None) => return Ok(None),
            _ => {}
        }
        let Some(stamp) = stamp else { return Ok(None) };
        let opened = catch_unwind(AssertUnwindSafe(|| -> Result<_, ViewError> {
            let index = self.open_index()?;
            let payload = commit_payload(&index)?;
            let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
            let searcher = reader.searcher();
            let mut columns = Vec::new();
            for segment in searcher.segment_readers() {
                let fast = segment.fast_fields();
                columns.push((fast.u64("document")?, fast.u64("chunk")?));
            }
            Ok((payload, searcher, columns))
        }))
        .unwrap_or_else(|_| Err(ViewErrorKind::Damaged.into()))?;
        let (Some(payload), searcher, columns) = opened else { return Ok(None) };
        if payload.store != self.store_id {
            return Ok(None);
        }
        let snapshot = Arc::new(IndexSnapshot { searcher, columns, payload, stamp });
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Some(snapshot.clone());
        Ok(Some(snapshot))
    }

    fn open_index(&self) -> tantivy::Result<Index> {
        let index = Index::open(IndexDirectory::open(&self.folder)?)?;
        IndexFields::register_analyzer(&index);
        Ok(index)
    }

    fn open_writer(&self, lease: LeaseGuard) -> Result<LeasedWriter, ViewError> {
        let opened = catch_unwind(AssertUnwindSafe(|| -> Result<_, ViewError> {
            let index = self.open_index()?;
            Ok(commit_payload(&index)?
                .filter(|payload| payload.store == self.store_id)
                .map(|payload| (index, payload.generation)))
        }));
        let missing = !self.folder.join("meta.json").exists();
        let (index, generation) = match opened {
            Ok(Ok(Some(found))) => found,
            Ok(Err(error)) if !missing && !error.is_damage() => return Err(error),
            _ => {
                self.delete_files()?;
                (self.create_index()?, Generation::default())
            }
        };
        let writer = index.writer_with_num_threads(1, WRITER_BYTES)?;
        // A killed writer may have left files whose names this one would use again.
        writer.garbage_collect_files().wait()?;
        Ok(LeasedWriter {
            writer,
            fed_generation: generation,
            committed_generation: generation,
            committed_at: Instant::now(),
            _lease: lease,
        })
    }

    fn create_index(&self) -> Result<Index, ViewError> {
        ctx_store::create_folder(&self.folder).map_err(|error| self.io_error(error))?;
        let index = Index::create_in_dir(&self.folder, self.schema.clone())?;
        IndexFields::register_analyzer(&index);
        Ok(index)
    }

    /// Applies the change feed up to its end.
    fn feed(&self, writer: &mut LeasedWriter, store: &dyn Store) -> Result<(), ViewError> {
        loop {
            let cursor = ChangeCursor::after(writer.fed_generation);
            let Some(page) = store.changes(cursor, ChangeScope::Documents, PAGE_DOCUMENTS)? else {
                // The store was restored from a backup, or has forgotten deletions that the index needs: start over.
                writer.writer.delete_all_documents()?;
                writer.fed_generation = Generation::default();
                self.commit(writer)?;
                continue;
            };
            let index = &writer.writer;
            let delete = |key: u64| index.delete_term(self.fields.document_term(key));
            for key in page.deleted {
                delete(key);
            }
            for document in &page.written {
                delete(document.key);
                self.fields.entries(document).try_for_each(|chunk| index.add_document(chunk).map(drop))?;
            }
            writer.fed_generation = page.next.generation;
            if !page.more {
                return Ok(());
            }
        }
    }

    fn commit(&self, writer: &mut LeasedWriter) -> Result<(), ViewError> {
        writer.committed_at = Instant::now();
        let exists = self.folder.join("meta.json").exists();
        if writer.committed_generation == writer.fed_generation
            && writer.fed_generation != Generation::default()
            && exists
        {
            return Ok(());
        }
        let covered = CommitPayload { store: self.store_id, generation: writer.fed_generation };
        let payload = serde_json::to_string(&covered).unwrap_or_default();
        let mut commit = writer.writer.prepare_commit()?;
        commit.set_payload(&payload);
        commit.commit()?;
        writer.committed_generation = writer.fed_generation;
        ctx_store::restrict_files(&self.folder);
        Ok(())
    }

    fn lease(&self, store: &dyn Store) -> Result<LeaseGuard, ViewError> {
        let started = Instant::now();
        loop {
            if let Some(lease) = self.try_lease(store)? {
                return Ok(lease);
            }
            if started.elapsed() > LEASE_WAIT_MAX {
                return Err(ViewErrorKind::Busy.into());
            }
            std::thread::sleep(LEASE_POLL);
        }
    }

    fn try_lease(&self, store: &dyn Store) -> Result<Option<LeaseGuard>, ViewError> {
        store.lease(&Lease::Index).map_err(|error| match error {
            StoreError::Lease(error) => self.io_error(error),
            error => error.into(),
        })
    }

    fn io_error(&self, source: io::Error) -> ViewError {
        ViewErrorKind::Io { path: self.folder.clone(), source }.into()
    }

    fn top_candidates(
        &self,
        snapshot: &IndexSnapshot,
        query: &dyn Query,
        limit: usize,
    ) -> Result<Vec<Candidate>, ViewError> {
        let top = snapshot.searcher.search(query, &TopDocs::with_limit(limit).order_by_score())?;
        top.into_iter()
            .map(|(score, address)| {
                let (documents, chunks) =
                    snapshot.columns.get(address.segment_ord as usize).ok_or(ViewErrorKind::Damaged)?;
                let value = |column: &Column| column.first(address.doc_id);
                match (value(documents), value(chunks)) {
                    (Some(document), Some(chunk)) => Ok(Candidate { place: (document, chunk), score }),
                    _ => Err(ViewErrorKind::Damaged.into()),
                }
            })
            .collect()
    }
}

fn is_index_damage(error: &TantivyError) -> bool {
    use tantivy::directory::error::OpenReadError;
    let is_truncated = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
        )
    };
    match error {
        TantivyError::IoError(error) => is_truncated(error),
        TantivyError::OpenReadError(OpenReadError::IoError { io_error, .. }) => is_truncated(io_error),
        TantivyError::OpenWriteError(_)
        | TantivyError::OpenDirectoryError(_)
        | TantivyError::LockFailure(..) => false,
        _ => true,
    }
}

fn commit_payload(index: &Index) -> Result<Option<CommitPayload>, ViewError> {
    let payload = index.load_metas()?.payload;
    Ok(payload.and_then(|payload| serde_json::from_str(&payload).ok()))
}

fn file_stamp(path: &Path) -> Option<FileStamp> {
    let metadata = fs::metadata(path).ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let inode = 0;
    Some((metadata.modified().ok()?, metadata.len(), inode))
}
