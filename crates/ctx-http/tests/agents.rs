//! Agents over HTTP: listed according to their schema, and resolved to prompts.

use crate::common::{self, ApiServer, ServerBuilder, get, post};
use async_trait::async_trait;
use ctx_core::{
    Agent, AgentArgument, AgentSource, AgentSpec, Call, ErrorKind, Identifier, LogLine, Message, Prompt,
    Provider, Role, Tool, ToolError,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

struct ResponderAgent;

#[async_trait]
impl Agent for ResponderAgent {
    fn spec(&self) -> Arc<AgentSpec> {
        let argument = |name: &str, required| AgentArgument {
            name: name.to_owned(),
            description: format!("which {name}"),
            required,
            choices: Vec::new(),
        };
        Arc::new(AgentSpec {
            name: "incident-responder".to_owned(),
            title: None,
            description: "Responds to incidents".to_owned(),
            tools: vec!["search".to_owned()],
            source: AgentSource::Toml,
            arguments: vec![argument("service", true), argument("severity", false)],
        })
    }

    async fn resolve(&self, arguments: Map<String, Value>, _: &Call) -> Result<Prompt, ToolError> {
        let service = arguments["service"].as_str().unwrap_or_default();
        match service {
            "broken" => {
                let line = LogLine { level: tracing::Level::ERROR, message: "no luck".to_owned() };
                Err(ToolError::new(ErrorKind::Tool, "responder.lua:7: broken").with_logs(vec![line]))
            }
            "slow" => std::future::pending().await,
            _ => Ok(Prompt {
                system: "Stay calm.".to_owned(),
                tools: Vec::new(),
                messages: vec![Message::text(Role::User, format!("{service} is down"))],
            }),
        }
    }

    fn timeout(&self) -> Option<Duration> {
        Some(common::SHORT)
    }
}

struct AgentProvider;

impl Provider for AgentProvider {
    fn name(&self) -> Identifier {
        Identifier::sanitize("tools")
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    fn agents(&self) -> Vec<Arc<dyn Agent>> {
        vec![Arc::new(ResponderAgent)]
    }
}

async fn server() -> ApiServer {
    ServerBuilder::new().provider(Arc::new(AgentProvider)).start().await
}

fn prompt(arguments: &Value) -> common::TestRequest {
    post("/agents/incident-responder/prompt").json(arguments)
}

#[tokio::test]
async fn agents_are_listed_with_the_published_keys() {
    let agent = json!({
        "name": "incident-responder", "description": "Responds to incidents", "tools": ["search"],
        "source": "toml", "arguments": [
            {"name": "service", "description": "which service", "required": true},
            {"name": "severity", "description": "which severity", "required": false},
        ],
    });
    let server = server().await;
    assert_eq!(server.send(get("/agents/list")).await.success(), json!({"agents": [agent]}));
    assert_eq!(server.send(get("/tools/list")).await.success(), json!({"tools": []}));
    let server = ServerBuilder::new().start().await;
    assert_eq!(server.send(get("/agents/list")).await.success(), json!({"agents": []}));
}

#[tokio::test]
async fn an_agent_answers_its_prompt_unwrapped() {
    let mut server = server().await;
    let expected = json!({
        "system": "Stay calm.", "tools": ["search"],
        "messages": [{"role": "user", "content": "payments is down"}],
    });
    assert_eq!(server.send(prompt(&json!({"service": "payments"}))).await.success(), expected);
    let run = server.next_run().await;
    assert_eq!((run.tool.as_str(), run.caller.as_str()), ("agents.incident_responder", "http"));
}

#[tokio::test]
async fn every_failure_of_an_agent_has_its_code() {
    let server = server().await;
    let refused = |status: u16, code: &str, message: &str| (status, code.to_owned(), message.to_owned());
    assert_eq!(
        server.send(prompt(&json!({}))).await.error(),
        refused(400, "bad_request", "missing required parameter: service")
    );
    assert_eq!(
        server.send(post("/agents/nobody/prompt")).await.error(),
        refused(404, "not_found", "no agent registered with name: nobody")
    );
    let (status, code, _) = server.send(prompt(&json!({"service": "slow"}))).await.error();
    assert_eq!((status, code.as_str()), (408, "timeout"));
    let malformed = post("/agents/incident-responder/prompt").body("application/json", "{");
    assert_eq!(server.send(malformed).await.error().0, 400);
    assert_eq!(server.send(post("/agents/%FF/prompt")).await.error().0, 400);
    assert_eq!(server.send(post("/agents/list")).await.error().0, 405);
}

#[tokio::test]
async fn what_was_logged_stands_beside_the_error() {
    let (status, body) = server().await.send(prompt(&json!({"service": "broken"}))).await.failure();
    let expected = json!({
        "error": {"code": "tool_error", "message": "responder.lua:7: broken"},
        "logs": [{"level": "error", "message": "no luck"}],
    });
    assert_eq!((status, body), (500, expected));
}

#[tokio::test]
async fn an_agent_is_no_tool_to_clients() {
    let server = server().await;
    for name in ["agents__incident_responder", "incident_responder", "incident-responder"] {
        assert_eq!(server.refusal(name, json!({"service": "x"})).await.0, 404, "{name}");
    }
}
