//! Untrusted schemas, arguments and names cost `Catalog::call` bounded work, and do not block the runtime.

use crate::common::{echo, provider};
use ctx_core::{ArgumentSchema, Call, Caller, Catalog, ErrorKind, Output, ToolError};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A schema that takes exponentially many validation steps for any value.
fn branching_schema() -> Value {
    let mut definitions = Map::new();
    for level in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        definitions.insert(format!("d{level}"), json!({"allOf": [next, next]}));
    }
    definitions.insert("d40".to_owned(), json!({"type": "object"}));
    json!({"type": "object", "$ref": "#/$defs/d0", "$defs": definitions})
}

#[tokio::test]
async fn a_schema_of_exponential_cost_is_refused_before_it_is_followed() {
    let error = call_with_schema(branching_schema(), json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(error.message(), "validating the arguments against the tool's schema would take too long");
}

#[tokio::test]
async fn a_chain_of_references_does_not_use_up_the_stack() {
    let next = |n: usize| json!({"$ref": format!("#/$defs/d{n}")});
    let mut definitions: Map<String, Value> = (0..20_000).map(|n| (format!("d{n}"), next(n + 1))).collect();
    definitions.insert("d20000".to_owned(), json!({}));
    let schema = json!({"type": "object", "$ref": "#/$defs/d0", "$defs": definitions});
    let error = call_with_schema(schema, json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
}

#[tokio::test]
async fn a_schema_that_is_only_itself_ends_no_process() {
    for schema in [json!({"$ref": "#"}), json!({"type": "object", "allOf": [{"$ref": "#"}]})] {
        // Refused at compilation or at validation; either way there is no stack overflow.
        let _ = call_with_schema(schema, json!({})).await;
    }
}

#[tokio::test]
async fn the_deepest_schemas_that_are_followed_fit_on_the_stack() {
    let link = |kind: &str, n: usize| {
        let next = json!({"$ref": format!("#/$defs/d{n}")});
        match kind {
            "anyOf" => json!({"anyOf": [next]}),
            "allOf" => json!({"allOf": [next, {"type": "object"}]}),
            "not" => json!({"not": next}),
            _ => json!({"if": next, "then": {"type": "object"}, "unevaluatedProperties": true}),
        }
    };
    for kind in ["anyOf", "allOf", "not", "if"] {
        for length in [100, 250, 330, 480, 495] {
            let mut definitions: Map<String, Value> =
                (0..length).map(|n| (format!("d{n}"), link(kind, n + 1))).collect();
            definitions.insert(format!("d{length}"), json!({"required": ["missing"]}));
            let schema = json!({"type": "object", "$ref": "#/$defs/d0", "$defs": definitions});
            // The outcome does not matter, only that the stack does not overflow: test threads have the stack size of
            // runtime threads.
            let _ = call_with_schema(schema, json!({"a": 1})).await;
        }
    }
}

#[tokio::test]
async fn patterns_that_explode_are_not_followed() {
    // Expanded it has a million states; the linear engine would take hours for a few megabytes.
    let large = json!({"type": "object", "properties": {"a": {"pattern": "^((a{100}){100}){100}$"}}});
    assert!(call_with_schema(large, json!({"a": "a".repeat(1 << 20)})).await.is_ok());
    // Catastrophic backtracking hits the limit, and counts as a mismatch.
    let evil = json!({"type": "object", "properties": {"a": {"items": {"pattern": "^(a|a)*\\1?(?=b)$"}}}});
    let error = call_with_schema(evil, json!({"a": vec!["a".repeat(40) + "!"; 20]})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadRequest);
}

/// A validator for each subschema that has a default would compile a million subschemas here.
#[test]
fn defaults_are_checked_in_time_linear_in_the_schema() {
    let fields =
        |schema: Value| (0..1_000).map(|n| (format!("f{n}"), schema.clone())).collect::<Map<String, Value>>();
    let large = json!({"anyOf": [{"type": "string"}, {"properties": fields(json!({"minLength": 1}))}]});
    let mut properties = fields(json!({"$ref": "#/$defs/large", "default": "x"}));
    properties.insert("misfit".to_owned(), json!({"type": "string", "default": 7}));
    let schema = json!({"type": "object", "properties": properties, "$defs": {"large": large}});
    let started = Instant::now();
    let compiled = ArgumentSchema::compile(schema).unwrap();
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    let prepared = compiled.prepare(json!({})).unwrap();
    assert_eq!((prepared.len(), prepared.get("misfit")), (1_000, None));
}

#[test]
fn nested_defaults_are_checked_in_time_linear_in_the_schema() {
    let leaf: Map<String, Value> = (0..2_000).map(|n| (format!("f{n}"), json!({"minLength": 1}))).collect();
    let nest = |inside: Value, _| json!({"properties": {"n": inside}, "default": {}});
    let schema = (0..100).fold(json!({"properties": leaf}), nest);
    let started = Instant::now();
    let compiled = ArgumentSchema::compile(schema).unwrap();
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert!(compiled.prepare(json!({"n": {}})).is_ok());
}

/// The validator stores the whole path of a subschema with each of its keywords.
#[test]
fn a_schema_with_long_names_and_many_parts_is_not_compiled() {
    let parts: Map<String, Value> = (0..2_000).map(|n| (format!("f{n}"), json!({"minLength": 1}))).collect();
    let schema = json!({"properties": {"k".repeat(1 << 15): {"properties": parts}}});
    assert!(ArgumentSchema::compile(schema).is_err());
}

/// Each error holds the path of its value.
#[tokio::test]
async fn errors_are_explained_only_where_all_of_them_fit_in_memory() {
    let schema = json!({"additionalProperties": {"items": {"type": "string"}}});
    let error = call_with_schema(schema.clone(), json!({"k": vec![1; 2_000]})).await.unwrap_err();
    assert!(error.message().contains("parameter `k.0`"), "{}", error.message());
    let long = json!({"k".repeat(100_000): vec![1; 2_000]});
    let error = call_with_schema(schema, long).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadRequest);
    assert_eq!(error.message(), "the arguments do not match the tool's schema");
}

#[tokio::test]
async fn an_argument_name_of_megabytes_is_told_and_not_compared() {
    // Many long names to compare it with: the edit distance to each would take seconds.
    let properties: serde_json::Map<String, Value> =
        (0..200).map(|number| (format!("{number:t>160}"), json!({"type": "string"}))).collect();
    let schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    let name = "t".repeat(1 << 20);
    let error = call_with_schema(schema, json!({ name: 1 })).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadRequest);
    assert!(error.message().len() < 1_000, "{}", error.message().len());
}

