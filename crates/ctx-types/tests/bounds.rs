//! Reading any schema ends, and the output is bounded and reports what is missing.

use crate::common::{self, assert_sound, function, function_of, tool};
use ctx_types::{Literal, MismatchKind};
use serde_json::{Map, Value, json};

/// Maximum length of any declaration.
const DECLARATION_MAX: usize = 120_000;

#[test]
fn ten_thousand_parameters_are_cut() {
    let properties: Map<String, Value> = (0..10_000)
        .map(|n| (format!("field_{n}"), json!({"type": "string", "description": "x".repeat(1_000)})))
        .collect();
    let function = function(&json!({"properties": properties, "additionalProperties": false}));
    let text = function.declaration();
    assert!(text.len() < DECLARATION_MAX, "{}", text.len());
    assert!(text.contains("more @param"), "{text}");
    assert!(function.signature().ends_with("[string]: any }?): any"));
    assert!(function.signature().len() < 3_000);
    // A field that was omitted is not reported as unknown.
    let arguments = Literal::Table { fields: vec![("field_9999".to_owned(), Literal::Nil)], whole: true };
    assert_eq!(function.check_arguments(&[arguments]), []);
}

#[test]
fn a_large_type_says_how_many_fields_it_leaves_out() {
    let properties: Map<String, Value> =
        (0..300).map(|n| (format!("f{n}"), json!({"type": "string"}))).collect();
    let schema = json!({"$ref": "#/$defs/Wide", "$defs": {"Wide": {"properties": properties}}});
    let text = function(&schema).declaration();
    assert!(text.contains("    -- 44 more fields are left out here.\n    [string]: any,\n}"), "{text}");
}

#[test]
fn a_reference_bomb_is_as_long_as_its_text() {
    let mut definitions = Map::new();
    for n in 0..60 {
        let next = json!({"$ref": format!("#/$defs/T{}", n + 1)});
        definitions.insert(format!("T{n}"), json!({"properties": {"a": next, "b": next}}));
    }
    definitions.insert("T60".to_owned(), json!({"type": "string"}));
    let function = function(&json!({"$ref": "#/$defs/T0", "$defs": definitions}));
    assert_eq!(function.types().iter().len(), 61);
    assert!(function.declaration().len() < 5_000);
}

#[test]
fn too_many_types_are_named_at_the_end() {
    let mut definitions = Map::new();
    for n in 0..1_000 {
        let body = json!({"description": "d".repeat(200), "properties": {"next": {"$ref": format!("#/$defs/T{}", n + 1)}}});
        definitions.insert(format!("T{n}"), body);
    }
    let function = function(&json!({"$ref": "#/$defs/T0", "$defs": definitions}));
    let text = function.declaration();
    assert!(text.len() < 40_000, "{}", text.len());
    assert!(text.contains("more types are left out here: T"), "{text}");
    assert!(text.contains("1 parts of its schema are too large or too deep"), "{text}");
    assert!(function.type_declaration("T255").unwrap().contains("next: any?"));
}

#[test]
fn deep_schemas_end_in_any() {
    for wrap in [
        (|inner| json!({"type": "array", "items": inner})) as fn(Value) -> Value,
        |inner| json!({"properties": {"a": inner}}),
        |inner| json!({"anyOf": [inner, {"type": "string"}]}),
        |inner| json!({"allOf": [inner]}),
        |inner| json!({"prefixItems": [inner, {"type": "null"}]}),
        |inner| json!({"additionalProperties": inner}),
    ] {
        let mut schema = json!({"type": "number"});
        for _ in 0..200 {
            schema = wrap(schema);
        }
        assert!(function(&schema).declaration().contains("too large or too deep"));
    }
}

#[test]
fn many_inline_schemas_end() {
    // Each level has two of the next: 2^20 schemas if written out.
    let mut schema = json!({"type": "string"});
    for _ in 0..14 {
        schema = json!({"properties": {"left": schema, "right": schema}});
    }
    let function = function(&schema);
    assert!(function.declaration().len() < DECLARATION_MAX);
    assert!(function.names().len() <= 1_000);
}

#[test]
fn many_alternatives_and_values_are_cut() {
    let alternatives: Vec<Value> = (0..500).map(|n| json!({"properties": {format!("a{n}"): {}}})).collect();
    let text = function(&json!({"properties": {"x": {"oneOf": alternatives}}})).declaration();
    assert!(text.contains("{ a63: any? } | any)?"), "{text}");
    let values: Vec<String> = (0..500).map(|n| format!("value {n}")).collect();
    assert_eq!(common::luau_type(&json!({"enum": values})), "string");
    assert_eq!(common::luau_type(&json!({"enum": ["x".repeat(300), "y"]})), "string");
    let tuple: Vec<Value> = (0..500).map(|_| json!({"type": "string"})).collect();
    assert_eq!(common::luau_type(&json!({"prefixItems": tuple})), "{any}");
}

#[test]
fn long_names_and_descriptions_are_cut() {
    let long = "n".repeat(100_000);
    let mut spec = tool(&json!({
        "properties": {long.clone(): {"type": "string"}, "a": {"$ref": format!("#/$defs/{long}")}},
        "required": [long.clone()],
        "$defs": {long.clone(): {"type": "string", "description": long.clone(), "default": long.clone()}},
    }));
    spec.description = format!("{long}\n").repeat(50);
    let function = function_of(&spec);
    assert_sound(&function);
    assert!(function.declaration().len() < DECLARATION_MAX, "{}", function.declaration().len());
    assert!(function.declaration().contains("-- … 10 more lines"));
}

#[test]
fn a_check_of_alternatives_in_alternatives_ends() {
    let node =
        |kind: &str| json!({"properties": {"kind": {"const": kind}, "next": {"$ref": "#/$defs/Node"}}});
    let schema = json!({
        "properties": {"node": {"$ref": "#/$defs/Node"}},
        "$defs": {"Node": {"oneOf": [node("a"), node("b"), node("c")]}},
    });
    let mut literal = Literal::Text("not a node".to_owned());
    for _ in 0..50 {
        literal = Literal::Table { fields: vec![("next".to_owned(), literal)], whole: true };
    }
    let arguments = Literal::Table { fields: vec![("node".to_owned(), literal)], whole: true };
    // The check ends; values that it does not reach pass.
    let misfits = function(&schema).check_arguments(&[arguments]);
    assert!(misfits.iter().all(|misfit| matches!(misfit.problem, MismatchKind::WrongType { .. })));
}
