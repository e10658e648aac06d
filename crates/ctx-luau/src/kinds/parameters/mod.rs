//! Converts the parameters that a tool declares to JSON Schema.
//!
//! A tool declares either a list of parameters (`name`, `type`, `required`, …), each with further JSON Schema
//! keywords; or a whole JSON Schema, as `tool.schema` or in place of the list.

#[cfg(test)]
mod tests;

use super::{fit_empty, type_name};
use ctx_core::{ArgumentSchema, nearest};
use serde_json::{Map, Value, json};

/// The types of JSON Schema.
const TYPES: &[&str] = &["string", "integer", "number", "boolean", "array", "object", "null"];
/// Names of these types in other languages.
const TYPE_ALIASES: &[(&str, &str)] = &[
    ("bool", "boolean"),
    ("dict", "object"),
    ("float", "number"),
    ("int", "integer"),
    ("list", "array"),
    ("map", "object"),
    ("str", "string"),
    ("table", "object"),
];
/// Fields of a declaration that are not keywords of its schema.
const OWN_FIELDS: &[&str] = &["name", "required", "schema"];
/// JSON Schema keywords that a declaration can have.
const SCHEMA_FIELDS: &[&str] = &[
    "type",
    "description",
    "default",
    "enum",
    "items",
    "properties",
    "minimum",
    "maximum",
    "pattern",
    "title",
    "examples",
    "format",
    "const",
    "minLength",
    "maxLength",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "additionalProperties",
    "minProperties",
    "maxProperties",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "deprecated",
];
/// Keywords whose value is a list, even when it is empty.
const LIST_KEYWORDS: &[&str] = &["required", "enum", "examples"];
/// Keywords by which a schema may allow more fields than its own `properties`: closing such an object could refuse them.
const COMBINATORS: &[&str] =
    &["allOf", "anyOf", "oneOf", "not", "if", "$ref", "dependentSchemas", "unevaluatedProperties"];
/// Maximum nesting of declarations.
const DEPTH_MAX: usize = 32;

/// Number of parameters or arguments that a script declares.
pub(super) fn count(table: &Map<String, Value>) -> usize {
    let schema = table.get("schema").or_else(|| table.get("parameters").filter(|value| is_schema(value)));
    if let Some(schema) = schema {
        return schema.get("properties").and_then(Value::as_object).map_or(0, Map::len);
    }
    let declared = table.get("parameters").or_else(|| table.get("arguments"));
    declared.and_then(Value::as_array).map_or(0, Vec::len)
}

/// The JSON Schema of a tool's arguments; an error names the invalid declaration.
pub(super) fn input_schema(table: &Map<String, Value>) -> Result<Value, String> {
    let (place, mut schema) = match (table.get("schema"), table.get("parameters")) {
        (Some(schema), _) => ("tool.schema", read_schema(schema, "tool.schema")?),
        (None, Some(schema)) if is_schema(schema) => {
            ("tool.parameters", read_schema(schema, "tool.parameters")?)
        }
        (None, declared) => ("tool.parameters", schema_of_declarations(declared.unwrap_or(&Value::Null))?),
    };
    // A tool that declares no parameters accepts any.
    if ["schema", "parameters"]
        .iter()
        .any(|name| table.get(*name).is_some_and(|declared| !declared.is_null()))
    {
        close_objects(&mut schema, 0);
    }
    let compiled = ArgumentSchema::compile(schema.clone());
    compiled.map_err(|error| format!("{place} is not a valid schema: {error}"))?;
    Ok(schema)
}

/// Converts a JSON Schema that is written as a Lua table.
pub(super) fn read_schema(schema: &Value, place: &str) -> Result<Value, String> {
    let mut schema = schema.clone();
    let Value::Object(fields) = &mut schema else {
        return Err(format!("{place} must be a table, it is {}", type_name(&schema)));
    };
    fields.entry("type").or_insert_with(|| json!("object"));
    restore_lists(&mut schema, 0);
    Ok(schema)
}

/// Whether this is a whole schema in place of a list of declarations.
fn is_schema(value: &Value) -> bool {
    value.get("properties").is_some_and(Value::is_object) || value.get("type").is_some_and(Value::is_string)
}

fn schema_of_declarations(declared: &Value) -> Result<Value, String> {
    let (properties, required) = read_declarations(declared, "tool.parameters", 0)?;
    Ok(json!({ "type": "object", "properties": properties, "required": required }))
}

