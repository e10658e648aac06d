//! Argument schemas: JSON Schema validation of a tool's arguments, with defaults filled in.
//!
//! A schema is compiled once per tool. Error messages name the parameter and never contain its value, which may be
//! large or secret.

use crate::body::BodyForm;
use crate::defaults::{
    DEFAULTS_STEPS_MAX, default_pointers, drop_invalid_defaults, has_defaults, inject_defaults,
    reference_target,
};
use crate::effort::{EFFORT_MAX, EffortExceeded, effort, subschemas};
use crate::nullable::drop_nulls;
use crate::{BodyArgument, ErrorKind, ToolError, nearest};
use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// Maximum number of problems in one error message.
const PROBLEMS_MAX: usize = 5;

/// Validation effort (see `effort`) that may be spent on the runtime thread: a millisecond or two.
const INLINE_EFFORT_MAX: u64 = 50_000;

/// Memory for the errors of one validation, estimated: the validator collects all of them before it returns the first.
/// Above this limit the message names no parameter.
const ERRORS_BYTES_MAX: u64 = 128 << 20;

/// Memory of an error besides its path, for each unit of validation effort.
const ERROR_BYTES: u64 = 128;

/// Backtracking limit of one match of a pattern with look-around or backreferences.
const BACKTRACKING_MAX: usize = 10_000;

/// JSON Schema of a Rust type, without references and title.
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

/// Drops schemars' formats for unsigned integers, such as `uint32`: they are in no standard, and some readers of
/// schemas complain. The bounds stay.
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

/// A compiled JSON Schema of arguments.
#[derive(Debug)]
pub struct ArgumentSchema {
    schema: Value,
    /// Whether the schema has defaults to fill in.
    has_defaults: bool,
    /// `None`: the schema is invalid, and arguments are not validated.
    validator: Option<Validator>,
    body: Option<BodyArgument>,
    takes_null_for_absent: bool,
}

/// Outcome of preparing arguments on the runtime thread.
pub(crate) enum InlineCheck {
    /// Finished within `INLINE_EFFORT_MAX`.
    Done(Result<Map<String, Value>, ToolError>),
    /// Too expensive for the runtime thread: the arguments, with defaults filled in, for [`ArgumentSchema::check`].
    Deferred(Value, BodyForm),
}

/// A schema that cannot be compiled.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

impl ArgumentSchema {
    /// Compiles a schema (2020-12 unless it says otherwise). Refuses external references, and schemas whose validation
    /// effort cannot be computed in advance.
    pub fn compile(mut schema: Value) -> Result<Self, SchemaError> {
        let refused = |why: &str| SchemaError(why.to_owned());
        let pointers = default_pointers(&schema, &subschemas(&schema).map_err(refused)?);
        let patterns = PatternOptions::fancy_regex().backtrack_limit(BACKTRACKING_MAX);
        let options = jsonschema::options().with_draft(Draft::Draft202012).with_pattern_options(patterns);
        let build = |schema: &Value| options.build(schema).map_err(|error| SchemaError(error.to_string()));
        let validator = build(&schema)?;
        let has_defaults = !pointers.is_empty();
        if has_defaults {
            drop_invalid_defaults(&mut schema, &pointers, build)?;
            // A dropped default may have been the target of a `$ref`.
            subschemas(&schema).map_err(refused)?;
        }
        Ok(Self {
            schema,
            has_defaults,
            validator: Some(validator),
            body: None,
            takes_null_for_absent: false,
        })
    }

    /// Accepts every object: for a tool whose schema is invalid.
    pub fn unchecked(schema: Value) -> Self {
        let has_defaults = has_defaults(&schema);
        Self { has_defaults, schema, validator: None, body: None, takes_null_for_absent: false }
    }

    /// This schema for a tool with a request body, which callers may also pass in other forms.
    #[must_use]
    pub fn with_body(self, body: Option<BodyArgument>) -> Self {
        Self { body, ..self }
    }

    /// This schema for a built-in tool: `null` for an optional argument counts as absent.
    #[must_use]
    pub fn with_null_as_absent(self, takes_null_for_absent: bool) -> Self {
        Self { takes_null_for_absent, ..self }
    }

    /// The JSON Schema, without defaults that do not match it.
    pub fn json(&self) -> &Value {
        &self.schema
    }

