//! Schemas as Luau text: types and comments, all of it valid.

use crate::common::{self, function, luau_type, tool};
use serde_json::{Value, json};

#[track_caller]
fn check(cases: impl IntoIterator<Item = (Value, &'static str)>) {
    for (schema, expected) in cases {
        assert_eq!(luau_type(&schema), expected, "{schema}");
    }
}

#[test]
fn each_kind_has_its_luau_type() {
    check([
        (json!({"type": "string"}), "string"),
        (json!({"type": "integer"}), "number"),
        (json!({"type": "number"}), "number"),
        (json!({"type": "boolean"}), "boolean"),
        (json!({"type": "null"}), "nil"),
        (json!({"type": "array", "items": {"type": "string"}}), "{string}"),
        (json!({"type": "array"}), "{any}"),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
            "{ a: string }",
        ),
        (json!({"type": "object"}), "{ [string]: any }"),
        (json!({"type": "object", "additionalProperties": {"type": "number"}}), "{ [string]: number }"),
        (json!({"type": "object", "additionalProperties": true}), "{ [string]: any }"),
        (json!({"type": "object", "additionalProperties": false}), "{}"),
        (json!({"type": "string", "format": "binary"}), "string"),
        (json!({"type": "file"}), "any"),
        (json!({}), "any"),
        (json!(true), "any"),
        (json!(false), "never"),
        (json!(7), "any"),
        (json!({"type": 7}), "any"),
    ]);
}

#[test]
fn a_missing_type_is_inferred() {
    check([
        (json!({"properties": {"a": {"type": "string"}}}), "{ a: string? }"),
        (json!({"items": {"type": "number"}}), "{number}"),
        (json!({"additionalProperties": {"type": "number"}}), "{ [string]: number }"),
        (json!({"required": ["a"]}), "any"),
    ]);
}

