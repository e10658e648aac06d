//! The callable part of a workspace: starts upstreams, loads scripts, and updates the catalog with their
//! functions.

use super::composition::{Composition, Parts};
use crate::config::Config;
use crate::scripts::{self, Configured, Runner, ScriptSet};
use crate::upstreams::{Surroundings, Upstreams};
use ctx_core::{Catalog, ToolError};
use std::sync::{Arc, OnceLock, Weak};

/// The upstreams, scripts and catalog of a workspace, with the configuration in effect.
#[derive(Clone)]
pub(crate) struct Callable {
    pub(super) config: Arc<Config>,
    pub(super) composition: Arc<Composition>,
    pub(super) runner: Arc<Runner>,
    /// Set once the upstreams are started.
    pub(super) upstreams: Arc<OnceLock<Upstreams>>,
}

/// A [`Callable`] for operations. The composition owns the operations, and the upstreams own the composition,
/// so these references are weak.
#[derive(Clone)]
pub(crate) struct WeakCallable {
    pub(super) config: Arc<Config>,
    pub(super) composition: Weak<Composition>,
    pub(super) runner: Arc<Runner>,
    pub(super) upstreams: Weak<OnceLock<Upstreams>>,
}

impl WeakCallable {
    /// Fails if the workspace is closed.
    pub(crate) fn upgrade(&self) -> Result<Callable, ToolError> {
        let (composition, upstreams) = (self.composition.upgrade(), self.upstreams.upgrade());
        let (composition, upstreams) = composition
            .zip(upstreams)
            .ok_or_else(|| ToolError::internal("the workspace is closed", "its catalog outlived it"))?;
        Ok(Callable { config: self.config.clone(), composition, runner: self.runner.clone(), upstreams })
    }
}

impl Callable {
    /// Shares upstreams and catalog, with another configuration.
    pub(super) fn reconfigured(&self, config: Arc<Config>, runner: Arc<Runner>) -> Self {
        Self { config, runner, ..self.clone() }
    }

    pub(super) fn downgrade(&self) -> WeakCallable {
        WeakCallable {
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
    pub(crate) fn composition(&self) -> &Arc<Composition> {
        &self.composition
    }

    /// The runner of scripts.
    pub(crate) fn runner(&self) -> &Arc<Runner> {
        &self.runner
    }

    /// The upstreams, once they were started.
    pub(crate) fn started_upstreams(&self) -> Option<&Upstreams> {
        self.upstreams.get()
    }

    /// Starts to connect the upstreams whose sections are `wanted`, unless upstreams were started before.
    pub(crate) fn start_upstreams(&self, wanted: &dyn Fn(&str) -> bool) -> &Upstreams {
        self.upstreams.get_or_init(|| {
            let around = Surroundings {
                reaper: self.runner.reaper(),
                redactor: self.runner.redactor().clone(),
                on_change: self.composition.on_change(),
            };
            let upstreams = Upstreams::start(&self.config, wanted, around);
            self.composition.update(|parts| parts.upstreams = upstreams.providers());
            upstreams
        })
    }

    /// Like [`Callable::start_upstreams`], and waits until each has answered or failed.
    pub(crate) async fn connect_upstreams(&self, wanted: &(dyn Fn(&str) -> bool + Sync)) -> &Upstreams {
        let upstreams = self.start_upstreams(wanted);
        upstreams.settled().await;
        self.composition.update(|_| {});
        upstreams
    }

    /// The current catalog.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.composition.live().current()
    }

    /// The configured scripts.
    pub(crate) fn configured_scripts(&self) -> Vec<Configured> {
        scripts::configured(&self.config)
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
            parts.scripts = vec![Parts::inline(&parts.agents)];
            parts.upstreams.clear();
        })
    }

    /// The text with secrets masked.
    pub(crate) fn masked(&self, text: String) -> String {
        self.runner.redactor().text(text)
    }
}

fn new_warnings(before: &Catalog, after: &Catalog) -> Vec<String> {
    after.warnings().iter().filter(|warning| !before.warnings().contains(warning)).cloned().collect()
}
