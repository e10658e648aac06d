//! Converts one schema, keyword by keyword. Unknown keywords, and keywords with invalid values, are left out:
//! a validator would refuse the whole schema because of them.

use super::constant::{coerce, json_type};
use super::pattern::strip_slashes;
use super::{SchemaConverter, default_text};
use crate::document::reference::{DocumentNode, reference_of};
use crate::operation::{Direction, definition_name};
use serde_json::{Map, Value};

/// Keywords that restrict a value whatever `type` says: null has to be allowed by `anyOf` then.
const COMBINING: [&str; 5] = ["$ref", "allOf", "anyOf", "oneOf", "const"];

/// The types of JSON Schema.
const TYPES: [&str; 7] = ["object", "array", "string", "integer", "number", "boolean", "null"];

/// Keywords beside a `$ref` that count in every version: annotations, and those that allow null.
const REF_SIBLINGS: [&str; 9] = [
    "title",
    "description",
    "deprecated",
    "readOnly",
    "writeOnly",
    "nullable",
    "x-nullable",
    "default",
    "$ref",
];

/// Keywords that, beside `allOf`, declare further fields.
const MORE_FIELDS: [&str; 3] = ["properties", "anyOf", "oneOf"];

/// Annotations: keywords that do not change what a schema accepts.
const ANNOTATIONS: [&str; 5] = ["title", "description", "deprecated", "readOnly", "writeOnly"];

/// Maximum number of alternatives and mapping entries of one discriminator.
const DISCRIMINATED_MAX: usize = 256;

