//! `sdk` and `context`: calls inside of the script's own call.

use super::{Answered, text};
use crate::engine::Refusal;
use crate::kinds::fit_empty;
use ctx_core::{Call, Catalog, Identifier, ToolError};
use serde_json::{Map, Value};

/// Calls a tool; the script gets its value, or its content where it has no value.
pub(super) async fn call(call: &Call, arguments: &Map<String, Value>) -> Answered {
    let asked = text(arguments, "name")?;
    let mut given = arguments.get("arguments").cloned().unwrap_or_default();
    let name = known_name(call.catalog(), asked);
    if let Some(schema) = call.catalog().input_schema(&name) {
        fit_empty(schema, &mut given);
    }
    let nested = call.nested().map_err(refusal)?;
    let output = Catalog::call(&name, given, nested).await.map_err(refusal)?;
    Ok((output.into_data(), Vec::new()))
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
