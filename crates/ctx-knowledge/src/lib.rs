//! Connectors, sync and search: documents in, search results out.
//!
//! The only crate that knows the keyword index (tantivy). It stores documents through [`ctx_store::Store`]. Its caller
//! passes all settings; this crate reads no configuration file or environment variable, and never prints.

mod change_notifier;
mod chunk;
mod connectors;
mod embed;
mod extraction;
mod knowledge;
mod lookup;
mod minhash;
mod provider;
mod resources;
mod search;
mod sync;
mod work_queue;

pub use chunk::Chunking;
pub use connectors::{ConnectorKind, ConnectorResult, FolderSurvey, KINDS, OpenOptions, SurveyLimits};
pub use ctx_extract::{document_extensions, readable_extensions};
pub use ctx_store::{Chunk, Filters, StoreError, StoredDocument, UnreadableDocument};
pub use embed::{
    Effort, EmbedError, Embedder, EmbedderKind, EmbedderSettings, EmbeddingOptions, FillError, FillMode,
    FillProgress, FillReport, PROVIDERS, sleep_cancellable,
};
pub use extraction::{Extraction, ExtractionSettings, extraction_worker_main};
pub use knowledge::{
    EmbeddingChange, Health, Knowledge, KnowledgeOptions, Source, SourceStatus, Stats, VectorStats,
    store_files,
};
pub use lookup::{Lookup, NamedDocument};
pub use provider::{ContextProvider, parse_time};
pub use search::{Explanation, Hit, SearchError, SearchMode, SearchQuery, SearchTuning, ViewError};
pub use sync::{Progress, SyncError, SyncOptions, SyncReport, Warning, cache_path};
