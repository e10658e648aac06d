//! Call forms of a function with a body: a call that the catalog accepts has no misfit, and certain errors are reported
//! in each form.

use crate::common::{assert_sound, function_of, literal, tool};
use ctx_core::{ArgumentSchema, BodyArgument, ToolSpec};
use ctx_types::{Function, Literal};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A tool with these parameters and this body, which is required or optional.
fn spec(params: &Value, body: &Value, is_required: bool, has_fields: bool) -> ToolSpec {
    let mut properties = params.clone();
    let mut required: Vec<&str> =
        params.as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
    properties["body"] = body.clone();
    if is_required {
        required.push("body");
    }
    let schema = json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    });
    let body = BodyArgument { name: "body".to_owned(), has_fields };
    ToolSpec { body: Some(body), ..tool(&schema) }
}

fn sound(spec: &ToolSpec) -> Function {
    let function = function_of(spec);
    assert_sound(&function);
    function
}

fn pet() -> Value {
    let properties = json!({
        "name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}},
    });
    json!({"type": "object", "properties": properties, "required": ["name"], "additionalProperties": false})
}

fn call_problems(function: &Function, arguments: &[Value]) -> Vec<String> {
    let arguments: Vec<Literal> = arguments.iter().map(literal).collect();
    let misfits = function.check_arguments(&arguments);
    let describe = |misfit: &ctx_types::TypeMismatch| {
        format!("{} {} {}", misfit.argument, misfit.luau_path(), misfit.problem).replace("  ", " ")
    };
    misfits.iter().map(describe).collect()
}

#[test]
fn every_call_form_with_a_body_is_checked() {
    let update = sound(&spec(&json!({"id": {"type": "integer"}}), &pet(), true, true));
    assert_eq!(
        update.signature(),
        "run(params: { id: number }, body: { name: string, age: number?, tags: {string}? }): any"
    );
    let fits: [&[Value]; 3] = [
        &[json!({"id": 1, "name": "Rex"})],
        &[json!({"id": 1, "body": {"name": "Rex", "tags": []}})],
        &[json!({"id": 1}), json!({"name": "Rex"})],
    ];
    for arguments in fits {
        assert_eq!(call_problems(&update, arguments), [""; 0], "{arguments:?}");
    }
    let wrong: [(&[Value], &[&str]); 12] = [
        (&[], &["0 id is required and missing", "0 name is required and missing"]),
        (&[json!({"id": 1})], &["0 name is required and missing"]),
        (&[json!({"id": 1, "name": 7})], &["0 name must be string"]),
        (&[json!({"id": "1", "name": "Rex"})], &["0 id must be number (whole)"]),
        (&[json!({"id": 1, "name": "x", "tgas": []})], &["0 tgas is unknown (did you mean `tags`?)"]),
        (
            &[json!({"idd": 1, "name": "x"})],
            &["0 id is required and missing", "0 idd is unknown (did you mean `id`?)"],
        ),
        (
            &[json!({"id": 1, "body": {"nmae": "x"}})],
            &["0 body.nmae is unknown (did you mean `name`?)", "0 body.name is required and missing"],
        ),
        (&[json!({"id": 1, "body": {"name": "x"}, "age": 1})], &["0 age is unknown"]),
        (&[json!({"id": 1}), json!({"name": "x", "age": "1"})], &["1 age must be number (whole)"]),
        (
            &[json!({"name": "x"}), json!({"name": "x"})],
            &["0 name is unknown", "0 id is required and missing"],
        ),
        (&[json!("x"), json!({"name": "x"})], &["0 must be { id: number }"]),
        (&[json!({"id": 1}), json!({"name": "x"}), json!(1)], &["2 is one argument too many"]),
    ];
    for (arguments, expected) in wrong {
        assert_eq!(call_problems(&update, arguments), expected, "{arguments:?}");
    }
}

#[test]
fn a_body_that_is_no_table_stands_alone() {
    let add_tags =
        sound(&spec(&json!({}), &json!({"type": "array", "items": {"type": "string"}}), true, false));
    assert_eq!(add_tags.signature(), "run(body: {string}): any");
    for arguments in [json!(["a", "b"]), json!({"body": ["a"]}), json!({})] {
        assert_eq!(call_problems(&add_tags, std::slice::from_ref(&arguments)), [""; 0], "{arguments}");
    }
    assert_eq!(call_problems(&add_tags, &[]), ["0 body is required and missing"]);
    assert_eq!(call_problems(&add_tags, &[json!(["a", 1])]), ["0 [2] must be string"]);
    assert_eq!(
        call_problems(&add_tags, &[json!({"bodi": ["a"]})]),
        ["0 bodi is unknown", "0 body is required and missing"]
    );
    let set_text = sound(&spec(&json!({}), &json!({"type": "string"}), true, false));
    assert_eq!(call_problems(&set_text, &[json!("hello")]), [""; 0]);
    assert_eq!(call_problems(&set_text, &[json!(1)]), ["0 must be string"]);
    let with_id = sound(&spec(&json!({"id": {}}), &json!({"type": "string"}), true, false));
    assert_eq!(call_problems(&with_id, &[json!("hello")]), ["0 id is required and missing"]);
}

