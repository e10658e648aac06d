//! [`Knowledge`]: the store, its search indexes and the sources that feed them.

use crate::change_notifier::DocumentChangeNotifier;
use crate::chunk::Chunking;
use crate::embed::{
    self, Effort, EmbedError, EmbeddingModels, EmbeddingOptions, FillError, FillJob, FillMode, FillProgress,
    FillReport, RegisteredModel,
};
use crate::extraction::Extraction;
use crate::search::{
    Hit, Ranker, SearchError, SearchMode, SearchQuery, SearchTuning, VectorIndex, View, ViewRetriever,
};
use crate::sync::{DELETIONS_KEPT, Progress, SyncError, SyncJob, SyncOptions, SyncReport};
use ctx_core::{Connector, ResourceChange, SourceName, Watch};
use ctx_store::{
    DocumentText, FilePosition, ListedDocument, Mutation, SourceCounts, SourceFile, SourceRecord,
    SqliteStore, Store, StoreError, StoredDocument, UnreadableDocument,
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

/// Maximum number of documents listed whose chunks the embedding model rejects.
const UNREADABLE_LISTED_MAX: usize = 20;

/// The parts and settings of a knowledge base.
pub struct KnowledgeOptions {
    /// Path of the store; indexes and caches are created next to it.
    pub store: PathBuf,
    /// Where the text of documents is extracted.
    pub extraction: Extraction,
    /// How documents are split.
    pub chunking: Chunking,
    /// Search mode of queries that do not specify one.
    pub mode: SearchMode,
    /// Maximum number of hits for queries that do not specify one.
    pub final_limit: usize,
    /// How candidates are retrieved and scored.
    pub tuning: SearchTuning,
    /// The embedding models; `None` disables embeddings.
    pub embedding: Option<EmbeddingOptions>,
    /// The configured sources.
    pub sources: Vec<Source>,
}

/// Whether [`Knowledge::reconfigure`] opens the embedding models again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingChange {
    /// The loaded models stay in use.
    Keep,
    /// The models of the new options are opened.
    Replace,
}

/// Path prefixes of a store's files: the database, caches, keyword index, locks and vectors.
pub fn store_files(store: &Path) -> Vec<PathBuf> {
    let siblings = ["cache", "keyword", "locks", "vectors"].map(|extension| store.with_extension(extension));
    std::iter::once(store.to_owned()).chain(siblings).collect()
}

/// A configured source.
pub struct Source {
    /// Its name.
    pub name: SourceName,
    /// The connector that reads it.
    pub connector: Arc<dyn Connector>,
    /// Tags that all its documents get.
    pub tags: Vec<String>,
}

/// The status of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceStatus {
    /// Its name.
    pub name: String,
    /// Whether it is in the configuration.
    pub configured: bool,
    /// Whether it can be read and its last sync succeeded.
    pub healthy: bool,
    /// The status in words.
    pub notes: Option<String>,
    /// Number of its documents.
    pub documents: u64,
    /// When its last complete sync ended.
    #[schemars(with = "Option<String>")]
    pub last_sync: Option<Timestamp>,
    /// Why the last sync failed.
    pub last_error: Option<String>,
    /// Number of documents that the last sync could not read.
    pub warnings: usize,
}

/// Sizes and counts of a knowledge base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stats {
    /// Number of documents.
    pub documents: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Size of all texts in bytes.
    pub text_bytes: u64,
    /// Size of the store on disk in bytes.
    pub store_bytes: u64,
    /// Size of the keyword index on disk in bytes.
    pub keyword_index_bytes: u64,
    /// Vectors; absent if embeddings are disabled.
    pub vectors: Option<VectorStats>,
    /// Generation of the store, which counts its changes.
    pub generation: u64,
    /// Sizes and counts of each source.
    pub sources: Vec<SourceStats>,
}

/// State of the vectors of the workspace's model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VectorStats {
    /// The workspace's model.
    pub model: String,
    /// Chunks with a vector of this model.
    pub vectors: u64,
    /// Documents with pending vectors.
    pub pending_documents: u64,
    /// Chunks that the model rejects; only keyword search finds them.
    pub unreadable_chunks: u64,
    /// The first few documents with such chunks.
    pub unreadable: Vec<UnreadableDocument>,
}

