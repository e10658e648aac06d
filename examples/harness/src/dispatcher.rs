//! An agent in Rust: its instructions contain what the documents say about a depot.

use async_trait::async_trait;
use ctx::{Agent, AgentArgument, AgentSource, AgentSpec, Call, Catalog, Message, Prompt, Role, ToolError};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// `POST /agents/dispatcher/prompt`
pub(crate) struct Dispatcher;

#[async_trait]
impl Agent for Dispatcher {
    fn spec(&self) -> Arc<AgentSpec> {
        Arc::new(AgentSpec {
            name: "dispatcher".to_owned(),
            title: None,
            description: "Plans the deliveries of a depot".to_owned(),
            tools: vec!["search".to_owned(), "estimate".to_owned()],
            source: AgentSource::Rust,
            arguments: vec![AgentArgument {
                name: "depot".to_owned(),
                description: "The depot to plan for".to_owned(),
                required: true,
                choices: Vec::new(),
            }],
        })
    }

    async fn resolve(&self, arguments: Map<String, Value>, call: &Call) -> Result<Prompt, ToolError> {
        let depot = arguments.get("depot").and_then(Value::as_str).unwrap_or_default();
        // Agents and tools can call any tool, within the limits of their own call.
        let query = json!({"query": format!("{depot} depot"), "limit": 1});
        let found = Catalog::call("search", query, call.nested()?).await?.into_data();
        let known = found["results"][0]["snippet"].as_str().unwrap_or("Nothing is known of it.");
        Ok(Prompt {
            system: format!("You plan deliveries for the depot {depot}. {known}"),
            // Empty: the tools of the spec.
            tools: Vec::new(),
            messages: vec![Message::text(Role::User, "What goes out first?")],
        })
    }
}