impl SchemaConverter<'_> {
    /// Converts a schema of the document to JSON Schema. Without `keep_default`, a default is only mentioned
    /// in the description: if it were filled in here, two defaults that exclude each other would be sent
    /// together; the service applies it. Without `direction`, `readOnly` and `writeOnly` marks are kept.
    pub(in crate::document) fn convert(
        &mut self,
        schema: DocumentNode<'_>,
        direction: Option<Direction>,
        keep_default: bool,
    ) -> Value {
        let fields = match schema.value {
            Value::Bool(taken) => return Value::Bool(*taken),
            Value::Object(fields) => fields,
            _ => return Value::Object(Map::new()),
        };
        if self.values_left == 0 {
            return Value::Object(Map::new());
        }
        self.values_left -= 1;
        let types = types_of(fields);
        let is_nullable = schema.is("nullable") || schema.is("x-nullable");
        let mut converted = match reference_of(fields) {
            Some(reference) => self.reference_to(schema.document, reference),
            None => Map::new(),
        };
        // Before OpenAPI 3.1 a `$ref` stands alone, and keywords beside it may contradict it.
        let ignores_siblings = !self.has_siblings && fields.contains_key("$ref");
        let required = self.required(schema, direction);
        let effective = fields
            .iter()
            .filter(|(keyword, _)| !ignores_siblings || REF_SIBLINGS.contains(&keyword.as_str()));
        for (keyword, value) in effective {
            let part = DocumentNode { value, ..schema };
            match keyword.as_str() {
                "type" => add_types(&mut converted, &types, value),
                "properties" => {
                    let properties = self.properties(part, direction, &required);
                    converted.insert(keyword.clone(), properties);
                }
                "required" if !required.is_empty() => {
                    converted
                        .insert(keyword.clone(), required.iter().map(|name| Value::from(*name)).collect());
                }
                "enum" => {
                    if let Some(constants) = value.as_array().filter(|constants| !constants.is_empty()) {
                        let constants = constants.iter().map(|constant| coerce(constant, &types)).collect();
                        converted.insert(keyword.clone(), Value::Array(constants));
                    }
                }
                "const" => {
                    converted.insert(keyword.clone(), coerce(value, &types));
                }
                "default" if keep_default => {
                    converted.insert(keyword.clone(), coerce(value, &types));
                }
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                    add_bound(&mut converted, fields, keyword);
                }
                keyword => {
                    if let Some(value) = self.convert_keyword(keyword, part, direction) {
                        converted.insert(keyword.to_owned(), value);
                    }
                }
            }
        }
        if let Some(Value::Array(tuple)) = fields.get("items")
            && !tuple.is_empty()
        {
            let tuple = tuple
                .iter()
                .map(|value| self.convert(DocumentNode { value, ..schema }, direction, false))
                .collect();
            converted.insert("prefixItems".to_owned(), Value::Array(tuple));
        }
        if let Some(discriminator) = self.discriminator(schema, &converted) {
            converted.insert("discriminator".to_owned(), discriminator);
        }
        if !keep_default && let Some(default) = fields.get("default").and_then(default_text) {
            add_remark(&mut converted, &format!("Default: `{default}`."));
        }
        drop_contradictory_types(&mut converted);
        self.open_all_of_parts(&mut converted);
        close_combined(&mut converted);
        Value::Object(if is_nullable { allow_null(converted) } else { converted })
    }

    /// Converts a keyword that is copied, or whose value consists of schemas.
    fn convert_keyword(
        &mut self,
        keyword: &str,
        part: DocumentNode<'_>,
        direction: Option<Direction>,
    ) -> Option<Value> {
        let value = part.value;
        match keyword {
            "title" | "description" | "format" | "contentMediaType" | "contentEncoding" => {
                value.as_str().filter(|text| !text.is_empty()).map(Value::from)
            }
            "pattern" => {
                let pattern = value.as_str().filter(|text| !text.is_empty()).and_then(strip_slashes)?;
                self.patterns.compiles(pattern).then(|| pattern.into())
            }
            "readOnly" | "writeOnly" if direction.is_some() => None,
            "deprecated" | "uniqueItems" | "readOnly" | "writeOnly" => {
                (value.as_bool() == Some(true)).then_some(Value::Bool(true))
            }
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
            | "minContains" | "maxContains" => value.as_u64().map(Value::from),
            "multipleOf" => value.as_f64().filter(|of| *of > 0.0).map(|_| value.clone()),
            "patternProperties" | "dependentSchemas" if value.is_object() => {
                let mut parts = Map::new();
                for (name, part) in part.fields() {
                    if keyword == "dependentSchemas" || self.patterns.compiles(name) {
                        parts.insert(name.to_owned(), self.convert(part, direction, false));
                    }
                }
                Some(Value::Object(parts))
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                let parts: Vec<Value> =
                    part.items().map(|part| self.convert(part, direction, false)).collect();
                (!parts.is_empty()).then_some(Value::Array(parts))
            }
            "items"
            | "additionalProperties"
            | "unevaluatedProperties"
            | "unevaluatedItems"
            | "contains"
            | "propertyNames"
            | "not"
            | "if"
            | "then"
            | "else"
                if value.is_object() || value.is_boolean() =>
            {
                Some(self.convert(part, direction, false))
            }
            _ => None,
        }
    }

    /// Removes `additionalProperties: false` from the parts of a combined object: each part would refuse the
    /// fields of the others. Referenced definitions are recorded, and opened when they are built.
    fn open_all_of_parts(&mut self, converted: &mut Map<String, Value>) {
        let has_more = MORE_FIELDS.iter().any(|keyword| converted.contains_key(*keyword));
        let Some(parts) = converted.get_mut("allOf").and_then(Value::as_array_mut) else { return };
        if parts.len() < 2 && !has_more {
            return;
        }
        for part in parts {
            allow_more_fields(part);
            if let Some(name) = part.get("$ref").and_then(Value::as_str).and_then(definition_name) {
                self.parts.insert(name.to_owned());
            }
        }
    }

    /// The discriminator of alternatives: its field, and which value selects which alternative. Alternatives
    /// without an explicit mapping are selected by their own name.
    fn discriminator(&mut self, schema: DocumentNode<'_>, converted: &Map<String, Value>) -> Option<Value> {
        let declared = schema.get("discriminator")?;
        let name = declared.text("propertyName").or_else(|| declared.value.as_str())?;
        let alternatives =
            ["oneOf", "anyOf"].iter().filter_map(|keyword| converted.get(*keyword)?.as_array());
        let alternatives: Vec<&Value> =
            alternatives.flatten().filter_map(|one| one.get("$ref")).take(DISCRIMINATED_MAX).collect();
        let mut mapping = Map::new();
        for (value, target) in
            declared.get("mapping").into_iter().flat_map(DocumentNode::fields).take(DISCRIMINATED_MAX)
        {
            let Some(target) = target.value.as_str() else { continue };
            let is_name = !target.contains(['/', '#', '.']);
            let target = if is_name { format!("#/components/schemas/{target}") } else { target.to_owned() };
            let target = self.reference_to(schema.document, &target).shift_remove("$ref");
            if let Some(target) = target.filter(|target| alternatives.contains(&target)) {
                mapping.insert(value.to_owned(), target);
            }
        }
        for alternative in alternatives {
            let own_name = alternative.as_str().and_then(definition_name);
            if let Some(own_name) = own_name.filter(|_| !mapping.values().any(|known| known == alternative)) {
                mapping.insert(own_name.to_owned(), alternative.clone());
            }
        }
        let mut discriminator = Map::from_iter([("propertyName".to_owned(), name.into())]);
        if !mapping.is_empty() {
            discriminator.insert("mapping".to_owned(), Value::Object(mapping));
        }
        Some(Value::Object(discriminator))
    }

    fn properties(
        &mut self,
        properties: DocumentNode<'_>,
        direction: Option<Direction>,
        required: &[&str],
    ) -> Value {
        let mut converted = Map::new();
        for (name, property) in properties.fields() {
            let is_read_only = self.has_mark(property, "readOnly");
            let is_write_only = self.has_mark(property, "writeOnly");
            match direction {
                Some(Direction::Request) if is_read_only => continue,
                Some(Direction::Response) if is_write_only => continue,
                _ => {}
            }
            let mut schema = self.convert(property, direction, required.contains(&name));
            if direction.is_none()
                && let Some(fields) = schema.as_object_mut()
            {
                for (mark, _) in
                    [("readOnly", is_read_only), ("writeOnly", is_write_only)].iter().filter(|(_, is)| *is)
                {
                    fields.insert((*mark).to_owned(), Value::Bool(true));
                }
            }
            converted.insert(name.to_owned(), schema);
        }
        Value::Object(converted)
    }

    /// The required fields, each once, without those that do not go in this direction.
    fn required<'s>(&self, schema: DocumentNode<'s>, direction: Option<Direction>) -> Vec<&'s str> {
        let mut required: Vec<&str> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let properties = schema.get("properties");
        for name in schema.get("required").into_iter().flat_map(DocumentNode::items) {
            let Some(name) = name.value.as_str() else { continue };
            let property = properties.and_then(|properties| properties.get(name));
            let exclusion = direction.map(Direction::excluding_keyword).zip(property);
            let is_excluded = exclusion.is_some_and(|(mark, property)| self.has_mark(property, mark));
            if !is_excluded && seen.insert(name) {
                required.push(name);
            }
        }
        required
    }
}

