//! The shape of a tool's arguments: validated by a JSON Schema validator, defaults filled in.
//!
//! Compiled once per tool. Messages name the parameter and never repeat its value, which may be
//! large or secret.

use crate::body::Given;
use crate::{BodyArgument, ErrorKind, ToolError, nearest};
use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, ValidationError, Validator, ValidatorMap};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// How many problems one answer names.
const PROBLEMS_MAX: usize = 5;
/// How deep defaults are looked for; also ends recursive schemas.
const DEFAULTS_DEPTH_MAX: usize = 32;

/// How many objects and arrays are looked at for defaults; a schema that refers to itself twice
/// would double the arguments at every level.
const DEFAULTS_STEPS_MAX: usize = 10_000;

/// The schema of a type: whole, without references, without a name.
pub fn json_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    drop_unknown_formats(&mut schema);
    if let Some(fields) = schema.as_object_mut() {
        fields.shift_remove("title");
        fields.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    schema
}

/// Drops the names that schemars gives to Rust's unsigned numbers: no standard has them, and readers of
/// schemas complain. Their bounds stay.
fn drop_unknown_formats(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let is_unknown = |format: &Value| format.as_str().is_some_and(|name| name.starts_with("uint"));
            if fields.get("format").is_some_and(is_unknown) {
                fields.shift_remove("format");
            }
            fields.values_mut().for_each(drop_unknown_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_unknown_formats),
        _ => {}
    }
}

/// A compiled schema for arguments.
#[derive(Debug)]
pub struct ArgumentSchema {
    schema: Value,
    /// Whether there is anything to fill in.
    has_defaults: bool,
    /// `None`: the schema is faulty and arguments pass unchecked.
    validator: Option<Validator>,
    body: Option<BodyArgument>,
}

/// A schema that cannot be compiled.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

impl ArgumentSchema {
    /// Compiles a schema (2020-12 unless it says otherwise). References must stay inside it.
    pub fn compile(mut schema: Value) -> Result<Self, SchemaError> {
        let options = jsonschema::options().with_draft(Draft::Draft202012);
        let faulty = |error: ValidationError<'_>| SchemaError(error.to_string());
        let validator = options.build(&schema).map_err(faulty)?;
        let has_defaults = has_defaults(&schema);
        if has_defaults {
            let parts = options.build_map(&schema).map_err(faulty)?;
            let root = schema.clone();
            drop_misfits(&root, &mut schema, "#", &parts);
        }
        Ok(Self { schema, has_defaults, validator: Some(validator), body: None })
    }

    /// Lets every object through: for a tool whose own schema is faulty.
    pub fn unchecked(schema: Value) -> Self {
        Self { has_defaults: has_defaults(&schema), schema, validator: None, body: None }
    }

    /// The same for a tool that sends this argument, which callers may give in other ways too.
    #[must_use]
    pub fn with_body(self, body: Option<BodyArgument>) -> Self {
        Self { body, ..self }
    }

    /// The schema, without defaults that do not fit it.
    pub fn json(&self) -> &Value {
        &self.schema
    }

    /// Fills in defaults and validates; the error names what is wrong and where.
    pub fn prepare(&self, arguments: Value) -> Result<Map<String, Value>, ToolError> {
        let (mut arguments, given) = match (&self.body, arguments) {
            (Some(body), arguments) => body.arrange(&self.schema, arguments),
            (None, Value::Null) => (Value::Object(Map::new()), Given::Whole),
            (None, other) => (other, Given::Whole),
        };
        if self.has_defaults {
            let mut steps_left = DEFAULTS_STEPS_MAX;
            inject_defaults(&self.schema, &self.schema, &mut arguments, 0, &mut steps_left);
            if steps_left == 0 {
                return Err(ToolError::new(
                    ErrorKind::TooLarge,
                    "arguments with their defaults are too large",
                ));
            }
        }
        if let Some(validator) = &self.validator {
            let errors = validator.iter_errors(&arguments).take(PROBLEMS_MAX);
            let mut problems: Vec<String> = errors.map(|error| self.explain(&error, given)).collect();
            problems.dedup();
            if !problems.is_empty() {
                return Err(ToolError::bad_request(problems.join("; ")));
            }
        }
        match arguments {
            Value::Object(fields) => Ok(fields),
            _ => Err(ToolError::bad_request("arguments must be a JSON object")),
        }
    }