/// Sets `additionalProperties: false` unless the schema says otherwise, so that a misspelt optional parameter
/// is an error instead of being ignored. Nested objects without any property stay open: they hold whatever is
/// sent.
fn close_objects(schema: &mut Value, depth: usize) {
    let Value::Object(fields) = schema else { return };
    if depth > DEPTH_MAX {
        return;
    }
    let properties = fields.get("properties").and_then(Value::as_object);
    let names_every_required = properties.is_some_and(|properties| {
        let required = fields.get("required").and_then(Value::as_array);
        let mut required = required.into_iter().flatten().filter_map(Value::as_str);
        (depth == 0 || !properties.is_empty()) && required.all(|name| properties.contains_key(name))
    });
    if names_every_required && !COMBINATORS.iter().any(|name| fields.contains_key(*name)) {
        fields.entry("additionalProperties").or_insert(json!(false));
    }
    for (name, value) in fields {
        match name.as_str() {
            "properties" | "patternProperties" => {
                value
                    .as_object_mut()
                    .into_iter()
                    .flatten()
                    .for_each(|(_, schema)| close_objects(schema, depth + 1));
            }
            "items" | "additionalProperties" => close_objects(value, depth + 1),
            "prefixItems" => {
                value
                    .as_array_mut()
                    .into_iter()
                    .flatten()
                    .for_each(|schema| close_objects(schema, depth + 1));
            }
            _ => {}
        }
    }
}

/// Reads declarations, from a list or a table keyed by name, into properties and the names of the required
/// ones.
fn read_declarations(
    declared: &Value,
    place: &str,
    depth: usize,
) -> Result<(Map<String, Value>, Vec<String>), String> {
    if depth > DEPTH_MAX {
        return Err(format!("{place}: declarations may be nested at most {DEPTH_MAX} levels deep"));
    }
    let mut properties = Map::new();
    let mut required = Vec::new();
    let mut add = |name: String, place: &str, declared: &Map<String, Value>| {
        let (schema, is_required) = read_declaration(declared, place, depth)?;
        if properties.contains_key(&name) {
            return Err(format!("{place}: there are two parameters `{name}`"));
        }
        if is_required {
            required.push(name.clone());
        }
        properties.insert(name, schema);
        Ok(())
    };
    match declared {
        Value::Null => {}
        Value::Array(items) => {
            for (position, item) in items.iter().enumerate() {
                let place = format!("{place}[{}]", position + 1);
                let item = as_table(item, &place)?;
                let name = match item.get("name") {
                    Some(Value::String(name)) if !name.is_empty() => name.clone(),
                    None => return Err(format!("{place}: `name` is missing")),
                    Some(_) => return Err(format!("{place}: `name` must be a non-empty string")),
                };
                add(name.clone(), &format!("{place} (`{name}`)"), item)?;
            }
        }
        Value::Object(by_name) => {
            for (name, item) in by_name {
                let place = format!("{place}.{name}");
                let shorthand;
                let item = match item {
                    Value::String(kind) => {
                        shorthand = Map::from_iter([("type".to_owned(), json!(kind))]);
                        &shorthand
                    }
                    other => as_table(other, &place)?,
                };
                add(name.clone(), &place, item)?;
            }
        }
        other => return Err(format!("{place} must be a list of tables, it is {}", type_name(other))),
    }
    Ok((properties, required))
}