    /// Fills in defaults and validates; the error names the parameters that are wrong. May take a second: on a runtime
    /// thread use `prepare_inline`.
    pub fn prepare(&self, arguments: Value) -> Result<Map<String, Value>, ToolError> {
        let (arguments, body_form) = self.normalize_arguments(arguments)?;
        self.check(arguments, body_form)
    }

    /// Validates arguments whose defaults are filled in.
    pub(crate) fn check(
        &self,
        arguments: Value,
        body_form: BodyForm,
    ) -> Result<Map<String, Value>, ToolError> {
        match self.effort(&arguments, EFFORT_MAX) {
            Ok(effort) => self.validate(arguments, body_form, effort),
            Err(EffortExceeded) => Err(too_expensive()),
        }
    }

    /// Like [`ArgumentSchema::prepare`], for callers that must not block: refuses arguments that take more than a few
    /// milliseconds to validate.
    pub fn prepare_nonblocking(&self, arguments: Value) -> Result<Map<String, Value>, ToolError> {
        match self.prepare_inline(arguments) {
            InlineCheck::Done(done) => done,
            InlineCheck::Deferred(..) => Err(too_expensive()),
        }
    }

    /// Like [`ArgumentSchema::prepare`] where that takes a few milliseconds at most; otherwise returns the arguments,
    /// with defaults filled in, for [`ArgumentSchema::check`] on the blocking pool.
    pub(crate) fn prepare_inline(&self, arguments: Value) -> InlineCheck {
        let (arguments, body_form) = match self.normalize_arguments(arguments) {
            Ok(completed) => completed,
            Err(error) => return InlineCheck::Done(Err(error)),
        };
        match self.effort(&arguments, INLINE_EFFORT_MAX) {
            Ok(effort) => InlineCheck::Done(self.validate(arguments, body_form, effort)),
            Err(EffortExceeded) => InlineCheck::Deferred(arguments, body_form),
        }
    }

    /// Moves the fields of a body to where the schema expects them, and fills in defaults.
    fn normalize_arguments(&self, arguments: Value) -> Result<(Value, BodyForm), ToolError> {
        let (mut arguments, body_form) = match (&self.body, arguments) {
            (Some(body), arguments) => body.normalize(&self.schema, arguments),
            (None, Value::Null) => (Value::Object(Map::new()), BodyForm::Whole),
            (None, other) => (other, BodyForm::Whole),
        };
        if self.takes_null_for_absent {
            drop_nulls(&self.schema, &mut arguments);
        }
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
        Ok((arguments, body_form))
    }

    fn effort(&self, arguments: &Value, effort_max: u64) -> Result<u64, EffortExceeded> {
        match self.validator {
            Some(_) => effort(&self.schema, &self.schema, arguments, effort_max),
            None => Ok(0),
        }
    }

    fn validate(
        &self,
        arguments: Value,
        body_form: BodyForm,
        effort: u64,
    ) -> Result<Map<String, Value>, ToolError> {
        if let Some(validator) = self.validator.as_ref().filter(|validator| !validator.is_valid(&arguments)) {
            let error_bytes = ERROR_BYTES.saturating_add(path_length_max(&arguments));
            if effort.saturating_mul(error_bytes) > ERRORS_BYTES_MAX {
                return Err(ToolError::bad_request("the arguments do not match the tool's schema"));
            }
            let errors = validator.iter_errors(&arguments).take(PROBLEMS_MAX);
            let mut problems: Vec<String> = errors.map(|error| self.explain(&error, body_form)).collect();
            problems.dedup();
            if problems.is_empty() {
                problems.push("the arguments do not match the tool's schema".to_owned());
            }
            return Err(ToolError::bad_request(problems.join("; ")));
        }
        match arguments {
            Value::Object(fields) => Ok(fields),
            _ => Err(ToolError::bad_request("arguments must be a JSON object")),
        }
    }

