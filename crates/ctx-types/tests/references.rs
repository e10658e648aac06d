//! References: each target becomes one named type, however it is reached.

use crate::common::{assert_sound, function, function_of, luau_type, tool};
use serde_json::{Value, json};

/// The types that a value of this schema reaches, as they are declared.
fn declared(schema: &Value) -> Vec<String> {
    let mut spec = tool(&json!({"type": "object"}));
    spec.output_schema = Some(schema.clone().into());
    let function = function_of(&spec);
    assert_sound(&function);
    let declare = |name: &str| function.type_declaration(name).unwrap_or_default().trim_end().to_owned();
    function.types().iter().map(|named| declare(&named.name)).collect()
}

#[test]
fn a_reference_is_a_named_type_wherever_definitions_stand() {
    for place in ["$defs", "definitions"] {
        let schema = json!({"$ref": format!("#/{place}/Pet"), place: {"Pet": {"type": "string"}}});
        assert_eq!(luau_type(&schema), "Pet");
        assert_eq!(declared(&schema), ["export type Pet = string"]);
    }
    let schema = json!({
        "type": "array", "items": {"$ref": "#/components/schemas/Pet"},
        "components": {"schemas": {"Pet": {"properties": {"id": {"type": "integer"}}, "required": ["id"]}}},
    });
    assert_eq!(luau_type(&schema), "{Pet}");
    assert_eq!(declared(&schema), ["export type Pet = {\n    id: number,\n}"]);
}

#[test]
fn recursive_types_are_declared_once() {
    let schema = json!({
        "$ref": "#/$defs/Tree",
        "$defs": {
            "Tree": {"properties": {"leaf": {"$ref": "#/$defs/Leaf"}, "children": {"items": {"$ref": "#/$defs/Tree"}}}},
            "Leaf": {"properties": {"of": {"$ref": "#/$defs/Tree"}}},
        },
    });
    assert_eq!(
        declared(&schema),
        [
            "export type Tree = {\n    leaf: Leaf?,\n    children: {Tree}?,\n}",
            "export type Leaf = {\n    of: Tree?,\n}",
        ]
    );
}

#[test]
fn a_schema_that_refers_to_itself_is_named_for_its_title_or_its_function() {
    let itself = json!({"properties": {"next": {"$ref": "#"}}});
    assert_eq!(declared(&itself), ["export type RunResult = {\n    next: RunResult?,\n}"]);
    let titled = json!({"title": "Linked list", "properties": {"next": {"$ref": "#"}}});
    assert_eq!(declared(&titled), ["export type Linked_list = {\n    next: Linked_list?,\n}"]);
    assert_eq!(function(&itself).signature(), "run(params: { next: RunParams? }?): any");
}

#[test]
fn a_type_that_is_only_itself_is_any() {
    assert_eq!(declared(&json!({"$ref": "#"})), ["export type RunResult = any"]);
    let circle = json!({
        "$ref": "#/$defs/A",
        "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "string"}]}},
    });
    assert_eq!(declared(&circle), ["export type A = any"]);
    let through_a_list = json!({
        "$ref": "#/$defs/A",
        "$defs": {"A": {"anyOf": [{"type": "string"}, {"items": {"$ref": "#/$defs/A"}}]}},
    });
    assert_eq!(declared(&through_a_list), ["export type A = string | {A}"]);
}

#[test]
fn a_reference_keeps_what_stands_beside_it() {
    let with = |beside: Value| {
        let mut schema =
            json!({"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": {"type": "string"}}}}});
        schema.as_object_mut().unwrap().extend(beside.as_object().unwrap().clone());
        luau_type(&schema)
    };
    assert_eq!(with(json!({"description": "x", "default": {}})), "A");
    assert_eq!(with(json!({"nullable": true})), "A?");
    assert_eq!(with(json!({"type": "object"})), "A");
    assert_eq!(with(json!({"properties": {"b": {"type": "number"}}})), "A & { b: number? }");
    assert_eq!(with(json!({"allOf": [{"$ref": "#/$defs/A"}]})), "A");
}

#[test]
fn a_reference_that_leads_nowhere_is_any() {
    for reference in
        ["#/$defs/None", "#none", "https://example.com/a.json", "file:///etc/passwd", "other.yaml#/A", ""]
    {
        let of = luau_type(&json!({"properties": {"a": {"$ref": reference}}}));
        // An empty reference is the document itself.
        assert_eq!(of, if reference.is_empty() { "{ a: RunResult? }" } else { "{ a: any? }" }, "{reference}");
    }
    assert_eq!(luau_type(&json!({"$ref": 7})), "any");
    assert_eq!(luau_type(&json!({"$ref": "#/$defs/No", "$defs": {"No": false}})), "never");
    assert_eq!(luau_type(&json!({"$ref": "#/$defs", "$defs": [1]})), "any");
}

#[test]
fn names_are_identifiers_and_not_luaus_own() {
    for (raw, expected) in [
        ("com.example.Pet", "com_example_Pet"),
        ("end", "_end"),
        ("string", "_string"),
        ("typeof", "_typeof"),
        ("3D", "_3D"),
        ("Größe", "Gr__e"),
    ] {
        let schema = json!({"$ref": format!("#/$defs/{raw}"), "$defs": {raw: {"type": "number"}}});
        assert_eq!(luau_type(&schema), expected);
    }
}

#[test]
fn different_schemas_of_one_name_are_numbered_and_equal_ones_are_one() {
    let field = |reference: &str| json!({"$ref": reference});
    let schema = json!({
        "properties": {
            "a": field("#/$defs/x-y"), "b": field("#/$defs/x_y"), "c": field("#/definitions/x_y"),
            "d": field("#/definitions/x.y"), "e": field("#/$defs/x-y"),
        },
        "$defs": {"x-y": {"type": "string"}, "x_y": {"type": "number"}},
        "definitions": {"x_y": {"type": "string"}, "x.y": {"type": "boolean"}},
    });
    assert_eq!(luau_type(&schema), "{ a: x_y?, b: x_y_2?, c: x_y?, d: x_y_3?, e: x_y? }");
}

#[test]
fn what_goes_in_and_what_comes_out_share_a_type_only_if_it_is_the_same() {
    let issue = |label: Value| {
        json!({
            "Issue": {"properties": {"title": {"type": "string"}, "label": {"$ref": "#/$defs/Label"}}},
            "Label": label,
        })
    };
    let run = |input: Value, output: Value| {
        let root = |definitions: Value| json!({"$ref": "#/$defs/Issue", "$defs": definitions});
        let mut spec = tool(&root(input));
        spec.output_schema = Some(root(output).into());
        let function = function_of(&spec);
        assert_sound(&function);
        let names = function.types().iter().map(|named| named.name.clone()).collect::<Vec<_>>().join(" ");
        (function.signature(), names)
    };
    let same = run(issue(json!({"type": "string"})), issue(json!({"type": "string"})));
    assert_eq!(same, ("run(params: Issue?): Issue".to_owned(), "Issue Label".to_owned()));
    // A type to which it refers differs, so it differs, too.
    let other = run(issue(json!({"type": "string"})), issue(json!({"type": "number"})));
    assert_eq!(other, ("run(params: Issue?): Issue_2".to_owned(), "Issue Issue_2 Label Label_2".to_owned()));
}
