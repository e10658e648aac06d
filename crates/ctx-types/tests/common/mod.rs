//! What these tests share: a tool made of a schema, and a parser for what is printed.

#![allow(dead_code, reason = "each test crate uses its own part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails the test it helps")]

use ctx_core::{Identifier, ToolName, ToolSpec};
use ctx_types::Function;
use serde_json::{Value, json};

/// A tool that takes this.
pub(crate) fn tool(input: &Value) -> ToolSpec {
    ToolSpec::new("run", "", input.clone())
}

pub(crate) fn function_of(spec: &ToolSpec) -> Function {
    let name = ToolName::new(Identifier::sanitize("tests"), Identifier::sanitize(&spec.name));
    Function::of(&name, spec)
}

/// The function that takes this; what it prints is Luau.
pub(crate) fn function(input: &Value) -> Function {
    let function = function_of(&tool(input));
    parses(&function.declaration());
    function
}

/// What a value of this schema is in Luau.
pub(crate) fn takes(schema: &Value) -> String {
    let mut spec = tool(&json!({"type": "object"}));
    spec.output_schema = Some(schema.clone());
    let function = function_of(&spec);
    parses(&function.declaration());
    let signature = function.signature();
    signature.strip_prefix("run(): ").map(str::to_owned).unwrap()
}

/// Fails unless this is Luau, in which each type is declared once and every name is a type.
#[track_caller]
pub(crate) fn parses(text: &str) {
    if let Err(errors) = full_moon::parse(text) {
        panic!("not Luau: {errors:?}\n{text}");
    }
}
