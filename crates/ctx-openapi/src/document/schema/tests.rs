//! Conversion of schemas, one keyword at a time.

use super::super::documents::{RootLocation, SingleDocument};
use super::*;
use ctx_core::ArgumentSchema;
use proptest::prelude::*;
use serde_json::json;

fn convert(schema: Value, named: Value) -> (Value, BTreeMap<String, Value>) {
    convert_in(&json!({"openapi": "3.0.0", "components": {"schemas": named}, "schema": schema}))
}

fn convert_in(document: &Value) -> (Value, BTreeMap<String, Value>) {
    let location = RootLocation::Directory("a.json".to_owned());
    let documents = Documents::gather(&document.to_string(), location, &SingleDocument).unwrap();
    let mut schemas = SchemaConverter::new(&documents);
    let node = DocumentNode { document: 0, value: documents.root() };
    let schema = schemas.convert(node.get("schema").unwrap(), None, false);
    (schema, schemas.into_definitions())
}

fn convert_single(schema: Value) -> Value {
    convert(schema, json!({})).0
}

#[test]
fn older_keywords_are_converted() {
    for (old, new) in [
        (json!({"type": "string", "nullable": true}), json!({"type": ["string", "null"]})),
        (
            json!({"type": "string", "nullable": true, "enum": ["a"]}),
            json!({"type": ["string", "null"], "enum": ["a", null]}),
        ),
        (json!({"minimum": 1, "exclusiveMinimum": true}), json!({"exclusiveMinimum": 1})),
        (json!({"maximum": 1, "exclusiveMaximum": false}), json!({"maximum": 1})),
        (json!({"exclusiveMaximum": 4}), json!({"exclusiveMaximum": 4})),
        (json!({"type": ["integer", "null"]}), json!({"type": ["integer", "null"]})),
        (json!({"type": "file"}), json!({"type": "string", "format": "binary"})),
        (json!({"type": "any"}), json!({})),
        (json!({"items": [{"type": "string"}, {}]}), json!({"prefixItems": [{"type": "string"}, {}]})),
        (json!({"type": "string", "enum": [1, true]}), json!({"type": "string", "enum": ["1", "true"]})),
        (json!({"type": "integer", "enum": ["1"]}), json!({"type": "integer", "enum": [1]})),
        (
            json!({"discriminator": {"propertyName": "k", "mapping": {"a": "#/components/schemas/A"}}}),
            json!({"discriminator": {"propertyName": "k"}}),
        ),
        (
            json!({"required": true, "enum": [], "allOf": [], "minLength": -1, "pattern": 3, "properties": 1,
                "example": {}, "xml": {}, "x-y": 1, "$id": "x", "type": 7, "multipleOf": 0}),
            json!({"properties": {}}),
        ),
        (
            json!({"anyOf": [{}], "additionalProperties": false}),
            json!({"anyOf": [{}], "unevaluatedProperties": false}),
        ),
        (json!({"required": ["a", "a", 1]}), json!({"required": ["a"]})),
    ] {
        assert_eq!(convert_single(old.clone()), new, "{old}");
    }
}

#[test]
fn an_invalid_pattern_leaves_other_constraints() {
    let schema = json!({"type": "object", "required": ["id"], "additionalProperties": false,
        "properties": {"id": {"type": "string", "pattern": "^[a", "minLength": 2}, "name": {"pattern": "^b"}},
        "patternProperties": {"(": {"type": "integer"}, "^x-": {"type": "integer"}}});
    let arguments = ArgumentSchema::compile(convert_single(schema)).unwrap();
    let is_valid = |value: Value| arguments.prepare(value).is_ok();
    assert!(is_valid(json!({"id": "zz", "name": "bob", "x-a": 1})));
    for bad in
        [json!({}), json!({"id": "z"}), json!({"id": "zz", "name": "a"}), json!({"id": "zz", "x-a": "1"})]
    {
        assert!(!is_valid(bad.clone()), "{bad}");
    }
}

#[test]
fn a_referenced_schema_is_defined_once() {
    let named = json!({
        "A b": {"properties": {"next": {"$ref": "#/components/schemas/A b"}, "other": {"$ref": "#/components/schemas/C"}}},
        "C": {"$ref": "#/components/schemas/D"},
        "D": {"type": "string"},
        "unused": {},
    });
    let schema = json!({"anyOf": [{"$ref": "#/components/schemas/A%20b"}, {"$ref": "#/components/schemas/A b"},
        {"$ref": "#/components/schemas/gone"}, {"$ref": "https://example.com/x"}, {"$ref": "#/components/schemas/D"}]});
    let (schema, definitions) = convert(schema, named);
    let a = json!({"$ref": "#/$defs/A_b"});
    let d = json!({"$ref": "#/$defs/D"});
    assert_eq!(schema, json!({"anyOf": [a, a, {}, {}, d]}));
    assert_eq!(
        definitions,
        BTreeMap::from([
            ("A_b".to_owned(), json!({"properties": {"next": a, "other": d}})),
            ("D".to_owned(), json!({"type": "string"})),
        ])
    );
}

#[test]
fn nullable_applies_beside_a_reference() {
    let schema = json!({"nullable": true, "description": "x", "allOf": [{"$ref": "#/components/schemas/A"}]});
    let (schema, _) = convert(schema, json!({"A": {}}));
    assert_eq!(
        schema,
        json!({"description": "x", "anyOf": [{"allOf": [{"$ref": "#/$defs/A"}]}, {"type": "null"}]})
    );
}

