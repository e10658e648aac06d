//! `sdk` and `context`: calls inside of the script's own call.

use super::{Answered, text};
use crate::engine::Refusal;
use crate::kinds::{fit_body, fit_empty};
use ctx_core::{Call, Catalog, Identifier, ToolError};
use serde_json::{Map, Value};

/// What a body is called where the tool does not say.
const BODY: &str = "body";

/// Calls a tool; the script gets its value, or its content where it has no value.
pub(super) async fn call(call: &Call, arguments: &Map<String, Value>) -> Answered {
    let asked = text(arguments, "name")?;
    let name = known_name(call.catalog(), asked);
    let body = call.catalog().entry(&name).and_then(|entry| entry.spec.body.as_ref());
    let mut given = arguments.get("arguments").cloned().unwrap_or_default();
    if let Some(beside) = arguments.get("body") {
        given = with_body(given, body.map_or(BODY, |body| &body.name), beside.clone())?;
    }
    if let Some(schema) = call.catalog().input_schema(&name) {
        fit_empty(schema, &mut given);
        if let Some(body) = body {
            fit_body(schema, body, &mut given);
        }
    }
    let nested = call.nested().map_err(refusal)?;
    let output = Catalog::call(&name, given, nested).await.map_err(refusal)?;
    Ok((output.into_data(), Vec::new()))
}

/// Arguments with the body that a script gives beside them.
fn with_body(given: Value, name: &str, body: Value) -> Result<Value, Refusal> {
    let mut fields = match given {
        Value::Null => Map::new(),
        Value::Object(fields) => fields,
        _ => return Err(refusal(ToolError::bad_request("arguments before a body must be a table"))),
    };
    if fields.insert(name.to_owned(), body).is_some() {
        return Err(refusal(ToolError::bad_request(format!("`{name}` is given twice"))));
    }
    Ok(Value::Object(fields))
}

fn refusal(error: ToolError) -> Refusal {
    let data = error.data().and_then(Value::as_object).cloned().unwrap_or_default();
    Refusal::new(error.kind().code(), error.message()).with_data(data)
}

/// The catalog's name for what a script names, who may also use the name that its origin gives it.
fn known_name(catalog: &Catalog, asked: &str) -> String {
    if catalog.entry(asked).is_some() {
        return asked.to_owned();
    }
    let Some((provider, raw)) = asked.split_once('.') else { return asked.to_owned() };
    let provider = Identifier::sanitize(provider);
    let found = catalog.entries().find(|entry| {
        *entry.name.provider() == provider && (entry.spec.name == raw || entry.name.tool().as_str() == raw)
    });
    found.map_or_else(|| asked.to_owned(), |entry| entry.name.to_string())
}
