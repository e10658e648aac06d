//! A workspace in a temporary folder, and a source that a test scripts.

#![allow(dead_code, unused_imports, reason = "each of the two test programs uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

mod buckets;
mod crashing;
mod model_server;
mod repository;
mod scripted_connector;

pub(crate) use buckets::{Buckets, Proxy};
pub(crate) use crashing::{CrashPoint, CrashingStore};
pub(crate) use model_server::{API_KEY, ModelServer, ScriptedReply, options, status};
pub(crate) use repository::{AUTHORIZATION, GitServer, LOGIN, Repository, files_with, redirecting_host};
pub(crate) use scripted_connector::{ScriptedConnector, delete, document, document_at, upsert};

use ctx_core::{Connector, Document, SourceName};
use ctx_knowledge::{
    Chunking, ConnectorResult, EmbedderSettings, EmbeddingOptions, Extraction, Filters, Hit, KINDS,
    Knowledge, KnowledgeOptions, OpenOptions, SearchMode, SearchQuery, SearchTuning, Source, StoreError,
    StoredDocument, SyncError, SyncOptions, SyncReport, cache_path, store_files,
};
use ctx_store::Store;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Default modification time of files: long enough ago to be settled.
const WRITTEN_AT: &str = "2026-01-01T12:00:00.5Z";

