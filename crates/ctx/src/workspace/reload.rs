//! Applies a changed configuration to a workspace that is being served. Unaffected parts are kept: the store,
//! models in memory, connected upstreams, loaded scripts.

use super::{
    Workspace, clear_unwatchable, config_warnings, context_provider, embedding_options, inline_agents,
    knowledge_options, new_runner, sources, untrusted_providers,
};
use crate::admin::{Admin, AdminParts};
use crate::config::{Config, SectionChanges};
use crate::error::CommandResult;
use crate::harness::Additions;
use crate::scripts::ScriptSet;
use ctx_knowledge::EmbeddingChange;
use std::sync::Arc;

impl Workspace {
    /// The workspace with another configuration. Calls use the old one until [`Workspace::install`].
    pub(crate) fn reconfigured(
        &self,
        config: Config,
        changes: &SectionChanges,
        additions: &Additions,
    ) -> CommandResult<Self> {
        let config = Arc::new(config);
        let mut warnings = config_warnings(&config);
        let same_runner =
            !changes.contains("limits") && config.without_knowledge == self.config.without_knowledge;
        let runner = if same_runner { self.runner().clone() } else { Arc::new(new_runner(&config)?) };
        let (sources, freshness) = sources::gather(&config, &runner, &additions.sources, &mut warnings);
        // The model's limit on tokens bounds the chunks.
        let (change, embedding) = match changes.contains("embedding") || changes.contains("chunking") {
            true => (EmbeddingChange::Replace, embedding_options(&config)?),
            false => (EmbeddingChange::Keep, None),
        };
        let options = knowledge_options(&config, &runner, sources, embedding);
        let knowledge = Arc::new(self.knowledge.reconfigure(options, change)?);
        let freshness = clear_unwatchable(freshness, &knowledge);
        let functions = self.functions.reconfigured(config.clone(), runner);
        let (catalog, state) = (self.catalog.clone(), self.state.clone());
        Ok(Self { config, knowledge, catalog, freshness, warnings, functions, state })
    }

    /// Loads the scripts of this configuration; reuses those of `before` with the same settings.
    pub(crate) async fn load_scripts_after(&self, before: ScriptSet) -> ScriptSet {
        ScriptSet::load_after(before, self.runner().clone(), self.configured_scripts()).await
    }

    /// Installs this configuration for later calls: starts and ends the upstreams that differ, and updates
    /// the catalog.
    pub(crate) fn install(&self, scripts: &ScriptSet, changes: &SectionChanges) {
        let upstreams = self.start_upstreams();
        upstreams.update(&self.config, changes);
        let before = self.catalog.current();
        let admin = AdminParts {
            state: self.state.clone(),
            knowledge: self.knowledge.clone(),
            freshness: self.freshness.clone(),
            warnings: self.warnings.clone(),
            functions: self.functions.downgrade(),
        };
        let admin = Arc::new(Admin::new(&self.config, admin));
        let after = self.composition().update(|parts| {
            parts.admin = admin;
            parts.context = context_provider(&self.config, &self.knowledge);
            parts.agents = inline_agents(&self.config);
            parts.left_out = untrusted_providers(&self.config);
            parts.limits = self.config.settings.limits();
            parts.upstreams = upstreams.providers();
            parts.set_scripts(scripts);
        });
        super::log_new_warnings(&before, &after);
    }
}
