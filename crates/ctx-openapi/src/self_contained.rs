//! The schemas of an operation with the definitions that they refer to, so that each is self-contained.
//!
//! They are built on demand: for thousands of operations that refer to thousands of definitions, all together
//! would not fit into memory.

use crate::operation::{Description, Direction, Operation, definition_name};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet, VecDeque};

/// Definitions in one schema, nearest first; the others become stubs that accept anything.
const DEFINITIONS_MAX: usize = 256;

/// JSON values in the definitions of one schema, after which no further definition is added.
const VALUES_MAX: usize = 40_000;

/// Subschemas examined for the fields of one object.
const SUBSCHEMAS_MAX: usize = 64;

/// Keywords whose subschemas describe the same object as the keywords beside them.
const COMBINATORS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Description of a definition that was left out.
const OMITTED_DESCRIPTION: &str = "Not shown here: the schema is too large.";

impl Description {
    /// The schema of an operation's arguments, with its definitions.
    pub(crate) fn input_schema(&self, operation: &Operation) -> Value {
        self.bounded_input_schema(operation, usize::MAX)
    }

    /// Like [`Self::input_schema`], with at most `definitions_max` definitions, nearest first; references to
    /// the others dangle.
    pub(crate) fn bounded_input_schema(&self, operation: &Operation, definitions_max: usize) -> Value {
        self_contained(&operation.input_schema, &self.definitions, Direction::Request, definitions_max)
    }

    /// The schema of an operation's response, with its definitions, if it is known.
    pub(crate) fn output_schema(&self, operation: &Operation) -> Option<Value> {
        self.bounded_output_schema(operation, usize::MAX)
    }

    /// Like [`Self::output_schema`], with at most `definitions_max` definitions.
    pub(crate) fn bounded_output_schema(
        &self,
        operation: &Operation,
        definitions_max: usize,
    ) -> Option<Value> {
        let schema = operation.output_schema.as_ref()?;
        Some(self_contained(schema, &self.definitions, Direction::Response, definitions_max))
    }

    /// Drops definitions that no operation refers to, directly or not.
    pub(crate) fn drop_unreferenced(&mut self) {
        let mut referenced = HashSet::new();
        let mut queue = VecDeque::new();
        for operation in &self.operations {
            queue_references(&operation.input_schema, &mut referenced, &mut queue);
            operation
                .output_schema
                .iter()
                .for_each(|schema| queue_references(schema, &mut referenced, &mut queue));
        }
        while let Some(name) = queue.pop_front() {
            if let Some(definition) = self.definitions.get(name) {
                queue_references(definition, &mut referenced, &mut queue);
            }
        }
        let referenced: HashSet<String> = referenced.into_iter().map(str::to_owned).collect();
        self.definitions.retain(|name, _| referenced.contains(name));
    }
}

fn self_contained(
    schema: &Value,
    definitions: &BTreeMap<String, Value>,
    direction: Direction,
    definitions_max: usize,
) -> Value {
    // With few definitions, the bound on values shrinks in proportion, and the others get no stubs.
    let is_bounded = definitions_max < DEFINITIONS_MAX;
    let definitions_max = definitions_max.min(DEFINITIONS_MAX);
    let mut values_left = VALUES_MAX / DEFINITIONS_MAX * definitions_max;
    let mut own_values = usize::MAX;
    let mut result = filter_direction(schema, direction, definitions, &mut own_values);
    let mut known = HashSet::new();
    let mut queue = VecDeque::new();
    queue_references(schema, &mut known, &mut queue);
    let mut added = Map::new();
    while let Some(name) = queue.pop_front() {
        let is_full = added.len() >= definitions_max || values_left == 0;
        if is_full && is_bounded {
            break;
        }
        let Some(definition) = definitions.get(name) else {
            added.insert(name.to_owned(), Value::Object(Map::new()));
            continue;
        };
        if is_full {
            added.insert(name.to_owned(), serde_json::json!({"description": OMITTED_DESCRIPTION}));
            continue;
        }
        queue_references(definition, &mut known, &mut queue);
        added.insert(name.to_owned(), filter_direction(definition, direction, definitions, &mut values_left));
    }
    if let (Value::Object(fields), false) = (&mut result, added.is_empty()) {
        fields.insert("$defs".to_owned(), Value::Object(added));
    }
    result
}

