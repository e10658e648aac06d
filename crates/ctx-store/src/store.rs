//! The document store: the boundary between the program and a storage backend.

use crate::changes::ChangeFeed;
use crate::documents::DocumentStore;
use crate::error::StoreError;
use crate::lease::{Lease, LeaseGuard};
use crate::vectors::VectorStore;
use uuid::Uuid;

/// Storage of documents and of the sync state of their sources. All methods block. Every backend passes the contract
/// suite (feature `contract`).
///
/// A mutation is atomic: the document, its chunks, its vectors, the counts of its source and a new generation are written
/// in one transaction, alone or with other mutations. Search indexes are not part of the store; they follow the change
/// feed.
pub trait Store: DocumentStore + ChangeFeed + VectorStore + Send + Sync {
    /// The identity of this store.
    fn identity(&self) -> &StoreIdentity;

    /// Whether the store is currently writable.
    fn writable(&self) -> bool;

    /// Size in bytes.
    fn size_bytes(&self) -> u64;

    /// Checks the whole store for damage; returns the problems found, none if it is sound.
    fn problems(&self) -> Result<Vec<String>, StoreError>;

    /// Acquires a lease; `None` while another holder has it.
    fn lease(&self, lease: &Lease) -> Result<Option<LeaseGuard>, StoreError>;
}

/// The identity of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreIdentity {
    /// Unique id of the store, by which an index recognises the store that it was built from.
    pub id: Uuid,
    /// Its location, for display.
    pub location: String,
}
