//! The live catalog and the parts that it is composed of. Scripts, upstreams and the configuration change
//! while a workspace is open; each change composes a new catalog.

use crate::admin::Admin;
use crate::scripts::{ScriptProvider, ScriptSet};
use ctx_core::{Agent, Catalog, Identifier, Limits, LiveCatalog, Policy, Provider, Redactor, RunLog};
use ctx_knowledge::ContextProvider;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Composes the catalogs of a workspace while it is open.
pub(crate) struct CatalogComposition {
    live: Arc<LiveCatalog>,
    /// Locked until the composed catalog is installed, so that no concurrent change is lost.
    parts: Mutex<CatalogParts>,
}

/// The parts of a catalog.
#[derive(Clone)]
pub(crate) struct CatalogParts {
    /// The provider of administrative operations.
    pub(super) admin: Arc<Admin>,
    /// `None` if there is nothing to search.
    pub(super) context: Option<Arc<ContextProvider>>,
    /// Agents in the configuration itself.
    pub(super) agents: Vec<Arc<dyn Agent>>,
    /// Providers that are untrusted, or partly so, with the message for callers.
    pub(super) left_out: BTreeMap<Identifier, String>,
    pub(super) scripts: Vec<Arc<dyn Provider>>,
    pub(super) upstreams: Vec<Arc<dyn Provider>>,
    /// Providers that the program adds.
    pub(super) added: Vec<Arc<dyn Provider>>,
    pub(super) limits: Limits,
    pub(super) policy: Arc<dyn Policy>,
    pub(super) redactor: Redactor,
    pub(super) log: Arc<dyn RunLog>,
}

impl CatalogParts {
    /// Builds the catalog of these parts; reuses whatever is unchanged from the old one.
    fn catalog(&self, old: Option<&Catalog>) -> Arc<Catalog> {
        let builder = Catalog::builder()
            .limits(self.limits)
            .policy(self.policy.clone())
            .redactor(self.redactor.clone())
            .runs(self.log.clone());
        let context = self.context.iter().map(|context| context.clone() as Arc<dyn Provider>);
        let others = self.scripts.iter().chain(&self.upstreams).chain(&self.added).cloned();
        // First, so that no other provider of its name takes precedence.
        let builder = builder.provider(self.admin.clone());
        let builder = context.chain(others).fold(builder, |builder, provider| builder.provider(provider));
        let left_out = self.left_out.iter();
        let builder = left_out
            .fold(builder, |builder, (name, reason)| builder.unusable_provider(name.clone(), reason.clone()));
        old.into_iter().fold(builder, |builder, old| builder.replacing(old)).build()
    }

    /// The provider of inline agents, without scripts.
    pub(super) fn inline_agents_provider(agents: &[Arc<dyn Agent>]) -> Arc<dyn Provider> {
        Arc::new(ScriptProvider { tools: Vec::new(), agents: agents.to_vec() })
    }

    /// Sets the providers of these scripts.
    pub(super) fn set_scripts(&mut self, scripts: &ScriptSet) {
        self.scripts = scripts.providers(&self.agents);
    }
}

impl CatalogComposition {
    pub(super) fn new(parts: CatalogParts) -> Self {
        let live = Arc::new(LiveCatalog::new(parts.catalog(None)));
        Self { live, parts: Mutex::new(parts) }
    }

    /// The live catalog, which calls use.
    pub(crate) fn live(&self) -> &Arc<LiveCatalog> {
        &self.live
    }

    pub(super) fn parts(&self) -> MutexGuard<'_, CatalogParts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A separate catalog of these parts with a change; calls do not see it.
    pub(super) fn variant(&self, change: impl FnOnce(&mut CatalogParts)) -> Arc<Catalog> {
        let mut parts = self.parts().clone();
        change(&mut parts);
        parts.catalog(None)
    }

    /// Changes the parts, and installs a new catalog for later calls.
    pub(super) fn update(&self, change: impl FnOnce(&mut CatalogParts)) -> Arc<Catalog> {
        let mut parts = self.parts();
        change(&mut parts);
        let catalog = parts.catalog(Some(&*self.live.current()));
        self.live.swap(catalog.clone());
        catalog
    }

    /// Installs a catalog with these scripts for later calls.
    pub(crate) fn set_scripts(&self, scripts: &ScriptSet) -> Arc<Catalog> {
        self.update(|parts| parts.set_scripts(scripts))
    }

    /// A callback that composes a new catalog after an upstream's functions have changed.
    pub(super) fn on_change(self: &Arc<Self>) -> Arc<dyn Fn() + Send + Sync> {
        let composition = self.clone();
        Arc::new(move || {
            let composition = composition.clone();
            // On the blocking pool, because compiling thousands of schemas takes a while.
            tokio::task::spawn_blocking(move || {
                let before = composition.live.current();
                log_new_warnings(&before, &composition.update(|_| {}));
            });
        })
    }
}

/// Logs the warnings of a catalog that the previous one did not have.
pub(crate) fn log_new_warnings(before: &Catalog, after: &Catalog) {
    let is_new = |warning: &&String| !before.build_warnings().contains(warning);
    after.build_warnings().iter().filter(is_new).for_each(|warning| tracing::warn!("{warning}"));
}
