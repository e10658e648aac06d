//! A store that simulates a crash of the process: operations work up to one of them, and fail from then on.

use ctx_core::SourceName;
use ctx_knowledge::{Filters, StoreError, StoredDocument, UnreadableDocument};
use ctx_store::{
    ApplyResult, ChangeCursor, ChangeFeed, ChangePage, ChangeScope, ChangedDocuments, Checkpoint,
    ChunkPosition, ChunkText, DocumentId, DocumentKey, DocumentName, DocumentSet, DocumentStamp,
    DocumentStore, DocumentSummary, DocumentText, DocumentVectors, FilePosition, Generation, Lease,
    LeaseGuard, ListedDocument, ModelKey, Mutation, PendingDocument, PendingQuery, SourceCounts, SourceFile,
    SourceRecord, Store, StoreIdentity, StoreLocation, StorePart, SyncOutcome, VectorCoverage,
    VectorSequence, VectorState, VectorStore,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// A moment between two operations of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrashPoint {
    /// Number of the operation whose result is lost; the first is 1.
    pub(crate) operation: usize,
    /// Whether that operation still takes effect.
    pub(crate) takes_effect: bool,
}

/// Passes every operation on to another store and counts them, until it crashes: after that nothing reaches the other
/// store any more.
pub(crate) struct CrashingStore {
    inner: Arc<dyn Store>,
    crash: Option<CrashPoint>,
    /// Held during each operation, so that none is running at the crash.
    operations: Mutex<Operations>,
}

/// Operations so far.
#[derive(Default)]
struct Operations {
    count: usize,
    by_name: BTreeMap<&'static str, usize>,
}

impl CrashingStore {
    /// A store that only counts.
    pub(crate) fn counting(inner: Arc<dyn Store>) -> Arc<Self> {
        Self::new(inner, None)
    }

    /// A store that crashes at this moment.
    pub(crate) fn crashing(inner: Arc<dyn Store>, crash: CrashPoint) -> Arc<Self> {
        Self::new(inner, Some(crash))
    }

    fn new(inner: Arc<dyn Store>, crash: Option<CrashPoint>) -> Arc<Self> {
        Arc::new(Self { inner, crash, operations: Mutex::default() })
    }

    /// Operations so far, those that failed among them.
    pub(crate) fn operations(&self) -> usize {
        self.operations.lock().unwrap().count
    }

    /// Number of calls of the operation with this name.
    pub(crate) fn calls(&self, name: &str) -> usize {
        self.operations.lock().unwrap().by_name.get(name).copied().unwrap_or_default()
    }

    /// Whether it has crashed.
    pub(crate) fn has_crashed(&self) -> bool {
        self.crash.is_some_and(|crash| self.operations() >= crash.operation)
    }

    fn operation<T>(
        &self,
        name: &'static str,
        work: impl FnOnce(&dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut operations = self.operations.lock().unwrap();
        operations.count += 1;
        *operations.by_name.entry(name).or_default() += 1;
        match self.crash {
            Some(crash) if operations.count > crash.operation => Err(crashed_error()),
            Some(crash) if operations.count == crash.operation => {
                if crash.takes_effect {
                    work(&*self.inner).map(drop)?;
                }
                Err(crashed_error())
            }
            _ => work(&*self.inner),
        }
    }
}

fn crashed_error() -> StoreError {
    let place =
        StoreLocation { name: "of a process that has crashed".to_owned(), part: StorePart::Documents };
    StoreError::Failed { place, source: "it is gone".into() }
}

impl DocumentStore for CrashingStore {
    /// One mutation at a time: a crash may leave the first mutations of a batch without the others.
    fn apply(&self, mutations: &[Mutation]) -> Result<ApplyResult, StoreError> {
        let mut all = ApplyResult::default();
        for mutation in mutations {
            let one = self.operation("apply", |store| store.apply(std::slice::from_ref(mutation)))?;
            all.deleted += one.deleted;
            all.generation = all.generation.max(one.generation);
        }
        Ok(all)
    }

    fn stamps(&self, ids: &[DocumentId]) -> Result<Vec<DocumentStamp>, StoreError> {
        self.operation("stamps", |store| store.stamps(ids))
    }

    fn document(&self, id: DocumentId) -> Result<Option<StoredDocument>, StoreError> {
        self.operation("document", |store| store.document(id))
    }

    fn text(&self, id: DocumentId, bytes_max: usize) -> Result<Option<DocumentText>, StoreError> {
        self.operation("text", |store| store.text(id, bytes_max))
    }

    fn list(&self, after: DocumentKey, limit: usize) -> Result<Vec<ListedDocument>, StoreError> {
        self.operation("list", |store| store.list(after, limit))
    }

    fn names(&self, after: Option<&DocumentName>, limit: usize) -> Result<Vec<DocumentName>, StoreError> {
        self.operation("names", |store| store.names(after, limit))
    }

    fn files(
        &self,
        source: &SourceName,
        after: Option<&FilePosition>,
        limit: usize,
    ) -> Result<Vec<SourceFile>, StoreError> {
        self.operation("files", |store| store.files(source, after, limit))
    }

    fn name_skipped(&self, names: &[(DocumentId, String)]) -> Result<(), StoreError> {
        self.operation("name_skipped", |store| store.name_skipped(names))
    }