    fn explain(&self, error: &ValidationError<'_>, given: Given) -> String {
        let whole_path = dotted(error.instance_path().as_str());
        let body = self.body.as_ref().map(|body| body.name.as_str()).filter(|_| given != Given::Whole);
        // Whoever gave fields beside the other arguments knows of no body.
        let path = match body.and_then(|body| whole_path.strip_prefix(body)) {
            Some("") => "",
            Some(within) => within.strip_prefix('.').unwrap_or(&whole_path),
            None => &whole_path,
        };
        let child = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                let hint = match body.filter(|_| whole_path.is_empty()) {
                    Some(body) => self.stray(error.instance(), body, name),
                    None => String::new(),
                };
                format!("missing required parameter: {}{hint}", child(name))
            }
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let mut known = self.known(&whole_path);
                if body == Some(&whole_path) {
                    known.extend(self.known(""));
                }
                let explain = |name: &String| explain_unknown(name, &child(name), &known);
                unexpected.iter().take(PROBLEMS_MAX).map(explain).collect::<Vec<_>>().join("; ")
            }
            _ if given == Given::Nothing && body == Some(&whole_path) => {
                format!("missing required parameter: {whole_path}")
            }
            _ if path.is_empty() => error.masked_with("arguments").to_string(),
            _ => format!("parameter `{path}`: {}", error.masked_with("its value")),
        }
    }

    /// What was taken for a field of an open body and was perhaps meant for a parameter that is missing.
    fn stray(&self, arguments: &Value, body: &str, missing: &str) -> String {
        let known = self.known(body);
        let fields = arguments.get(body).and_then(Value::as_object);
        let names = fields.into_iter().flat_map(|fields| fields.keys()).map(String::as_str);
        match nearest(missing, names.filter(|name| !known.contains(name))) {
            // Where the body takes no such field that is told anyway.
            Some(near) if !self.is_closed(body) => format!(" (did you mean it by `{near}`?)"),
            _ => String::new(),
        }
    }

    /// The schema at a dotted path.
    fn at(&self, path: &str) -> Option<&Value> {
        let parts = path.split('.').filter(|part| !part.is_empty());
        parts.into_iter().try_fold(&self.schema, |schema, part| property(&self.schema, schema, part))
    }

    fn is_closed(&self, path: &str) -> bool {
        let is_closed = |word| self.at(path).and_then(|schema| schema.get(word)) == Some(&Value::Bool(false));
        is_closed("additionalProperties") || is_closed("unevaluatedProperties")
    }

    /// The names of the fields at a dotted path.
    fn known(&self, path: &str) -> Vec<&str> {
        let known = self.at(path).and_then(|schema| schema.get("properties")).and_then(Value::as_object);
        known.into_iter().flat_map(|known| known.keys()).map(String::as_str).collect()
    }
}

fn explain_unknown(name: &str, path: &str, known: &[&str]) -> String {
    let shown: String = path.chars().take(80).collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("unknown parameter: {shown} (did you mean `{near}`?)"),
        None => format!("unknown parameter: {shown}"),
    }
}

/// `/filters/tags/0` as people write it: `filters.tags.0`.
fn dotted(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".").replace("~1", "/").replace("~0", "~")
}

/// Walks schema and value together. Alternatives (`anyOf`, `oneOf`, `if`) are left alone: which
/// one applies is not known before validation.
fn inject_defaults(root: &Value, schema: &Value, value: &mut Value, depth: usize, steps_left: &mut usize) {
    let has_parts = value.is_object() || value.is_array();
    if !has_parts || depth > DEFAULTS_DEPTH_MAX || *steps_left == 0 {
        return;
    }
    *steps_left -= 1;
    if let Some(target) = referenced(root, schema) {
        inject_defaults(root, target, value, depth + 1, steps_left);
    }
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        inject_defaults(root, part, value, depth + 1, steps_left);
    }
    match value {
        Value::Object(fields) => {
            for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                if !fields.contains_key(name)
                    && let Some(default) = default_of(root, property, 0)
                {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(field) = fields.get_mut(name) {
                    inject_defaults(root, property, field, depth + 1, steps_left);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for item in items {
                    inject_defaults(root, schema, item, depth + 1, steps_left);
                }
            }
        }
        _ => {}
    }
}

fn has_defaults(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.contains_key("default") || fields.values().any(has_defaults),
        Value::Array(items) => items.iter().any(has_defaults),
        _ => false,
    }
}

/// Drops defaults that their own schema refuses, such as `null` for a string: the caller who left
/// the parameter out has done nothing wrong.
fn drop_misfits(root: &Value, schema: &mut Value, pointer: &str, parts: &ValidatorMap) {
    match schema {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                let name = name.replace('~', "~0").replace('/', "~1");
                drop_misfits(root, field, &format!("{pointer}/{name}"), parts);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                drop_misfits(root, item, &format!("{pointer}/{index}"), parts);
            }
        }
        _ => {}
    }
    let (Some(mut default), Some(validator)) = (schema.get("default").cloned(), parts.get(pointer)) else {
        return;
    };
    let mut steps_left = DEFAULTS_STEPS_MAX;
    inject_defaults(root, schema, &mut default, 0, &mut steps_left);
    if !validator.is_valid(&default)
        && let Value::Object(fields) = schema
    {
        fields.remove("default");
    }
}

