//! The callable part of a workspace: starts upstreams, loads scripts, and updates the catalog with their
//! functions.

use super::composition::{CatalogComposition, CatalogParts};
use crate::config::Config;
use crate::scripts::{self, ConfiguredScript, ScriptRunner, ScriptSet};
use crate::upstreams::{UpstreamDependencies, Upstreams};
use ctx_core::{Catalog, ToolError};
use std::sync::{Arc, OnceLock, Weak};

/// The upstreams, scripts and catalog of a workspace, with the configuration in effect.
#[derive(Clone)]
pub(crate) struct WorkspaceFunctions {
    pub(super) config: Arc<Config>,
    pub(super) composition: Arc<CatalogComposition>,
    pub(super) runner: Arc<ScriptRunner>,
    /// Set once the upstreams are started.
    pub(super) upstreams: Arc<OnceLock<Upstreams>>,
}

/// A [`WorkspaceFunctions`] for operations. The composition owns the operations, and the upstreams own the composition,
/// so these references are weak.
#[derive(Clone)]
pub(crate) struct WeakWorkspaceFunctions {
    pub(super) config: Arc<Config>,
    pub(super) composition: Weak<CatalogComposition>,
    pub(super) runner: Arc<ScriptRunner>,
    pub(super) upstreams: Weak<OnceLock<Upstreams>>,
}

impl WeakWorkspaceFunctions {
    /// Fails if the workspace is closed.
    pub(crate) fn upgrade(&self) -> Result<WorkspaceFunctions, ToolError> {
        let (composition, upstreams) = (self.composition.upgrade(), self.upstreams.upgrade());
        let (composition, upstreams) = composition
            .zip(upstreams)
            .ok_or_else(|| ToolError::internal("the workspace is closed", "its catalog outlived it"))?;
        Ok(WorkspaceFunctions {
            config: self.config.clone(),
            composition,
            runner: self.runner.clone(),
            upstreams,
        })
    }
}

impl WorkspaceFunctions {
    /// Shares upstreams and catalog, with another configuration.
    pub(super) fn reconfigured(&self, config: Arc<Config>, runner: Arc<ScriptRunner>) -> Self {
        Self { config, runner, ..self.clone() }
    }

    pub(super) fn downgrade(&self) -> WeakWorkspaceFunctions {
        WeakWorkspaceFunctions {
            config: self.config.clone(),
            composition: Arc::downgrade(&self.composition),
            runner: self.runner.clone(),
            upstreams: Arc::downgrade(&self.upstreams),
        }
    }

    /// The configuration.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The composition of the catalog.
    pub(crate) fn composition(&self) -> &Arc<CatalogComposition> {
        &self.composition
    }

    /// The runner of scripts.
    pub(crate) fn runner(&self) -> &Arc<ScriptRunner> {
        &self.runner
    }

    /// The upstreams, once they were started.
    pub(crate) fn started_upstreams(&self) -> Option<&Upstreams> {
        self.upstreams.get()
    }

    /// Starts to connect the upstreams whose sections are `selected`, unless upstreams were started before.
    pub(crate) fn start_upstreams(&self, selected: &dyn Fn(&str) -> bool) -> &Upstreams {
        self.upstreams.get_or_init(|| {
            let dependencies = UpstreamDependencies {
                reaper: self.runner.reaper(),
                redactor: self.runner.redactor().clone(),
                on_change: self.composition.on_change(),
            };
            let upstreams = Upstreams::start(&self.config, selected, dependencies);
            self.composition.update(|parts| parts.upstreams = upstreams.providers());
            upstreams
        })
    }

    /// Like [`WorkspaceFunctions::start_upstreams`], and waits until each has answered or failed.
    pub(crate) async fn connect_upstreams(&self, selected: &(dyn Fn(&str) -> bool + Sync)) -> &Upstreams {
        let upstreams = self.start_upstreams(selected);
        upstreams.wait_until_settled().await;
        self.composition.update(|_| {});
        upstreams
    }

    /// The current catalog.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.composition.live().current()
    }

    /// The configured scripts.
    pub(crate) fn configured_scripts(&self) -> Vec<ConfiguredScript> {
        scripts::configured_scripts(&self.config)
    }

    /// Loads the scripts without changing the catalog, to check them.
    pub(crate) async fn try_scripts(&self) -> ScriptSet {
        let mut scripts = ScriptSet::load(self.runner.clone(), self.configured_scripts()).await;
        let before = self.catalog_as_configured();
        let after = self.composition.variant(|parts| {
            parts.upstreams.clear();
            parts.set_scripts(&scripts);
        });
        scripts.warnings = new_warnings(&before, &after);
        scripts
    }

    /// Loads the scripts, and adds them to the catalog for later calls.
    pub(super) async fn load_scripts(&self) -> ScriptSet {
        let before = self.catalog();
        let mut scripts = ScriptSet::load(self.runner.clone(), self.configured_scripts()).await;
        scripts.warnings = new_warnings(&before, &self.composition.set_scripts(&scripts));
        scripts
    }

    /// A catalog without script functions and upstreams, which are only known once they are loaded or
    /// connected.
    pub(crate) fn catalog_as_configured(&self) -> Arc<Catalog> {
        self.composition.variant(|parts| {
            parts.scripts = vec![CatalogParts::inline_agents_provider(&parts.agents)];
            parts.upstreams.clear();
        })
    }

    /// The text with secrets masked.
    pub(crate) fn masked(&self, text: String) -> String {
        self.runner.redactor().text(text)
    }
}

fn new_warnings(before: &Catalog, after: &Catalog) -> Vec<String> {
    after
        .build_warnings()
        .iter()
        .filter(|warning| !before.build_warnings().contains(warning))
        .cloned()
        .collect()
}
