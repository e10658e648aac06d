//! Persistence: documents and the sync state of their sources, run records, tool definitions of upstream servers, trust
//! records and OAuth logins.
//!
//! [`Store`] and [`State`] are traits with two backends: `sqlite` for users, `memory` for tests. Every backend passes
//! the contract suite. This is the only crate that knows SQL; neither the traits nor [`StoreError`] expose it. Callers
//! choose where the files are.

mod changes;
#[cfg(any(test, feature = "contract"))]
mod contract;
mod documents;
mod error;
mod file_names;
mod files;
mod filters;
#[cfg(test)]
mod fixtures;
mod lease;
mod memory;
mod private;
mod sqlite;
mod state;
mod store;
mod user;
mod vectors;

pub use changes::{
    ChangeCursor, ChangeFeed, ChangePage, ChangeScope, ChangedDocuments, Checkpoint, Generation,
    VectorSequence,
};
#[cfg(any(test, feature = "contract"))]
pub use contract::{HoldLease, KillHolder, OpenState, OpenStore, state_contract, store_contract};
pub use documents::{
    ApplyResult, Chunk, ChunkPosition, ChunkText, DocumentId, DocumentKey, DocumentName, DocumentSet,
    DocumentStamp, DocumentStore, DocumentSummary, DocumentText, IndexedDocument, ListedDocument, Mutation,
    NewDocument, SkipNote, SourceCounts, SourceRecord, Span, StoredDocument, StoredStamp, SyncOutcome,
};
pub use error::{StoreError, StoreLocation, StorePart};
pub use file_names::{CREDENTIALS_FILE, DEFINITIONS_FILE, RUNS_FILE, STORE_FILE, TRUST_FILE};
pub use files::{FilePosition, FileState, SourceFile};
pub use filters::Filters;
pub use lease::{Lease, LeaseGuard, source_file_stem};
pub use memory::{MemoryState, MemoryStore};
pub use private::{create_file, create_folder, restrict_files};
#[cfg(feature = "raw")]
pub use sqlite::RawConnection;
pub use sqlite::{SqliteState, SqliteStore, StateFiles};
pub use state::{
    DefinitionKey, RUN_DAYS_KEPT, RUN_TREE_MAX, RUNS_KEPT, RecordedRun, RunFilter, ServerDefinitions, State,
};
pub use store::{Store, StoreIdentity};
pub use user::{CredentialLock, Credentials, Trust, TrustRecord};
pub use vectors::{
    DocumentVectors, ModelKey, NewVector, NewVectors, PendingDocument, PendingQuery, TextHash,
    UnreadableChunk, UnreadableDocument, VectorBatch, VectorCoverage, VectorRow, VectorState, VectorStore,
};