#[tokio::test]
async fn a_tool_name_of_megabytes_is_told_and_not_compared() {
    let catalog = Catalog::builder().provider(provider("github", [echo("create_issue")])).build();
    let name = format!("github.{}", "create_issue".repeat(300_000));
    let error = Catalog::call(&name, json!({}), Call::new(catalog, Caller::Cli)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().len() < 1_000);
}

/// Large arguments are validated on the blocking pool: a single-threaded runtime runs other tasks meanwhile.
#[tokio::test]
async fn checking_large_arguments_keeps_no_other_task_waiting() {
    let item = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let schema = json!({"type": "object", "properties": {"items": {"type": "array", "items": item}}});
    let items: Vec<Value> = (0..100_000).map(|n| json!({"n": n})).collect();
    let ended = AtomicBool::new(false);
    let checking = async {
        let result = call_with_schema(schema, json!({"items": items})).await;
        ended.store(true, Ordering::Relaxed);
        result
    };
    let others = async {
        let mut turns = 0_u64;
        while !ended.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
            turns += 1;
        }
        turns
    };
    let (result, turns) = tokio::join!(checking, others);
    assert!(result.is_ok());
    // On the runtime thread the check would be one turn.
    assert!(turns > 10, "{turns}");
}

async fn call_with_schema(schema: Value, arguments: Value) -> Result<Output, ToolError> {
    let catalog = Catalog::builder().provider(provider("tools", [echo("echo").schema(schema)])).build();
    Catalog::call("tools.echo", arguments, Call::new(catalog, Caller::Cli)).await
}
