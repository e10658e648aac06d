//! The tool `get_function_docs`: signatures, parameters and types of functions.

use super::text::{hint, truncate};
use super::{refreshed_catalog, require_known_provider, spec};
use async_trait::async_trait;
use ctx_core::{Call, Catalog, CatalogEntry, Identifier, Output, Tool, ToolError, ToolSpec, nearest};
use ctx_types::Function;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Maximum number of functions in one answer.
const NAMES_MAX: usize = 20;

/// Maximum length of an answer; the first function is shown whatever its length.
const ANSWER_CHARS_MAX: usize = 40_000;

/// Maximum number of functions of the same name that a message lists.
const SAME_NAME_MAX: usize = 5;

/// The tool `get_function_docs`.
pub(crate) struct GetFunctionDocsTool {
    spec: Arc<ToolSpec>,
}

impl GetFunctionDocsTool {
    pub(crate) fn new() -> Self {
        let input_schema = json!({
            "type": "object",
            "properties": {"name": {
                "description": "`provider.name`, or several; `provider.name.Type` is one type.",
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": NAMES_MAX},
                ],
            }},
            "required": ["name"],
            "additionalProperties": false,
        });
        let description = "Shows how functions are called: Luau signature, parameters, all types. \
            Read it before you call an unknown function.";
        Self { spec: spec("get_function_docs", "Read about functions", description, input_schema) }
    }
}

#[async_trait]
impl Tool for GetFunctionDocsTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError> {
        let names: Vec<&str> = match arguments.get("name") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            name => name.and_then(Value::as_str).into_iter().collect(),
        };
        let providers: Vec<Identifier> = names.iter().filter_map(|name| provider(name)).collect();
        let catalog = match providers.is_empty() {
            true => call.catalog().clone(),
            false => refreshed_catalog(call, &providers).await,
        };
        let results: Vec<Result<String, ToolError>> = names.iter().map(|name| docs(&catalog, name)).collect();
        if results.iter().any(Result::is_ok) {
            return Ok(Value::String(join_docs(&names, results)).into());
        }
        let messages: Vec<&str> =
            results.iter().filter_map(|result| result.as_ref().err()).map(ToolError::message).collect();
        Err(ToolError::not_found(messages.join("; ")))
    }
}

/// Joins as many descriptions as fit; an error stands in the place of its function.
fn join_docs(names: &[&str], results: Vec<Result<String, ToolError>>) -> String {
    let mut text = String::new();
    let mut chars = 0;
    let mut omitted = Vec::new();
    for (name, result) in names.iter().zip(results) {
        let docs = result.unwrap_or_else(|error| format!("-- {}\n", error.message()));
        chars += docs.chars().count();
        if chars > ANSWER_CHARS_MAX && !text.is_empty() {
            omitted.push(truncate(name));
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&docs);
    }
    if !omitted.is_empty() {
        text.push_str(&format!(
            "\n-- Too long for one response, request separately: {}\n",
            omitted.join(", ")
        ));
    }
    text
}

/// A requested name without the prefix `sdk.`.
fn full_name(requested: &str) -> &str {
    let requested = requested.trim();
    requested.strip_prefix("sdk.").unwrap_or(requested)
}

/// The provider in a requested name.
fn provider(requested: &str) -> Option<Identifier> {
    full_name(requested).split_once('.').map(|(provider, _)| Identifier::sanitize(provider))
}

/// The documentation of one function, or of one of its types.
pub(super) fn docs(catalog: &Catalog, requested: &str) -> Result<String, ToolError> {
    let name = full_name(requested);
    if let Some(entry) = find_function(catalog, name) {
        return Ok(function_docs(catalog, entry));
    }
    let (function, type_name) = name.rsplit_once('.').unwrap_or((name, ""));
    if let Some(entry) = find_function(catalog, function).filter(|_| !type_name.is_empty()) {
        return type_docs(&Function::of(&entry.name, &entry.spec), type_name);
    }
    if let Some((provider, _)) = name.split_once('.') {
        require_known_provider(catalog, provider)?;
    }
    let same_name: Vec<&CatalogEntry> =
        catalog.functions().filter(|entry| entry.name.tool().as_str() == name).take(SAME_NAME_MAX).collect();
    match same_name.as_slice() {
        [] => Err(unknown_function(catalog, name)),
        [entry] => Ok(function_docs(catalog, entry)),
        several => {
            let names: Vec<String> = several.iter().map(|entry| format!("`sdk.{}`", entry.name)).collect();
            let message = format!("several functions are called {name}: {}", names.join(", "));
            Err(ToolError::not_found(message))
        }
    }
}

/// A function by its full name, or by the name under which clients see it.
fn find_function<'a>(catalog: &'a Catalog, name: &str) -> Option<&'a CatalogEntry> {
    let entry = catalog.entry(name)?;
    catalog.functions().find(|function| function.name == entry.name)
}

fn function_docs(catalog: &Catalog, entry: &CatalogEntry) -> String {
    let function = &Function::of(&entry.name, &entry.spec);
    let mut text = function.declaration();
    let is_left_out = |name: &str| !text.contains(&format!("export type {name} = "));
    if let Some(missing) =
        function.types().iter().map(|named| named.name.as_str()).find(|name| is_left_out(name))
    {
        text.push_str(&format!("-- The name `sdk.{}.{missing}` shows one of them.\n", function.name()));
    }
    if catalog.returns_json_text(&entry.name) {
        text.push_str("-- It has returned JSON text: json.decode(text) parses it.\n");
    }
    text
}

fn type_docs(function: &Function, name: &str) -> Result<String, ToolError> {
    function.type_declaration(name).ok_or_else(|| {
        let similar = nearest(name, function.types().iter().map(|named| named.name.as_str()));
        ToolError::not_found(format!(
            "sdk.{} has no type {}{}",
            function.name(),
            truncate(name),
            hint(similar)
        ))
    })
}

fn unknown_function(catalog: &Catalog, name: &str) -> ToolError {
    if catalog.functions().any(|entry| entry.name.provider().as_str() == name) {
        let message = format!("{name} is a provider; `list_functions` with it lists its functions");
        return ToolError::not_found(message);
    }
    let name = truncate(name);
    let full: Vec<String> = catalog.functions().map(|entry| entry.name.to_string()).collect();
    let similar = nearest(&name, full.iter().map(String::as_str)).or_else(|| {
        let similar = nearest(&name, catalog.functions().map(|entry| entry.name.tool().as_str()))?;
        full.iter().map(String::as_str).find(|full| full.ends_with(&format!(".{similar}")))
    });
    if let Some(reason) = catalog.unusable_reason_of(&name) {
        return ToolError::not_found(format!("no function is called {name} ({reason})"));
    }
    let advice = match similar {
        Some(similar) => hint(Some(&format!("sdk.{similar}"))),
        None => "; `search_docs` finds functions".to_owned(),
    };
    ToolError::not_found(format!("no function is called {name}{advice}"))
}
