//! Leases: work that only one process at a time may do.

use ctx_core::{Identifier, SourceName};
use std::any::Any;
use std::fmt;

/// Work that only one process at a time may do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Lease {
    /// Syncing this source.
    Sync(SourceName),
    /// Making or removing vectors. One for all models: whoever fills in the vectors of one removes those of models
    /// that are not used any more.
    Fill,
    /// Writing the keyword index.
    Index,
}

/// A lease that is held until this is dropped. It is free again when its holder was killed.
pub struct LeaseGuard(#[expect(dead_code, reason = "held for its effect")] Box<dyn Any + Send + Sync>);

impl LeaseGuard {
    /// Holds the lease for as long as `held` is not dropped.
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for LeaseGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseGuard")
    }
}

/// What files of a source are called. The hash keeps `a-b` and `a_b` apart.
pub fn source_file_stem(source: &SourceName) -> String {
    let text = source.to_string();
    let hash = &blake3::hash(text.as_bytes()).to_hex()[..8];
    format!("{}-{hash}", Identifier::sanitize(&text))
}
