//! Finds the items in a response.

use super::metadata::normalize;
use serde_json::Value;

/// Normalised names of fields that hold the items, the most common first.
const ITEM_FIELDS: [&str; 16] = [
    "items",
    "data",
    "results",
    "value",
    "entries",
    "records",
    "values",
    "list",
    "rows",
    "elements",
    "objects",
    "resources",
    "hits",
    "content",
    "result",
    "documents",
];

/// Normalised names of fields that hold an object with the items in it.
const WRAPPER_FIELDS: [&str; 6] = ["data", "result", "results", "response", "embedded", "hits"];

/// The path of field names that leads to the items; `None` if there are none.
pub(super) fn find_path(body: &Value, operation_path: &str) -> Option<Vec<String>> {
    if body.is_array() {
        return Some(Vec::new());
    }
    if let Some(field) = items_field(body, operation_path) {
        return Some(vec![field]);
    }
    let inside = |(name, inner): (&String, &Value)| {
        let is_around = WRAPPER_FIELDS.contains(&normalize(name).as_str());
        let field = is_around.then(|| items_field(inner, operation_path)).flatten()?;
        Some(vec![name.clone(), field])
    };
    body.as_object()?.iter().find_map(inside)
}

/// The list at the end of a path.
pub(super) fn at_path<'a>(body: &'a Value, path: &[String]) -> Option<&'a [Value]> {
    let found = path.iter().try_fold(body, |value, field| value.get(field))?;
    found.as_array().map(Vec::as_slice)
}

/// The field of an object that holds its items: one with a common name, one named like the last segment of
/// the request path, or the only list, empty ones ignored if there are several.
fn items_field(object: &Value, operation_path: &str) -> Option<String> {
    let lists: Vec<&String> =
        object.as_object()?.iter().filter(|(_, value)| value.is_array()).map(|(name, _)| name).collect();
    let common = ITEM_FIELDS.iter().find_map(|field| lists.iter().find(|name| normalize(name) == *field));
    let last = operation_path.rsplit('/').find(|part| !part.is_empty() && !part.starts_with('{'));
    let last = normalize(last.unwrap_or_default().trim_end_matches(".json"));
    let named = common.or_else(|| lists.iter().find(|name| normalize(name) == last));
    // Other lists, such as warnings, are usually empty.
    let filled = || {
        lists
            .iter()
            .filter(|name| object.get(**name).and_then(Value::as_array).is_some_and(|list| !list.is_empty()))
    };
    let only = || match &lists[..] {
        [only] => Some(only),
        _ => filled().next().filter(|_| filled().count() == 1),
    };
    named.or_else(only).map(|name| (*name).clone())
}
