//! A catalog that waits for providers whose tools are not known yet.

use super::Catalog;
use crate::{Identifier, Provider};
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;

impl Catalog {
    /// Waits for providers that are `wanted` and whose tools are not known yet, at most for `patience`. Returns this
    /// catalog with the tools that are known then.
    pub async fn settled(
        self: &Arc<Self>,
        wanted: impl Fn(&Identifier) -> bool,
        patience: Duration,
    ) -> Arc<Self> {
        let awaited = self.unknown.iter().filter(|(name, _)| wanted(name));
        let settling = join_all(awaited.map(|(_, provider)| provider.settle()));
        // Whoever is late stays unknown.
        let _ = tokio::time::timeout(patience, settling).await;
        let is_known = |provider: &&Arc<dyn Provider>| provider.unknown().is_none();
        let known: Vec<Arc<dyn Provider>> = self.unknown.values().filter(is_known).cloned().collect();
        if known.is_empty() {
            return self.clone();
        }
        let mut catalog = Self::clone(self);
        let old = self.clone();
        // Registering compiles schemas.
        let registering = tokio::task::spawn_blocking(move || {
            for provider in known {
                catalog.unknown.remove(&provider.name());
                catalog.register(&*provider, &old.tools);
            }
            Arc::new(catalog)
        });
        registering.await.unwrap_or_else(|error| {
            tracing::error!(%error, "tools of providers that have settled are not taken up");
            self.clone()
        })
    }
}
