//! The current catalog: a call uses the catalog with which it started, even if that is replaced meanwhile.

use crate::Catalog;
use arc_swap::ArcSwap;
use std::sync::Arc;
use tokio::sync::watch;

/// The current catalog, shared by all interfaces that take calls.
pub struct LiveCatalog {
    current: ArcSwap<Catalog>,
    /// Number of replacements.
    replaced: watch::Sender<u64>,
}

impl LiveCatalog {
    /// Starts with this catalog.
    pub fn new(catalog: Arc<Catalog>) -> Self {
        Self { current: ArcSwap::new(catalog), replaced: watch::Sender::new(0) }
    }

    /// The catalog for a call that starts now.
    pub fn current(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// Replaces the catalog for calls that start later.
    pub fn swap(&self, catalog: Arc<Catalog>) {
        self.current.store(catalog);
        self.replaced.send_modify(|times| *times += 1);
    }

    /// A receiver that is notified whenever the catalog is replaced.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.replaced.subscribe()
    }
}
