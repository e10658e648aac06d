//! Agents defined in the configuration, without a script.

use async_trait::async_trait;
use ctx_core::{Agent, AgentArgument, AgentSource, AgentSpec, Call, Prompt, ToolError};
use serde_json::{Map, Value};
use std::sync::Arc;

/// An agent with fixed instructions, in which `{{name}}` stands for an argument.
#[derive(Clone, Debug)]
pub struct InlineAgent {
    spec: Arc<AgentSpec>,
    system_prompt: String,
}

impl InlineAgent {
    /// The agent of one `[agents.inline.NAME]` section.
    pub fn new(name: String, description: String, tools: Vec<String>, system_prompt: String) -> Self {
        let source = AgentSource::Toml;
        let spec =
            Arc::new(AgentSpec { name, title: None, description, tools, source, arguments: Vec::new() });
        Self { spec, system_prompt }
    }

    /// Sets the arguments that the agent declares.
    #[must_use]
    pub fn with_arguments(self, arguments: Vec<AgentArgument>) -> Self {
        let spec = AgentSpec { arguments, ..(*self.spec).clone() };
        Self { spec: Arc::new(spec), ..self }
    }

    /// Substitutes arguments in the instructions, in one pass: placeholders in the value of an argument are
    /// not expanded.
    fn system(&self, arguments: &Map<String, Value>) -> String {
        let mut system = String::with_capacity(self.system_prompt.len());
        let mut rest = self.system_prompt.as_str();
        while let Some((before, after)) = rest.split_once("{{") {
            system.push_str(before);
            let substitution = after.split_once("}}").and_then(|(name, after)| {
                let declared = self.spec.arguments.iter().find(|argument| argument.name == name.trim())?;
                Some((arguments.get(&declared.name), after))
            });
            rest = match substitution {
                Some((value, after)) => {
                    system.push_str(&value.map_or_else(String::new, text));
                    after
                }
                None => {
                    system.push_str("{{");
                    after
                }
            };
        }
        system.push_str(rest);
        system
    }
}

#[async_trait]
impl Agent for InlineAgent {
    fn spec(&self) -> Arc<AgentSpec> {
        self.spec.clone()
    }

    async fn resolve(&self, arguments: Map<String, Value>, _: &Call) -> Result<Prompt, ToolError> {
        Ok(Prompt { system: self.system(&arguments), tools: self.spec.tools.clone(), messages: Vec::new() })
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_take_their_places_in_the_instructions_once() {
        let argument = |name: &str| AgentArgument {
            name: name.into(),
            description: String::new(),
            required: false,
            choices: Vec::new(),
        };
        let prompt = "{{service}} is {{ severity }}; {{other}} {{ {{service}}{{gone}}";
        let arguments = vec![argument("service"), argument("severity"), argument("gone")];
        let agent = InlineAgent::new("a".into(), String::new(), Vec::new(), prompt.to_owned())
            .with_arguments(arguments);
        let arguments = json!({"service": "{{severity}}", "severity": 1, "other": "x"});
        assert_eq!(
            agent.system(arguments.as_object().unwrap()),
            "{{severity}} is 1; {{other}} {{ {{severity}}"
        );
    }
}
