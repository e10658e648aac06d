//! Agents defined by a script.

use super::{GRACE, Script, ScriptDefinition, call_deadline, type_name};
use crate::engine::ScriptEntry;
use crate::scripts::ScriptProblem;
use crate::world::ScriptWorld;
use async_trait::async_trait;
use ctx_core::{
    Agent, AgentArgument, AgentSource, AgentSpec, Call, ContentBlock, ErrorKind, Message, Prompt, Role,
    ToolError,
};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// A script that defines `agent`.
pub(crate) struct ScriptAgent {
    script: Script,
    spec: Arc<AgentSpec>,
}

impl ScriptAgent {
    /// The agent that a script defines.
    pub(crate) fn new(script: Script, definition: &ScriptDefinition) -> Result<Self, ScriptProblem> {
        let problem = |message: String| definition.problem(&message);
        let spec = AgentSpec {
            name: script.name().to_owned(),
            title: None,
            description: definition.text_field("description")?.unwrap_or_default(),
            tools: texts(definition.table.get("tools"), "agent.tools").map_err(problem)?,
            source: AgentSource::Lua,
            arguments: parse_arguments(definition.table.get("arguments")).map_err(problem)?,
        };
        Ok(Self { script, spec: Arc::new(spec) })
    }

    fn time_limit(&self) -> Duration {
        self.script.timeout(self.script.runtime.limits.timeout)
    }
}

#[async_trait]
impl Agent for ScriptAgent {
    fn spec(&self) -> Arc<AgentSpec> {
        self.spec.clone()
    }

    async fn resolve(&self, arguments: Map<String, Value>, call: &Call) -> Result<Prompt, ToolError> {
        let arguments = vec![Value::Object(arguments), self.script.config()];
        let mut run = self.script.run(ScriptEntry::Agent, arguments);
        run.deadline = call_deadline(call, self.time_limit());
        run.depth = call.depth();
        let world = ScriptWorld::for_call(&self.script, call);
        let completed = self.script.runtime.engine.run(&run, &world).await;
        let value = completed.map_err(|error| error.into_tool_error(call))?.value;
        parse_prompt(value, &self.spec.tools).map_err(|message| {
            ToolError::new(ErrorKind::Tool, format!("{}: {message}", self.script.display_name))
        })
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.time_limit())
    }

    fn grace(&self) -> Duration {
        GRACE
    }
}

/// Converts the result of `agent.resolve`: instructions alone, or a table that may also have tools and
/// messages.
fn parse_prompt(value: Value, default_tools: &[String]) -> Result<Prompt, String> {
    let fields = match value {
        Value::String(system) => {
            return Ok(Prompt { system, tools: default_tools.to_vec(), messages: Vec::new() });
        }
        Value::Object(fields) => fields,
        other => {
            return Err(format!(
                "agent.resolve must return a string or a table with `system`, it returned {}",
                type_name(&other)
            ));
        }
    };
    let system = match fields.get("system").or_else(|| fields.get("system_prompt")) {
        Some(Value::String(system)) => system.clone(),
        None => return Err("agent.resolve returned a table without `system`".to_owned()),
        Some(other) => return Err(format!("`system` must be a string, it is {}", type_name(other))),
    };
    let tools = match fields.get("tools") {
        None => default_tools.to_vec(),
        list => texts(list, "tools")?,
    };
    let messages = list(fields.get("messages"), "messages")?;
    let messages =
        messages.iter().enumerate().map(|(position, message)| parse_message(message, position + 1));
    Ok(Prompt { system, tools, messages: messages.collect::<Result<_, _>>()? })
}

fn parse_message(message: &Value, position: usize) -> Result<Message, String> {
    let text = |field: &str| message.get(field).and_then(Value::as_str);
    let role = match text("role") {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        _ => return Err(format!("messages[{position}]: `role` must be user, assistant or system")),
    };
    let block = |block: &Value| ContentBlock::from_json(block.clone());
    let content = match message.get("content") {
        Some(Value::String(text)) => Some(vec![ContentBlock::Text(text.clone())]),
        Some(Value::Array(blocks)) => blocks.iter().map(block).collect(),
        other => other.and_then(block).map(|block| vec![block]),
    };
    let content = content.ok_or_else(|| {
        format!("messages[{position}]: `content` must be a string, or blocks that have a `type`")
    })?;
    Ok(Message { role, content })
}

fn parse_arguments(declared: Option<&Value>) -> Result<Vec<AgentArgument>, String> {
    let mut arguments: Vec<AgentArgument> = Vec::new();
    for (position, declared) in list(declared, "agent.arguments")?.iter().enumerate() {
        let place = format!("agent.arguments[{}]", position + 1);
        let text = |field: &str| declared.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("name");
        if name.is_empty() {
            return Err(format!("{place}: `name` is missing"));
        }
        if arguments.iter().any(|known| known.name == name) {
            return Err(format!("{place}: there are two arguments `{name}`"));
        }
        let required = match declared.get("required") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(required)) => *required,
            Some(other) => {
                return Err(format!("{place}: `required` must be true or false, it is {}", type_name(other)));
            }
        };
        let choices = texts(declared.get("choices"), &format!("{place}: `choices`"))?;
        arguments.push(AgentArgument { name, description: text("description"), required, choices });
    }
    Ok(arguments)
}

fn texts(value: Option<&Value>, place: &str) -> Result<Vec<String>, String> {
    let texts = list(value, place)?.iter().map(|item| item.as_str().map(str::to_owned));
    texts.collect::<Option<_>>().ok_or_else(|| format!("{place} must be a list of names"))
}

/// A list. A missing value, a null and an empty table are an empty list.
fn list<'a>(value: Option<&'a Value>, place: &str) -> Result<&'a [Value], String> {
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(Value::Object(fields)) if fields.is_empty() => Ok(&[]),
        Some(other) => Err(format!("{place} must be a list, it is {}", type_name(other))),
    }
}
