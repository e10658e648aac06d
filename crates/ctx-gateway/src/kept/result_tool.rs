//! The tool `ctx.result`, for scripts: a part of a kept result. Clients do not see it in their list; they
//! read the whole result by its URI.

use super::BoundedStore;
use super::path::ValuePath;
use async_trait::async_trait;
use ctx_core::{Annotations, Call, Output, Tool, ToolError, ToolSpec};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::time::Instant;

/// The tool `ctx.result`.
pub(super) struct ResultTool {
    store: Arc<BoundedStore<Arc<str>>>,
    spec: Arc<ToolSpec>,
}

impl ResultTool {
    pub(super) fn new(store: Arc<BoundedStore<Arc<str>>>) -> Self {
        let input_schema = json!({
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": "The id of the result, from the response."},
                "path": {"type": "string", "description": "Path of the part: `issues[1].title`, `[\"a b\"].c`."},
                "from": {"type": "integer", "minimum": 1, "description": "First item, key or character, from 1."},
                "count": {"type": "integer", "minimum": 1, "description": "Number of items, keys or characters."},
            },
            "required": ["id"],
            "additionalProperties": false,
        });
        let description = "Returns a result that was too large for a response, or a part of it.";
        let spec = ToolSpec {
            title: Some("Read a kept result".to_owned()),
            annotations: Annotations::READ_ONLY,
            ..ToolSpec::new("result", description, input_schema)
        };
        Self { store, spec: Arc::new(spec) }
    }
}

#[async_trait]
impl Tool for ResultTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| arguments.get(name).and_then(Value::as_f64).map(|number| number as usize);
        let json = self.store.get(text("id"), call.identity(), Instant::now())?;
        let path = ValuePath::parse(text("path"))?;
        let range = PartRange { from: number("from"), count: number("count") };
        let reading = tokio::task::spawn_blocking(move || {
            let value: Value = serde_json::from_str(&json)
                .map_err(|error| ToolError::internal("the kept result cannot be read", error))?;
            range.slice(path.find(&value)?)
        });
        let part =
            reading.await.map_err(|error| ToolError::internal("the kept result cannot be read", error))?;
        Ok(part?.into())
    }
}

/// A range of the items of a list, the keys of an object or the characters of a string; all without `from`
/// and `count`.
struct PartRange {
    from: Option<usize>,
    count: Option<usize>,
}

impl PartRange {
    fn slice(&self, value: &Value) -> Result<Value, ToolError> {
        if self.from.is_none() && self.count.is_none() {
            return Ok(value.clone());
        }
        let (skip, take) = (self.from.unwrap_or(1).saturating_sub(1), self.count.unwrap_or(usize::MAX));
        match value {
            Value::Array(items) => Ok(items.iter().skip(skip).take(take).cloned().collect()),
            Value::String(text) => Ok(Value::String(text.chars().skip(skip).take(take).collect())),
            Value::Object(fields) => {
                let fields = fields.iter().skip(skip).take(take);
                Ok(Value::Object(fields.map(|(key, value)| (key.clone(), value.clone())).collect()))
            }
            other => {
                let message = format!(
                    "`from` and `count` are for lists, tables and strings; this is a {}",
                    super::json_type(other)
                );
                Err(ToolError::bad_request(message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(value: &Value, from: impl Into<Option<usize>>, count: impl Into<Option<usize>>) -> Value {
        PartRange { from: from.into(), count: count.into() }.slice(value).unwrap()
    }

    #[test]
    fn a_range_is_of_items_keys_or_characters() {
        let list = json!([1, 2, 3, 4]);
        assert_eq!(range(&list, 2, 2), json!([2, 3]));
        assert_eq!(range(&list, 4, 9), json!([4]));
        assert_eq!(range(&list, 5, 1), json!([]));
        assert_eq!(range(&list, None, 1), json!([1]));
        assert_eq!(range(&list, 3, None), json!([3, 4]));
        assert_eq!(range(&list, None, None), list);
        assert_eq!(range(&json!("größe"), 3, 2), json!("öß"));
        assert_eq!(range(&json!({"z": 1, "a": 2, "m": 3}), 2, 1), json!({"a": 2}));
        let error = PartRange { from: Some(1), count: None }.slice(&json!(7)).unwrap_err();
        assert_eq!(error.message(), "`from` and `count` are for lists, tables and strings; this is a number");
    }
}