/// A folder `docs` with files, a store in `data`, and the options to open them.
pub(crate) struct Workspace {
    folder: TempDir,
    settings: Value,
    tags: Vec<String>,
    others: Vec<(SourceName, Arc<dyn Connector>)>,
    chunking: Chunking,
    document_bytes_max: u64,
    embedding: Option<EmbeddingOptions>,
    extraction: Extraction,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("docs")).unwrap();
        Self {
            folder,
            settings: json!({"root": "docs"}),
            tags: Vec::new(),
            others: Vec::new(),
            chunking: Chunking { max_tokens: 256, overlap_tokens: 32 },
            document_bytes_max: 1 << 20,
            embedding: None,
            extraction: Extraction::in_process(),
        }
    }

    /// Extracts text in workers that the test starts.
    pub(crate) fn extraction(mut self, extraction: Extraction) -> Self {
        self.extraction = extraction;
        self
    }

    /// A file below `docs`.
    pub(crate) fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.write(name, content);
        self
    }

    /// A setting of the filesystem source.
    pub(crate) fn setting(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.settings[key] = value.into();
        self
    }

    /// Tags of the filesystem source.
    pub(crate) fn tags(mut self, tags: &[&str]) -> Self {
        self.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        self
    }

    pub(crate) fn chunking(mut self, max_tokens: usize, overlap_tokens: usize) -> Self {
        self.chunking = Chunking { max_tokens, overlap_tokens };
        self
    }

    pub(crate) fn document_bytes_max(mut self, bytes: u64) -> Self {
        self.document_bytes_max = bytes;
        self
    }

    /// Uses the built-in model with this name.
    pub(crate) fn embedding(self, model: &str) -> Self {
        let settings = EmbedderSettings { model: Some(model.to_owned()), ..EmbedderSettings::default() };
        self.embedding_options(options("builtin", &settings))
    }

    /// Uses this embedder from now on.
    pub(crate) fn embedding_options(mut self, embedding: EmbeddingOptions) -> Self {
        self.embedding = Some(embedding);
        self
    }

    /// Disables embeddings from now on.
    pub(crate) fn without_embedding(mut self) -> Self {
        self.embedding = None;
        self
    }

    /// One more source, `kind:name`.
    pub(crate) fn source<C: Connector>(mut self, name: &str, connector: &Arc<C>) -> Self {
        self.others.push((source_name(name), connector.clone()));
        self
    }

    /// Opens the store with one source besides the files, `<kind>:test`.
    pub(crate) fn open_with(&mut self, kind: &str, connector: Arc<dyn Connector>) -> Knowledge {
        self.others = vec![(SourceName::new(kind, "test"), connector)];
        self.open()
    }

    /// Writes a file below `docs`, as if long ago.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        self.write_at(name, content, WRITTEN_AT);
    }

    /// Writes a file below `docs`, as if at that time.
    pub(crate) fn write_at(&self, name: &str, content: impl AsRef<[u8]>, at: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        self.touch(name, at);
    }

    /// Changes a file's time and nothing else.
    pub(crate) fn touch(&self, name: &str, at: &str) {
        let modified = SystemTime::from(time(at));
        File::options().write(true).open(self.path(name)).unwrap().set_modified(modified).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// The path of a file below `docs`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("docs").join(name)
    }

    /// The path of something beside `docs`.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder of the store and everything that belongs to it.
    pub(crate) fn data(&self) -> PathBuf {
        self.beside("data")
    }

    pub(crate) fn store_path(&self) -> PathBuf {
        self.data().join("ctx.sqlite")
    }

    /// The keyword index's folder, where there is one.
    pub(crate) fn index_folder(&self) -> Option<PathBuf> {
        let is_index = |path: &PathBuf| path.is_dir() && path.to_string_lossy().contains(".keyword-");
        fs::read_dir(self.data()).ok()?.map(|entry| entry.unwrap().path()).find(is_index)
    }

    /// The keyword index's files by name: when they were written, and what they hold.
    pub(crate) fn index_files(&self) -> BTreeMap<String, (SystemTime, Vec<u8>)> {
        let folder = self.index_folder().unwrap();
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        let file =
            |path: PathBuf| (fs::metadata(&path).unwrap().modified().unwrap(), fs::read(&path).unwrap());
        entries.map(|entry| (entry.file_name().into_string().unwrap(), file(entry.path()))).collect()
    }

    /// The filesystem connector with this workspace's settings.
    pub(crate) fn connector(&self) -> ConnectorResult {
        self.connector_of("filesystem", &self.settings)
    }

    /// A connector of any kind, with nothing in its environment.
    pub(crate) fn connector_of(&self, kind: &str, settings: &Value) -> ConnectorResult {
        self.connector_in(kind, settings, &|_| None)
    }

    /// A connector of any kind, with these environment variables.
    pub(crate) fn connector_in(
        &self,
        kind: &str,
        settings: &Value,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> ConnectorResult {
        let options = OpenOptions {
            workspace_root: self.folder.path(),
            cache: &self.cache(kind),
            environment,
            document_bytes_max: self.document_bytes_max,
            own_files: &store_files(&self.store_path()),
        };
        (KINDS.iter().find(|candidate| candidate.name == kind).unwrap().open)(settings, options)
    }

    /// The cache folder of the connector of this kind; tests have one of each.
    pub(crate) fn cache(&self, kind: &str) -> PathBuf {
        cache_path(&self.store_path(), &SourceName::new(kind, "test"))
    }

    /// Opens the store with `filesystem:notes` and the other sources.
    pub(crate) fn open(&self) -> Knowledge {
        self.try_open().unwrap()
    }

    pub(crate) fn try_open(&self) -> Result<Knowledge, StoreError> {
        Knowledge::open(self.options())
    }

    /// A knowledge base on another store; its index and caches are in the workspace.
    pub(crate) fn open_on(&self, store: Arc<dyn Store>) -> Knowledge {
        self.try_open_on(store).unwrap()
    }

    pub(crate) fn try_open_on(&self, store: Arc<dyn Store>) -> Result<Knowledge, StoreError> {
        Knowledge::with_store(store, self.options())
    }

    fn options(&self) -> KnowledgeOptions {
        let files = Source { name: notes(), connector: self.connector().unwrap(), tags: self.tags.clone() };
        let others = self.others.iter().map(|(name, connector)| Source {
            name: name.clone(),
            connector: connector.clone(),
            tags: Vec::new(),
        });
        KnowledgeOptions {
            store: self.store_path(),
            extraction: self.extraction.clone(),
            chunking: self.chunking,
            mode: SearchMode::Hybrid,
            final_limit: 12,
            tuning: SearchTuning {
                keyword_candidates: 100,
                vector_candidates: 100,
                hybrid_alpha: None,
                min_cosine: None,
            },
            embedding: self.embedding.clone(),
            sources: std::iter::once(files).chain(others).collect(),
        }
    }
}

