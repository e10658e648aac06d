//! Converts the value of a script to the output of `execute`: plain data, or a whole `CallToolResult` of MCP.

use ctx_core::{ContentBlock, ErrorKind, LogLine, Output, ToolError, is_call_tool_result};
use serde_json::{Map, Value};

/// The output for the value of a script.
pub(crate) fn to_output(value: Value, logs: Vec<LogLine>) -> Result<Output, ToolError> {
    match value {
        Value::Object(fields) if is_call_tool_result(&fields) => tool_result(fields, logs),
        value => Ok(Output { value, logs, ..Output::default() }),
    }
}

fn tool_result(mut fields: Map<String, Value>, logs: Vec<LogLine>) -> Result<Output, ToolError> {
    let blocks = match fields.remove("content") {
        Some(Value::Array(blocks)) => blocks,
        _ => Vec::new(),
    };
    let content: Vec<ContentBlock> = blocks.into_iter().filter_map(ContentBlock::from_json).collect();
    if fields.get("isError") == Some(&Value::Bool(true)) {
        return Err(ToolError::new(ErrorKind::Tool, error_text(&content)).with_logs(logs));
    }
    let value = fields.remove("structuredContent").unwrap_or_default();
    Ok(Output { value, content, logs, ..Output::default() })
}

fn error_text(content: &[ContentBlock]) -> String {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.as_str()),
            ContentBlock::Other(fields) => fields.get("text").and_then(Value::as_str),
        })
        .collect();
    if texts.is_empty() { "the script returned an error without text".to_owned() } else { texts.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn output_of(value: Value) -> Output {
        to_output(value, Vec::new()).unwrap()
    }

    #[test]
    fn data_stays_data() {
        let values = [
            json!(null),
            json!("text"),
            json!([1, 2]),
            json!({"sum": 10}),
            json!({"content": "a page"}),
            json!({"content": []}),
            json!({"content": [{"type": "paragraph", "text": "x"}]}),
            json!({"content": [{"type": "text"}]}),
            json!({"content": [{"type": "text", "text": "x"}, 1]}),
            json!({"title": "a page", "content": [{"type": "text", "text": "x"}]}),
            json!({"isError": true}),
        ];
        for value in values {
            assert_eq!(output_of(value.clone()), Output::from(value));
        }
    }

    #[test]
    fn a_tool_result_passes_as_it_is() {
        let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        let weighed = json!({"type": "text", "text": "b", "annotations": {"priority": 1}});
        let output = output_of(json!({
            "content": [{"type": "text", "text": "a"}, image, weighed],
            "structuredContent": {"sum": 10},
            "isError": false,
        }));
        assert_eq!(output.value, json!({"sum": 10}));
        let other = |value: &Value| ContentBlock::Other(value.as_object().unwrap().clone());
        assert_eq!(output.content, [ContentBlock::Text("a".to_owned()), other(&image), other(&weighed)]);
    }

    #[test]
    fn a_tool_result_that_is_an_error_fails_with_its_texts() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let failed = |content: Value| {
            to_output(json!({"content": content, "isError": true}), Vec::new())
                .unwrap_err()
                .message()
                .to_owned()
        };
        assert_eq!(failed(json!([text("no"), text("luck")])), "no\nluck");
        let link = json!({"type": "resource_link", "uri": "file:///x", "name": "x"});
        assert_eq!(failed(json!([link])), "the script returned an error without text");
    }
}
