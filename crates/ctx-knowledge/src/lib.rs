//! Documents in, answers out: connectors, the store and search.
//!
//! The only crate that knows the store's SQL and the keyword index. It learns its settings from
//! its caller, never from a file or the environment, and it never prints.

mod chunk;
mod connectors;
mod extract;
mod knowledge;
mod lock;
mod provider;
mod search;
mod store;
mod sync;

pub use chunk::Chunking;
pub use connectors::{ConnectorKind, KINDS, OpenOptions, Opened};
pub use knowledge::{Health, Knowledge, KnowledgeOptions, Source, SourceStatus, Stats};
pub use provider::{Context, parse_time};
pub use search::{Filters, Hit, Mode, Query, SearchError, ViewError};
pub use store::{Chunk, NamedDocument, StoreError, StoredDocument};
pub use sync::{Progress, SyncError, SyncOptions, SyncReport, Warning, cache_path};
