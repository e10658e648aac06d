//! Declarations and their schemas.

use super::*;
use proptest::prelude::*;

fn schema(parameters: Value) -> Result<Value, String> {
    input_schema(&Map::from_iter([("parameters".to_owned(), parameters)]))
}

fn error_of(parameters: Value) -> String {
    schema(parameters).unwrap_err()
}

#[test]
fn the_documented_declarations_become_the_documented_schema() {
    let declared = json!([
        {"name": "title", "type": "string", "required": true, "description": "Ticket title"},
        {"name": "project", "type": "string", "required": false, "description": "Key", "default": "ENG"},
        {"name": "priority", "type": "string", "enum": ["low", "high"]},
    ]);
    let expected = json!({
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "Ticket title"},
            "project": {"type": "string", "description": "Key", "default": "ENG"},
            "priority": {"type": "string", "enum": ["low", "high"]},
        },
        "required": ["title"],
        "additionalProperties": false,
    });
    assert_eq!(schema(declared).unwrap(), expected);
}

#[test]
fn a_tool_without_parameters_accepts_any_argument_and_one_with_an_empty_list_none() {
    let mut none = json!({"type": "object", "properties": {}, "required": []});
    assert_eq!(input_schema(&Map::new()).unwrap(), none);
    assert_eq!(schema(Value::Null).unwrap(), none);
    none["additionalProperties"] = json!(false);
    assert_eq!(schema(json!({})).unwrap(), none);
    assert_eq!(schema(json!([])).unwrap(), none);
}

#[test]
fn objects_with_properties_are_closed_unless_they_say_otherwise() {
    let closed = |schema: Value, pointer: &str| {
        let schema_result = input_schema(&Map::from_iter([("schema".to_owned(), schema)])).unwrap();
        schema_result.pointer(pointer).unwrap().get("additionalProperties").cloned()
    };
    let of = |properties: Value| json!({"type": "object", "properties": properties});
    let inner = of(json!({"b": {"type": "string"}}));
    let refused = Some(json!(false));
    assert_eq!(closed(of(json!({"a": inner})), ""), refused);
    assert_eq!(closed(of(json!({"a": inner})), "/properties/a"), refused);
    assert_eq!(closed(of(json!({"a": {"type": "array", "items": inner}})), "/properties/a/items"), refused);
    assert_eq!(closed(of(json!({"a": {"type": "object"}})), "/properties/a"), None);
    assert_eq!(closed(of(json!({"a": of(json!({}))})), "/properties/a"), None);
    assert_eq!(closed(json!({"type": "object"}), ""), None);
    for (name, value) in [
        ("additionalProperties", json!(true)),
        ("allOf", json!([{"properties": {"c": {}}}])),
        ("anyOf", json!([{"required": ["b"]}])),
        ("required", json!(["c"])),
    ] {
        let mut open = inner.clone();
        open[name] = value;
        assert_ne!(closed(of(json!({"a": open})), "/properties/a"), refused, "{name}");
        assert_ne!(closed(open, ""), refused, "{name}");
    }
    // Subschemas in `allOf` and `$defs` are not closed.
    let parts = json!({"type": "object", "allOf": [inner], "$defs": {"d": inner}});
    assert_eq!(closed(parts.clone(), "/allOf/0"), None);
    assert_eq!(closed(parts, "/$defs/d"), None);
}

#[test]
fn items_properties_and_bounds_are_kept() {
    let declared = json!([
        {"name": "tags", "type": "array", "items": "string", "default": {}},
        {"name": "count", "type": "integer", "minimum": 1, "maximum": 5},
        {"name": "code", "type": "string", "pattern": "^[A-Z]+$"},
        {"name": "where", "properties": [
            {"name": "lat", "type": "number", "required": true},
            {"name": "lon", "type": "number"},
        ]},
        {"name": "options", "type": "object", "properties": {"dry": "boolean"}},
        {"name": "whole", "schema": {"type": "array", "items": {"enum": [1, 2]}}},
    ]);
    let properties = schema(declared).unwrap()["properties"].clone();
    assert_eq!(properties["tags"], json!({"type": "array", "default": [], "items": {"type": "string"}}));
    assert_eq!(properties["count"], json!({"type": "integer", "minimum": 1, "maximum": 5}));
    assert_eq!(properties["code"]["pattern"], "^[A-Z]+$");
    assert_eq!(
        properties["where"],
        json!({
            "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
            "required": ["lat"], "type": "object", "additionalProperties": false,
        })
    );
    assert_eq!(properties["options"]["properties"]["dry"], json!({"type": "boolean"}));
    assert_eq!(properties["whole"], json!({"type": "array", "items": {"enum": [1, 2]}}));
}

