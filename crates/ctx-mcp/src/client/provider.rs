//! An upstream as a provider of the catalog.

use super::prompts::UpstreamPrompt;
use super::resources::UpstreamResources;
use super::upstream::Upstream;
use async_trait::async_trait;
use ctx_core::{Agent, AgentSpec, Call, Identifier, Output, Provider, Resources, Tool, ToolError, ToolSpec};
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The tools of an upstream as they were last listed.
#[derive(Default)]
pub(super) struct ListedTools(Mutex<Arc<Vec<Arc<ToolSpec>>>>);

impl ListedTools {
    pub(super) fn get(&self) -> Arc<Vec<Arc<ToolSpec>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the tools; returns whether they have changed.
    pub(super) fn set(&self, mut specs: Vec<Arc<ToolSpec>>) -> bool {
        let mut tools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if **tools == specs {
            return false;
        }
        specs.shrink_to_fit();
        *tools = Arc::new(specs);
        true
    }
}

/// An upstream as a provider: tools, agents and resources.
pub(super) struct UpstreamProvider(pub(super) Arc<Upstream>);

#[async_trait]
impl Provider for UpstreamProvider {
    fn name(&self) -> Identifier {
        self.0.settings.name.clone()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let tool = |spec: &Arc<ToolSpec>| {
            Arc::new(UpstreamTool { upstream: self.0.clone(), spec: spec.clone() }) as Arc<dyn Tool>
        };
        self.0.tools.get().iter().map(tool).collect()
    }

    fn agents(&self) -> Vec<Arc<dyn Agent>> {
        let agent = |spec: &Arc<AgentSpec>| {
            Arc::new(UpstreamPrompt { upstream: self.0.clone(), spec: spec.clone() }) as Arc<dyn Agent>
        };
        self.0.features.prompts().iter().map(agent).collect()
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        Some(Arc::new(UpstreamResources(self.0.clone())))
    }

    fn exposed(&self) -> bool {
        self.0.settings.exposed
    }

    fn unknown_reason(&self) -> Option<String> {
        self.0.unknown_tools_reason()
    }

    async fn wait_until_known(&self) {
        self.0.wait_for_tools().await;
    }

    async fn connect(&self) -> Result<(), ToolError> {
        self.0.wait_until_connected().await
    }

    fn wait_timeout(&self) -> Option<Duration> {
        Some(self.0.settings.limits.call)
    }
}

struct UpstreamTool {
    upstream: Arc<Upstream>,
    spec: Arc<ToolSpec>,
}

#[async_trait]
impl Tool for UpstreamTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError> {
        self.upstream.call(&self.spec, arguments, call).await
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.upstream.settings.limits.call)
    }
}
