//! Literals of scripts, checked against the types of a function.

use crate::common::{function, literal};
use ctx_types::{Function, Literal};
use serde_json::json;

fn call_problems(function: &Function, arguments: &[Literal]) -> Vec<String> {
    let misfits = function.check_arguments(arguments);
    misfits
        .iter()
        .map(|misfit| format!("{} {}", misfit.luau_path(), misfit.problem).trim().to_owned())
        .collect()
}

fn issue() -> Function {
    function(&json!({
        "properties": {
            "title": {"type": "string"},
            "state": {"enum": ["open", "closed"]},
            "limit": {"type": "integer"},
            "size": {"enum": [1, 2]},
            "labels": {"items": {"type": "string"}},
            "filter": {"$ref": "#/$defs/Filter"},
            "by": {"oneOf": [{"type": "string"}, {"$ref": "#/$defs/Filter"}]},
            "at": {"prefixItems": [{"type": "number"}, {"type": "string"}]},
            "on": {"type": ["boolean", "null"]},
        },
        "required": ["title"],
        "additionalProperties": false,
        "$defs": {"Filter": {"properties": {"source": {"type": "string"}, "deep": {"$ref": "#/$defs/Filter"}}, "required": ["source"]}},
    }))
}

#[test]
fn misfits_name_the_place_and_what_is_wrong() {
    for (arguments, expected) in [
        (json!({}), vec!["title is required and missing"]),
        (json!({"title": 3}), vec!["title must be string"]),
        (json!({"title": true, "limit": 1.5}), vec!["title must be string", "limit must be number (whole)"]),
        (json!({"title": "x", "titel": "y"}), vec!["titel is unknown (did you mean `title`?)"]),
        (json!({"title": "x", "state": "opened"}), vec![r#"state must be ("open" | "closed")"#]),
        (json!({"title": "x", "size": 3}), vec!["size must be number (1, 2)"]),
        (json!({"title": "x", "labels": ["a", 1]}), vec!["labels[2] must be string"]),
        (json!({"title": "x", "labels": "a"}), vec!["labels must be {string}"]),
        (json!({"title": "x", "labels": {"a": "b"}}), vec!["labels must be {string}"]),
        (json!({"title": "x", "filter": []}), vec!["filter must be Filter"]),
        (
            json!({"title": "x", "filter": {"deep": {"source": 1}}}),
            vec!["filter.deep.source must be string", "filter.source is required and missing"],
        ),
        (
            json!({"title": "x", "filter": {"source": "a", "sorce": 1}}),
            vec!["filter.sorce is unknown (did you mean `source`?)"],
        ),
        (json!({"title": "x", "by": {"source": 1}}), vec!["by.source must be string"]),
        (json!({"title": "x", "by": 1}), vec!["by must be string | Filter"]),
        (json!({"title": "x", "at": ["a", "b"]}), vec!["at[1] must be number"]),
        (
            json!("x"),
            vec![
                r#"must be { title: string, state: ("open" | "closed")?, limit: number?, size: number?, labels: {string}?, filter: Filter?, by: (string | Filter)?, at: {number | string}?, on: boolean? }"#,
            ],
        ),
    ] {
        assert_eq!(call_problems(&issue(), &[literal(&arguments)]), expected, "{arguments}");
    }
    assert_eq!(call_problems(&issue(), &[]), ["title is required and missing"]);
    assert_eq!(call_problems(&issue(), &[Literal::Nil]), ["title is required and missing"]);
}

#[test]
fn what_fits_or_cannot_be_known_passes() {
    for arguments in [
        json!({"title": "x", "state": "open", "limit": 3, "size": 2, "labels": ["a"], "on": true}),
        json!({"title": "x", "filter": {"source": "a", "deep": {"source": "b"}}, "by": "me", "at": [1, "a", {}]}),
        json!({"title": null, "state": null, "labels": {}, "limit": 2.0}),
    ] {
        assert_eq!(call_problems(&issue(), &[literal(&arguments)]), Vec::<String>::new(), "{arguments}");
    }
    assert_eq!(call_problems(&issue(), &[Literal::Unknown]), Vec::<String>::new());
    let partly = Literal::Table { fields: vec![("limit".to_owned(), Literal::Nil)], whole: false };
    assert_eq!(call_problems(&issue(), &[partly]), Vec::<String>::new());
}

#[test]
fn a_field_written_as_nil_is_not_there() {
    let arguments = |title| Literal::Table { fields: vec![("title".to_owned(), title)], whole: true };
    assert_eq!(call_problems(&issue(), &[arguments(Literal::Nil)]), ["title is required and missing"]);
}

#[test]
fn a_function_without_parameters_takes_nothing() {
    let nothing = function(&json!({"type": "object"}));
    for arguments in [vec![], vec![literal(&json!({}))], vec![Literal::Nil], vec![Literal::Unknown]] {
        assert_eq!(call_problems(&nothing, &arguments), Vec::<String>::new());
    }
    assert_eq!(call_problems(&nothing, &[literal(&json!({"a": 1}))]), ["a is unknown"]);
    assert_eq!(call_problems(&nothing, &[Literal::Number(1.0)]), ["is one argument too many"]);
    assert_eq!(
        call_problems(&issue(), &[literal(&json!({"title": "x"})), Literal::Number(1.0)]),
        ["is one argument too many"]
    );
}

#[test]
fn parts_put_together_are_checked_as_one_table() {
    let dog = function(&json!({
        "allOf": [{"$ref": "#/$defs/Pet"}, {"properties": {"barks": {"type": "boolean"}}, "required": ["barks"]}],
        "$defs": {"Pet": {"properties": {"name": {"type": "string"}}, "required": ["name"]}},
    }));
    assert_eq!(dog.signature(), "run(params: Pet & { barks: boolean }): any");
    assert_eq!(call_problems(&dog, &[literal(&json!({"name": "x", "barks": true}))]), Vec::<String>::new());
    assert_eq!(
        call_problems(&dog, &[literal(&json!({"nmae": "x", "barks": 1}))]),
        ["nmae is unknown (did you mean `name`?)", "barks must be boolean", "name is required and missing"]
    );
}
