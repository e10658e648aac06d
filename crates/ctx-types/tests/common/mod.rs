//! Shared test helpers: a tool with a given schema, and a parser for the output.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails the test it helps")]

use ctx_core::{Identifier, ToolName, ToolSpec};
use ctx_types::{AdditionalFields, Function, Literal, Type};
use serde_json::{Value, json};

/// A tool with this input schema.
pub(crate) fn tool(input: &Value) -> ToolSpec {
    ToolSpec::new("run", "", input.clone())
}

pub(crate) fn function_of(spec: &ToolSpec) -> Function {
    let name = ToolName::new(Identifier::sanitize("tests"), Identifier::sanitize(&spec.name));
    Function::of(&name, spec)
}

/// The function with this input schema; its output is checked to be valid Luau.
pub(crate) fn function(input: &Value) -> Function {
    let function = function_of(&tool(input));
    assert_sound(&function);
    function
}

/// The Luau type of a value of this schema.
pub(crate) fn luau_type(schema: &Value) -> String {
    let mut spec = tool(&json!({"type": "object"}));
    spec.output_schema = Some(schema.clone().into());
    let function = function_of(&spec);
    assert_sound(&function);
    let signature = function.signature();
    signature.strip_prefix("run(): ").map(str::to_owned).unwrap()
}

/// A value as a script would write it; null becomes a value that is known only at run time.
pub(crate) fn literal(value: &Value) -> Literal {
    match value {
        Value::Null => Literal::Unknown,
        Value::Bool(flag) => Literal::Boolean(*flag),
        Value::Number(number) => Literal::Number(number.as_f64().unwrap()),
        Value::String(text) => Literal::Text(text.clone()),
        Value::Array(items) => Literal::List(items.iter().map(literal).collect()),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), literal(value))).collect();
            Literal::Table { fields, whole: true }
        }
    }
}

/// Fails unless the text is valid Luau.
#[track_caller]
pub(crate) fn assert_parses(text: &str) {
    if let Err(errors) = full_moon::parse(text) {
        panic!("not Luau: {errors:?}\n{text}");
    }
}

/// Fails unless the output for a function is valid Luau, each type is declared once, and each name is a type.
#[track_caller]
pub(crate) fn assert_sound(function: &Function) {
    let text = function.declaration();
    assert_parses(&text);
    assert_parses(&format!("function {} end", function.signature()));
    let declared = text.lines().filter_map(|line| line.strip_prefix("export type "));
    let names: Vec<&str> = declared.filter_map(|line| line.split(' ').next()).collect();
    let distinct: std::collections::HashSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), distinct.len(), "a type is declared twice\n{text}");
    let mut mentioned = Vec::new();
    function.arguments().iter().for_each(|argument| mention(&argument.luau_type, &mut mentioned));
    mention(function.result(), &mut mentioned);
    for named in function.types().iter() {
        assert!(named.name.parse::<Identifier>().is_ok(), "`{}` is no identifier", named.name);
        assert_parses(&function.type_declaration(&named.name).unwrap());
        mention(&named.luau_type, &mut mentioned);
    }
    for name in mentioned {
        assert!(function.types().get(name).is_some(), "`{name}` is no type\n{text}");
    }
}

fn mention<'a>(of: &'a Type, names: &mut Vec<&'a str>) {
    match of {
        Type::Named(name) => names.push(name),
        Type::List(inner) | Type::Optional(inner) => mention(inner, names),
        Type::Tuple(parts, rest) => {
            parts.iter().for_each(|part| mention(part, names));
            mention(rest, names);
        }
        Type::Union(parts) | Type::Intersection(parts) => parts.iter().for_each(|part| mention(part, names)),
        Type::Table(table) => {
            table.fields.iter().for_each(|field| mention(&field.luau_type, names));
            if let AdditionalFields::Of(rest) = &table.rest {
                mention(rest, names);
            }
        }
        _ => {}
    }
}
