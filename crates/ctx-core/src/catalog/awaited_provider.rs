//! Providers whose tools were unknown when a catalog was built: waiting for them, and registering their tools.

use super::build::registrations;
use super::{Catalog, RegisteredTool};
use crate::rate::Meters;
use crate::{Identifier, Provider, ToolError};
use futures::future::join_all;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A provider whose tools were unknown when its catalog was built.
pub(super) struct AwaitedProvider {
    provider: Arc<dyn Provider>,
    /// Its tools when they first became known. All calls of the catalog see these; if they change, another catalog has
    /// the new ones.
    tools: OnceLock<Vec<Arc<RegisteredTool>>>,
}

impl AwaitedProvider {
    pub(super) fn new(provider: Arc<dyn Provider>) -> Self {
        Self { provider, tools: OnceLock::new() }
    }

    pub(super) fn get(&self) -> &dyn Provider {
        &*self.provider
    }

    /// Whether its tools are known by now.
    pub(super) fn is_known(&self) -> bool {
        self.tools.get().is_some() || self.provider.unknown_reason().is_none()
    }

    /// Its tools, if a call or [`Catalog::settled`] has registered them.
    pub(super) fn registered_tools(&self) -> &[Arc<RegisteredTool>] {
        self.tools.get().map(Vec::as_slice).unwrap_or_default()
    }

    /// Its tools, registered on first use; `None` while they are unknown.
    pub(super) async fn known_tools(self: &Arc<Self>, catalog: &Catalog) -> Option<&[Arc<RegisteredTool>]> {
        if self.tools.get().is_none() {
            if !self.is_known() {
                return None;
            }
            let (own, meters) = (self.clone(), catalog.meters.clone());
            // A provider may have thousands of tools.
            let registering = tokio::task::spawn_blocking(move || own.register(&meters).len());
            if let Err(error) = registering.await {
                tracing::error!(%error, "cannot register the tools of {}", self.provider.name());
            }
        }
        self.tools.get().map(Vec::as_slice)
    }

    fn register(&self, meters: &Meters) -> &[Arc<RegisteredTool>] {
        self.tools.get_or_init(|| registrations(&*self.provider, &BTreeMap::new(), meters))
    }

    /// The error of a call whose provider's tools are still unknown.
    pub(super) fn unavailable(&self) -> ToolError {
        let reason = self.provider.unknown_reason().unwrap_or_else(|| "cannot be called".to_owned());
        ToolError::not_found(format!("{} {reason}", self.provider.name()))
    }
}

impl Catalog {
    /// Waits at most `patience` for the `wanted` providers whose tools are unknown. Returns this catalog with the tools
    /// that are known by then.
    pub async fn wait_for_providers(
        self: &Arc<Self>,
        is_wanted: impl Fn(&Identifier) -> bool,
        patience: Duration,
    ) -> Arc<Self> {
        let awaited = self.unknown.iter().filter(|(name, _)| is_wanted(name));
        let settling = join_all(awaited.map(|(_, awaited)| awaited.provider.wait_until_known()));
        // A provider that takes longer stays unknown.
        let _ = tokio::time::timeout(patience, settling).await;
        let is_known = |awaited: &&Arc<AwaitedProvider>| awaited.is_known();
        let known: Vec<Arc<AwaitedProvider>> = self.unknown.values().filter(is_known).cloned().collect();
        if known.is_empty() {
            return self.clone();
        }
        let mut catalog = Self { schema_faults: OnceLock::new(), ..Self::clone(self) };
        // Registering compiles schemas, hence the blocking pool.
        let registering = tokio::task::spawn_blocking(move || {
            for awaited in known {
                catalog.unknown.remove(&awaited.provider.name());
                for registered in awaited.register(&catalog.meters) {
                    catalog.insert(registered.clone());
                }
            }
            Arc::new(catalog)
        });
        registering.await.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot register the tools of connected providers");
            self.clone()
        })
    }
}
