//! The shape of a value: its keys, types and counts, as in `{ issues: [ 4312 × { id: number } ], total:
//! number }`.

use super::json_type;
use super::path::is_plain_key;
use crate::discover::truncate;
use serde_json::{Map, Value};

/// Maximum depth of a shape.
const DEPTH: usize = 4;

/// Maximum number of items of lists that are inspected.
const ITEMS_MAX: usize = 50;

/// Maximum number of shown keys of one object.
const KEYS_MAX: usize = 20;

/// Length above which the length of a string is shown.
const LONG_TEXT: usize = 200;

/// Maximum length of a shape.
const SHAPE_CHARS_MAX: usize = 2_000;

/// The shape of a value.
pub(super) fn shape(value: &Value) -> String {
    let text = combined_shape(&[value], DEPTH);
    match text.char_indices().nth(SHAPE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The combined shape of values in the same position, such as the items of a list.
fn combined_shape(values: &[&Value], depth: usize) -> String {
    let mut shapes: Vec<String> = Vec::new();
    for first in values {
        let same_type: Vec<&Value> =
            values.iter().copied().filter(|other| json_type(other) == json_type(first)).collect();
        let text = match first {
            Value::Object(_) => object_shape(
                &same_type.iter().filter_map(|value| value.as_object()).collect::<Vec<_>>(),
                depth,
            ),
            Value::Array(_) => {
                list_shape(&same_type.iter().filter_map(|value| value.as_array()).collect::<Vec<_>>(), depth)
            }
            Value::String(_) => text_shape(&same_type),
            other => json_type(other).to_owned(),
        };
        if !shapes.contains(&text) {
            shapes.push(text);
        }
    }
    shapes.join(" | ")
}

fn object_shape(objects: &[&Map<String, Value>], depth: usize) -> String {
    let mut keys: Vec<&str> = Vec::new();
    let mut more = false;
    for key in objects.iter().flat_map(|fields| fields.keys()) {
        if keys.contains(&key.as_str()) {
            continue;
        }
        more = keys.len() == KEYS_MAX;
        if more {
            break;
        }
        keys.push(key);
    }
    if keys.is_empty() {
        return "{}".to_owned();
    }
    if depth == 0 {
        return "{ … }".to_owned();
    }
    let field = |key: &&str| {
        let values: Vec<&Value> = objects.iter().filter_map(|fields| fields.get(*key)).collect();
        let optional = if values.len() < objects.len() { "?" } else { "" };
        let shown_key = if is_plain_key(key) { truncate(key) } else { format!("[\"{}\"]", truncate(key)) };
        format!("{shown_key}{optional}: {}", combined_shape(&values, depth - 1))
    };
    let mut fields: Vec<String> = keys.iter().map(field).collect();
    if more {
        let most = objects.iter().map(|fields| fields.len()).max().unwrap_or_default();
        fields.push(format!("… {most} keys"));
    }
    format!("{{ {} }}", fields.join(", "))
}

fn list_shape(lists: &[&Vec<Value>], depth: usize) -> String {
    let (least, most) = lists
        .iter()
        .fold((usize::MAX, 0), |(least, most), items| (least.min(items.len()), most.max(items.len())));
    if most == 0 {
        return "[]".to_owned();
    }
    let count = if least == most { most.to_string() } else { format!("{least}–{most}") };
    if depth == 0 {
        return format!("[ {count} × … ]");
    }
    let items: Vec<&Value> = lists.iter().flat_map(|items| items.iter()).take(ITEMS_MAX).collect();
    format!("[ {count} × {} ]", combined_shape(&items, depth - 1))
}

fn text_shape(texts: &[&Value]) -> String {
    let lengths = texts.iter().filter_map(|text| text.as_str()).map(|text| text.chars().count());
    match lengths.max().unwrap_or_default() {
        longest if longest <= LONG_TEXT => "string".to_owned(),
        longest if texts.len() == 1 => format!("string of {longest} characters"),
        longest => format!("string of up to {longest} characters"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_shape_shows_types_keys_and_counts() {
        let issue = |id: usize| json!({"id": id, "title": "x", "labels": vec!["a"; id % 3]});
        let mut issues: Vec<Value> = (0..4312).map(issue).collect();
        issues[1]["body"] = json!("y".repeat(300));
        issues[2]["title"] = json!(null);
        let value = json!({"issues": issues, "total": 4312, "next page": true, "none": [], "empty": {}});
        assert_eq!(
            shape(&value),
            "{ issues: [ 4312 × { id: number, title: string | null, labels: [ 0–2 × string ], \
             body?: string of 300 characters } ], total: number, [\"next page\"]: boolean, none: [], empty: {} }"
        );
        assert_eq!(shape(&json!("z".repeat(70_000))), "string of 70000 characters");
    }

    #[test]
    fn a_shape_is_short_whatever_it_is_of() {
        let deep = (0..50).fold(json!(1), |inner, _| json!({ "a": inner }));
        assert_eq!(shape(&deep), "{ a: { a: { a: { a: { … } } } } }");
        let wide: Map<String, Value> = (0..1_000).map(|key| (format!("k{key}"), json!(key))).collect();
        let text = shape(&Value::Object(wide));
        assert!(text.ends_with("k19: number, … 1000 keys }"), "{text}");
        let long: Map<String, Value> =
            (0..100).map(|key| (format!("{key}{}", "ü".repeat(500)), json!({"a": [[[1]]]}))).collect();
        let text = shape(&json!([long.clone(), long]));
        assert!(text.chars().count() <= SHAPE_CHARS_MAX + 1, "{text}");
    }

    proptest! {
        #[test]
        fn every_value_has_a_shape(text in "[\\[\\]{}\":,a1 ]{0,30}") {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                prop_assert!(!shape(&value).is_empty());
            }
        }
    }
}