/// Queues the definitions that a schema refers to and that are not yet in `known`.
fn queue_references<'a>(schema: &'a Value, known: &mut HashSet<&'a str>, queue: &mut VecDeque<&'a str>) {
    match schema {
        Value::Object(fields) => {
            for (keyword, value) in fields {
                match value {
                    Value::String(reference) if keyword == "$ref" => {
                        if let Some(name) = definition_name(reference)
                            && known.insert(name)
                        {
                            queue.push_back(name);
                        }
                    }
                    value => queue_references(value, known, queue),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| queue_references(item, known, queue)),
        _ => {}
    }
}

/// A schema without the fields that do not go in this direction, and without the marks on them. In a request,
/// `oneOf` becomes `anyOf`: the alternatives of many documents overlap, and the service decides.
pub(crate) fn filter_direction(
    schema: &Value,
    direction: Direction,
    definitions: &BTreeMap<String, Value>,
    values_left: &mut usize,
) -> Value {
    DirectionFilter { direction, definitions }.apply(schema, &HashSet::new(), values_left)
}

/// Filters schemas for one direction.
#[derive(Clone, Copy)]
struct DirectionFilter<'a> {
    direction: Direction,
    definitions: &'a BTreeMap<String, Value>,
}

impl<'a> DirectionFilter<'a> {
    /// `excluded` are fields of the same object that are known not to go in this direction.
    fn apply(self, schema: &'a Value, excluded: &HashSet<&'a str>, values_left: &mut usize) -> Value {
        *values_left = values_left.saturating_sub(1);
        match schema {
            Value::Object(fields) => {
                let excluded = &self.excluded_fields(schema, excluded);
                let is_included = |name: &&Value| !name.as_str().is_some_and(|name| excluded.contains(name));
                let none = HashSet::new();
                let mut filtered = Map::new();
                for (keyword, value) in fields {
                    let value = match (keyword.as_str(), value) {
                        ("properties", Value::Object(properties)) => properties
                            .iter()
                            .filter(|(_, property)| !self.is_excluded(property))
                            .map(|(name, property)| (name.clone(), self.apply(property, &none, values_left)))
                            .collect(),
                        ("required", Value::Array(names)) => {
                            names.iter().filter(is_included).cloned().collect()
                        }
                        ("readOnly" | "writeOnly", Value::Bool(_)) => continue,
                        ("enum" | "const" | "default", value) => value.clone(),
                        (keyword, value) if COMBINATORS.contains(&keyword) => {
                            self.apply(value, excluded, values_left)
                        }
                        (_, value) => self.apply(value, &none, values_left),
                    };
                    let is_loose = self.direction == Direction::Request
                        && keyword == "oneOf"
                        && !fields.contains_key("anyOf");
                    filtered.insert(if is_loose { "anyOf".to_owned() } else { keyword.clone() }, value);
                }
                Value::Object(filtered)
            }
            Value::Array(items) => items.iter().map(|item| self.apply(item, excluded, values_left)).collect(),
            value => value.clone(),
        }
    }

    fn is_excluded(self, property: &Value) -> bool {
        property.get(self.direction.excluding_keyword()) == Some(&Value::Bool(true))
    }

    /// The fields of an object that do not go in this direction: `required` often stands in another subschema
    /// than the definition of the field.
    fn excluded_fields(self, schema: &'a Value, known: &HashSet<&'a str>) -> HashSet<&'a str> {
        let mut excluded = known.clone();
        let mut seen = HashSet::new();
        let mut queue = VecDeque::from([schema]);
        for _ in 0..SUBSCHEMAS_MAX {
            let Some(subschema) = queue.pop_front() else { break };
            let properties = subschema.get("properties").and_then(Value::as_object).into_iter().flatten();
            excluded
                .extend(properties.filter(|(_, one)| self.is_excluded(one)).map(|(name, _)| name.as_str()));
            queue.extend(subschema.get("allOf").and_then(Value::as_array).into_iter().flatten());
            let name = subschema.get("$ref").and_then(Value::as_str).and_then(definition_name);
            if let Some(name) = name.filter(|name| seen.insert(*name)) {
                queue.extend(self.definitions.get(name));
            }
        }
        excluded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_core::ArgumentSchema;
    use serde_json::json;

    /// A definition that refers to two others.
    fn definition(index: usize) -> Value {
        let next = |step: usize| json!({"$ref": format!("#/$defs/d{}", 2 * index + step)});
        json!({"type": "object", "properties": {"left": next(1), "right": next(2)}})
    }

    #[test]
    fn a_large_schema_is_truncated_and_still_self_contained() {
        let definitions: BTreeMap<String, Value> =
            (0..5_000).map(|index| (format!("d{index}"), definition(index))).collect();
        let self_contained = self_contained(
            &json!({"properties": {"x": {"$ref": "#/$defs/d0"}}}),
            &definitions,
            Direction::Request,
            usize::MAX,
        );
        let defined = self_contained["$defs"].as_object().unwrap();
        let left_out =
            defined.values().filter(|definition| definition["description"] == OMITTED_DESCRIPTION).count();
        assert_eq!(defined.len() - left_out, DEFINITIONS_MAX);
        assert!(left_out <= 2 * DEFINITIONS_MAX, "{left_out}");
        let nearest: Vec<&String> = defined.keys().take(3).collect();
        assert_eq!(nearest, ["d0", "d1", "d2"]);
        let arguments = ArgumentSchema::compile(self_contained).unwrap();
        assert!(arguments.prepare(json!({"x": {"left": {"right": 1}}})).is_err());
    }

    #[test]
    fn a_schema_can_be_bounded_to_its_nearest_definitions() {
        let definitions: BTreeMap<String, Value> =
            (0..5_000).map(|index| (format!("d{index}"), definition(index))).collect();
        let near = self_contained(
            &json!({"properties": {"x": {"$ref": "#/$defs/d0"}}}),
            &definitions,
            Direction::Request,
            3,
        );
        let defined: Vec<&String> = near["$defs"].as_object().unwrap().keys().collect();
        assert_eq!(defined, ["d0", "d1", "d2"]);
    }

    #[test]
    fn excluded_fields_are_not_required_in_any_subschema_of_the_object() {
        let reference = |name: &str| json!({"$ref": format!("#/$defs/{name}")});
        let own = json!({"required": ["id", "at", "name"], "properties": {"name": {"type": "string"}}});
        let definitions = BTreeMap::from([
            ("Root".to_owned(), json!({"properties": {"at": {"type": "string", "readOnly": true}}})),
            (
                "Base".to_owned(),
                json!({
                    "allOf": [reference("Root"), reference("Pet")],
                    "properties": {"id": {"type": "integer", "readOnly": true}},
                }),
            ),
            ("Pet".to_owned(), json!({"allOf": [reference("Base"), own]})),
        ]);
        let schema =
            json!({"type": "object", "required": ["body"], "properties": {"body": reference("Pet")}});
        let request = self_contained(&schema, &definitions, Direction::Request, usize::MAX);
        assert_eq!(request["$defs"]["Pet"]["allOf"][1]["required"], json!(["name"]));
        assert_eq!(request["required"], json!(["body"]));
        let response = self_contained(&schema, &definitions, Direction::Response, usize::MAX);
        assert_eq!(response["$defs"]["Pet"]["allOf"][1], own);
        // Another object's field of that name is another field.
        let apart = json!({"allOf": [reference("Base")], "items": {"required": ["id"]}});
        let apart = self_contained(&apart, &definitions, Direction::Request, usize::MAX);
        assert_eq!(apart["items"]["required"], json!(["id"]));
    }

    #[test]
    fn field_names_are_not_taken_for_keywords() {
        let schema = json!({"type": "object", "required": ["required"], "properties": {
            "required": {"type": "array", "items": {"type": "string"}},
            "readOnly": {"type": "boolean"},
            "properties": {"type": "object", "properties": {"id": {"type": "string", "readOnly": true}}},
            "enum": {"const": {"oneOf": 1, "readOnly": true}},
        }});
        let request = self_contained(&schema, &BTreeMap::new(), Direction::Request, usize::MAX);
        let mut expected = schema.clone();
        expected["properties"]["properties"]["properties"] = json!({});
        assert_eq!(request, expected);
        let mut response = schema;
        response["properties"]["properties"]["properties"]["id"] = json!({"type": "string"});
        assert_eq!(self_contained(&response, &BTreeMap::new(), Direction::Response, usize::MAX), response);
    }
}
