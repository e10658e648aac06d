//! Personas: instructions, the tools they use, and the arguments they take.
//!
//! An agent is resolved through the one door, like a tool: the catalog registers each as one.

use crate::content::brief;
use crate::{
    Annotations, BuiltinProvider, Call, Completing, Completions, ContentBlock, Identifier, Output, Provider,
    Tool, ToolError, ToolSpec,
};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Values that one completion tells at most.
const COMPLETIONS_MAX: usize = 100;

/// A persona that resolves to a prompt.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// What the agent says of itself.
    fn spec(&self) -> Arc<AgentSpec>;

    /// Makes the prompt for these arguments.
    async fn resolve(&self, arguments: Map<String, Value>, call: &Call) -> Result<Prompt, ToolError>;

    /// What an argument can be: the choices that its spec declares.
    async fn complete(&self, asked: &Completing) -> Result<Completions, ToolError> {
        let spec = self.spec();
        let argument = spec.arguments.iter().find(|argument| argument.name == asked.argument);
        let choices = argument.map(|argument| argument.choices.as_slice()).unwrap_or_default();
        Ok(Completions::among(choices, &asked.typed, COMPLETIONS_MAX))
    }

    /// How long resolving may take, where it is not the catalog's own bound.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// As for [`Tool::grace`].
    fn grace(&self) -> Duration {
        Duration::ZERO
    }
}

/// What an agent says of itself; its JSON is an entry of `/agents/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentSpec {
    /// Its name.
    pub name: String,
    /// A name for people; none of the published list.
    #[serde(skip)]
    pub title: Option<String>,
    /// What it is for.
    pub description: String,
    /// The tools it uses, by outward name.
    pub tools: Vec<String>,
    /// Where it is defined.
    pub source: AgentSource,
    /// What it can be told.
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
    /// What it means.
    pub description: String,
    /// Whether the agent cannot do without.
    pub required: bool,
    /// The values it can have, where they are few; offered to clients that complete what is typed.
    #[serde(skip)]
    pub choices: Vec<String>,
}

/// A resolved agent: what a model is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// The instructions.
    pub system: String,
    /// The tools to offer.
    pub tools: Vec<String>,
    /// Messages to begin with.
    pub messages: Vec<Message>,
}

/// One message of a prompt. In JSON its content is a string where it is one text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said.
    #[serde(with = "brief")]
    pub content: Vec<ContentBlock>,
}

impl Message {
    /// A message of one text.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, content: vec![ContentBlock::Text(text.into())] }
    }
}

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The instructions.
    System,
}

/// All agents of a catalog, as its tools.
pub(crate) struct Agents(pub(crate) Vec<Arc<dyn Agent>>);

/// The full name of the tool that an agent is registered as.
pub(crate) fn tool_name(agent: &str) -> String {
    format!("{}.{}", BuiltinProvider::Agents.name(), Identifier::sanitize(agent))
}

impl Provider for Agents {
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

/// An agent whose answer is its prompt.
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
            .map_err(|error| ToolError::internal("the agent's prompt cannot be told", error))?;
        Ok(value.into())
    }

    fn timeout(&self) -> Option<Duration> {
        self.0.timeout()
    }

    fn grace(&self) -> Duration {
        self.0.grace()
    }
}
