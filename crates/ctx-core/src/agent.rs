//! Agents: personas with instructions, tools and arguments, which resolve to a prompt.
//!
//! An agent is resolved by [`Catalog::call`](crate::Catalog::call), like a tool: the catalog registers each agent as
//! one.

use crate::content::compact;
use crate::{
    Annotations, BuiltinProvider, Call, CompletionRequest, Completions, ContentBlock, Identifier, Output,
    Provider, Tool, ToolError, ToolSpec,
};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of values in one completion result.
const COMPLETIONS_MAX: usize = 100;

/// A persona that resolves to a prompt.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// The agent's metadata.
    fn spec(&self) -> Arc<AgentSpec>;

    /// Builds the prompt for these arguments.
    async fn resolve(&self, arguments: Map<String, Value>, call: &Call) -> Result<Prompt, ToolError>;

    /// Completion values for an argument; by default the matching `choices` of its spec.
    async fn complete(&self, request: &CompletionRequest) -> Result<Completions, ToolError> {
        let spec = self.spec();
        let argument = spec.arguments.iter().find(|argument| argument.name == request.argument);
        let choices = argument.map(|argument| argument.choices.as_slice()).unwrap_or_default();
        Ok(Completions::matching(choices, &request.typed, COMPLETIONS_MAX))
    }

    /// Timeout of [`Agent::resolve`]; `None` means the catalog's default.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// See [`Tool::grace`].
    fn grace(&self) -> Duration {
        Duration::ZERO
    }
}

/// Metadata of an agent; its JSON is an entry of `/agents/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentSpec {
    /// Its name.
    pub name: String,
    /// Display name; not part of the JSON.
    #[serde(skip)]
    pub title: Option<String>,
    /// Its purpose.
    pub description: String,
    /// Outward names of the tools that it uses.
    pub tools: Vec<String>,
    /// Where it is defined.
    pub source: AgentSource,
    /// Its arguments.
    pub arguments: Vec<AgentArgument>,
}

/// Where an agent is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentSource {
    /// Inline in the configuration.
    Toml,
    /// A script.
    Lua,
    /// A Rust type in a program built on the library.
    Rust,
    /// A prompt of an upstream MCP server.
    Mcp,
}

/// One argument of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentArgument {
    /// Its name.
    pub name: String,
    /// Its meaning, for users and models.
    pub description: String,
    /// Whether resolving the agent fails without it.
    pub required: bool,
    /// The possible values, if there are few; offered as completions. Not part of the JSON.
    #[serde(skip)]
    pub choices: Vec<String>,
}

/// A resolved agent: the prompt for a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// System instructions.
    pub system: String,
    /// Tools to offer to the model.
    pub tools: Vec<String>,
    /// Initial messages.
    pub messages: Vec<Message>,
}

/// A message of a prompt. In JSON, the content of a single plain text block is a string.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Author of the message.
    pub role: Role,
    /// Content blocks.
    #[serde(with = "compact")]
    pub content: Vec<ContentBlock>,
}

impl Message {
    /// A message with one text block.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, content: vec![ContentBlock::Text(text.into())] }
    }
}

/// Author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
    /// System instructions.
    System,
}

/// The provider of all agents of a catalog, each as a tool.
pub(crate) struct AgentProvider(pub(crate) Vec<Arc<dyn Agent>>);

/// The full name of the tool that an agent is registered as.
pub(crate) fn tool_name(agent: &str) -> String {
    format!("{}.{}", BuiltinProvider::Agents.name(), Identifier::sanitize(agent))
}

impl Provider for AgentProvider {
    fn name(&self) -> Identifier {
        BuiltinProvider::Agents.identifier()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.0.iter().map(|agent| Arc::new(AgentTool(agent.clone())) as Arc<dyn Tool>).collect()
    }

    fn exposed(&self) -> bool {
        false
    }
}

/// Adapter that makes an agent a tool; its result is the prompt.
struct AgentTool(Arc<dyn Agent>);

#[async_trait]
impl Tool for AgentTool {
    fn spec(&self) -> Arc<ToolSpec> {
        let spec = self.0.spec();
        let properties: Map<String, Value> = spec
            .arguments
            .iter()
            .map(|argument| (argument.name.clone(), json!({ "description": argument.description })))
            .collect();
        let required: Vec<&str> = spec
            .arguments
            .iter()
            .filter(|argument| argument.required)
            .map(|argument| argument.name.as_str())
            .collect();
        let input_schema = json!({ "type": "object", "properties": properties, "required": required });
        Arc::new(ToolSpec {
            title: spec.title.clone(),
            annotations: Annotations { read_only: Some(true), ..Annotations::default() },
            ..ToolSpec::new(&spec.name, &spec.description, input_schema)
        })
    }

    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError> {
        let mut prompt = self.0.resolve(arguments, call).await?;
        if prompt.tools.is_empty() {
            prompt.tools.clone_from(&self.0.spec().tools);
        }
        let value = serde_json::to_value(prompt)
            .map_err(|error| ToolError::internal("cannot serialize the agent's prompt", error))?;
        Ok(value.into())
    }

    fn timeout(&self) -> Option<Duration> {
        self.0.timeout()
    }

    fn grace(&self) -> Duration {
        self.0.grace()
    }
}
