//! Property tests of the description loader on arbitrary and mutated input: it never panics, never overflows a stack of
//! the size that the program uses, terminates in time, and its output is bounded by its input.
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_openapi::Survey;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};
use std::sync::mpsc;
use std::time::Duration;

/// Descriptions to mutate: OpenAPI 3 and Swagger 2, JSON and YAML.
const DESCRIPTIONS: [&str; 3] = [
    include_str!("../../ctx/tests/apis/petstore.json"),
    include_str!("../../ctx/tests/fixtures/petstore.yaml"),
    r##"{"swagger": "2.0", "host": "api.example", "basePath": "/v1", "schemes": ["https"],
        "securityDefinitions": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
        "definitions": {"Pet": {"type": "object", "properties": {"mother": {"$ref": "#/definitions/Pet"}}}},
        "parameters": {"page": {"name": "page", "in": "query", "type": "integer"}},
        "paths": {"/pets/{id}": {"parameters": [{"$ref": "#/parameters/page"}],
            "put": {"operationId": "putPet", "security": [{"key": []}], "consumes": ["application/json"],
                "parameters": [{"name": "id", "in": "path", "type": "string", "required": true},
                    {"name": "pet", "in": "body", "schema": {"$ref": "#/definitions/Pet"}}],
                "responses": {"200": {"description": "ok", "schema": {"$ref": "#/definitions/Pet"}}}}}}}"##,
];

/// Fuzzing dictionary: tokens that mean something to the loader.
const WORDS: [&str; 30] = [
    "$ref",
    "#/",
    "#/paths",
    "#/components/schemas/Pet",
    "#/definitions/Pet",
    "#/paths/~1pets/get",
    "allOf",
    "anyOf",
    "oneOf",
    "properties",
    "items",
    "type",
    "object",
    "array",
    "parameters",
    "schema",
    "in",
    "path",
    "query",
    "name",
    "{id}",
    "/{a}{b}",
    "\u{0}",
    "../../etc/passwd",
    "http://169.254.169.254/",
    "&a *a",
    "- - -",
    "!!binary",
    "openapi",
    "additionalProperties",
];

/// Timeout against hangs; a normal read takes milliseconds.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Stack size of a Tokio blocking thread, on which descriptions are read.
const STACK_BYTES: usize = 2 << 20;

/// Loads a description and builds its schemas and requests; returns the numbers of operations and of schema bytes.
fn survey_within_time(text: String) -> Option<(usize, usize)> {
    let (done, finished) = mpsc::channel();
    let reader = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        let survey = Survey::of(&text, "https://api.example/openapi.json");
        let summary = survey.ok().map(|survey| {
            let mut bytes = 0;
            for operation in survey.operations().take(50) {
                bytes += operation.name().len() + operation.input_schema().to_string().len();
                bytes += operation.output_schema().map_or(0, |schema| schema.to_string().len());
                // Missing arguments are an error, never a panic.
                operation.request(&Map::new()).ok();
                operation.request(json!({ "id": "../x", "body": {} }).as_object().unwrap()).ok();
            }
            (survey.operations().len() + survey.skipped().count(), bytes)
        });
        done.send(summary).ok();
    });
    let summary = finished.recv_timeout(TIME_MAX);
    assert!(summary != Err(mpsc::RecvTimeoutError::Timeout), "it does not end");
    reader.unwrap().join().unwrap();
    summary.unwrap()
}

fn assert_bounded(text: String) {
    let length = text.len();
    if let Some((operations, bytes)) = survey_within_time(text) {
        assert!(operations <= length, "{operations} operations of {length} bytes");
        // A shared schema is expanded in every operation, up to a bound each.
        assert!(bytes <= 50 * (64 << 10).max(64 * length), "{bytes} bytes of {length}");
    }
}

