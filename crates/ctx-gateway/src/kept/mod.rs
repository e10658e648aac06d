//! Kept results: results that are too large for an answer are kept in memory for a while, and read in parts.
//!
//! The answer shows the shape and the beginning of such a result. A later script reads parts of it by
//! `sdk.ctx.result{…}`; the resource `ctx://result/{id}` is the whole. Files that functions return are kept
//! the same way.

mod file;
mod path;
mod resource;
mod result_tool;
mod shape;
mod store;

use ctx_core::{
    BuiltinProvider, Call, Caller, ContentBlock, Identifier, Output, Provider, Resources, Tool, ToolError,
    json_size,
};
pub(crate) use file::KeptFiles;
use path::{PathStep, ValuePath, luau_literal};
use resource::ResultResources;
use result_tool::ResultTool;
use serde_json::{Map, Value, json};
use shape::shape;
use std::sync::Arc;
use store::BoundedStore;
use tokio::time::Instant;

/// URI prefix of kept results.
const URI_PREFIX: &str = "ctx://result/";

/// Maximum size of the preview that stands for a result.
const PREVIEW_BYTES: usize = 1_000;

/// Maximum length of the path in the example, in steps.
const EXAMPLE_STEPS_MAX: usize = 4;

/// Number of items in the example.
const EXAMPLE_COUNT: usize = 20;

/// The kept results, and the provider that reads them. Its tool is visible to scripts only, since every tool
/// costs clients tokens.
#[derive(Clone, Default)]
pub(crate) struct KeptResults {
    store: Arc<BoundedStore<Arc<str>>>,
}

impl KeptResults {
    /// Replaces an output that is too large for its caller by a summary, and keeps the whole. Calls of
    /// scripts and people at a terminal get any output whole.
    pub(crate) fn shorten(&self, output: Output, call: &Call) -> Result<Output, ToolError> {
        let bytes_max = call.catalog().limits().answer_bytes;
        if call.depth() > 0 || *call.caller() == Caller::Cli || output_size(&output) <= bytes_max {
            return Ok(output);
        }
        let Output { value, content, logs, .. } = output;
        let value = if content.is_empty() { value } else { tool_result(value, content)? };
        let json: Arc<str> = serde_json::to_string(&value).map_err(serialization_error)?.into();
        let id = self.store.put(json.clone(), call.identity(), Instant::now()).to_string();
        let uri = format!("{URI_PREFIX}{id}");
        let shape = shape(&value);
        let end = json.floor_char_boundary(PREVIEW_BYTES);
        let preview = if end < json.len() { format!("{}…", &json[..end]) } else { json.to_string() };
        let text = format!(
            "The result is {} bytes; the limit is {bytes_max} (limits.answer_bytes). It is kept for a while as \
             {uri}\n\nshape: {shape}\n\npreview: {preview}\n\n{}",
            json.len(),
            reading_instructions(&id, &value)
        );
        let summary = json!({"id": id, "uri": uri, "bytes": json.len(), "shape": shape, "preview": preview});
        let content = vec![ContentBlock::Text(text)];
        Ok(Output { value: json!({ "kept": summary }), content, logs, ..Output::default() })
    }
}

impl Provider for KeptResults {
    fn name(&self) -> Identifier {
        BuiltinProvider::Ctx.identifier()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![Arc::new(ResultTool::new(self.store.clone()))]
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        Some(Arc::new(ResultResources(self.store.clone())))
    }

    fn builtin(&self) -> bool {
        true
    }

    fn exposed(&self) -> bool {
        false
    }
}

/// The size of an output as text; images and audio do not count.
fn output_size(output: &Output) -> usize {
    let block = |block: &ContentBlock| match block {
        ContentBlock::Text(text) => text.len(),
        ContentBlock::Other(fields) => match fields.get("type").and_then(Value::as_str) {
            Some("image" | "audio") => 0,
            _ => json_size(fields),
        },
    };
    json_size(&output.value) + output.content.iter().map(block).sum::<usize>()
}

/// A value with content blocks as the whole `CallToolResult`.
fn tool_result(value: Value, content: Vec<ContentBlock>) -> Result<Value, ToolError> {
    let mut fields = Map::new();
    fields.insert("content".to_owned(), serde_json::to_value(content).map_err(serialization_error)?);
    if !value.is_null() {
        fields.insert("structuredContent".to_owned(), value);
    }
    Ok(Value::Object(fields))
}

fn serialization_error(error: serde_json::Error) -> ToolError {
    ToolError::internal("the result cannot be kept", error)
}

/// The instructions for reading parts of a result, with its largest part as the example.
fn reading_instructions(id: &str, value: &Value) -> String {
    let mut path = ValuePath::default();
    let mut part = value;
    for _ in 0..EXAMPLE_STEPS_MAX {
        let Value::Object(fields) = part else { break };
        let Some((key, largest)) = fields.iter().max_by_key(|(_, value)| json_size(value)) else { break };
        path = path.with(PathStep::Key(key.clone()));
        part = largest;
    }
    let call = |path: &ValuePath, range: &str| {
        let path = match path.to_string() {
            path if path.is_empty() => path,
            path => format!(", path = {}", luau_literal(&path)),
        };
        format!("`sdk.ctx.result{{ id = {}{path}{range} }}`", luau_literal(id))
    };
    let pages = call(&path, &format!(", from = 1, count = {EXAMPLE_COUNT}"));
    let whole_call = match part {
        Value::Array(_) => call(&path.with(PathStep::Index(1)), ""),
        _ => call(&path, ""),
    };
    format!(
        "A script sent to `execute` can read any part of it: {whole_call}; or a range of a list or a string: {pages}."
    )
}

/// The JSON type of a value.
fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}
