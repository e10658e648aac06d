//! Agents are resolved by `Catalog::call`, like tools.

use async_trait::async_trait;
use ctx_core::{
    Agent, AgentArgument, AgentSource, AgentSpec, Call, Caller, Catalog, ErrorKind, Identifier, Message,
    Prompt, Provider, Role, Tool, ToolError,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

struct Responder(&'static str);

#[async_trait]
impl Agent for Responder {
    fn spec(&self) -> Arc<AgentSpec> {
        let argument = |name: &str, required| AgentArgument {
            name: name.to_owned(),
            description: format!("which {name}"),
            required,
            choices: Vec::new(),
        };
        Arc::new(AgentSpec {
            name: self.0.to_owned(),
            title: None,
            description: "Responds to incidents".to_owned(),
            tools: vec!["search".to_owned()],
            source: AgentSource::Rust,
            arguments: vec![argument("service", true), argument("severity", false)],
        })
    }

    async fn resolve(&self, arguments: Map<String, Value>, _: &Call) -> Result<Prompt, ToolError> {
        let content = format!("{} is down", arguments["service"].as_str().unwrap_or_default());
        Ok(Prompt {
            system: "Stay calm.".to_owned(),
            tools: Vec::new(),
            messages: vec![Message::text(Role::User, content)],
        })
    }
}

struct Agents(Vec<&'static str>);

impl Provider for Agents {
    fn name(&self) -> Identifier {
        Identifier::sanitize("tools")
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    fn agents(&self) -> Vec<Arc<dyn Agent>> {
        self.0.iter().map(|name| Arc::new(Responder(name)) as Arc<dyn Agent>).collect()
    }
}

fn catalog(names: &[&'static str]) -> Arc<Catalog> {
    Catalog::builder().provider(Arc::new(Agents(names.to_vec()))).build()
}

async fn prompt(name: &str, arguments: Value) -> Result<Prompt, (ErrorKind, String)> {
    let call = Call::new(catalog(&["incident-responder"]), Caller::Cli);
    let failure = |error: ToolError| (error.kind(), error.message().to_owned());
    Catalog::prompt(name, arguments, call).await.map_err(failure)
}

#[tokio::test]
async fn an_agent_resolves_to_its_prompt_with_its_declared_tools_when_it_names_none() {
    let prompt = prompt("incident-responder", json!({"service": "payments"})).await.unwrap();
    assert_eq!(prompt.messages[0], Message::text(Role::User, "payments is down"));
    assert_eq!(prompt.tools, ["search"]);
}

#[tokio::test]
async fn what_an_agent_cannot_do_without_must_be_there() {
    let (kind, message) = prompt("incident-responder", json!({"severity": "P1"})).await.unwrap_err();
    assert_eq!((kind, message.as_str()), (ErrorKind::BadRequest, "missing required parameter: service"));
}

#[tokio::test]
async fn an_unknown_agent_is_told_the_nearest() {
    let (kind, message) = prompt("incident_responder", json!({})).await.unwrap_err();
    assert_eq!(kind, ErrorKind::NotFound);
    assert_eq!(
        message,
        "no agent registered with name: incident_responder (did you mean `incident-responder`?)"
    );
}

#[test]
fn agents_are_not_tools_to_clients_and_names_that_are_alike_are_refused() {
    let catalog = catalog(&["a-b", "a_b", "c"]);
    assert_eq!(catalog.agents().map(|agent| agent.name.as_str()).collect::<Vec<_>>(), ["a-b", "c"]);
    assert!(catalog.entries().all(|entry| !entry.exposed));
    assert_eq!(catalog.warnings(), ["an agent is left out: the name `a_b` is taken"]);
}
