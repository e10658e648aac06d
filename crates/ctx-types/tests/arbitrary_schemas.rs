//! Property tests: any JSON can be read as a schema, the output is valid Luau, and no value that a validator accepts is
//! a misfit.

use crate::common::{assert_sound, function_of, literal, tool};
use ctx_core::ArgumentSchema;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Keywords and names, so that arbitrary objects are often almost schemas.
const WORDS: [&str; 34] = [
    "type",
    "properties",
    "required",
    "items",
    "prefixItems",
    "additionalProperties",
    "patternProperties",
    "enum",
    "const",
    "oneOf",
    "anyOf",
    "allOf",
    "$ref",
    "$defs",
    "definitions",
    "nullable",
    "default",
    "description",
    "deprecated",
    "format",
    "title",
    "$id",
    "$anchor",
    "additionalItems",
    "not",
    "a",
    "b",
    "content-type",
    "end",
    "string",
    "null",
    "$dynamicRef",
    "unevaluatedProperties",
    "",
];

/// Texts that are names of types, references, or difficult to print.
const TEXTS: [&str; 24] = [
    "object",
    "array",
    "string",
    "number",
    "integer",
    "boolean",
    "null",
    "#",
    "#/$defs/a",
    "#/$defs/b",
    "#/definitions/a",
    "#/properties/a",
    "#a",
    "b",
    "https://example.com/a",
    "#/$defs/end",
    "binary",
    "a\nb]]",
    "--[[",
    "\"\\",
    "\u{0}\u{7f}",
    "é\u{202e}",
    "#/$defs",
    "#/%zz/~2",
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![4 => prop::sample::select(&TEXTS[..]).prop_map(str::to_owned), 1 => ".{0,12}"]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 80, 6, |inner| {
        let key = prop_oneof![8 => prop::sample::select(&WORDS[..]).prop_map(str::to_owned), 1 => text()];
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            3 => prop::collection::vec((key, inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Valid schemas over few names, so that generated values often match. All have a `type`: a schema that only describes
/// fields is read as a table, though a validator accepts other values, too.
fn schema() -> impl Strategy<Value = Value> {
    let constant =
        prop_oneof![Just(json!("x")), Just(json!("y")), Just(json!(1)), Just(json!(true)), Just(json!(null))];
    let leaf = prop_oneof![
        prop::sample::select(&["string", "number", "integer", "boolean", "null", "object", "array"][..])
            .prop_map(|kind| json!({"type": kind})),
        prop::collection::vec(constant, 1..4).prop_map(|values| json!({"enum": values})),
        prop::sample::select(&["#/$defs/a", "#/$defs/b", "#/$defs/none"][..])
            .prop_map(|reference| json!({"$ref": reference})),
        any::<bool>().prop_map(Value::from),
        Just(json!({"type": ["string", "null"]})),
        Just(json!({"required": ["a"]})),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let fields = prop::collection::vec((prop::sample::select(&["a", "b", "c"][..]), inner.clone()), 0..3);
        let many = prop::collection::vec(inner.clone(), 1..4);
        let rest = prop::option::of(inner.clone());
        let required = prop::collection::vec(prop::sample::select(&["a", "b", "c"][..]), 0..2);
        let table = (fields, rest, required).prop_map(|(fields, rest, required)| {
            let fields: Map<String, Value> = fields.into_iter().map(|(name, of)| (name.to_owned(), of)).collect();
            let required: std::collections::BTreeSet<&str> = required.into_iter().collect();
            let mut schema = json!({"type": "object", "properties": fields, "required": required});
            if let Some(rest) = rest {
                schema["additionalProperties"] = rest;
            }
            schema
        });
        prop_oneof![
            4 => table,
            1 => inner.clone().prop_map(|item| json!({"type": "array", "items": item})),
            1 => (many.clone(), inner.clone()).prop_map(|(first, rest)| json!({"type": "array", "prefixItems": first, "items": rest})),
            1 => many.clone().prop_map(|many| json!({"anyOf": many})),
            1 => many.clone().prop_map(|many| json!({"oneOf": many})),
            2 => many.prop_map(|many| json!({"allOf": many})),
            1 => inner.clone().prop_map(|of| json!({"type": "object", "patternProperties": {"^a": of}, "additionalProperties": false})),
            1 => (inner.clone(), inner).prop_map(|(of, all)| json!({"allOf": [of], "anyOf": [all], "$ref": "#/$defs/b"})),
        ]
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf =
        prop::sample::select(vec![json!("x"), json!("z"), json!(1), json!(1.5), json!(true), json!(null)]);
    leaf.prop_recursive(3, 16, 3, |inner| {
        let fields = prop::collection::vec((prop::sample::select(&["a", "b", "c"][..]), inner.clone()), 0..4);
        prop_oneof![
            3 => fields.prop_map(|fields| fields.into_iter().map(|(name, of)| (name.to_owned(), of)).collect::<Map<_, _>>().into()),
            1 => prop::collection::vec(inner, 0..3).prop_map(Value::from),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_schemas_are_what_is_printed_is_luau(input in any_json(), output in any_json(), description in ".{0,40}") {
        let mut spec = tool(&input);
        spec.output_schema = Some(output.into());
        spec.description = description;
        let function = function_of(&spec);
        assert_sound(&function);
        function.names();
        prop_assert_eq!(&function, &function_of(&spec));
    }

    #[test]
    fn what_a_validator_lets_through_is_no_misfit(
        own in schema(), a in schema(), b in schema(), values in prop::collection::vec(value(), 1..20),
    ) {
        let whole = json!({"allOf": [own], "$defs": {"a": a, "b": b}});
        let Ok(compiled) = ArgumentSchema::compile(whole.clone()) else { return Ok(()) };
        let function = function_of(&tool(&whole));
        assert_sound(&function);
        for value in values.into_iter().filter(Value::is_object) {
            if compiled.prepare(value.clone()).is_err() {
                continue;
            }
            let misfits = function.check_arguments(&[literal(&value)]);
            let certain: Vec<_> = misfits
                .into_iter()
                .filter(|misfit| misfit.problem.is_certain())
                .collect();
            prop_assert!(certain.is_empty(), "{whole} lets {value} through: {certain:?}\n{}", function.declaration());
        }
    }
}
