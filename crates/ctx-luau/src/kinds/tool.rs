//! Tools defined by a script.

use super::{GRACE, Script, ScriptDefinition, call_deadline, fit_empty, parameters};
use crate::engine::ScriptEntry;
use crate::scripts::ScriptProblem;
use crate::world::ScriptWorld;
use async_trait::async_trait;
use ctx_core::{Annotations, Call, Output, RateLimit, Tool, ToolError, ToolSpec};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Tool annotations, under their Lua name and their MCP name.
const HINTS: [[&str; 2]; 4] = [
    ["read_only", "readOnlyHint"],
    ["destructive", "destructiveHint"],
    ["idempotent", "idempotentHint"],
    ["open_world", "openWorldHint"],
];

/// A script that defines `tool`.
pub(crate) struct ScriptTool {
    script: Script,
    spec: Arc<ToolSpec>,
}

impl ScriptTool {
    /// The tool that a script defines.
    pub(crate) fn new(script: Script, definition: &ScriptDefinition) -> Result<Self, ScriptProblem> {
        let problem = |message: String| definition.problem(&message);
        let output_schema =
            definition.table.get("output_schema").or_else(|| definition.table.get("outputSchema"));
        let output_schema = output_schema.map(|schema| parameters::read_schema(schema, "tool.output_schema"));
        let annotations = definition.table.get("annotations");
        let title = annotations.and_then(|declared| declared.get("title")).and_then(Value::as_str);
        let spec = ToolSpec {
            name: script.name().to_owned(),
            title: definition.text_field("title")?.or_else(|| title.map(str::to_owned)),
            description: definition.text_field("description")?.unwrap_or_default(),
            input_schema: parameters::input_schema(&definition.table).map_err(problem)?.into(),
            output_schema: output_schema.transpose().map_err(problem)?.map(Into::into),
            annotations: parse_annotations(annotations).map_err(problem)?,
            tags: parse_tags(definition.table.get("tags")).map_err(problem)?,
            body: None,
        };
        Ok(Self { script, spec: Arc::new(spec) })
    }
}

#[async_trait]
impl Tool for ScriptTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError> {
        let mut run = self.script.run(ScriptEntry::Tool, vec![Value::Object(arguments)]);
        run.deadline = call_deadline(call, self.time_limit());
        run.depth = call.depth();
        let world = ScriptWorld::for_call(&self.script, call);
        let completed = self.script.runtime.engine.run(&run, &world).await;
        let mut value = completed.map_err(|error| error.into_tool_error(call))?.value;
        if let Some(schema) = &self.spec.output_schema {
            fit_empty(&schema.get(), &mut value);
        }
        Ok(value.into())
    }

    fn rate_limit(&self) -> Option<RateLimit> {
        self.script.settings.as_ref().and_then(|settings| settings.rate_limit)
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.time_limit())
    }

    fn grace(&self) -> Duration {
        GRACE
    }
}

impl ScriptTool {
    fn time_limit(&self) -> Duration {
        self.script.timeout(self.script.runtime.limits.timeout)
    }
}

/// Reads the tags of a tool.
fn parse_tags(declared: Option<&Value>) -> Result<Vec<String>, String> {
    let declared = match declared {
        None | Some(Value::Null) => return Ok(Vec::new()),
        // An empty Lua table may be a list.
        Some(Value::Object(fields)) if fields.is_empty() => return Ok(Vec::new()),
        Some(Value::Array(declared)) => declared,
        Some(other) => {
            return Err(format!("tool.tags must be a list of strings, it is {}", super::type_name(other)));
        }
    };
    if declared.len() > ToolSpec::TAGS_MAX {
        return Err(format!("tool.tags must be at most {}", ToolSpec::TAGS_MAX));
    }
    let tag = |tag: &Value| match tag.as_str() {
        Some(tag) if ToolSpec::is_tag(tag) => Ok(tag.to_owned()),
        Some(_) => Err(format!(
            "each of tool.tags must have 1 to {} bytes, no space around it and no control characters",
            ToolSpec::TAG_BYTES_MAX
        )),
        None => Err(format!("each of tool.tags must be a string, one is {}", super::type_name(tag))),
    };
    declared.iter().map(tag).collect()
}

/// Reads the annotations of a tool; missing hints stay unset.
fn parse_annotations(declared: Option<&Value>) -> Result<Annotations, String> {
    let hint = |names: [&str; 2]| {
        let value = names.iter().find_map(|name| declared?.get(*name));
        match value {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(hint)) => Ok(Some(*hint)),
            Some(other) => Err(format!(
                "tool.annotations.{} must be true or false, it is {}",
                names[0],
                super::type_name(other)
            )),
        }
    };
    match declared {
        None | Some(Value::Object(_)) => {}
        Some(other) => {
            return Err(format!("tool.annotations must be a table, it is {}", super::type_name(other)));
        }
    }
    let [read_only, destructive, idempotent, open_world] = HINTS;
    Ok(Annotations {
        read_only: hint(read_only)?,
        destructive: hint(destructive)?,
        idempotent: hint(idempotent)?,
        open_world: hint(open_world)?,
    })
}
