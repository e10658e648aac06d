//! JSON forms of tool results, and recognition of values that are complete MCP results.

use crate::{BuiltinProvider, Output, ToolName};
use serde_json::{Map, Value, json};

/// The JSON form of a tool's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultFormat {
    /// The bare value; its format is documented.
    Unwrapped,
    /// `{"result": …}`, and `logs` if the tool logged something.
    Wrapped,
    /// `{"result": …, "logs": […], "meta": {"calls": …, "bytes_kept": …}}`: with statistics of the nested calls.
    Detailed,
}

/// The tool that runs a submitted script.
const EXECUTE: &str = "execute";

impl ResultFormat {
    /// The form of a tool's results.
    pub fn of(name: &ToolName) -> Self {
        match BuiltinProvider::from_name(name.provider().as_str()) {
            Some(BuiltinProvider::Context) => Self::Unwrapped,
            Some(BuiltinProvider::Ctx) if name.tool().as_str() == EXECUTE => Self::Detailed,
            _ => Self::Wrapped,
        }
    }

    /// The JSON of a result in this form.
    pub fn body(self, output: Output) -> Value {
        if self == Self::Unwrapped {
            return output.value;
        }
        let is_detailed = self == Self::Detailed;
        let logs = (is_detailed || !output.logs.is_empty()).then(|| json!(output.logs));
        let meta = is_detailed.then(|| json!(output.nested_calls));
        let mut body = json!({ "result": output.into_data() });
        if let Some(logs) = logs {
            body["logs"] = logs;
        }
        if let Some(meta) = meta {
            body["meta"] = meta;
        }
        body
    }
}

/// The fields of a `CallToolResult`.
const RESULT_FIELDS: &[&str] = &["content", "structuredContent", "isError", "_meta"];

/// Types of MCP content blocks, each with its required field.
const BLOCKS: &[(&str, &str)] = &[
    ("text", "text"),
    ("image", "data"),
    ("audio", "data"),
    ("resource", "resource"),
    ("resource_link", "uri"),
];

/// Whether an object is a complete MCP `CallToolResult`. An object with other fields is ordinary data that only looks
/// like one, and would lose those fields. An empty `content` does not count without `structuredContent` or `isError`.
pub fn is_call_tool_result(fields: &Map<String, Value>) -> bool {
    let Some(Value::Array(blocks)) = fields.get("content") else { return false };
    let says_more = || fields.contains_key("structuredContent") || fields.contains_key("isError");
    (!blocks.is_empty() || says_more())
        && blocks.iter().all(is_block)
        && fields.keys().all(|field| RESULT_FIELDS.contains(&field.as_str()))
}

fn is_block(block: &Value) -> bool {
    let kind = block.get("type").and_then(Value::as_str);
    BLOCKS.iter().any(|(known, field)| kind == Some(known) && block.get(field).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identifier;

    #[test]
    fn a_call_tool_result_is_distinguished_from_data() {
        let text = json!({"type": "text", "text": "x"});
        for (value, is_result) in [
            (json!({"content": [text]}), true),
            (json!({"content": [text], "structuredContent": {}, "isError": false, "_meta": {}}), true),
            (json!({"content": [], "structuredContent": {"a": 1}}), true),
            (json!({"content": []}), false),
            (json!({"content": [text, 1]}), false),
            (json!({"content": [{"type": "text"}]}), false),
            (json!({"content": [text], "title": "a page"}), false),
            (json!({"content": "a page"}), false),
            (json!({"isError": true}), false),
        ] {
            assert_eq!(is_call_tool_result(value.as_object().unwrap()), is_result, "{value}");
        }
    }

    #[test]
    fn the_form_depends_on_the_tool() {
        let form = |provider: &str, tool: &str| {
            ResultFormat::of(&ToolName::new(Identifier::sanitize(provider), Identifier::sanitize(tool)))
        };
        assert_eq!(form("context", "search"), ResultFormat::Unwrapped);
        assert_eq!(form("ctx", "execute"), ResultFormat::Detailed);
        assert_eq!(form("ctx", "list_functions"), ResultFormat::Wrapped);
        assert_eq!(form("tools", "execute"), ResultFormat::Wrapped);
    }
}