/// Sizes and counts of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceStats {
    /// Its name.
    pub name: String,
    /// Number of its documents.
    pub documents: u64,
    /// Number of their chunks.
    pub chunks: u64,
    /// Size of their texts in bytes.
    pub text_bytes: u64,
    /// When its last complete sync ended.
    #[schemars(with = "Option<String>")]
    pub last_sync: Option<Timestamp>,
}

/// The result of an integrity check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Integrity problems of the store; empty when it is sound.
    pub store_problems: Vec<String>,
    /// Whether the store is writable.
    pub writable: bool,
    /// The error found in the keyword index, and whether a rebuild fixed it.
    pub keyword_index_problem: Option<String>,
}

/// An open knowledge base. Its methods block unless they are `async`.
pub struct Knowledge {
    store: Arc<dyn Store>,
    view: Arc<View>,
    vectors: Arc<VectorIndex>,
    /// `None` when embeddings are disabled, or when a read-only store does not know the configured model.
    models: Option<Arc<EmbeddingModels>>,
    /// Held during an index repair, so that concurrent searches repair it only once.
    repair: Arc<Mutex<()>>,
    change_notifier: Arc<DocumentChangeNotifier>,
    options: KnowledgeOptions,
}

impl Knowledge {
    /// Opens the store, creating it if it does not exist.
    pub fn open(options: KnowledgeOptions) -> Result<Self, StoreError> {
        let store = SqliteStore::open(&options.store)?;
        Self::with_store(Arc::new(store), options)
    }

    /// A knowledge base on an open store. Indexes and caches are created next to `options.store`.
    pub fn with_store(store: Arc<dyn Store>, options: KnowledgeOptions) -> Result<Self, StoreError> {
        let view = Arc::new(View::next_to(&options.store, store.identity().id));
        let models = match &options.embedding {
            Some(embedding) => EmbeddingModels::open(embedding, &*store)?.map(Arc::new),
            None => None,
        };
        let vectors = Arc::new(VectorIndex::next_to(&options.store, store.identity().id));
        let (repair, change_notifier) = Default::default();
        Ok(Self { store, view, vectors, models, repair, change_notifier, options })
    }

