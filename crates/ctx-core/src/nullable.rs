//! `null` in the schemas of built-in tools, for clients that support only one `type` per value.
//!
//! An optional argument may be omitted. `null` is accepted for it, because many clients send that, but is not in the
//! published schema. A result that may be `null` is described by `anyOf`.

use crate::json_schema;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

/// Maximum depth of a schema. Generated schemas are inlined, without references.
const DEPTH_MAX: usize = 32;

/// Annotation keywords, which do not depend on the type of the value.
const ANNOTATIONS: [&str; 5] = ["title", "description", "default", "examples", "deprecated"];

/// JSON Schema of a tool's arguments; `null` is removed from the types of optional ones.
pub fn input_schema<T: JsonSchema>() -> Value {
    let mut schema = json_schema::<T>();
    for_each_schema(&mut schema, 0, &mut |schema| {
        let required = schema.get("required").cloned().unwrap_or_default();
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (name, property) in properties.into_iter().flatten() {
            if !is_required(&required, name)
                && let Some(property) = property.as_object_mut()
            {
                forbid_null(property);
            }
        }
    });
    schema
}

/// JSON Schema of a tool's result; a value that may be `null` has an `anyOf` branch for it.
pub fn output_schema<T: JsonSchema>() -> Value {
    let mut schema = json_schema::<T>();
    for_each_schema(&mut schema, 0, &mut split_null);
    schema
}

/// Removes `null` for optional arguments whose schema has a type other than `null` and no default. With a default,
/// `null` stays and is rejected by validation: it does not say whether the default is meant.
pub(crate) fn drop_nulls(schema: &Value, arguments: &mut Value) {
    drop_nulls_within(schema, arguments, 0);
}

fn drop_nulls_within(schema: &Value, value: &mut Value, depth: usize) {
    let (Some(properties), Value::Object(fields)) =
        (schema.get("properties").and_then(Value::as_object), value)
    else {
        return;
    };
    if depth == DEPTH_MAX {
        return;
    }
    let required = schema.get("required").unwrap_or(&Value::Null);
    fields.retain(|name, value| match properties.get(name) {
        Some(property) if value.is_null() => is_required(required, name) || !may_be_absent(property),
        Some(property) => {
            drop_nulls_within(property, value, depth + 1);
            true
        }
        None => true,
    });
}

fn is_required(required: &Value, name: &str) -> bool {
    required.as_array().into_iter().flatten().any(|required| required == name)
}

/// Whether a schema has one type that is not `null`, and no default.
fn may_be_absent(schema: &Value) -> bool {
    let has_type = schema.get("type").and_then(Value::as_str).is_some_and(|type_name| type_name != "null");
    has_type && schema.get("default").is_none()
}

/// Visits a schema and all its subschemas.
fn for_each_schema(schema: &mut Value, depth: usize, visit: &mut impl FnMut(&mut Map<String, Value>)) {
    let Some(fields) = schema.as_object_mut().filter(|_| depth < DEPTH_MAX) else { return };
    visit(fields);
    for (keyword, value) in fields.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                properties.values_mut().for_each(|schema| for_each_schema(schema, depth + 1, visit));
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(|schema| for_each_schema(schema, depth + 1, visit));
            }
            ("items" | "additionalProperties", schema) => for_each_schema(schema, depth + 1, visit),
            _ => {}
        }
    }
}

/// Removes `null` from the types and from the branches of `anyOf`.
fn forbid_null(schema: &mut Map<String, Value>) {
    if let Some(types) = types_without_null(schema) {
        schema.insert("type".to_owned(), types);
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.shift_remove("default");
    }
    let branches = schema.get_mut("anyOf").and_then(Value::as_array_mut);
    let Some(branches) = branches else { return };
    branches.retain(|branch| branch.get("type").is_none_or(|type_name| type_name != "null"));
    if let [only] = branches.as_mut_slice() {
        let only = only.take();
        schema.shift_remove("anyOf");
        for (keyword, value) in only.as_object().cloned().unwrap_or_default() {
            schema.entry(keyword).or_insert(value);
        }
    }
}

/// Rewrites `type: [T, "null"]` as `anyOf`.
fn split_null(schema: &mut Map<String, Value>) {
    let Some(types) = types_without_null(schema) else { return };
    let (annotations, mut branch): (Map<String, Value>, Map<String, Value>) =
        std::mem::take(schema).into_iter().partition(|(keyword, _)| ANNOTATIONS.contains(&keyword.as_str()));
    branch.insert("type".to_owned(), types);
    *schema = annotations;
    schema.insert("anyOf".to_owned(), json!([branch, { "type": "null" }]));
}

/// The types of a schema without `null`, if it allows `null` and other types.
fn types_without_null(schema: &Map<String, Value>) -> Option<Value> {
    let types = schema.get("type")?.as_array()?;
    let others: Vec<Value> = types.iter().filter(|type_name| *type_name != "null").cloned().collect();
    if others.is_empty() || others.len() == types.len() {
        return None;
    }
    Some(match <[Value; 1]>::try_from(others) {
        Ok([only]) => only,
        Err(several) => Value::Array(several),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its schema is used")]
    struct SearchArguments {
        /// What to look for.
        query: String,
        filters: Option<SearchFilters>,
        #[serde(default)]
        count: Option<u32>,
        #[serde(default)]
        explain: bool,
    }

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its schema is used")]
    struct SearchFilters {
        /// Where from.
        source: Option<String>,
        tags: Option<Vec<Option<String>>>,
    }

    #[test]
    fn an_optional_argument_is_not_required_and_has_one_type() {
        let expected = json!({
            "type": "object",
            "properties": {
                "query": {"description": "What to look for.", "type": "string"},
                "filters": {
                    "type": "object",
                    "properties": {
                        "source": {"description": "Where from.", "type": "string"},
                        "tags": {"type": "array", "items": {"type": ["string", "null"]}},
                    },
                },
                "count": {"type": "integer", "minimum": 0},
                "explain": {"type": "boolean", "default": false},
            },
            "required": ["query"],
        });
        assert_eq!(input_schema::<SearchArguments>(), expected);
    }

    #[test]
    fn a_result_that_may_be_null_says_so_in_a_branch() {
        let schema = output_schema::<SearchArguments>();
        let filters = &schema["properties"]["filters"]["anyOf"];
        assert_eq!(filters[1], json!({"type": "null"}));
        assert_eq!(
            filters[0]["properties"]["source"],
            json!({"description": "Where from.", "anyOf": [{"type": "string"}, {"type": "null"}]})
        );
        assert!(!schema.to_string().contains(r#""type":["#), "{schema}");
    }

    #[test]
    fn null_is_taken_for_an_optional_argument_that_is_absent() {
        let schema = input_schema::<SearchArguments>();
        let mut arguments = json!({
            "query": null, "filters": {"source": null, "tags": [null], "other": null}, "count": null,
            "explain": null,
        });
        drop_nulls(&schema, &mut arguments);
        // A required one, an item, an unknown one and one with a default are judged by the schema.
        let expected = json!({"query": null, "filters": {"tags": [null], "other": null}, "explain": null});
        assert_eq!(arguments, expected);
        let mut arguments = json!({"filters": null});
        drop_nulls(&schema, &mut arguments);
        assert_eq!(arguments, json!({}));
    }
}
