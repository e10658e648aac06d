//! Personas: instructions, the tools they use, and the arguments they take.

use crate::{Call, ToolError};
use async_trait::async_trait;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;

/// A persona that resolves to a prompt.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// What the agent says of itself.
    fn spec(&self) -> Arc<AgentSpec>;

    /// Makes the prompt for these arguments.
    async fn resolve(&self, arguments: Map<String, Value>, call: &Call) -> Result<Prompt, ToolError>;
}

/// What an agent says of itself; its JSON is an entry of `/agents/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentSpec {
    /// Its name.
    pub name: String,
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
}

/// A resolved agent: what a model is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Prompt {
    /// The instructions.
    pub system: String,
    /// The tools to offer.
    pub tools: Vec<String>,
    /// Messages to begin with.
    pub messages: Vec<Message>,
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: String,
}

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The instructions.
    System,
}