    /// The same open store with other options; `options.store` is ignored. [`EmbeddingChange::Keep`] keeps the loaded
    /// models and their vectors in memory, and ignores `options.embedding`.
    pub fn reconfigure(
        &self,
        options: KnowledgeOptions,
        embedding: EmbeddingChange,
    ) -> Result<Self, StoreError> {
        let models = match (embedding, &options.embedding) {
            (EmbeddingChange::Keep, _) => self.models.clone(),
            (EmbeddingChange::Replace, Some(embedding)) => {
                EmbeddingModels::open(embedding, &*self.store)?.map(Arc::new)
            }
            (EmbeddingChange::Replace, None) => None,
        };
        let vectors = match embedding {
            EmbeddingChange::Keep => self.vectors.clone(),
            EmbeddingChange::Replace => {
                Arc::new(VectorIndex::next_to(&self.options.store, self.store.identity().id))
            }
        };
        let (store, view, change_notifier) =
            (self.store.clone(), self.view.clone(), self.change_notifier.clone());
        // Caches stay next to the open store.
        let options = KnowledgeOptions { store: self.options.store.clone(), ..options };
        Ok(Self { store, view, vectors, models, repair: self.repair.clone(), change_notifier, options })
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Names of the configured sources.
    pub fn source_names(&self) -> impl Iterator<Item = &SourceName> {
        self.options.sources.iter().map(|source| &source.name)
    }

    /// Maximum number of hits for queries that do not specify one.
    pub fn final_limit(&self) -> usize {
        self.options.final_limit
    }

    /// Runs a query. Rebuilds a missing or damaged keyword index first.
    pub fn search(&self, query: &SearchQuery) -> Result<Vec<Hit>, SearchError> {
        if query.text.trim().is_empty() {
            return Err(SearchError::EmptyQuery);
        }
        let store = &*self.store;
        let retriever = ViewRetriever { view: &self.view, vectors: &self.vectors, store };
        let ranker = Ranker { retriever: &retriever, store, tuning: self.options.tuning, query };
        let run_query = || match (query.mode.unwrap_or(self.options.mode), &self.models) {
            (SearchMode::Semantic, Some(models)) => ranker.semantic(models),
            (SearchMode::Hybrid, Some(models)) => ranker.hybrid(models),
            // The workspace's default mode falls back to keyword search without vectors; an explicit mode fails.
            (SearchMode::Semantic, None) if query.mode.is_some() => {
                Err(SearchError::EmbeddingsDisabled("semantic"))
            }
            (SearchMode::Hybrid, None) if query.mode.is_some() => {
                Err(SearchError::EmbeddingsDisabled("hybrid"))
            }
            _ => ranker.keyword(),
        };
        let is_repairable = |result: &Result<Vec<Hit>, SearchError>| match result {
            Err(SearchError::View(error)) => error.is_damage(),
            Err(SearchError::Building) => true,
            _ => false,
        };
        let first = run_query();
        if !is_repairable(&first) || !self.store.writable() {
            return first;
        }
        let _one_at_a_time = self.repair.lock().unwrap_or_else(PoisonError::into_inner);
        // A concurrent search may have repaired the index while this one waited for the lock.
        match run_query() {
            Err(SearchError::View(error)) if error.is_damage() => self.view.rebuild(&*self.store, &error)?,
            Err(SearchError::Building) => self.catch_up()?,
            other => return other,
        }
        run_query()
    }

    /// Whether a search in this mode asks an embedding service.
    pub(crate) fn asks_service(&self, mode: Option<SearchMode>) -> bool {
        mode.unwrap_or(self.options.mode) != SearchMode::Keyword
            && self.models.as_ref().is_some_and(|models| models.configured.embedder.is_remote())
    }

    /// A document with its whole text and chunks.
    pub fn get(&self, id: Uuid) -> Result<Option<StoredDocument>, StoreError> {
        self.store.document(id)
    }

    /// At most `limit` documents after the key `after`, in the order of insertion.
    pub(crate) fn list_documents(&self, after: u64, limit: usize) -> Result<Vec<ListedDocument>, StoreError> {
        self.store.list(after, limit)
    }

    /// A document's text, unless it is longer than `bytes_max`.
    pub(crate) fn document_text(
        &self,
        id: Uuid,
        bytes_max: usize,
    ) -> Result<Option<DocumentText>, StoreError> {
        self.store.text(id, bytes_max)
    }

    /// Subscribes to document changes from now on; each sync and [`Knowledge::tend`] publish them.
    pub(crate) fn subscribe_to_changes(&self) -> broadcast::Receiver<ResourceChange> {
        self.change_notifier.subscribe(&*self.store)
    }

    /// Syncs a source.
    ///
    /// Boxed, so that a sync is compiled here only (decision 0012).
    pub fn sync<'a>(
        &'a self,
        name: &'a SourceName,
        options: SyncOptions,
        progress: Arc<dyn Fn(Progress) + Send + Sync>,
        cancellation: CancellationToken,
    ) -> BoxFuture<'a, Result<SyncReport, SyncError>> {
        Box::pin(self.sync_unboxed(name, options, progress, cancellation))
    }

    async fn sync_unboxed(
        &self,
        name: &SourceName,
        options: SyncOptions,
        progress: Arc<dyn Fn(Progress) + Send + Sync>,
        cancellation: CancellationToken,
    ) -> Result<SyncReport, SyncError> {
        let source = self.source(name).ok_or_else(|| SyncError::Source {
            source_name: name.to_string(),
            reason: "it is not configured".to_owned(),
        })?;
        let (store, view, chunking) = (&self.store, &self.view, self.options.chunking);
        let models = self.models.clone();
        let (vectors, unchanged_store) = (self.vectors.clone(), self.store.clone());
        // Before the sync: it may store vectors.
        let discarded = tokio::task::spawn_blocking(move || vectors.discard_if_ahead(&*unchanged_store));
        discarded.await.unwrap_or(Ok(()))?;
        let job = SyncJob {
            store,
            store_path: &self.options.store,
            view,
            source,
            extraction: &self.options.extraction,
            chunking,
            models,
            options,
            progress,
            cancellation: cancellation.clone(),
        };
        let report = job.run().await;
        let (change_notifier, store) = (self.change_notifier.clone(), self.store.clone());
        let (vectors, models) = (self.vectors.clone(), self.models.clone());
        // Even a failed sync may have stored documents. What fails here is done later.
        let follow_up = move || {
            if let Err(error) = change_notifier.publish(&*store) {
                tracing::debug!(%error, "cannot publish changes to subscribers");
            }
            save_vectors(&vectors, models.as_deref(), &*store);
        };
        drop(tokio::task::spawn_blocking(follow_up).await);
        report
    }

    fn source(&self, name: &SourceName) -> Option<&Source> {
        self.options.sources.iter().find(|source| source.name == *name)
    }

    /// Whether a source supports change notifications.
    pub fn can_watch(&self, name: &SourceName) -> bool {
        self.source(name).is_some_and(|source| source.connector.watcher().is_some())
    }

    /// Watches a source for as long as the watch is held; `None` if it cannot be watched.
    pub fn watch(&self, name: &SourceName) -> Option<Watch> {
        let watcher = self.source(name)?.connector.watcher()?;
        let (signal, watch) = Watch::channel();
        thread::spawn(move || watcher(&signal));
        Some(watch)
    }

    /// When the last complete sync of a source ended.
    pub fn last_sync(&self, name: &SourceName) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.store.sources()?.get(&name.to_string()).and_then(|row| row.synced_at))
    }

    /// Whether documents lack vectors of the workspace's model.
    pub fn lacks_vectors(&self) -> Result<bool, StoreError> {
        match &self.models {
            Some(models) => Ok(!self.store.incomplete_sources(models.configured.key)?.is_empty()),
            None => Ok(false),
        }
    }

    /// Embeds a probe text with the workspace's model; `None` when embeddings are disabled. Blocks.
    pub fn check_model(&self) -> Option<Result<(), EmbedError>> {
        let models = self.models.as_ref()?;
        Some(models.configured.embed_query_without_cooldown("health check").map(drop))
    }

    /// When vectors of the workspace's model are computed; `None` when embeddings are disabled.
    pub fn fill_mode(&self) -> Option<FillMode> {
        self.models.as_ref().map(|models| models.fill)
    }

    /// Computes the missing vectors, those of the fast bridge model first. Blocks.
    pub fn fill(
        &self,
        effort: Effort,
        cancellation: &CancellationToken,
        progress: &dyn Fn(FillProgress),
    ) -> Result<FillReport, FillError> {
        let Some(models) = &self.models else { return Ok(FillReport { made: 0, complete: true }) };
        let _lease = embed::acquire_lease(&*self.store)?;
        self.vectors.discard_if_ahead(&*self.store)?;
        self.check_model_not_replaced(models)?;
        let keys: Vec<_> = models.all().map(|model| model.key).collect();
        self.store.keep_models(&keys)?;
        self.vectors.retain(&keys);
        if let Some(bridge) = &models.bridge
            && self.store.lacks_vectors(bridge.key)?
        {
            self.fill_job(bridge, false, effort, cancellation).run(&|_| ())?;
        }
        let report = self.fill_job(&models.configured, true, effort, cancellation).run(progress)?;
        save_vectors(&self.vectors, Some(models), &*self.store);
        Ok(report)
    }

    /// Computes only the vectors of the fast model, for documents stored before embeddings were enabled.
    pub fn fill_fast_vectors(&self, cancellation: &CancellationToken) -> Result<(), FillError> {
        let Some(models) = &self.models else { return Ok(()) };
        let (model, is_configured_model) = match &models.bridge {
            Some(bridge) => (bridge, false),
            None => (&models.configured, true),
        };
        if !self.store.lacks_vectors(model.key)? {
            return Ok(());
        }
        let _lease = embed::acquire_lease(&*self.store)?;
        self.vectors.discard_if_ahead(&*self.store)?;
        self.fill_job(model, is_configured_model, Effort::Full, cancellation).run(&|_| ()).map(drop)
    }

    /// Deletes all vectors, to recompute them.
    pub fn clear_vectors(&self) -> Result<(), FillError> {
        let Some(models) = &self.models else { return Ok(()) };
        let _lease = embed::acquire_lease(&*self.store)?;
        Ok(models.all().try_for_each(|model| self.store.clear_model(model.key))?)
    }

    /// Fails in a process with an older configuration, which must not remove the vectors of the newer model.
    fn check_model_not_replaced(&self, models: &EmbeddingModels) -> Result<(), FillError> {
        match self.store.model(models.configured.embedder.model())? {
            Some(key) if key == models.configured.key => Ok(()),
            _ => Err(FillError::Replaced),
        }
    }

    fn fill_job<'a>(
        &'a self,
        model: &'a RegisteredModel,
        is_configured_model: bool,
        effort: Effort,
        cancellation: &'a CancellationToken,
    ) -> FillJob<'a> {
        FillJob {
            store: &*self.store,
            model,
            is_configured_model,
            chunking: self.options.chunking,
            effort,
            cancellation,
        }
    }

    /// Removes all data of a source that is no longer configured; returns the number of deleted documents.
    pub fn forget(&self, name: &SourceName) -> Result<u64, SyncError> {
        let _lease = crate::sync::acquire_lease(&*self.store, name)?;
        let mut removed = 0;
        crate::sync::for_each_file_page(&*self.store, name, |known| {
            let deletions: Vec<Mutation> = known.iter().copied().map(Mutation::Delete).collect();
            removed += self.store.apply(&deletions)?.deleted;
            Ok(())
        })?;
        self.store.forget_source(name)?;
        let cache = crate::sync::cache_path(&self.options.store, name);
        if let Err(error) = std::fs::remove_dir_all(&cache)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "cannot remove {}", cache.display());
        }
        self.view.catch_up(&*self.store)?;
        self.change_notifier.publish(&*self.store)?;
        self.store.forget_old_deletions(DELETIONS_KEPT)?;
        Ok(removed)
    }

    /// Publishes document changes to subscribers, and lets the keyword index catch up if it lags (after a crash or a
    /// deletion) and no other process is updating it.
    pub fn catch_up(&self) -> Result<(), SearchError> {
        self.change_notifier.publish(&*self.store)?;
        Ok(self.view.catch_up_if_idle(&*self.store)?)
    }

    /// Checks the whole store and keyword index for damage; rebuilds a damaged index.
    pub fn check(&self) -> Result<Health, StoreError> {
        let store_problems = self.store.problems()?;
        let keyword_index_problem = match self.view.verify(&*self.store) {
            Ok(()) => None,
            Err(error) => {
                let repaired = self.store.writable() && self.view.rebuild(&*self.store, &error).is_ok();
                let ending = if repaired { "it was rebuilt" } else { "it could not be rebuilt" };
                Some(format!("{error}; {ending}"))
            }
        };
        Ok(Health { store_problems, writable: self.store.writable(), keyword_index_problem })
    }

    /// The status of every source, configured or only present in the store.
    pub async fn sources(&self) -> Result<Vec<SourceStatus>, StoreError> {
        let store = self.store.clone();
        let sources_and_counts = tokio::task::spawn_blocking(move || Ok((store.sources()?, store.counts()?)));
        let (rows, counts) = sources_and_counts.await.unwrap_or_else(|_| Ok(Default::default()))?;
        let mut statuses = Vec::new();
        let configured: BTreeSet<String> = self.source_names().map(ToString::to_string).collect();
        // Concurrently: each check may wait for a network.
        let checks: Vec<_> =
            self.options.sources.iter().map(|source| spawn_check(source.connector.clone())).collect();
        for (source, check) in self.options.sources.iter().zip(checks) {
            let name = source.name.to_string();
            let unreachable = check.await.unwrap_or_else(|_| Some("the health check failed".to_owned()));
            let row = rows.get(&name).cloned().unwrap_or_default();
            let documents = counts.get(&name).map_or(0, |counts| counts.documents);
            statuses.push(source_status(name, row, documents, unreachable));
        }
        let remembered: BTreeSet<&String> = rows.keys().chain(counts.keys()).collect();
        for name in remembered.into_iter().filter(|name| !configured.contains(*name)) {
            let row = rows.get(name).cloned().unwrap_or_default();
            let documents = counts.get(name).map_or(0, |counts| counts.documents);
            statuses.push(SourceStatus {
                configured: false,
                notes: Some(format!("no longer configured; {}", documents_text(documents))),
                ..source_status(name.clone(), row, documents, None)
            });
        }
        Ok(statuses)
    }

    /// At most `limit` files of a source after the position `after`, whether their texts are stored or not.
    pub fn files(
        &self,
        source: &SourceName,
        after: Option<&FilePosition>,
        limit: usize,
    ) -> Result<Vec<SourceFile>, StoreError> {
        self.store.files(source, after, limit)
    }

    /// Sizes and counts of the knowledge base.
    pub fn stats(&self) -> Result<Stats, StoreError> {
        let (rows, counts) = (self.store.sources()?, self.store.counts()?);
        let names: BTreeSet<&String> = rows.keys().chain(counts.keys()).collect();
        let sources: Vec<SourceStats> =
            names.into_iter().map(|name| source_stats(name, &rows, &counts)).collect();
        let total = |part: fn(&SourceStats) -> u64| sources.iter().map(part).sum();
        Ok(Stats {
            documents: total(|source| source.documents),
            chunks: total(|source| source.chunks),
            text_bytes: total(|source| source.text_bytes),
            store_bytes: self.store.size_bytes(),
            keyword_index_bytes: folder_bytes(self.view.folder()),
            vectors: self.vector_stats()?,
            generation: self.store.generation()?.0,
            sources,
        })
    }
}

