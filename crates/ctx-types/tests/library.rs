//! All functions of an API in one file: each type once, under one name, as valid Luau.

#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use crate::common::assert_parses;
use ctx_core::{Identifier, ToolSpec};
use ctx_types::{Library, definitions};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashSet};

fn spec(name: &str, description: &str, input: Value, output: Value) -> ToolSpec {
    let mut spec = ToolSpec::new(name, description, input);
    spec.output_schema = (!output.is_null()).then_some(output.into());
    spec
}

fn library(name: &str, specs: &[ToolSpec], definitions: Value) -> Library {
    let definitions: BTreeMap<String, Value> = serde_json::from_value(definitions).unwrap();
    Library::of(&Identifier::sanitize(name), "A shop.", specs, &definitions)
}

/// Fails unless the text is valid Luau and each type is declared once.
#[track_caller]
fn assert_sound(text: &str) {
    assert_parses(text);
    let declared = text.lines().filter_map(|line| line.strip_prefix("export type "));
    let names: Vec<&str> = declared.filter_map(|line| line.split(' ').next()).collect();
    let distinct: HashSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), distinct.len(), "a type is declared twice\n{text}");
}

/// Definitions in the syntax of a module, which the parser knows.
fn as_module(definitions: &str) -> String {
    definitions.replace("declare sdk: ", "type Sdk = ")
}

fn shop(name: &str) -> Library {
    let create = spec(
        "create_pet",
        "Create a pet.\nDeprecated: use `add_pet`.",
        json!({"type": "object", "required": ["pet"], "properties": {
            "pet": {"$ref": "#/$defs/NewPet", "description": "The pet to create."},
            "dry": {"type": "boolean"},
        }}),
        json!({"$ref": "#/$defs/Pet"}),
    );
    let list = spec(
        "list_pets",
        "",
        json!({"type": "object"}),
        json!({"type": "array", "items": {"$ref": "#/$defs/Pet"}}),
    );
    let definitions = json!({
        "NewPet": {"type": "object", "required": ["name", "kind"], "properties": {
            "name": {"type": "string", "description": "What it is called."},
            "kind": {"$ref": "#/$defs/kind"},
        }},
        "Pet": {"description": "A pet.", "allOf": [{"$ref": "#/$defs/NewPet"}, {"type": "object",
            "required": ["id"], "properties": {
                "id": {"type": "integer"},
                "friends": {"type": "array", "items": {"$ref": "#/$defs/Pet"}},
                "elsewhere": {"$ref": "other.json#/x"},
            }}]},
        "kind": {"enum": ["cat", "dog"], "default": "dog"},
        "Functions": {"type": "string"},
        "pet-food": {"type": "string"},
        "pet_food": {"type": "number"},
    });
    library(name, &[create, list], definitions)
}