/// A mutation of bytes.
#[derive(Clone, Debug)]
enum Mutation {
    Replace(Index, u8),
    Insert(Index, &'static str),
    Delete(Index, usize),
    Repeat(Index, usize, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        (any::<Index>(), select(&WORDS[..])).prop_map(|(at, keyword)| Mutation::Insert(at, keyword)),
        (any::<Index>(), 1_usize..200).prop_map(|(at, length)| Mutation::Delete(at, length)),
        (any::<Index>(), 1_usize..80, 1_usize..60)
            .prop_map(|(at, length, times)| Mutation::Repeat(at, length, times)),
    ]
}

fn mutate(text: &str, mutations: Vec<Mutation>) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for mutation in mutations {
        let end = bytes.len();
        let part = |at: Index, count: usize| {
            let begin = at.index(end.max(1)).min(end);
            begin..(begin + count).min(end)
        };
        match mutation {
            Mutation::Replace(at, byte) => bytes[part(at, 1)].fill(byte),
            Mutation::Insert(at, keyword) => {
                let begin = part(at, 0).start;
                bytes.splice(begin..begin, keyword.bytes());
            }
            Mutation::Delete(at, count) => drop(bytes.drain(part(at, count))),
            Mutation::Repeat(at, count, times) => {
                let part = part(at, count);
                let copies = bytes[part.clone()].repeat(times);
                bytes.splice(part.end..part.end, copies);
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// JSON values of any type, to replace the expected ones.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(&WORDS[..]).prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        select(vec![
            "#/components/schemas/Pet",
            "#",
            "#/paths/~1pets",
            "other.yaml#/x",
            "https://x.example/y"
        ])
        .prop_map(|reference| json!({ "$ref": reference })),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((select(&WORDS[..]), inner), 0..4)
                .prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

/// Replaces one node of the JSON tree, chosen by its preorder index.
fn replace_node(root: &mut Value, index: &Index, value: Value) {
    fn count(value: &Value) -> usize {
        1 + match value {
            Value::Array(items) => items.iter().map(count).sum(),
            Value::Object(fields) => fields.values().map(count).sum(),
            _ => 0,
        }
    }
    fn at(value: &mut Value, mut index: usize) -> &mut Value {
        if index == 0 {
            return value;
        }
        index -= 1;
        let children: Vec<&mut Value> = match value {
            Value::Array(items) => items.iter_mut().collect(),
            Value::Object(fields) => fields.values_mut().collect(),
            _ => unreachable!("places are counted the same way"),
        };
        for child in children {
            let inside = count(child);
            if index < inside {
                return at(child, index);
            }
            index -= inside;
        }
        unreachable!("places are counted the same way")
    }
    let all = count(root);
    *at(root, index.index(all)) = value;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_bytes_are_a_description_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        assert_bounded(String::from_utf8_lossy(&bytes).into_owned());
    }

    #[test]
    fn arbitrary_words_are_a_description_or_an_error(
        keywords in prop::collection::vec(prop_oneof![
            select(&WORDS[..]),
            select(vec!["{", "}", "[", "]", ":", ": ", ",", "\n", "\n  ", "\"", "'", "- ", "#", "&x ", "*x ", "<<: ", "|\n"]),
        ], 0..300),
    ) {
        assert_bounded(format!("openapi: 3.1.0\n{}", keywords.concat()));
    }

    #[test]
    fn a_description_with_changed_bytes_is_one_or_an_error(
        text in select(&DESCRIPTIONS[..]),
        mutations in prop::collection::vec(mutation(), 1..12),
    ) {
        assert_bounded(mutate(text, mutations));
    }

    #[test]
    fn a_description_with_changed_values_is_one_or_an_error(
        which in select(vec![0_usize, 2]),
        values in prop::collection::vec((any::<Index>(), value()), 1..8),
    ) {
        let mut root: Value = serde_json::from_str(DESCRIPTIONS[which]).unwrap();
        for (index, value) in values {
            replace_node(&mut root, &index, value);
        }
        assert_bounded(root.to_string());
    }
}

#[test]
fn the_unchanged_descriptions_are_parsed() {
    for text in DESCRIPTIONS {
        assert!(survey_within_time(text.to_owned()).is_some_and(|(operations, _)| operations > 0), "{text}");
    }
}

#[test]
fn depth_and_breadth_are_bounded() {
    let deep =
        |open: &str, close: &str, count: usize| format!("{}{}", open.repeat(count), close.repeat(count));
    let head = r#"{"openapi": "3.0.0", "paths": {}, "x": "#;
    for (name, text) in [
        ("arrays", format!("{head}{}}}", deep("[", "]", 100_000))),
        ("objects", format!("{head}{}1{}}}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000))),
        ("yaml flow", format!("openapi: 3.0.0\nx: {}", deep("[", "]", 100_000))),
        (
            "yaml block",
            format!(
                "openapi: 3.0.0\n{}",
                (0..3_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect::<String>()
            ),
        ),
        ("yaml lists", format!("openapi: 3.0.0\nx:\n  {}1", "- ".repeat(100_000))),
        ("aliases", {
            let lines = (1..40).map(|line| format!("x{line}: &a{line} [*a{0}, *a{0}, *a{0}]\n", line - 1));
            format!("openapi: 3.0.0\nx0: &a0 [1]\n{}", lines.collect::<String>())
        }),
        ("schemas", {
            let schema = format!("{}{{}}{}", r#"{"properties": {"a": "#.repeat(5_000), "}}".repeat(5_000));
            format!(
                r#"{{"openapi": "3.0.0", "paths": {{"/a": {{"get": {{"parameters": [{{"name": "q", "in": "query", "schema": {schema}}}]}}}}}}}}"#
            )
        }),
        ("references in a ring", {
            let ring = (0..2_000)
                .map(|at| format!(r##""S{at}": {{"$ref": "#/components/schemas/S{}"}},"##, (at + 1) % 2_000));
            format!(
                r##"{{"openapi": "3.0.0", "components": {{"schemas": {{{} "Z": {{}}}}}}, "paths": {{"/a": {{"post": {{"requestBody":
                    {{"content": {{"application/json": {{"schema": {{"$ref": "#/components/schemas/S0"}}}}}}}}}}}}}}}}"##,
                ring.collect::<String>()
            )
        }),
        ("operations", {
            let paths = (0..5_000).map(|at| format!(r#""/p{at}": {{"get": {{}}}},"#)).collect::<String>();
            format!(r#"{{"openapi": "3.0.0", "paths": {{{paths} "/last": {{}}}}}}"#)
        }),
    ] {
        let length = text.len();
        if let Some((operations, _)) = survey_within_time(text) {
            assert!(operations <= length, "{name}");
        }
    }
}
