//! Documents in, answers out: connectors, the store and search.
//!
//! The only crate that knows the store's SQL and the keyword index. It learns its settings from
//! its caller, never from a file or the environment, and it never prints.

mod changes;
mod chunk;
mod connectors;
mod embed;
mod extract;
mod knowledge;
mod lock;
mod lookup;
mod private;
mod provider;
mod reach;
mod resources;
mod search;
mod sketch;
mod store;
mod sync;
mod tls;

pub use chunk::Chunking;
pub use connectors::{ConnectorKind, KINDS, OpenOptions, Opened, Survey, SurveyLimits};
pub use embed::{
    Effort, EmbedError, Embedder, EmbedderKind, EmbedderSettings, EmbeddingOptions, Fill, FillError,
    FillProgress, Filled, PROVIDERS, rest,
};
pub use extract::readable_endings;
pub use knowledge::{
    EmbeddingChange, Health, Knowledge, KnowledgeOptions, Source, SourceStatus, Stats, VectorStats,
    store_files,
};
pub use lookup::Lookup;
pub use provider::{Context, parse_time};
pub use search::{
    Explanation, Filters, Highlighter, Hit, Mode, Query, SearchError, SmallText, SmallTexts, Tuning,
    ViewError,
};
pub use store::{Chunk, NamedDocument, StoreError, StoredDocument, UnreadableDocument};
pub use sync::{Progress, SyncError, SyncOptions, SyncReport, Warning, cache_path};