#[test]
fn a_whole_schema_is_kept_and_closed() {
    let whole = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": {}});
    let expected = json!({
        "type": "object", "properties": {"a": {"type": "string"}}, "required": [], "additionalProperties": false,
    });
    assert_eq!(schema(whole.clone()).unwrap(), expected);
    assert_eq!(input_schema(&Map::from_iter([("schema".to_owned(), whole)])).unwrap(), expected);
}

#[test]
fn invalid_declarations_are_reported_with_their_path() {
    for (declared, part) in [
        (json!("x"), "tool.parameters must be a list of tables, it is a string"),
        (json!([1]), "tool.parameters[1] must be a table, it is a number"),
        (json!([{"type": "string"}]), "tool.parameters[1]: `name` is missing"),
        (json!([{"name": "a"}]), "tool.parameters[1] (`a`): `type` is missing"),
        (json!([{"name": "a", "type": "int"}]), "there is no type `int` (did you mean `integer`?)"),
        (json!([{"name": "a", "type": "string", "requird": true}]), "did you mean `required`?"),
        (json!([{"name": "a", "type": "string", "required": "yes"}]), "`required` must be true or false"),
        (json!([{"name": "a", "type": "string", "enum": {}}]), "`enum` must be a list of values"),
        (json!([{"name": "a", "type": "integer", "default": "x"}]), "(`a`): the default is invalid"),
        (json!([{"name": "a", "type": "integer", "minimum": "x"}]), "`minimum` must be a number"),
        (json!([{"name": "a", "type": "string", "pattern": "("}]), "is not a valid schema"),
        (
            json!([{"name": "a", "type": "string"}, {"name": "a", "type": "string"}]),
            "tool.parameters[2] (`a`): there are two parameters `a`",
        ),
    ] {
        let message = error_of(declared.clone());
        assert!(message.contains(part), "{declared}: {message}");
    }
}

fn declaration() -> impl Strategy<Value = Value> {
    let kinds = prop::sample::select(&TYPES[..6]);
    ("[a-z_]{1,8}", kinds, any::<bool>(), prop::option::of(".{0,20}")).prop_map(
        |(name, kind, required, description)| {
            let mut declared = json!({"name": name, "type": kind, "required": required});
            if let Some(description) = description {
                declared["description"] = json!(description);
            }
            declared
        },
    )
}

proptest! {
    #[test]
    fn every_declaration_is_a_property_and_the_schema_accepts_matching_arguments(
        declared in prop::collection::vec(declaration(), 0..8)
    ) {
        let mut names: Vec<_> = declared.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect();
        let declared_count = names.len();
        names.sort();
        names.dedup();
        let schema_result = schema(json!(declared));
        prop_assert_eq!(schema_result.is_ok(), names.len() == declared_count);
        let Ok(schema_result) = schema_result else { return Ok(()) };
        let mut arguments = Map::new();
        for one in &declared {
            let name = one["name"].as_str().unwrap();
            prop_assert_eq!(&schema_result["properties"][name]["type"], &one["type"]);
            let is_required = schema_result["required"].as_array().unwrap().contains(&json!(name));
            prop_assert_eq!(is_required, one["required"] == true);
            let fit = match one["type"].as_str().unwrap() {
                "string" => json!("x"),
                "boolean" => json!(true),
                "array" => json!([]),
                "object" => json!({}),
                _ => json!(1),
            };
            arguments.insert(name.to_owned(), fit);
        }
        let compiled = ArgumentSchema::compile(schema_result).unwrap();
        prop_assert!(compiled.prepare(Value::Object(arguments)).is_ok());
    }

    #[test]
    fn no_declaration_makes_it_panic(text in "[\\[\\]{}\",:a-z0-9]{0,40}") {
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let _ = schema(value);
        }
    }
}
