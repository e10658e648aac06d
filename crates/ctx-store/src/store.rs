//! The seam between the program and where its documents live.

use crate::changes::ChangeFeed;
use crate::documents::DocumentStore;
use crate::error::StoreError;
use crate::lease::{Lease, LeaseGuard};
use crate::vectors::VectorStore;
use uuid::Uuid;

/// Documents and what is known of their sources. Blocking; every backend passes the contract suite
/// (feature `contract`).
///
/// One mutation is one transaction: row, body, chunks, vectors and a new generation. Search indexes are views that
/// follow the change feed and live elsewhere.
pub trait Store: DocumentStore + ChangeFeed + VectorStore + Send + Sync {
    /// Its identity.
    fn about(&self) -> &StoreAbout;

    /// Whether it can be written now.
    fn writable(&self) -> bool;

    /// Bytes that it takes on disk.
    fn size_bytes(&self) -> u64;

    /// Reads everything for damage; empty when it is sound.
    fn problems(&self) -> Result<Vec<String>, StoreError>;

    /// Takes a lease; `None` while somebody else holds it.
    fn lease(&self, lease: &Lease) -> Result<Option<LeaseGuard>, StoreError>;
}

/// The identity of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAbout {
    /// Tells this store from every other, so that a view knows whose it is.
    pub id: Uuid,
    /// Where it is, for people.
    pub location: String,
}