impl Knowledge {
    fn vector_stats(&self) -> Result<Option<VectorStats>, StoreError> {
        let Some(models) = &self.models else { return Ok(None) };
        let coverage = self.store.coverage(models.configured.key)?;
        let (unreadable_chunks, unreadable) =
            self.store.unreadable(models.configured.key, UNREADABLE_LISTED_MAX)?;
        Ok(Some(VectorStats {
            model: models.configured.embedder.model().to_owned(),
            vectors: coverage.vectors,
            pending_documents: coverage.pending_documents,
            unreadable_chunks,
            unreadable,
        }))
    }
}

/// Brings the vector files up to date, so that the next process need not read all vectors from the store.
fn save_vectors(vectors: &VectorIndex, models: Option<&EmbeddingModels>, store: &dyn Store) {
    for model in models.into_iter().flat_map(EmbeddingModels::all) {
        if let Err(error) = vectors.save(store, model.key) {
            tracing::debug!(%error, "cannot bring a vector file up to date");
        }
    }
}

/// Starts a connector's check; the task returns the error text if the source is unreachable.
fn spawn_check(connector: Arc<dyn Connector>) -> AbortOnDropHandle<Option<String>> {
    let check = async move { connector.check().await.err().map(|error| error.to_string()) };
    AbortOnDropHandle::new(tokio::spawn(check))
}