/// The types that a schema names, as JSON Schema types.
fn types_of(schema: &Map<String, Value>) -> Vec<&'static str> {
    let mut types: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => json_type(name).into_iter().collect(),
        Some(Value::Array(names)) => {
            let types: Option<Vec<_>> = names.iter().map(|name| name.as_str().and_then(json_type)).collect();
            types.unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let mut seen = std::collections::HashSet::new();
    types.retain(|type_name| seen.insert(*type_name));
    types
}

fn add_types(converted: &mut Map<String, Value>, types: &[&str], type_value: &Value) {
    match types {
        [] => {}
        [type_name] => {
            converted.insert("type".to_owned(), (*type_name).into());
        }
        types => {
            converted
                .insert("type".to_owned(), types.iter().map(|type_name| Value::from(*type_name)).collect());
        }
    }
    if matches!(type_value.as_str(), Some("file" | "binary")) {
        converted.insert("format".to_owned(), "binary".into());
    }
}

/// Bounds as in JSON Schema since draft 6: an exclusive bound is a number, not a flag beside the inclusive
/// one.
fn add_bound(converted: &mut Map<String, Value>, fields: &Map<String, Value>, keyword: &str) {
    let Some(value) = fields.get(keyword) else { return };
    let (plain, exclusive) = match keyword {
        "minimum" | "exclusiveMinimum" => ("minimum", "exclusiveMinimum"),
        _ => ("maximum", "exclusiveMaximum"),
    };
    let is_exclusive = fields.get(exclusive).and_then(Value::as_bool) == Some(true);
    if value.is_number() {
        let keyword = if keyword == plain && is_exclusive { exclusive } else { keyword };
        converted.insert(keyword.to_owned(), value.clone());
    }
}

