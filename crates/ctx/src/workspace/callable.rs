//! The callable part of a workspace: starts upstreams, loads scripts, and puts their functions into the catalog.

use super::composition::{Composition, Parts};
use crate::config::Config;
use crate::scripts::{self, Configured, Runner, ScriptSet};
use crate::upstreams::{Surroundings, Upstreams};
use ctx_core::{Catalog, ToolError};
use std::sync::{Arc, OnceLock, Weak};

/// What it takes to reach upstreams and to run scripts of one workspace.
#[derive(Clone)]
pub(crate) struct Callable {
    pub(super) config: Arc<Config>,
    pub(super) composition: Arc<Composition>,
    pub(super) runner: Arc<Runner>,
    /// Once they were started.
    pub(super) upstreams: Arc<OnceLock<Upstreams>>,
}

/// A [`Callable`] for operations: the composition owns them, and the upstreams own the composition, so they own neither.
#[derive(Clone)]
pub(crate) struct WeakCallable {
    pub(super) config: Arc<Config>,
    pub(super) composition: Weak<Composition>,
    pub(super) runner: Arc<Runner>,
    pub(super) upstreams: Weak<OnceLock<Upstreams>>,
}

impl WeakCallable {
    /// Fails when the workspace is closed.
    pub(crate) fn upgrade(&self) -> Result<Callable, ToolError> {
        let (composition, upstreams) = (self.composition.upgrade(), self.upstreams.upgrade());
        let (composition, upstreams) = composition
            .zip(upstreams)
            .ok_or_else(|| ToolError::internal("the workspace is closed", "its catalog outlived it"))?;
        Ok(Callable { config: self.config.clone(), composition, runner: self.runner.clone(), upstreams })
    }
}

impl Callable {
    /// The same upstreams and catalog with another configuration.
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

    /// Begins to reach the upstreams whose sections are wanted, where none was started before.
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

    /// [`Callable::start_upstreams`], and waits until each has answered or failed.
    pub(crate) async fn connect_upstreams(&self, wanted: &(dyn Fn(&str) -> bool + Sync)) -> &Upstreams {
        let upstreams = self.start_upstreams(wanted);
        upstreams.settled().await;
        self.composition.update(|_| {});
        upstreams
    }

    /// The catalog that calls see now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.composition.live().current()
    }

    /// The scripts that can be called.
    pub(crate) fn configured_scripts(&self) -> Vec<Configured> {
        scripts::configured(&self.config)
    }

    /// Loads the scripts that can be called, for a look at them: calls do not see them.
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

    /// Loads the scripts that can be called, and has later calls see them.
    pub(super) async fn load_scripts(&self) -> ScriptSet {
        let before = self.catalog();
        let mut scripts = ScriptSet::load(self.runner.clone(), self.configured_scripts()).await;
        scripts.warnings = new_warnings(&before, &self.composition.set_scripts(&scripts));
        scripts
    }

    /// A catalog without what has to be loaded or reached first.
    pub(crate) fn catalog_as_configured(&self) -> Arc<Catalog> {
        self.composition.variant(|parts| {
            parts.scripts = vec![Parts::inline(&parts.agents)];
            parts.upstreams.clear();
        })
    }

    /// A text without secrets.
    pub(crate) fn masked(&self, text: String) -> String {
        self.runner.redactor().text(text)
    }
}

fn new_warnings(before: &Catalog, after: &Catalog) -> Vec<String> {
    after.warnings().iter().filter(|warning| !before.warnings().contains(warning)).cloned().collect()
}