#[test]
fn keywords_beside_a_reference_count_since_version_3_1() {
    let schema =
        json!({"$ref": "#/components/schemas/A", "type": "string", "minLength": 1, "description": "x"});
    for (version, expected) in [
        ("3.0.3", json!({"$ref": "#/$defs/A", "description": "x"})),
        ("3.1.0", json!({"$ref": "#/$defs/A", "type": "string", "minLength": 1, "description": "x"})),
    ] {
        let document = json!({"openapi": version, "components": {"schemas": {"A": {"type": "object"}}}, "schema": schema});
        assert_eq!(convert_in(&document).0, expected, "{version}");
    }
}

#[test]
fn all_of_parts_accept_each_others_fields() {
    let closed =
        |name: &str| json!({"properties": {name: {"type": "string"}}, "additionalProperties": false});
    let mut combined = closed("c");
    combined["allOf"] = json!([{"$ref": "#/components/schemas/A"}, closed("b")]);
    let (schema, definitions) = convert(combined, json!({"A": closed("a")}));
    let arguments =
        ArgumentSchema::compile(json!({"properties": {"x": schema}, "$defs": definitions})).unwrap();
    assert!(arguments.prepare(json!({"x": {"a": "", "b": "", "c": ""}})).is_ok());
    assert!(arguments.prepare(json!({"x": {"a": 1}})).is_err());
    assert!(arguments.prepare(json!({"x": {"d": ""}})).is_err());
    let (_, definitions) =
        convert(json!({"allOf": [{"$ref": "#/components/schemas/A"}]}), json!({"A": closed("a")}));
    assert_eq!(definitions["A"], closed("a"));
}

#[test]
fn contradictory_all_of_types_are_dropped() {
    let text = json!({"type": "string"});
    assert_eq!(
        convert_single(json!({"allOf": [text, {"type": "integer"}], "title": "x"})),
        json!({"title": "x"})
    );
    assert_eq!(convert_single(json!({"allOf": [text], "type": "object"})), json!({}));
    for possible in [
        json!({"allOf": [{"type": "integer"}, {"type": "number"}]}),
        json!({"allOf": [{"type": ["null", "string"]}, text, {"minLength": 1}], "type": "string"}),
    ] {
        assert_eq!(convert_single(possible.clone()), possible);
    }
}

#[test]
fn an_unreadable_pattern_is_dropped_alone() {
    let schema = json!({"properties": {"a": {"pattern": "^[\\d-_/]+$"}, "b": {"pattern": "^a"}, "c": {"pattern": "("}}});
    assert_eq!(convert_single(schema), json!({"properties": {"a": {}, "b": {"pattern": "^a"}, "c": {}}}));
}

#[test]
fn marks_are_found_behind_references() {
    let named = json!({"Id": {"type": "string", "readOnly": true}});
    let (schema, _) = convert(json!({"properties": {"id": {"$ref": "#/components/schemas/Id"}}}), named);
    assert_eq!(schema, json!({"properties": {"id": {"$ref": "#/$defs/Id", "readOnly": true}}}));
}

#[test]
fn all_schemas_together_are_bounded() {
    let document = json!({"schema": {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}});
    let location = RootLocation::Directory("a.json".to_owned());
    let documents = Documents::gather(&document.to_string(), location, &SingleDocument).unwrap();
    let mut schemas = SchemaConverter { values_left: 3, ..SchemaConverter::new(&documents) };
    let schema = DocumentNode { document: 0, value: documents.root() }.get("schema").unwrap();
    let combined = json!({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    assert_eq!(schemas.convert_for(schema, Direction::Request), combined);
    assert_eq!(schemas.convert_for(schema, Direction::Request), json!({}));
}

proptest! {
    #[test]
    fn every_converted_schema_compiles(
        keywords in proptest::collection::vec(
            (
                proptest::sample::select(vec![
                    "type", "enum", "const", "required", "properties", "items", "allOf", "oneOf", "not", "minimum",
                    "exclusiveMinimum", "minLength", "multipleOf", "uniqueItems", "format", "additionalProperties",
                    "patternProperties", "dependentSchemas", "prefixItems", "title", "default", "nullable", "$ref",
                    "pattern", "propertyNames", "$id", "$schema", "$anchor", "$defs", "contains", "maxItems", "if", "deprecated", "discriminator",
                ]),
                proptest::sample::select(vec![
                    json!(null), json!(true), json!(-1), json!(1.5), json!("string"), json!("#/x"), json!([]),
                    json!(["a", "a"]), json!([1, {}]), json!({}), json!({"a": 1}), json!({"a": {"type": 3}}),
                    json!({"$ref": "#/components/schemas/A"}), json!([{"$ref": "#/schema"}]), json!("[("),
                    json!({"(?": {}, "^a": {}}), json!({"pattern": "*"}),
                ]),
            ),
            0..8,
        )
    ) {
        let schema: Value = keywords.into_iter().map(|(keyword, value)| (keyword.to_owned(), value)).collect();
        let (schema, definitions) = convert(schema.clone(), json!({"A": schema}));
        let combined = json!({"properties": {"x": schema}, "$defs": definitions});
        let compiled = ArgumentSchema::compile(combined.clone());
        prop_assert!(compiled.is_ok(), "{:?} {}", compiled.err(), combined);
        let _ = compiled.unwrap().prepare(json!({"x": {"a": [1]}}));
    }
}
