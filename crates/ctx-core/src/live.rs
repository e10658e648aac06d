//! The catalog of the moment: calls begin with it, and keep the one they began with when it is replaced.

use crate::Catalog;
use arc_swap::ArcSwap;
use std::sync::Arc;
use tokio::sync::watch;

/// The catalog of this moment, shared by everyone who takes calls.
pub struct LiveCatalog {
    current: ArcSwap<Catalog>,
    /// How often it was replaced.
    replaced: watch::Sender<u64>,
}

impl LiveCatalog {
    /// Begins with this one.
    pub fn new(catalog: Arc<Catalog>) -> Self {
        Self { current: ArcSwap::new(catalog), replaced: watch::Sender::new(0) }
    }

    /// The catalog a call that begins now should use.
    pub fn current(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// Replaces it for calls that begin later.
    pub fn swap(&self, catalog: Arc<Catalog>) {
        self.current.store(catalog);
        self.replaced.send_modify(|times| *times += 1);
    }

    /// Changes whenever the catalog is replaced.
    pub fn replaced(&self) -> watch::Receiver<u64> {
        self.replaced.subscribe()
    }
}