/// Reads one declaration: its schema, and whether it is required.
fn read_declaration(
    declared: &Map<String, Value>,
    place: &str,
    depth: usize,
) -> Result<(Value, bool), String> {
    let is_required = match declared.get("required") {
        Some(Value::Bool(required)) => *required,
        None | Some(Value::Array(_) | Value::Null) => false,
        Some(other) => {
            return Err(format!("{place}: `required` must be true or false, it is {}", type_name(other)));
        }
    };
    for name in declared.keys() {
        let known = || OWN_FIELDS.iter().chain(SCHEMA_FIELDS).copied();
        if !known().any(|known| known == name)
            && let Some(similar) = nearest(name, known())
        {
            return Err(format!("{place}: there is no field `{name}` (did you mean `{similar}`?)"));
        }
    }
    let mut schema = match declared.get("schema") {
        Some(schema) => as_table(schema, &format!("{place}.schema"))?.clone(),
        None => Map::new(),
    };
    for name in SCHEMA_FIELDS {
        if let Some(value) = declared.get(*name).filter(|value| !value.is_null()) {
            schema.insert((*name).to_owned(), value.clone());
        }
    }
    if let Some(properties) = declared.get("properties") {
        let (properties, mut required) =
            read_declarations(properties, &format!("{place}.properties"), depth + 1)?;
        let required_names = declared.get("required").and_then(Value::as_array);
        required.extend(required_names.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
        schema.insert("properties".to_owned(), Value::Object(properties));
        schema.insert("required".to_owned(), json!(required));
    }
    if let Some(items) = declared.get("items") {
        let place = format!("{place}.items");
        let items = match items {
            Value::String(kind) => {
                read_declaration(&Map::from_iter([("type".to_owned(), json!(kind))]), &place, depth + 1)?.0
            }
            other => read_declaration(as_table(other, &place)?, &place, depth + 1)?.0,
        };
        schema.insert("items".to_owned(), items);
    }
    validate_schema(&mut schema, place)?;
    let mut schema = Value::Object(schema);
    restore_lists(&mut schema, 0);
    Ok((schema, is_required))
}

/// Validates the schema of a declaration. Adds a `type` that other keywords imply, and fits an empty default
/// to it.
fn validate_schema(schema: &mut Map<String, Value>, place: &str) -> Result<(), String> {
    match schema.get("type") {
        None if schema.contains_key("properties") => {
            schema.insert("type".to_owned(), json!("object"));
        }
        None if schema.contains_key("items") => {
            schema.insert("type".to_owned(), json!("array"));
        }
        // These keywords may constrain the value enough.
        None if ["enum", "const", "anyOf", "oneOf", "allOf", "$ref"]
            .iter()
            .any(|key| schema.contains_key(*key)) => {}
        None => return Err(format!("{place}: `type` is missing: one of {}", TYPES.join(", "))),
        Some(Value::String(kind)) => check_type(kind, place)?,
        Some(Value::Array(kinds)) => {
            for kind in kinds {
                let kind = kind.as_str().ok_or_else(|| format!("{place}: `type` must name types"))?;
                check_type(kind, place)?;
            }
        }
        Some(other) => {
            return Err(format!("{place}: `type` must be a string, it is {}", type_name(other)));
        }
    }
    let text = |field: &str| match schema.get(field) {
        None | Some(Value::String(_)) => Ok(()),
        Some(other) => Err(format!("{place}: `{field}` must be a string, it is {}", type_name(other))),
    };
    text("description")?;
    text("pattern")?;
    for field in ["minimum", "maximum"] {
        if schema.get(field).is_some_and(|bound| !bound.is_number()) {
            return Err(format!("{place}: `{field}` must be a number"));
        }
    }
    match schema.get("enum") {
        None => {}
        Some(Value::Array(values)) if !values.is_empty() => {}
        Some(_) => return Err(format!("{place}: `enum` must be a list of values")),
    }
    let Some(mut default) = schema.get("default").cloned() else { return Ok(()) };
    fit_empty(&Value::Object(schema.clone()), &mut default);
    schema.insert("default".to_owned(), default.clone());
    let wrapper = json!({ "type": "object", "properties": { "default": schema } });
    // An invalid schema is reported for the tool as a whole.
    if let Ok(compiled) = ArgumentSchema::compile(wrapper)
        && let Err(error) = compiled.prepare(json!({ "default": default }))
    {
        return Err(format!("{place}: the default is invalid: {}", error.message()));
    }
    Ok(())
}

fn check_type(kind: &str, place: &str) -> Result<(), String> {
    if TYPES.contains(&kind) {
        return Ok(());
    }
    let other = TYPE_ALIASES.iter().find(|(name, _)| *name == kind).map(|(_, name)| *name);
    match other.or_else(|| nearest(kind, TYPES.iter().copied())) {
        Some(similar) => Err(format!("{place}: there is no type `{kind}` (did you mean `{similar}`?)")),
        None => Err(format!("{place}: there is no type `{kind}`: one of {}", TYPES.join(", "))),
    }
}

/// Converts empty tables to lists under the keywords whose value is a list.
fn restore_lists(schema: &mut Value, depth: usize) {
    let Value::Object(fields) = schema else { return };
    if depth > DEPTH_MAX {
        return;
    }
    for (name, value) in fields {
        if LIST_KEYWORDS.contains(&name.as_str()) && value.as_object().is_some_and(Map::is_empty) {
            *value = json!([]);
        }
        // A property may have the name of a keyword, so the schemas of properties are visited one by one.
        match name.as_str() {
            "properties" | "$defs" | "patternProperties" => {
                for schema in value.as_object_mut().into_iter().flatten().map(|(_, schema)| schema) {
                    restore_lists(schema, depth + 1);
                }
            }
            "items" | "additionalProperties" | "not" => restore_lists(value, depth + 1),
            "allOf" | "anyOf" | "oneOf" => {
                value
                    .as_array_mut()
                    .into_iter()
                    .flatten()
                    .for_each(|schema| restore_lists(schema, depth + 1));
            }
            _ => {}
        }
    }
}

fn as_table<'a>(value: &'a Value, place: &str) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{place} must be a table, it is {}", type_name(value)))
}
