//! Agents: their definitions, and the prompts that they resolve to.

use crate::Test;
use crate::bench::{Bench, catalog_of, new_call, problem_message};
use ctx_core::{Agent, Catalog, Limits, Message, Prompt, Role, ToolError};
use ctx_luau::InlineAgent;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) const TESTS: &[Test] = tests!(agents:
    an_agent_resolves_to_a_prompt,
    instructions_alone_are_a_prompt,
    results_that_are_not_prompts_are_errors,
    an_invalid_agent_definition_is_refused,
    an_inline_agent_returns_its_instructions,
);

const RESPONDER: &str = "agent = { name = 'x', description = 'Responds.', tools = { 'search' },
    arguments = { { name = 'service', description = 'Which.', required = true }, { name = 'how' } } }
function agent.resolve(args, config, context)
    return {
        system = 'You watch ' .. args.service .. ' for ' .. config.team .. context.config.team,
        messages = { { role = 'user', content = 'Go.' } },
    }
end";

async fn prompt(agent: Arc<dyn Agent>, arguments: Value) -> Result<Prompt, ToolError> {
    let name = agent.spec().name.clone();
    let catalog = catalog_of([], [agent], [], Limits::default());
    Catalog::prompt(&name, arguments, new_call(&catalog)).await
}

async fn resolve(body: &str) -> Result<Prompt, ToolError> {
    let bench = Bench::new();
    let source =
        format!("agent = {{ name = 'x', tools = {{ 'get' }} }} function agent.resolve(args) {body} end");
    prompt(bench.scripts.agent(&bench.script("x", &source)).await.unwrap(), json!({})).await
}

async fn an_agent_resolves_to_a_prompt() {
    let bench = Bench::new();
    let mut settings = bench.script("x", RESPONDER);
    settings.config = json!({"team": "ops"});
    let agent = bench.scripts.agent(&settings).await.unwrap();
    let spec = serde_json::to_value(&*agent.spec()).unwrap();
    assert_eq!(
        spec,
        json!({"name": "x", "description": "Responds.", "tools": ["search"], "source": "lua", "arguments": [
            {"name": "service", "description": "Which.", "required": true},
            {"name": "how", "description": "", "required": false},
        ]})
    );
    let prompt_result = prompt(agent.clone(), json!({"service": "db"})).await.unwrap();
    assert_eq!(
        (prompt_result.system.as_str(), prompt_result.tools),
        ("You watch db for opsops", vec!["search".to_owned()])
    );
    assert_eq!(prompt_result.messages[0], Message::text(Role::User, "Go."));
    let error = prompt(agent, json!({})).await.unwrap_err();
    assert_eq!(error.message(), "missing required parameter: service");
}

async fn instructions_alone_are_a_prompt() {
    let prompt_result = resolve("return 'Be kind.'").await.unwrap();
    assert_eq!((prompt_result.system.as_str(), prompt_result.tools), ("Be kind.", vec!["get".to_owned()]));
    let prompt_result =
        resolve("return { system = 's', tools = { 'search' }, messages = {} }").await.unwrap();
    assert_eq!((prompt_result.tools, prompt_result.messages), (vec!["search".to_owned()], vec![]));
}

async fn results_that_are_not_prompts_are_errors() {
    for (body, part) in [
        ("return 5", "tools/x.lua: agent.resolve must return a string or a table"),
        ("return { messages = {} }", "without `system`"),
        ("return { system = 1 }", "`system` must be a string"),
        ("return { system = 's', messages = { { role = 'robot', content = '' } } }", "messages[1]: `role`"),
        ("return { system = 's', tools = { 1 } }", "tools must be a list of names"),
        ("error('oh')", "tools/x.lua:1: oh"),
    ] {
        let error = resolve(body).await.unwrap_err();
        assert!(error.kind().code() == "tool_error" && error.message().contains(part), "{body}: {error}");
    }
}

async fn an_invalid_agent_definition_is_refused() {
    let bench = Bench::new();
    for (fields, part) in [
        ("name = 'y'", "agent.name is `y` and the configuration calls it `x`"),
        ("name = 'x', arguments = { {} }", "agent.arguments[1]: `name` is missing"),
        ("name = 'x', tools = 'search'", "agent.tools must be a list, it is a string"),
    ] {
        let source = format!("agent = {{ {fields} }} function agent.resolve() end");
        let message = problem_message(bench.scripts.agent(&bench.script("x", &source)).await);
        assert!(message.starts_with("tools/x.lua: ") && message.contains(part), "{message}");
    }
}

async fn an_inline_agent_returns_its_instructions() {
    let agent = InlineAgent::new(
        "r".to_owned(),
        "Reviews.".to_owned(),
        vec!["search".to_owned()],
        "Review.".to_owned(),
    );
    let spec = serde_json::to_value(&*agent.spec()).unwrap();
    assert_eq!((&spec["source"], &spec["description"]), (&json!("toml"), &json!("Reviews.")));
    let prompt_result = prompt(Arc::new(agent), json!({})).await.unwrap();
    assert_eq!((prompt_result.system.as_str(), prompt_result.tools), ("Review.", vec!["search".to_owned()]));
}