/// Turns `additionalProperties: false` into `unevaluatedProperties: false` where schemas are combined: the
/// former sees only the properties beside it, and would refuse those of the combined schemas.
fn close_combined(schema: &mut Map<String, Value>) {
    let combines = ["$ref", "allOf", "anyOf", "oneOf"].iter().any(|keyword| schema.contains_key(*keyword));
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    if combines && is_closed {
        schema.shift_remove("additionalProperties");
        schema.insert("unevaluatedProperties".to_owned(), Value::Bool(false));
    }
}

/// Drops `allOf` and `type` if no type satisfies all of their parts: the service knows what is meant.
fn drop_contradictory_types(schema: &mut Map<String, Value>) {
    let parts =
        schema.get("allOf").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    // An integer is a number, too.
    let allows = |fields: &Map<String, Value>, type_name: &str| {
        let is =
            |type_value: &str| type_value == type_name || (type_value == "number" && type_name == "integer");
        match fields.get("type") {
            Some(Value::String(type_value)) => is(type_value),
            Some(Value::Array(type_value)) => type_value.iter().filter_map(Value::as_str).any(is),
            _ => true,
        }
    };
    let all: Vec<&Map<String, Value>> = parts.chain([&*schema]).collect();
    let is_possible = TYPES.iter().any(|type_name| all.iter().all(|fields| allows(fields, type_name)));
    if !is_possible {
        schema.shift_remove("allOf");
        schema.shift_remove("type");
    }
}

/// Allows further fields.
pub(super) fn allow_more_fields(schema: &mut Value) {
    if let Value::Object(fields) = schema {
        for keyword in ["additionalProperties", "unevaluatedProperties"] {
            if fields.get(keyword) == Some(&Value::Bool(false)) {
                fields.shift_remove(keyword);
            }
        }
    }
}

/// Adds a sentence to the description of a schema.
pub(in crate::document) fn add_remark(schema: &mut Map<String, Value>, remark: &str) {
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default().trim_end();
    let text = match description {
        "" => remark.to_owned(),
        text if text.ends_with(['.', '!', '?', ':']) => format!("{text} {remark}"),
        text => format!("{text}. {remark}"),
    };
    schema.insert("description".to_owned(), text.into());
}

/// Also allows null.
fn allow_null(mut schema: Map<String, Value>) -> Map<String, Value> {
    let null = || Value::Object(Map::from_iter([("type".to_owned(), "null".into())]));
    if COMBINING.iter().any(|keyword| schema.contains_key(*keyword)) {
        let mut combined = Map::new();
        for annotation in ANNOTATIONS {
            if let Some(value) = schema.shift_remove(annotation) {
                combined.insert(annotation.to_owned(), value);
            }
        }
        combined.insert("anyOf".to_owned(), Value::Array(vec![Value::Object(schema), null()]));
        return combined;
    }
    match schema.get_mut("type") {
        Some(Value::String(type_name)) if type_name != "null" => {
            let types = Value::Array(vec![type_name.as_str().into(), "null".into()]);
            schema.insert("type".to_owned(), types);
        }
        Some(Value::Array(types)) if !types.contains(&"null".into()) => types.push("null".into()),
        _ => {}
    }
    if let Some(Value::Array(constants)) = schema.get_mut("enum")
        && !constants.contains(&Value::Null)
    {
        constants.push(Value::Null);
    }
    schema
}
