//! The prompts of an upstream as agents, and argument completion.

use super::request::UpstreamRequest;
use super::upstream::Upstream;
use async_trait::async_trait;
use ctx_core::{Agent, AgentSpec, Call, CompletionRequest, Completions, Prompt, ToolError};
use rmcp::model::{
    ArgumentInfo, ClientRequest, CompleteRequest, CompleteRequestParams, CompletionContext, CompletionInfo,
    GetPromptRequestParams, Reference, ServerResult,
};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// How long a completion waits for a server that is being connected.
const CONNECTION_WAIT_MAX: Duration = Duration::from_secs(2);

pub(super) struct UpstreamPrompt {
    pub(super) upstream: Arc<Upstream>,
    pub(super) spec: Arc<AgentSpec>,
}

#[async_trait]
impl Agent for UpstreamPrompt {
    fn spec(&self) -> Arc<AgentSpec> {
        self.spec.clone()
    }

    async fn resolve(&self, arguments: Map<String, Value>, call: &Call) -> Result<Prompt, ToolError> {
        // Arguments of MCP prompts are strings.
        let text = |(name, value)| match value {
            Value::String(_) => (name, value),
            other => (name, Value::String(other.to_string())),
        };
        let arguments = arguments.into_iter().map(text).collect();
        let params = GetPromptRequestParams::new(self.original_name()).with_arguments(arguments);
        match self.upstream.request(UpstreamRequest::Prompt(params), true, call).await? {
            ServerResult::GetPromptResult(result) => Ok(self.upstream.namespace.prompt(result)),
            _ => Err(self.upstream.error("its response is not a `prompts/get` result")),
        }
    }

    async fn complete(&self, completing: &CompletionRequest) -> Result<Completions, ToolError> {
        self.upstream.complete(Reference::for_prompt(self.original_name()), completing).await
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.upstream.settings.limits.call)
    }
}

impl UpstreamPrompt {
    fn original_name(&self) -> &str {
        self.upstream.namespace.original_prompt(&self.spec.name).unwrap_or_default()
    }
}

impl Upstream {
    /// The server's completions; none if it has no such capability, or is not connected.
    pub(super) async fn complete(
        &self,
        of: Reference,
        completing: &CompletionRequest,
    ) -> Result<Completions, ToolError> {
        let Some(connection) = self.connection_within(CONNECTION_WAIT_MAX).await else {
            return Ok(Completions::default());
        };
        let is_supported =
            connection.peer.peer_info().is_some_and(|info| info.capabilities.completions.is_some());
        if !is_supported {
            return Ok(Completions::default());
        }
        let arguments = completing.context.clone().into_iter().collect();
        let params =
            CompleteRequestParams::new(of, ArgumentInfo::new(&completing.argument, &completing.typed))
                .with_context(CompletionContext::with_arguments(arguments));
        let request = ClientRequest::CompleteRequest(CompleteRequest::new(params));
        match connection.request(request).await {
            Ok(ServerResult::CompleteResult(result)) => {
                let CompletionInfo { mut values, total, has_more, .. } = result.completion;
                let has_more = has_more == Some(true) || values.len() > CompletionInfo::MAX_VALUES;
                values.truncate(CompletionInfo::MAX_VALUES);
                Ok(Completions { values, total, has_more })
            }
            Ok(_) => Err(self.error("its response is not a `completion/complete` result")),
            Err(error) => Err(self.error(error)),
        }
    }
}