#[test]
fn a_module_has_every_type_once_and_its_functions_documented() {
    let text = shop("petstore").module();
    assert_sound(&text);
    insta::assert_snapshot!(text, @r#"
    --!strict
    -- Functions of `sdk.petstore` and their types. A shop.
    -- Written by `ctx generate`, which writes it anew: changes are lost.

    export type Functions_2 = string

    export type NewPet = {
        --- What it is called.
        name: string,
        --- default "dog"
        kind: kind?,
    }

    --- A pet.
    export type Pet = NewPet & { id: number, friends: {Pet}?, elsewhere: any? }

    export type kind = ("cat" | "dog")

    export type pet_food = string

    export type pet_food_2 = number

    export type Functions = {
        --- Create a pet.
        --- Deprecated: use `add_pet`.
        --- @param pet - The pet to create.
        create_pet: (params: { pet: NewPet, dry: boolean? }) -> Pet,
        list_pets: () -> {Pet},
    }

    return (nil :: any) :: Functions
    "#);
}

#[test]
fn definitions_of_several_apis_are_apart() {
    let text =
        definitions(&[shop("a"), shop("a_pet"), library("a", &[], json!({"pet_Pet": {"type": "string"}}))]);
    assert_sound(&as_module(&text));
    assert!(text.contains("export type a_Pet = a_NewPet & { id: number, friends: {a_Pet}?, "), "{text}");
    assert!(text.contains("export type a_pet_Pet = a_pet_NewPet & { id: "), "{text}");
    assert!(text.contains("export type a__pet_Pet = string\n"), "{text}");
    assert!(
        text.contains("    create_pet: (params: { pet: a_pet_NewPet, dry: boolean? }) -> a_pet_Pet,\n"),
        "{text}"
    );
}

#[test]
fn a_type_that_is_only_itself_can_be_anything() {
    let definitions = json!({
        "A": {"$ref": "#/$defs/B"}, "B": {"allOf": [{"$ref": "#/$defs/A"}]}, "C": {"$ref": "#/$defs/A"},
    });
    let text = library("x", &[], definitions).module();
    assert_sound(&text);
    assert!(text.contains("export type A = any\n") || text.contains("export type B = any\n"), "{text}");
}

#[test]
fn a_type_that_is_both_taken_and_answered_is_one_however_large_the_others_are() {
    let many = |count: usize, of: Value| -> Value {
        let fields: Map<String, Value> =
            (0..count).map(|number| (format!("f{number}"), of.clone())).collect();
        json!({"type": "object", "properties": fields})
    };
    let large = many(200, many(60, json!({"type": "string"})));
    let swap = spec(
        "swap",
        "",
        json!({"type": "object", "properties": {"large": {"$ref": "#/$defs/Large"}, "pet": {"$ref": "#/$defs/Pet"}}}),
        json!({"$ref": "#/$defs/Pet"}),
    );
    let definitions =
        json!({"Large": large, "Pet": {"type": "object", "properties": {"name": {"type": "string"}}}});
    let text = library("x", &[swap], definitions).module();
    assert!(text.contains("    swap: (params: { large: Large?, pet: Pet? }?) -> Pet,\n"), "{text}");
}

#[test]
fn long_names_that_are_alike_stay_apart() {
    let long = |end: &str| format!("{}{end}", "x".repeat(90));
    let names = [long("a"), long("b"), long("c")];
    let mut definitions = Map::new();
    for (place, name) in names.iter().enumerate() {
        let next = &names[(place + 1) % names.len()];
        let of = json!({"type": "object", "properties": {"next": {"$ref": format!("#/$defs/{next}")}, (name.clone()): {}}});
        definitions.insert(name.clone(), of);
    }
    let text = library("x", &[], Value::Object(definitions)).module();
    assert_sound(&text);
    let name = "x".repeat(78);
    for (own, next) in [("xx", "_2"), ("_2", "_3"), ("_3", "xx")] {
        assert!(
            text.contains(&format!("export type {name}{own} = {{\n    next: {name}{next}?,\n")),
            "{text}"
        );
    }
}

fn any_schema() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(
        &[
            "type",
            "properties",
            "required",
            "items",
            "additionalProperties",
            "enum",
            "const",
            "oneOf",
            "allOf",
            "$ref",
            "$defs",
            "definitions",
            "default",
            "description",
            "nullable",
            "$id",
            "$anchor",
            "a",
            "end",
        ][..],
    );
    let text = prop::sample::select(
        &[
            "object",
            "array",
            "string",
            "number",
            "null",
            "#",
            "#/$defs/a",
            "#/$defs/b-c",
            "#/$defs/b_c",
            "#/$defs/any",
            "#/properties/a",
            "--[[ x\n]]",
            "\"\\\u{0}",
            "a",
        ][..],
    );
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            3 => prop::collection::vec((word.clone(), inner), 0..5).prop_map(|fields| {
                let fields = fields.into_iter().map(|(word, of)| (word.to_owned(), of));
                Value::Object(fields.collect::<Map<_, _>>())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_schemas_are_the_files_are_luau(
        schemas in prop::collection::vec(any_schema(), 9), description in ".{0,40}",
    ) {
        let [a, b, c, d, end, one, two, three, four] = <[Value; 9]>::try_from(schemas).unwrap();
        let specs = [spec("one", &description, one, two), spec("two", "", three, four)];
        let definitions_of = json!({"a": a, "b-c": b, "b_c": c, "any": d, "end": end});
        let library = library("tests", &specs, definitions_of);
        assert_sound(&library.module());
        let text = as_module(&definitions(std::slice::from_ref(&library)));
        assert_sound(&text);
        let known: HashSet<&str> = text.lines().filter_map(|line| line.strip_prefix("export type ")?.split(' ').next()).collect();
        for word in text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_') {
            let is_type = word.strip_prefix("tests_").is_some_and(|name| ["a", "b_c", "b_c_2", "_any", "_end"].contains(&name));
            prop_assert!(!is_type || known.contains(word), "{word} is no type\n{text}");
        }
    }
}