    fn explain(&self, error: &ValidationError<'_>, body_form: BodyForm) -> String {
        let whole_path = dotted_path(error.instance_path().as_str());
        let body = self.body.as_ref().map(|body| body.name.as_str()).filter(|_| body_form != BodyForm::Whole);
        // A caller that passed fields next to the other arguments does not know the name of the body.
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
                    Some(body) => self.similar_field_hint(error.instance(), body, name),
                    None => String::new(),
                };
                format!("missing required parameter: {}{hint}", child(name))
            }
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let mut known = self.property_names(&whole_path);
                if body == Some(&whole_path) {
                    known.extend(self.property_names(""));
                }
                let explain = |name: &String| explain_unknown(name, &child(name), &known);
                unexpected.iter().take(PROBLEMS_MAX).map(explain).collect::<Vec<_>>().join("; ")
            }
            _ if body_form == BodyForm::Missing && body == Some(&whole_path) => {
                format!("missing required parameter: {whole_path}")
            }
            _ if path.is_empty() => error.masked_with("arguments").to_string(),
            _ => format!("parameter `{path}`: {}", error.masked_with("its value")),
        }
    }

    /// Hint for a missing parameter: a similar name that was taken for a field of an open body.
    fn similar_field_hint(&self, arguments: &Value, body: &str, missing: &str) -> String {
        let known = self.property_names(body);
        let fields = arguments.get(body).and_then(Value::as_object);
        let names = fields.into_iter().flat_map(|fields| fields.keys()).map(String::as_str);
        match nearest(missing, names.filter(|name| !known.contains(name))) {
            // A closed body rejects the field, so the error names it anyway.
            Some(near) if !self.is_closed(body) => format!(" (misspelled as `{near}`?)"),
            _ => String::new(),
        }
    }

    /// The schema at a dotted path.
    fn subschema_at(&self, path: &str) -> Option<&Value> {
        let parts = path.split('.').filter(|part| !part.is_empty());
        parts.into_iter().try_fold(&self.schema, |schema, part| property(&self.schema, schema, part))
    }

    fn is_closed(&self, path: &str) -> bool {
        let is_closed =
            |word| self.subschema_at(path).and_then(|schema| schema.get(word)) == Some(&Value::Bool(false));
        is_closed("additionalProperties") || is_closed("unevaluatedProperties")
    }

    /// The names of the fields at a dotted path.
    fn property_names(&self, path: &str) -> Vec<&str> {
        let known =
            self.subschema_at(path).and_then(|schema| schema.get("properties")).and_then(Value::as_object);
        known.into_iter().flat_map(|known| known.keys()).map(String::as_str).collect()
    }
}

fn too_expensive() -> ToolError {
    ToolError::new(
        ErrorKind::TooLarge,
        "validating the arguments against the tool's schema would take too long",
    )
}

fn explain_unknown(name: &str, path: &str, known: &[&str]) -> String {
    let shown: String = path.chars().take(80).collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("unknown parameter: {shown} (did you mean `{near}`?)"),
        None => format!("unknown parameter: {shown}"),
    }
}

/// A JSON pointer as a dotted path: `/filters/tags/0` becomes `filters.tags.0`.
fn dotted_path(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".").replace("~1", "/").replace("~0", "~")
}

/// Length of the longest JSON pointer into a value.
fn path_length_max(value: &Value) -> u64 {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| name.len() as u64 + 1 + path_length_max(field))
            .max()
            .unwrap_or(0),
        Value::Array(items) => items.iter().map(|item| 8 + path_length_max(item)).max().unwrap_or(0),
        _ => 0,
    }
}

fn property<'a>(root: &'a Value, schema: &'a Value, name: &str) -> Option<&'a Value> {
    let found = schema.get("properties")?.get(name)?;
    Some(reference_target(root, found).unwrap_or(found))
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
    fn all_problems_are_reported_at_once() {
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

    #[test]
    fn a_parameter_named_default_is_no_default() {
        let text = json!({"type": "string"});
        let schema = json!({"properties": {"const": text, "default": text}, "additionalProperties": false});
        let schema = ArgumentSchema::compile(schema).unwrap();
        assert!(schema.prepare(json!({"default": "x"})).is_ok());
    }

    #[test]
    fn a_reference_into_a_default_that_is_dropped_is_refused() {
        let schema = json!({"properties": {
            "a": {"type": "string", "default": {"items": {"type": "string"}}},
            "b": {"$ref": "#/properties/a/default"},
        }});
        assert!(ArgumentSchema::compile(schema).is_err());
    }

    #[test]
    fn scalar_items_count_as_steps_too() {
        let item = json!({"properties": {"a": {"default": 1}}});
        let leaf = json!({"properties": {"list": {"items": item}}});
        let schema = (0..10).fold(leaf, |inside, _| json!({"allOf": [inside, inside]}));
        let schema = ArgumentSchema::unchecked(schema);
        let error = schema.prepare(json!({"list": vec![0; 20_000]})).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let flat = ArgumentSchema::unchecked(json!({"properties": {"list": {"items": item}}}));
        assert!(flat.prepare(json!({"list": vec![0; 1_000_000]})).is_ok());
    }
}