#[test]
fn what_may_be_nothing_when_it_runs_is_not_judged_by() {
    let optional = sound(&spec(&json!({}), &pet(), false, true));
    for arguments in [
        vec![json!({"age": null})],
        vec![json!({"body": null, "name": "x"})],
        vec![Value::Null, json!({"name": "x"})],
        vec![json!({"name": "x"}), Value::Null],
        vec![],
    ] {
        assert_eq!(call_problems(&optional, &arguments), [""; 0], "{arguments:?}");
    }
    assert_eq!(call_problems(&optional, &[json!({"age": 1})]), ["0 name is required and missing"]);
}

#[test]
fn a_line_names_fields_as_they_can_be_given() {
    let names = |spec: &ToolSpec| -> Vec<String> {
        let mark = |required| if required { "" } else { "?" };
        let shown = |field: &ctx_types::Field| format!("{}{}", field.name, mark(field.required));
        sound(spec).parameters().iter().map(shown).collect()
    };
    let id = json!({"id": {}});
    assert_eq!(names(&spec(&id, &pet(), true, true)), ["id", "name", "age?", "tags?"]);
    assert_eq!(names(&spec(&id, &pet(), false, true)), ["id", "name?", "age?", "tags?"]);
    assert_eq!(names(&spec(&json!({"name": {}}), &pet(), true, true)), ["name", "age?", "tags?"]);
    assert_eq!(names(&spec(&id, &json!({"type": "array"}), true, false)), ["id", "body"]);
    assert_eq!(names(&spec(&id, &json!({}), false, true)), ["id", "body?"]);
}

fn of_body() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec![
        json!({"type": "string"}),
        json!({"type": "integer"}),
        json!({"type": ["string", "null"]}),
        json!({"type": "array", "items": {"type": "string"}}),
        json!({"type": "object"}),
        json!({}),
    ]);
    leaf.prop_recursive(2, 12, 3, |inner| {
        let names = prop::sample::select(vec!["a", "b", "body", "id"]);
        let fields = prop::collection::btree_map(names.clone(), inner.clone(), 0..3);
        let table = (fields, prop::collection::btree_set(names, 0..2), any::<bool>());
        prop_oneof![
            3 => table.prop_map(|(fields, required, is_open)| json!({
                "type": "object", "properties": fields, "required": required, "additionalProperties": is_open,
            })),
            1 => prop::collection::vec(inner, 1..3).prop_map(|parts| json!({"anyOf": parts})),
        ]
    })
}

fn any_literal() -> impl Strategy<Value = Value> {
    let leaf =
        prop::sample::select(vec![json!("x"), json!(1), json!(["x"]), json!([]), json!(null), json!({})]);
    leaf.prop_recursive(2, 12, 4, |inner| {
        let names = prop::sample::select(vec!["a", "b", "body", "id", "c"]);
        prop::collection::btree_map(names, inner, 0..4).prop_map(|fields| json!(fields))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    /// A call that the catalog accepts has no misfit, in whichever form it is written.
    #[test]
    fn check_and_door_agree(
        of in of_body(), has_id in any::<bool>(), is_required in any::<bool>(), has_fields in any::<bool>(),
        calls in prop::collection::vec((any_literal(), prop::option::of(any_literal())), 1..12),
    ) {
        let params = if has_id { json!({"id": {"type": "integer"}}) } else { json!({}) };
        let spec = spec(&params, &of, is_required, has_fields);
        let function = sound(&spec);
        let schema = ArgumentSchema::compile((*spec.input_schema.get()).clone()).unwrap();
        let schema = schema.with_body(spec.body.clone());
        for (first, second) in calls {
            // The catalog gets the second argument of a script in this form.
            let arguments = match (&first, &second) {
                (_, None | Some(Value::Null)) => first.clone(),
                (Value::Object(_) | Value::Null, Some(body)) => {
                    let mut fields = first.as_object().cloned().unwrap_or_else(Map::new);
                    if fields.insert("body".to_owned(), body.clone()).is_some() {
                        continue;
                    }
                    Value::Object(fields)
                }
                _ => continue,
            };
            if schema.prepare(arguments).is_err() {
                continue;
            }
            let written: Vec<Literal> = [Some(first.clone()), second.clone()].iter().flatten().map(literal).collect();
            let misfits = function.check_arguments(&written);
            let certain: Vec<_> = misfits.iter().filter(|misfit| misfit.problem.is_certain()).collect();
            prop_assert!(certain.is_empty(), "{first} {second:?}: {certain:?}\n{}", function.declaration());
        }
    }
}
