//! Leases: each reserves a kind of work for one process at a time.

use ctx_core::{Identifier, SourceName};
use std::any::Any;
use std::fmt;

/// Work that only one process at a time may do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Lease {
    /// Syncing this source.
    Sync(SourceName),
    /// Computing or removing vectors. One lease for all models, because whoever computes the vectors of one model also
    /// removes those of models that are no longer used.
    Embedding,
    /// Writing the indexes next to the store: the keyword index and the vector files.
    Index,
}

/// A held lease. It is released on drop, or when its process is killed.
pub struct LeaseGuard(#[expect(dead_code, reason = "held for its effect")] Box<dyn Any + Send + Sync>);

impl LeaseGuard {
    /// A guard whose lease is released when `held` is dropped.
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for LeaseGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseGuard")
    }
}

/// The stem of file names that belong to a source. The hash keeps `a-b` and `a_b` apart.
pub fn source_file_stem(source: &SourceName) -> String {
    let text = source.to_string();
    let hash = &blake3::hash(text.as_bytes()).to_hex()[..8];
    format!("{}-{hash}", Identifier::sanitize(&text))
}
