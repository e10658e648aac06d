//! Converts empty Lua tables to lists where a JSON Schema wants a list: `{}` in Lua is both a list and an
//! object.

use ctx_core::BodyArgument;
use serde_json::{Map, Value};

/// Maximum depth of nested values and `$ref`s.
const DEPTH_MAX: usize = 64;

/// Maximum number of visited pairs of subschema and value, of which branching `$ref`s would make
/// exponentially many. Beyond it the value is left unchanged.
const STEPS_MAX: usize = 100_000;

/// Number of list items, and of object fields, that count as one step.
const ITEMS_PER_STEP: usize = 32;
const FIELDS_PER_STEP: usize = 8;

/// Turns `{}` into `[]` wherever the schema wants a list.
pub(crate) fn fit_empty(schema: &Value, value: &mut Value) {
    EmptyFitter::new(schema).fit(schema, value, 0);
}

/// [`fit_empty`] for the body of a request: for body fields that are given among the other arguments, and for
/// a body that is given in place of all arguments.
pub(crate) fn fit_body(schema: &Value, body: &BodyArgument, value: &mut Value) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let body_schema = properties.and_then(|properties| properties.get(&body.name));
    let (Some(properties), Some(body_schema)) = (properties, body_schema) else { return };
    match value {
        Value::Object(arguments) if arguments.is_empty() => {
            let required = schema.get("required").and_then(Value::as_array);
            let is_required = required.is_some_and(|names| names.iter().any(|name| *name == *body.name));
            if is_required && properties.len() == 1 {
                EmptyFitter::new(schema).fit(body_schema, value, 0);
            }
        }
        Value::Object(arguments) if body.has_fields && !arguments.contains_key(&body.name) => {
            let (parameters, fields): (Map<String, Value>, Map<String, Value>) =
                std::mem::take(arguments).into_iter().partition(|(name, _)| properties.contains_key(name));
            *arguments = parameters;
            let mut fields = Value::Object(fields);
            // Without further fields there is no body, rather than an empty one.
            if fields != Value::Object(Map::new()) {
                EmptyFitter::new(schema).fit(body_schema, &mut fields, 0);
            }
            if let Value::Object(fields) = fields {
                arguments.extend(fields);
            }
        }
        Value::Array(_) => EmptyFitter::new(schema).fit(body_schema, value, 0),
        _ => {}
    }
}

/// Walks schema and value together, for at most [`STEPS_MAX`] steps.
struct EmptyFitter<'a> {
    root: &'a Value,
    steps_left: usize,
}

impl<'a> EmptyFitter<'a> {
    fn new(root: &'a Value) -> Self {
        Self { root, steps_left: STEPS_MAX }
    }

    fn fit(&mut self, schema: &Value, value: &mut Value, depth: usize) {
        if depth > DEPTH_MAX || self.steps_left == 0 || !(value.is_object() || value.is_array()) {
            return;
        }
        self.steps_left -= 1;
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str)
            && let Some(target) = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer))
        {
            self.fit(target, value, depth + 1);
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            for part in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.fit(part, value, depth + 1);
            }
        }
        match value {
            Value::Object(fields) if fields.is_empty() && wants_list(schema) => {
                *value = Value::Array(Vec::new());
            }
            Value::Object(fields) => self.fit_fields(schema, fields, depth),
            Value::Array(items) => {
                if let Some(schema) = schema.get("items") {
                    self.steps_left = self.steps_left.saturating_sub(items.len() / ITEMS_PER_STEP);
                    items.iter_mut().for_each(|item| self.fit(schema, item, depth + 1));
                }
            }
            _ => {}
        }
    }

    fn fit_fields(&mut self, schema: &Value, fields: &mut Map<String, Value>, depth: usize) {
        let properties = schema.get("properties");
        let others = schema.get("additionalProperties");
        self.steps_left = self.steps_left.saturating_sub(fields.len() / FIELDS_PER_STEP);
        for (name, field) in fields {
            if let Some(schema) = properties.and_then(|known| known.get(name)).or(others) {
                self.fit(schema, field, depth + 1);
            }
        }
    }
}

/// Whether the schema accepts a list and no object.
fn wants_list(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::String(name)) => name == "array",
        Some(Value::Array(names)) => {
            names.iter().any(|name| name == "array") && !names.iter().any(|name| name == "object")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn fit(schema: Value, mut value: Value) -> Value {
        fit_empty(&schema, &mut value);
        value
    }

    #[test]
    fn references_that_branch_end() {
        let mut definitions = Map::new();
        for level in 0..60 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            definitions.insert(format!("d{level}"), json!({"allOf": [next, next]}));
        }
        let schema = json!({"$ref": "#/$defs/d0", "$defs": definitions});
        assert_eq!(fit(schema, json!({"a": {}})), json!({"a": {}}));
    }

    #[test]
    fn scalars_use_up_steps_too() {
        let steps = |schema: Value, mut value: Value| {
            let mut fitter = EmptyFitter::new(&schema);
            fitter.fit(&schema, &mut value, 0);
            STEPS_MAX - fitter.steps_left
        };
        assert!(steps(json!({"items": {}}), json!(vec![0; 100_000])) > 1_000);
        let fields: Map<String, Value> = (0..100_000).map(|n| (n.to_string(), json!(n))).collect();
        assert!(steps(json!({}), Value::Object(fields)) > 1_000);
        let after = json!({"a": vec![0; 1_000_000], "tags": {}});
        let schema = json!({"properties": {"a": {"items": {}}, "tags": {"type": "array"}}});
        assert_eq!(fit(schema, after)["tags"], json!([]));
    }

    #[test]
    fn an_empty_table_becomes_a_list_where_the_schema_says_so() {
        assert_eq!(fit(json!({"type": "array"}), json!({})), json!([]));
        assert_eq!(fit(json!({"type": "object"}), json!({})), json!({}));
        assert_eq!(fit(json!({}), json!({})), json!({}));
        let schema = json!({
            "properties": {
                "tags": {"type": ["array", "null"]},
                "deep": {"$ref": "#/$defs/deep"},
                "either": {"anyOf": [{"type": "array"}, {"type": "null"}]},
                "any": {"type": ["array", "object"]},
            },
            "$defs": {"deep": {"items": {"type": "array"}}},
        });
        assert_eq!(
            fit(schema, json!({"tags": {}, "deep": [{}, {"a": 1}], "either": {}, "any": {}, "other": {}})),
            json!({"tags": [], "deep": [[], {"a": 1}], "either": [], "any": {}, "other": {}})
        );
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        assert_eq!(fit(json!({"$ref": "#"}), json!({"a": {}})), json!({"a": {}}));
    }

    proptest! {
        #[test]
        fn nothing_but_empty_tables_changes(names in proptest::collection::vec("[a-c]{1}", 0..4), number in 0..9) {
            let mut value = json!({ "n": number });
            for name in names {
                value = json!({ name: value });
            }
            let schema = json!({ "type": "array", "additionalProperties": { "type": "array" } });
            prop_assert_eq!(fit(schema, value.clone()), value);
        }
    }
}
