//! `context.elicit`, `context.sample` and `context.roots`: requests to the client that made the script's
//! call.

use super::{BAD_REQUEST, HostResult, text};
use crate::engine::HostError;
use ctx_core::{Call, Question, QuestionKind};
use serde_json::{Map, Value, json};

/// The field that wraps an answer whose schema is not an object: an elicitation can only return an object.
const WRAPPER_FIELD: &str = "value";

/// Sends the request to the client. `call` returns the script's call, or an error that names the function.
pub(super) async fn send<'a>(
    call: impl FnOnce(&str) -> Result<&'a Call, HostError>,
    arguments: &Map<String, Value>,
) -> HostResult {
    let mut is_wrapped = false;
    let (name, want) = match text(arguments, "want")? {
        "person" => {
            let (schema, wrapped) = object_schema(arguments.get("schema"));
            is_wrapped = wrapped;
            (
                "context.elicit",
                QuestionKind::Elicitation { message: text(arguments, "message")?.to_owned(), schema },
            )
        }
        "model" => match arguments.get("request") {
            Some(Value::Object(request)) => ("context.sample", QuestionKind::Sampling(request.clone())),
            _ => return Err(HostError::new(BAD_REQUEST, "context.sample: the request must be a table")),
        },
        "roots" => ("context.roots", QuestionKind::Roots),
        other => {
            return Err(HostError::new(
                BAD_REQUEST,
                format!("unknown kind of request to the client: `{other}`"),
            ));
        }
    };
    let key = match arguments.get("key") {
        None | Some(Value::Null) => None,
        Some(Value::String(key)) => Some(key.clone()),
        Some(_) => return Err(HostError::new(BAD_REQUEST, format!("{name}: `key` must be a string"))),
    };
    match call(name)?.ask(Question { key, kind: want }).await {
        Ok(Value::Object(mut fields)) if is_wrapped => {
            Ok((fields.remove(WRAPPER_FIELD).unwrap_or_default(), Vec::new()))
        }
        Ok(answer) => Ok((answer, Vec::new())),
        Err(why) => Err(HostError::new(why.code(), format!("{name}: {why}"))),
    }
}

/// The schema as one of an object, which elicitation requires, and whether it was wrapped for that.
fn object_schema(schema: Option<&Value>) -> (Value, bool) {
    let Some(Value::Object(schema)) = schema else {
        return (json!({ "type": "object", "properties": {} }), false);
    };
    let mut schema = schema.clone();
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return (
            json!({ "type": "object", "properties": { WRAPPER_FIELD: schema }, "required": [WRAPPER_FIELD] }),
            true,
        );
    }
    // An empty Lua list arrives as an object.
    if schema.get("required").and_then(Value::as_object).is_some_and(Map::is_empty) {
        schema.insert("required".to_owned(), json!([]));
    }
    schema.entry("type").or_insert_with(|| json!("object"));
    schema.entry("properties").or_insert_with(|| json!({}));
    (Value::Object(schema), false)
}