fn source_status(
    name: String,
    row: SourceRecord,
    documents: u64,
    unreachable: Option<String>,
) -> SourceStatus {
    let notes = match (&unreachable, &row.error, row.synced_at) {
        (Some(reason), ..) => reason.clone(),
        (None, Some(error), _) => format!("the last sync failed: {error}"),
        (None, None, None) => "never synced; run `ctx sync`".to_owned(),
        (None, None, Some(at)) => {
            let warnings = match row.warnings {
                0 => String::new(),
                1 => ", 1 document could not be read".to_owned(),
                several => format!(", {several} documents could not be read"),
            };
            format!("{}, synced {at}{warnings}", documents_text(documents))
        }
    };
    SourceStatus {
        name,
        configured: true,
        healthy: unreachable.is_none() && row.error.is_none(),
        notes: Some(notes),
        documents,
        last_sync: row.synced_at,
        last_error: unreachable.or(row.error),
        warnings: row.warnings,
    }
}

fn documents_text(count: u64) -> String {
    if count == 1 { "1 document".to_owned() } else { format!("{count} documents") }
}

fn source_stats(
    name: &str,
    rows: &BTreeMap<String, SourceRecord>,
    counts: &BTreeMap<String, SourceCounts>,
) -> SourceStats {
    let counts = counts.get(name).copied().unwrap_or_default();
    SourceStats {
        name: name.to_owned(),
        documents: counts.documents,
        chunks: counts.chunks,
        text_bytes: counts.bytes,
        last_sync: rows.get(name).and_then(|row| row.synced_at),
    }
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| file_bytes(&entry.path())).sum()
}