#[test]
fn single_values_are_singletons_where_luau_has_them() {
    check([
        (json!({"enum": ["a", "b"]}), r#"("a" | "b")"#),
        (json!({"type": "string", "enum": ["a"]}), r#""a""#),
        (json!({"enum": ["a", "a"]}), r#""a""#),
        (json!({"enum": ["a", null]}), r#""a"?"#),
        (json!({"enum": ["a", "b"], "nullable": true}), r#"("a" | "b")?"#),
        (json!({"enum": [1, 2]}), "number"),
        (json!({"enum": ["a", 1, 2]}), r#"("a" | number)"#),
        (json!({"enum": [true, false]}), "boolean"),
        (json!({"enum": [true]}), "true"),
        (json!({"enum": [null]}), "nil"),
        (json!({"enum": [{"a": 1}, [1]]}), "{ [string]: any } | {any}"),
        (json!({"enum": []}), "any"),
        (json!({"const": "x"}), r#""x""#),
        (json!({"const": 3}), "number"),
        (json!({"const": null}), "nil"),
        (json!({"enum": ["a\"b\\c\nd\u{1}e\u{202e}"]}), r#""a\"b\\c\nd\u{1}e\u{202e}""#),
        // Luau rejects NUL in a type.
        (json!({"enum": ["a\u{0}b", "c"]}), "string"),
        (
            json!({"properties": {"a\u{0}b": {}, "c": {}}, "required": ["a\u{0}b"]}),
            "{ c: any?, [string]: any }",
        ),
        (json!({"type": "array", "items": {"enum": ["a", "b"]}}), r#"{("a" | "b")}"#),
    ]);
}

#[test]
fn null_makes_a_type_optional() {
    check([
        (json!({"type": ["string", "null"]}), "string?"),
        (json!({"type": ["string", "integer", "null"]}), "(string | number)?"),
        (json!({"type": "string", "nullable": true}), "string?"),
        (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), "string?"),
        (json!({"oneOf": [{"type": ["number", "null"]}, {"type": "string"}]}), "(number | string)?"),
        (json!({"type": ["null"]}), "nil"),
        (json!({"type": ["object", "null"], "properties": {"a": {"type": "string"}}}), "{ a: string? }?"),
    ]);
}

#[test]
fn alternatives_are_unions() {
    let object =
        |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    check([
        (json!({"oneOf": [{"type": "string"}, {"type": "number"}]}), "string | number"),
        (json!({"anyOf": [{"type": "string"}, {"type": "string"}]}), "string"),
        (json!({"anyOf": [{"type": "integer"}, {"type": "number"}]}), "number"),
        (json!({"anyOf": [{"type": "string"}, {}]}), "any"),
        (json!({"oneOf": [object("a"), object("b")]}), "{ a: string } | { b: string }"),
        (
            json!({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}}),
            "{string | number}",
        ),
        (json!({"type": "string", "oneOf": [{"const": "a"}, {"const": "b"}]}), r#"("a" | "b")"#),
        (json!({"anyOf": []}), "any"),
        (
            json!({"type": "object", "properties": {"a": {}, "b": {}},
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            "{ a: any?, b: any? }",
        ),
    ]);
}

#[test]
fn all_of_merges_tables_and_intersects_the_rest() {
    let a = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    check([
        (
            json!({"allOf": [a, {"properties": {"b": {"type": "number"}}, "required": ["a"]}]}),
            "{ a: string, b: number? }",
        ),
        (json!({"allOf": [a, {"required": ["a"]}]}), "{ a: string }"),
        (json!({"allOf": [{"type": "string"}, {"enum": ["x"]}]}), r#""x""#),
        (json!({"allOf": [{"type": "string"}, {"type": "number"}]}), "string & number"),
        (
            json!({"allOf": [a, {"oneOf": [
                {"properties": {"b": {"type": "number"}}}, {"properties": {"c": {"type": "number"}}},
            ]}]}),
            "{ a: string? } & ({ b: number? } | { c: number? })",
        ),
        (json!({"allOf": [a, a]}), "{ a: string? }"),
        (json!({"allOf": [{"type": ["string", "null"]}], "nullable": true}), "string?"),
        (json!({"allOf": []}), "any"),
    ]);
}

#[test]
fn tuples_are_lists_of_either() {
    check([
        (
            json!({"prefixItems": [{"type": "string"}, {"type": "number"}], "items": false}),
            "{string | number}",
        ),
        (json!({"items": [{"type": "string"}, {"type": "number"}]}), "{string | number}"),
        (json!({"prefixItems": [{"type": "string"}], "items": {"type": "boolean"}}), "{string | boolean}"),
    ]);
    let pair = json!({"prefixItems": [{"type": "number"}, {"type": "string"}]});
    let text = function(&json!({"type": "object", "properties": {"pair": pair}})).declaration();
    assert!(text.contains("-- @param pair - in this order: number, string\n"), "{text}");
}

#[test]
fn other_fields_are_told_beside_named_ones() {
    let a = json!({"a": {"type": "string"}});
    check([
        (json!({"properties": a, "additionalProperties": false}), "{ a: string? }"),
        (json!({"properties": a, "additionalProperties": true}), "{ a: string?, [string]: any }"),
        (
            json!({"properties": a, "additionalProperties": {"type": "number"}}),
            "{ a: string?, [string]: number }",
        ),
        (
            json!({"patternProperties": {"^x-": {"type": "number"}}, "additionalProperties": false}),
            "{ [string]: number }",
        ),
        (json!({"patternProperties": {"^x-": {"type": "number"}}}), "{ [string]: number | any }"),
    ]);
}

#[test]
fn names_that_are_no_identifiers_are_quoted() {
    let names = ["content-type", "end", "1st", "größe", "a\"b", "read", "type", "_ok"];
    let properties: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    check([(
        json!({"properties": properties, "required": names}),
        r#"{ ["content-type"]: string, ["end"]: string, ["1st"]: string, ["größe"]: string, ["a\"b"]: string, read: string, type: string, _ok: string }"#,
    )]);
}

#[test]
fn a_required_field_with_a_default_can_be_left_out() {
    check([(
        json!({
            "properties": {"a": {"default": 1}, "b": {"$ref": "#/$defs/b"}, "c": {}},
            "required": ["a", "b", "c", "d"],
            "$defs": {"b": {"default": 2}},
        }),
        "{ a: any?, b: b?, c: any, d: any }",
    )]);
}

#[test]
fn parameters_stand_in_one_table() {
    for (schema, expected, needs_nothing) in [
        (json!({"type": "object"}), "run(): any", true),
        (json!({"type": "object", "properties": {}, "additionalProperties": false}), "run(): any", true),
        (json!({"properties": {"a": {"type": "string"}}}), "run(params: { a: string? }?): any", true),
        (
            json!({"properties": {"a": {"type": "string"}}, "required": ["a"]}),
            "run(params: { a: string }): any",
            false,
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "number"}}),
            "run(params: { [string]: number }?): any",
            true,
        ),
        (json!({}), "run(params: any?): any", true),
        (
            json!({"oneOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]}),
            "run(params: ({ a: any } | { b: any? })?): any",
            true,
        ),
        (
            json!({"$ref": "#/$defs/P", "$defs": {"P": {"properties": {"a": {}}, "required": ["a"]}}}),
            "run(params: P): any",
            false,
        ),
    ] {
        let function = function(&schema);
        assert_eq!(function.signature(), expected, "{schema}");
        assert_eq!(function.has_no_required_arguments(), needs_nothing, "{schema}");
    }
}

#[test]
fn parameters_are_told_one_by_one_wherever_they_stand() {
    let names = |schema: Value| -> Vec<(String, bool)> {
        function(&schema).parameters().iter().map(|field| (field.name.clone(), field.required)).collect()
    };
    let both = json!({
        "allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {}}}],
        "$defs": {"A": {"properties": {"a": {}}, "required": ["a"]}},
    });
    assert_eq!(names(both), [("a".to_owned(), true), ("b".to_owned(), false)]);
    let either = json!({"oneOf": [
        {"properties": {"kind": {"const": "x"}, "a": {}}, "required": ["kind", "a"]},
        {"properties": {"kind": {"const": "y"}}, "required": ["kind"]},
    ]});
    assert_eq!(names(either), [("kind".to_owned(), true), ("a".to_owned(), false)]);
}

#[test]
fn a_required_field_that_may_be_null_says_how_to_give_none() {
    let field = json!({"properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]});
    let mut spec = tool(&field);
    spec.output_schema = Some(field.into());
    let text = common::function_of(&spec).declaration();
    let expected = "-- @param a - required: json.null for none\n\
        function sdk.tests.run(params: { a: string? }): { a: string? } end\n";
    assert_eq!(text, expected);
}

#[test]
fn comments_cannot_be_left() {
    let mut spec = tool(&json!({
        "properties": {"a": {"description": "x\n]] --[[ \r end \u{2028} y", "type": "string"}},
    }));
    spec.description = "[[ one\nlocal x = 1\r]]\n\n\nlast".to_owned();
    let text = common::function_of(&spec).declaration();
    assert!(text.starts_with("-- [[ one\n-- local x = 1 ]]\n--\n--\n-- last\n"), "{text}");
    assert!(text.contains("-- @param a - x ]] --[[ end y\n"), "{text}");
    common::assert_parses(&text);
}
