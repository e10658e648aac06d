//! JSON Schema defaults: filled in for omitted arguments, and dropped if their own schema rejects them.
//!
//! Schemas are untrusted, so both passes count their steps, and one validator checks all defaults.

use crate::SchemaError;
use crate::effort::{EFFORT_MAX, Subschemas, effort, resolve_reference};
use crate::json_size;
use jsonschema::Validator;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

/// Maximum depth of the search for defaults; also ends recursive schemas.
const DEFAULTS_DEPTH_MAX: usize = 32;

/// Maximum number of objects and arrays searched for defaults. Without it, a schema that refers to itself twice would
/// double the arguments at every level.
pub(crate) const DEFAULTS_STEPS_MAX: usize = 10_000;

/// Scalar items that cost as much as one object.
const SCALARS_PER_STEP: usize = 256;

/// Base URI of the checked schema within the schema that checks its defaults.
const CHECKED_URI: &str = "urn:ctx:checked";

/// All that a JSON pointer has escaped when it is the fragment of a URI.
const ESCAPED_IN_FRAGMENTS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Inserts defaults into `value`, walking schema and value together. Skips alternatives (`anyOf`, `oneOf`, `if`): only
/// validation decides which one applies.
pub(crate) fn inject_defaults(
    root: &Value,
    schema: &Value,
    value: &mut Value,
    depth: usize,
    steps_left: &mut usize,
) {
    let has_parts = value.is_object() || value.is_array();
    if !has_parts || depth > DEFAULTS_DEPTH_MAX || *steps_left == 0 {
        return;
    }
    *steps_left -= 1;
    if let Some(target) = reference_target(root, schema) {
        inject_defaults(root, target, value, depth + 1, steps_left);
    }
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        inject_defaults(root, part, value, depth + 1, steps_left);
    }
    match value {
        Value::Object(fields) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            *steps_left = steps_left.saturating_sub(properties.map_or(0, |properties| properties.len() / 16));
            for (name, property) in properties.into_iter().flatten() {
                if !fields.contains_key(name)
                    && let Some(default) = find_default(root, property, 0)
                {
                    *steps_left = steps_left.saturating_sub(json_size(default) / 64);
                    if *steps_left == 0 {
                        return;
                    }
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(field) = fields.get_mut(name) {
                    inject_defaults(root, property, field, depth + 1, steps_left);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                *steps_left = steps_left.saturating_sub(items.len() / SCALARS_PER_STEP);
                for item in items {
                    inject_defaults(root, schema, item, depth + 1, steps_left);
                }
            }
        }
        _ => {}
    }
}

/// Whether the document has a `default` anywhere.
pub(crate) fn has_defaults(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.contains_key("default") || fields.values().any(has_defaults),
        Value::Array(items) => items.iter().any(has_defaults),
        _ => false,
    }
}

/// JSON pointers of all subschemas that have a default; inner ones first.
pub(crate) fn default_pointers(schema: &Value, subschemas: &Subschemas) -> Vec<String> {
    let mut pointers = Vec::new();
    collect_pointers(schema, subschemas, &mut String::new(), &mut pointers);
    pointers
}

fn collect_pointers(part: &Value, subschemas: &Subschemas, pointer: &mut String, pointers: &mut Vec<String>) {
    let length = pointer.len();
    match part {
        Value::Object(fields) => {
            for (name, field) in fields.iter().filter(|(_, field)| field.is_object() || field.is_array()) {
                pointer.push('/');
                pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                collect_pointers(field, subschemas, pointer, pointers);
                pointer.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                pointer.push_str(&format!("/{index}"));
                collect_pointers(item, subschemas, pointer, pointers);
                pointer.truncate(length);
            }
        }
        _ => {}
    }
    if part.get("default").is_some() && subschemas.contains(part) {
        pointers.push(pointer.clone());
    }
}

/// Drops defaults that their own schema rejects, such as `null` for a string, so that a caller who omits the parameter
/// gets no error. Also drops those that are too expensive to validate.
pub(crate) fn drop_invalid_defaults(
    schema: &mut Value,
    pointers: &[String],
    build: impl FnOnce(&Value) -> Result<Validator, SchemaError>,
) -> Result<(), SchemaError> {
    let mut original = schema.clone();
    if let Value::Object(fields) = &mut original {
        fields.shift_remove("$schema");
        fields.insert("$id".to_owned(), Value::from(CHECKED_URI));
    }
    // One validator for all, in which `$ref`s share their targets: default number 7 is the field `7`.
    let field = |(index, pointer): (usize, &String)| {
        (
            index.to_string(),
            json!({"$ref": format!("{CHECKED_URI}#{}", utf8_percent_encode(pointer, ESCAPED_IN_FRAGMENTS))}),
        )
    };
    let fields: Map<String, Value> = pointers.iter().enumerate().map(field).collect();
    let validator = build(&json!({"$defs": {"checked": original}, "properties": fields}))?;

    let mut effort_left = EFFORT_MAX;
    for (index, pointer) in pointers.iter().enumerate() {
        let (Some(part), Some(original_part)) = (schema.pointer(pointer), original.pointer(pointer)) else {
            continue;
        };
        let Some(mut default) = part.get("default").cloned() else { continue };
        let steps = DEFAULTS_STEPS_MAX.min(usize::try_from(effort_left).unwrap_or(usize::MAX));
        let mut steps_left = steps;
        inject_defaults(schema, part, &mut default, 0, &mut steps_left);
        effort_left = effort_left.saturating_sub((steps - steps_left) as u64);
        let fits = match effort(&original, original_part, &default, effort_left) {
            Ok(effort) if steps_left > 0 => {
                effort_left -= effort;
                validator.is_valid(&Value::Object(Map::from_iter([(index.to_string(), default)])))
            }
            _ => false,
        };
        if !fits && let Some(Value::Object(fields)) = schema.pointer_mut(pointer) {
            fields.shift_remove("default");
        }
    }
    Ok(())
}

fn find_default<'a>(root: &'a Value, schema: &'a Value, depth: usize) -> Option<&'a Value> {
    if depth > DEFAULTS_DEPTH_MAX {
        return None;
    }
    schema
        .get("default")
        .or_else(|| reference_target(root, schema).and_then(|target| find_default(root, target, depth + 1)))
}

/// Target of the schema's `$ref`.
pub(crate) fn reference_target<'a>(root: &'a Value, schema: &Value) -> Option<&'a Value> {
    resolve_reference(root, schema.get("$ref")?)
}
