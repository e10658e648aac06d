//! The live catalog and the parts that it is composed of. Scripts, upstreams and the configuration change while a
//! workspace is open; each change composes a new catalog.

use crate::admin::Admin;
use crate::scripts::{ScriptProvider, ScriptSet};
use ctx_core::{Agent, Catalog, Identifier, Limits, LiveCatalog, Policy, Provider, Redactor, RunLog};
use ctx_knowledge::Context;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Composes the catalogs of a workspace, one after the other, for as long as it is open.
pub(crate) struct Composition {
    live: Arc<LiveCatalog>,
    /// Held until the composed catalog is in place, so that the last one has every change.
    parts: Mutex<Parts>,
}

/// Everything that a catalog is made of.
#[derive(Clone)]
pub(crate) struct Parts {
    /// The operations of the command line on the workspace.
    pub(super) admin: Arc<Admin>,
    /// Absent where there is nothing to search.
    pub(super) context: Option<Arc<Context>>,
    /// Agents of the configuration itself.
    pub(super) agents: Vec<Arc<dyn Agent>>,
    /// Providers that are not trusted, or not in full, and how a caller is told so.
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

impl Parts {
    /// The catalog of these parts; whatever is the same as in the old one is taken over from it.
    fn catalog(&self, old: Option<&Catalog>) -> Arc<Catalog> {
        let builder = Catalog::builder()
            .limits(self.limits)
            .policy(self.policy.clone())
            .redactor(self.redactor.clone())
            .runs(self.log.clone());
        let context = self.context.iter().map(|context| context.clone() as Arc<dyn Provider>);
        let others = self.scripts.iter().chain(&self.upstreams).chain(&self.added).cloned();
        // First, so that no other provider of its name stands before it.
        let builder = builder.provider(self.admin.clone());
        let builder = context.chain(others).fold(builder, |builder, provider| builder.provider(provider));
        let left_out = self.left_out.iter();
        let builder =
            left_out.fold(builder, |builder, (name, reason)| builder.left_out(name.clone(), reason.clone()));
        old.into_iter().fold(builder, |builder, old| builder.replacing(old)).build()
    }

    /// The provider of the configuration's own agents, without any script.
    pub(super) fn inline(agents: &[Arc<dyn Agent>]) -> Arc<dyn Provider> {
        Arc::new(ScriptProvider { tools: Vec::new(), agents: agents.to_vec() })
    }

    /// Replaces the scripts by those that are loaded.
    pub(super) fn set_scripts(&mut self, scripts: &ScriptSet) {
        self.scripts = scripts.providers(&self.agents);
    }
}

impl Composition {
    pub(super) fn new(parts: Parts) -> Self {
        let live = Arc::new(LiveCatalog::new(parts.catalog(None)));
        Self { live, parts: Mutex::new(parts) }
    }

    /// The catalog that calls see.
    pub(crate) fn live(&self) -> &Arc<LiveCatalog> {
        &self.live
    }

    pub(super) fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A catalog of these parts with a change, which nobody else sees.
    pub(super) fn variant(&self, change: impl FnOnce(&mut Parts)) -> Arc<Catalog> {
        let mut parts = self.parts().clone();
        change(&mut parts);
        parts.catalog(None)
    }

    /// Changes the parts, for calls that begin from now on.
    pub(super) fn update(&self, change: impl FnOnce(&mut Parts)) -> Arc<Catalog> {
        let mut parts = self.parts();
        change(&mut parts);
        let catalog = parts.catalog(Some(&*self.live.current()));
        self.live.swap(catalog.clone());
        catalog
    }

    /// Makes calls that begin from now on see the scripts as they are loaded.
    pub(crate) fn set_scripts(&self, scripts: &ScriptSet) -> Arc<Catalog> {
        self.update(|parts| parts.set_scripts(scripts))
    }

    /// Called when functions of an upstream have changed.
    pub(super) fn on_change(self: &Arc<Self>) -> Arc<dyn Fn() + Send + Sync> {
        let composition = self.clone();
        Arc::new(move || {
            let composition = composition.clone();
            // Thousands of schemas take a while to compile.
            tokio::task::spawn_blocking(move || {
                let before = composition.live.current();
                log_new_warnings(&before, &composition.update(|_| {}));
            });
        })
    }
}

/// Logs the warnings of a catalog that the one before it did not have.
pub(crate) fn log_new_warnings(before: &Catalog, after: &Catalog) {
    let is_new = |warning: &&String| !before.warnings().contains(warning);
    after.warnings().iter().filter(is_new).for_each(|warning| tracing::warn!("{warning}"));
}