    fn summaries(&self, keys: &[DocumentKey]) -> Result<Vec<DocumentSummary>, StoreError> {
        self.operation("summaries", |store| store.summaries(keys))
    }

    fn chunk_texts(&self, chunks: &[ChunkPosition]) -> Result<Vec<ChunkText>, StoreError> {
        self.operation("chunk_texts", |store| store.chunk_texts(chunks))
    }

    fn documents_within(
        &self,
        filters: &Filters,
        sources: Option<&BTreeSet<String>>,
    ) -> Result<DocumentSet, StoreError> {
        self.operation("documents_within", |store| store.documents_within(filters, sources))
    }

    fn sources(&self) -> Result<BTreeMap<String, SourceRecord>, StoreError> {
        self.operation("sources", |store| store.sources())
    }

    fn sources_with_documents(&self) -> Result<BTreeSet<String>, StoreError> {
        self.operation("sources_with_documents", |store| store.sources_with_documents())
    }

    fn counts(&self) -> Result<BTreeMap<String, SourceCounts>, StoreError> {
        self.operation("counts", |store| store.counts())
    }

    fn finish_sync(&self, source: &SourceName, outcome: &SyncOutcome) -> Result<(), StoreError> {
        self.operation("finish_sync", |store| store.finish_sync(source, outcome))
    }

    fn forget_source(&self, source: &SourceName) -> Result<(), StoreError> {
        self.operation("forget_source", |store| store.forget_source(source))
    }

    fn forget_old_deletions(&self, keep: usize) -> Result<(), StoreError> {
        self.operation("forget_old_deletions", |store| store.forget_old_deletions(keep))
    }
}

impl ChangeFeed for CrashingStore {
    fn generation(&self) -> Result<Generation, StoreError> {
        self.operation("generation", |store| store.generation())
    }

    fn changes(
        &self,
        cursor: ChangeCursor,
        scope: ChangeScope,
        limit: usize,
    ) -> Result<Option<ChangePage>, StoreError> {
        self.operation("changes", |store| store.changes(cursor, scope, limit))
    }

    fn checkpoint(&self) -> Result<Checkpoint, StoreError> {
        self.operation("checkpoint", |store| store.checkpoint())
    }

    fn changed_between(
        &self,
        since: Checkpoint,
        until: Checkpoint,
        limit: usize,
    ) -> Result<Option<ChangedDocuments>, StoreError> {
        self.operation("changed_between", |store| store.changed_between(since, until, limit))
    }
}

impl VectorStore for CrashingStore {
    fn model(&self, id: &str) -> Result<Option<ModelKey>, StoreError> {
        self.operation("model", |store| store.model(id))
    }

    fn ensure_model(&self, id: &str) -> Result<ModelKey, StoreError> {
        self.operation("ensure_model", |store| store.ensure_model(id))
    }

    fn dimensions(&self, model: ModelKey) -> Result<Option<usize>, StoreError> {
        self.operation("dimensions", |store| store.dimensions(model))
    }

    fn keep_models(&self, keep: &[ModelKey]) -> Result<(), StoreError> {
        self.operation("keep_models", |store| store.keep_models(keep))
    }

    fn clear_model(&self, model: ModelKey) -> Result<(), StoreError> {
        self.operation("clear_model", |store| store.clear_model(model))
    }

    fn pending(&self, query: &PendingQuery) -> Result<Vec<PendingDocument>, StoreError> {
        self.operation("pending", |store| store.pending(query))
    }

    fn lacks_vectors(&self, model: ModelKey) -> Result<bool, StoreError> {
        self.operation("lacks_vectors", |store| store.lacks_vectors(model))
    }

    fn put_vectors(
        &self,
        model: ModelKey,
        mark: bool,
        documents: &[DocumentVectors],
    ) -> Result<bool, StoreError> {
        self.operation("put_vectors", |store| store.put_vectors(model, mark, documents))
    }

    fn incomplete_sources(&self, model: ModelKey) -> Result<BTreeSet<String>, StoreError> {
        self.operation("incomplete_sources", |store| store.incomplete_sources(model))
    }

    fn coverage(&self, model: ModelKey) -> Result<VectorCoverage, StoreError> {
        self.operation("coverage", |store| store.coverage(model))
    }

    fn unreadable(
        &self,
        model: ModelKey,
        limit: usize,
    ) -> Result<(u64, Vec<UnreadableDocument>), StoreError> {
        self.operation("unreadable", |store| store.unreadable(model, limit))
    }

    fn vector_state(&self, model: ModelKey) -> Result<VectorState, StoreError> {
        self.operation("vector_state", |store| store.vector_state(model))
    }

    fn exact_vectors(&self, vectors: &[VectorSequence]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.operation("exact_vectors", |store| store.exact_vectors(vectors))
    }

    fn exact_chunk_vectors(
        &self,
        model: ModelKey,
        chunks: &[ChunkPosition],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.operation("exact_chunk_vectors", |store| store.exact_chunk_vectors(model, chunks))
    }
}

impl Store for CrashingStore {
    fn identity(&self) -> &StoreIdentity {
        self.inner.identity()
    }

    fn writable(&self) -> bool {
        self.inner.writable()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn problems(&self) -> Result<Vec<String>, StoreError> {
        self.operation("problems", |store| store.problems())
    }

    fn lease(&self, lease: &Lease) -> Result<Option<LeaseGuard>, StoreError> {
        self.operation("lease", |store| store.lease(lease))
    }
}