/// A source with its own kind, for tests that use one besides the files.
pub(crate) const JIRA: &str = "script:jira";

/// A workspace, which must outlive its knowledge base, and the knowledge base with these documents.
pub(crate) async fn workspace_with(documents: impl IntoIterator<Item = Document>) -> (Workspace, Knowledge) {
    let workspace = Workspace::new().source(JIRA, &ScriptedConnector::with(documents));
    let knowledge = workspace.open();
    sync_source(&knowledge, JIRA).await.unwrap();
    (workspace, knowledge)
}

/// A PEM private key, assembled at run time so that no file of the repository contains one.
pub(crate) fn private_key() -> String {
    let line = "QUJD".repeat(16);
    format!("-----BEGIN {0} KEY-----\n{line}\n{line}\n-----END {0} KEY-----\n", "PRIVATE")
}

/// The filesystem source of every workspace.
pub(crate) fn notes() -> SourceName {
    SourceName::new("filesystem", "notes")
}

pub(crate) fn source_name(text: &str) -> SourceName {
    let (kind, name) = text.split_once(':').unwrap();
    SourceName::new(kind, name)
}

pub(crate) fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Syncs the files.
pub(crate) async fn sync(knowledge: &Knowledge) -> SyncReport {
    sync_with(knowledge, SyncOptions::default()).await
}

pub(crate) async fn sync_with(knowledge: &Knowledge, options: SyncOptions) -> SyncReport {
    try_sync(knowledge, &notes(), options).await.unwrap()
}

/// Syncs a source, `kind:name`.
pub(crate) async fn sync_source(knowledge: &Knowledge, name: &str) -> Result<SyncReport, SyncError> {
    try_sync(knowledge, &source_name(name), SyncOptions::default()).await
}

pub(crate) async fn try_sync(
    knowledge: &Knowledge,
    name: &SourceName,
    options: SyncOptions,
) -> Result<SyncReport, SyncError> {
    knowledge.sync(name, options, Arc::new(|_| ()), CancellationToken::new()).await
}

/// The expected report of the files' sync, with zeros for the rest.
pub(crate) fn report() -> SyncReport {
    SyncReport { source: notes().to_string(), ..SyncReport::default() }
}

pub(crate) fn query(text: &str) -> SearchQuery {
    SearchQuery {
        text: text.to_owned(),
        mode: None,
        limit: 10,
        filters: Filters::default(),
        explain: false,
        prefix: false,
    }
}

pub(crate) fn search(knowledge: &Knowledge, text: &str) -> Vec<Hit> {
    knowledge.search(&query(text)).unwrap()
}

/// The names of the documents that a query finds, best first.
pub(crate) fn hit_names(knowledge: &Knowledge, text: &str) -> Vec<String> {
    names(&search(knowledge, text))
}

/// The names of the documents that a query with filters finds, best first.
pub(crate) fn filtered_hit_names(knowledge: &Knowledge, text: &str, filters: Filters) -> Vec<String> {
    names(&knowledge.search(&SearchQuery { filters, ..query(text) }).unwrap())
}

pub(crate) fn names(hits: &[Hit]) -> Vec<String> {
    hits.iter().map(|hit| hit.source_id.clone()).collect()
}

/// The only document that a query finds.
#[track_caller]
pub(crate) fn the_document(knowledge: &Knowledge, text: &str) -> StoredDocument {
    let hits = search(knowledge, text);
    assert_eq!(hits.len(), 1, "{text}: {hits:?}");
    knowledge.get(hits[0].id).unwrap().unwrap()
}

/// The number of changes the store has seen.
pub(crate) fn generation(knowledge: &Knowledge) -> u64 {
    knowledge.stats().unwrap().generation
}

/// The names of everything stored, sorted.
pub(crate) fn stored_names(knowledge: &Knowledge) -> Vec<String> {
    let documents = knowledge.ids().unwrap().into_iter().filter_map(|id| knowledge.get(id).unwrap());
    let mut names: Vec<String> = documents.map(|document| document.source_id).collect();
    names.sort();
    names
}

/// Copies a folder with its content over an existing one.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).unwrap();
    }
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