fn default_of<'a>(root: &'a Value, schema: &'a Value, depth: usize) -> Option<&'a Value> {
    if depth > DEFAULTS_DEPTH_MAX {
        return None;
    }
    schema
        .get("default")
        .or_else(|| referenced(root, schema).and_then(|target| default_of(root, target, depth + 1)))
}

fn referenced<'a>(root: &'a Value, schema: &Value) -> Option<&'a Value> {
    let reference = schema.get("$ref")?.as_str()?;
    root.pointer(reference.strip_prefix('#')?)
}

fn property<'a>(root: &'a Value, schema: &'a Value, name: &str) -> Option<&'a Value> {
    let found = schema.get("properties")?.get(name)?;
    Some(referenced(root, found).unwrap_or(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> ArgumentSchema {
        ArgumentSchema::compile(json!({
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "project": {"type": "string", "default": "ENG"},
                "priority": {"enum": ["low", "high"]},
                "limit": {"type": "integer", "minimum": 1},
                "filters": {"$ref": "#/$defs/filters"},
                "steps": {"type": "array", "items": {
                    "type": "object", "properties": {"retry": {"default": 3}},
                }},
            },
            "required": ["title"],
            "additionalProperties": false,
            "$defs": {"filters": {
                "type": "object",
                "properties": {"source": {"type": "string"}, "deep": {
                    "type": "object", "default": {}, "properties": {"on": {"default": true}},
                }},
                "required": ["source"],
                "additionalProperties": false,
            }},
        }))
        .unwrap()
    }

    fn message(arguments: Value) -> String {
        schema().prepare(arguments).unwrap_err().message().to_owned()
    }

    #[test]
    fn defaults_are_injected_nested_ones_too() {
        let arguments = json!({"title": "x", "filters": {"source": "git"}, "steps": [{}, {"retry": 1}]});
        let prepared = Value::Object(schema().prepare(arguments).unwrap());
        let expected = json!({
            "title": "x", "project": "ENG", "filters": {"source": "git", "deep": {"on": true}},
            "steps": [{"retry": 3}, {"retry": 1}],
        });
        assert_eq!(prepared, expected);
    }

    #[test]
    fn errors_name_the_parameter_by_path() {
        assert_eq!(message(json!({})), "missing required parameter: title");
        assert_eq!(message(json!(null)), "missing required parameter: title");
        assert_eq!(
            message(json!({"title": "x", "filters": {}})),
            "missing required parameter: filters.source"
        );
        assert_eq!(message(json!({"title": 7})), r#"parameter `title`: its value is not of type "string""#);
        assert_eq!(
            message(json!({"title": "x", "priority": "urgent"})),
            r#"parameter `priority`: its value is not one of "low" or "high""#
        );
        assert_eq!(
            message(json!({"title": "x", "limit": 0})),
            "parameter `limit`: its value is less than the minimum of 1"
        );
        assert_eq!(
            message(json!({"title": "x", "titel": 1})),
            "unknown parameter: titel (did you mean `title`?)"
        );
        assert_eq!(
            message(json!({"title": "x", "filters": {"source": "a", "sorce": 1}})),
            "unknown parameter: filters.sorce (did you mean `source`?)"
        );
        assert_eq!(message(json!([1])), r#"arguments is not of type "object""#);
    }

    #[test]
    fn all_problems_are_told_at_once() {
        assert_eq!(message(json!({"title": 7, "limit": 0})).matches("parameter `").count(), 2);
    }

    #[test]
    fn messages_do_not_repeat_values() {
        assert!(!message(json!({"title": ["hunter2"]})).contains("hunter2"));
    }

    #[test]
    fn a_remote_reference_is_refused() {
        let remote = json!({"properties": {"a": {"$ref": "https://example.com/schema.json"}}});
        assert!(ArgumentSchema::compile(remote).is_err());
        let file = json!({"$ref": "file:///etc/passwd"});
        assert!(ArgumentSchema::compile(file).is_err());
    }

    #[test]
    fn recursive_schemas_end() {
        let schema = ArgumentSchema::compile(json!({
            "type": "object",
            "properties": {"child": {"$ref": "#", "default": {}}},
        }))
        .unwrap();
        assert!(schema.prepare(json!({})).is_ok());
        let looped = ArgumentSchema::unchecked(json!({"$ref": "#"}));
        assert!(looped.prepare(json!({})).is_ok());
    }
}
