//! The schemas of an operation with the definitions that they refer to, so that each is self-contained.
//!
//! They are built on demand: for thousands of operations that refer to thousands of definitions, all together
//! would not fit into memory.

use crate::operation::{Description, Operation, Way, definition_name};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet, VecDeque};

/// Definitions in one schema, nearest first; the others become stubs that accept anything.
const DEFINITIONS_MAX: usize = 256;

/// JSON values in the definitions of one schema, after which no further definition is added.
const VALUES_MAX: usize = 40_000;

/// Subschemas examined for the fields of one object.
const PARTS_MAX: usize = 64;

/// Keywords whose subschemas describe the same object as the keywords beside them.
const SAME_OBJECT: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Description of a definition that was left out.
const LEFT_OUT: &str = "Not shown here: the schema is too large.";

impl Description {
    /// The schema of an operation's arguments, with its definitions.
    pub(crate) fn input_schema(&self, operation: &Operation) -> Value {
        self.near_input_schema(operation, usize::MAX)
    }

    /// Like [`Self::input_schema`], with at most `definitions_max` definitions, nearest first; references to
    /// the others dangle.
    pub(crate) fn near_input_schema(&self, operation: &Operation, definitions_max: usize) -> Value {
        whole(&operation.input_schema, &self.definitions, Way::Request, definitions_max)
    }

    /// The schema of an operation's response, with its definitions, if it is known.
    pub(crate) fn output_schema(&self, operation: &Operation) -> Option<Value> {
        self.near_output_schema(operation, usize::MAX)
    }

    /// Like [`Self::output_schema`], with at most `definitions_max` definitions.
    pub(crate) fn near_output_schema(&self, operation: &Operation, definitions_max: usize) -> Option<Value> {
        let schema = operation.output_schema.as_ref()?;
        Some(whole(schema, &self.definitions, Way::Response, definitions_max))
    }

    /// Drops definitions that no operation refers to, directly or not.
    pub(crate) fn drop_unreached(&mut self) {
        let mut reached = HashSet::new();
        let mut waiting = VecDeque::new();
        for operation in &self.operations {
            referred(&operation.input_schema, &mut reached, &mut waiting);
            operation.output_schema.iter().for_each(|schema| referred(schema, &mut reached, &mut waiting));
        }
        while let Some(name) = waiting.pop_front() {
            if let Some(definition) = self.definitions.get(name) {
                referred(definition, &mut reached, &mut waiting);
            }
        }
        let reached: HashSet<String> = reached.into_iter().map(str::to_owned).collect();
        self.definitions.retain(|name, _| reached.contains(name));
    }
}

fn whole(schema: &Value, definitions: &BTreeMap<String, Value>, way: Way, definitions_max: usize) -> Value {
    // With few definitions, the bound on values shrinks in proportion, and the others get no stubs.
    let is_near = definitions_max < DEFINITIONS_MAX;
    let definitions_max = definitions_max.min(DEFINITIONS_MAX);
    let mut values_left = VALUES_MAX / DEFINITIONS_MAX * definitions_max;
    let mut own_values = usize::MAX;
    let mut whole = stripped(schema, way, definitions, &mut own_values);
    let mut known = HashSet::new();
    let mut waiting = VecDeque::new();
    referred(schema, &mut known, &mut waiting);
    let mut added = Map::new();
    while let Some(name) = waiting.pop_front() {
        let is_full = added.len() >= definitions_max || values_left == 0;
        if is_full && is_near {
            break;
        }
        let Some(definition) = definitions.get(name) else {
            added.insert(name.to_owned(), Value::Object(Map::new()));
            continue;
        };
        if is_full {
            added.insert(name.to_owned(), serde_json::json!({"description": LEFT_OUT}));
            continue;
        }
        referred(definition, &mut known, &mut waiting);
        added.insert(name.to_owned(), stripped(definition, way, definitions, &mut values_left));
    }
    if let (Value::Object(fields), false) = (&mut whole, added.is_empty()) {
        fields.insert("$defs".to_owned(), Value::Object(added));
    }
    whole
}

/// Queues the definitions that a schema refers to and that are not yet in `known`.
fn referred<'a>(schema: &'a Value, known: &mut HashSet<&'a str>, waiting: &mut VecDeque<&'a str>) {
    match schema {
        Value::Object(fields) => {
            for (word, value) in fields {
                match value {
                    Value::String(reference) if word == "$ref" => {
                        if let Some(name) = definition_name(reference)
                            && known.insert(name)
                        {
                            waiting.push_back(name);
                        }
                    }
                    value => referred(value, known, waiting),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| referred(item, known, waiting)),
        _ => {}
    }
}

/// A schema without the fields that do not go in this direction, and without the marks on them. In a request,
/// `oneOf` becomes `anyOf`: the alternatives of many documents overlap, and the service decides.
pub(crate) fn stripped(
    schema: &Value,
    way: Way,
    definitions: &BTreeMap<String, Value>,
    values_left: &mut usize,
) -> Value {
    Stripping { way, definitions }.stripped(schema, &HashSet::new(), values_left)
}

#[derive(Clone, Copy)]
struct Stripping<'a> {
    way: Way,
    definitions: &'a BTreeMap<String, Value>,
}

impl<'a> Stripping<'a> {
    /// `gone` are fields of the same object that are known not to go in this direction.
    fn stripped(self, schema: &'a Value, gone: &HashSet<&'a str>, values_left: &mut usize) -> Value {
        *values_left = values_left.saturating_sub(1);
        match schema {
            Value::Object(fields) => {
                let gone = &self.gone_from(schema, gone);
                let goes = |name: &&Value| !name.as_str().is_some_and(|name| gone.contains(name));
                let none = HashSet::new();
                let mut kept = Map::new();
                for (word, value) in fields {
                    let value = match (word.as_str(), value) {
                        ("properties", Value::Object(properties)) => properties
                            .iter()
                            .filter(|(_, property)| !self.is_gone(property))
                            .map(|(name, property)| {
                                (name.clone(), self.stripped(property, &none, values_left))
                            })
                            .collect(),
                        ("required", Value::Array(names)) => names.iter().filter(goes).cloned().collect(),
                        ("readOnly" | "writeOnly", Value::Bool(_)) => continue,
                        ("enum" | "const" | "default", value) => value.clone(),
                        (word, value) if SAME_OBJECT.contains(&word) => {
                            self.stripped(value, gone, values_left)
                        }
                        (_, value) => self.stripped(value, &none, values_left),
                    };
                    let is_loose =
                        self.way == Way::Request && word == "oneOf" && !fields.contains_key("anyOf");
                    kept.insert(if is_loose { "anyOf".to_owned() } else { word.clone() }, value);
                }
                Value::Object(kept)
            }
            Value::Array(items) => items.iter().map(|item| self.stripped(item, gone, values_left)).collect(),
            value => value.clone(),
        }
    }

    fn is_gone(self, property: &Value) -> bool {
        property.get(self.way.gone()) == Some(&Value::Bool(true))
    }

    /// The fields of an object that do not go in this direction: `required` often stands in another subschema
    /// than the definition of the field.
    fn gone_from(self, schema: &'a Value, known: &HashSet<&'a str>) -> HashSet<&'a str> {
        let mut gone = known.clone();
        let mut seen = HashSet::new();
        let mut waiting = VecDeque::from([schema]);
        for _ in 0..PARTS_MAX {
            let Some(part) = waiting.pop_front() else { break };
            let properties = part.get("properties").and_then(Value::as_object).into_iter().flatten();
            gone.extend(properties.filter(|(_, one)| self.is_gone(one)).map(|(name, _)| name.as_str()));
            waiting.extend(part.get("allOf").and_then(Value::as_array).into_iter().flatten());
            let name = part.get("$ref").and_then(Value::as_str).and_then(definition_name);
            if let Some(name) = name.filter(|name| seen.insert(*name)) {
                waiting.extend(self.definitions.get(name));
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_core::ArgumentSchema;
    use serde_json::json;

    /// A definition that refers to two others.
    fn definition(place: usize) -> Value {
        let next = |step: usize| json!({"$ref": format!("#/$defs/d{}", 2 * place + step)});
        json!({"type": "object", "properties": {"left": next(1), "right": next(2)}})
    }

    #[test]
    fn a_large_schema_is_cut_and_still_stands_alone() {
        let definitions: BTreeMap<String, Value> =
            (0..5_000).map(|place| (format!("d{place}"), definition(place))).collect();
        let whole = whole(
            &json!({"properties": {"x": {"$ref": "#/$defs/d0"}}}),
            &definitions,
            Way::Request,
            usize::MAX,
        );
        let defined = whole["$defs"].as_object().unwrap();
        let left_out = defined.values().filter(|definition| definition["description"] == LEFT_OUT).count();
        assert_eq!(defined.len() - left_out, DEFINITIONS_MAX);
        assert!(left_out <= 2 * DEFINITIONS_MAX, "{left_out}");
        let nearest: Vec<&String> = defined.keys().take(3).collect();
        assert_eq!(nearest, ["d0", "d1", "d2"]);
        let arguments = ArgumentSchema::compile(whole).unwrap();
        assert!(arguments.prepare(json!({"x": {"left": {"right": 1}}})).is_err());
    }

    #[test]
    fn a_schema_can_be_cut_to_what_is_nearest() {
        let definitions: BTreeMap<String, Value> =
            (0..5_000).map(|place| (format!("d{place}"), definition(place))).collect();
        let near =
            whole(&json!({"properties": {"x": {"$ref": "#/$defs/d0"}}}), &definitions, Way::Request, 3);
        let defined: Vec<&String> = near["$defs"].as_object().unwrap().keys().collect();
        assert_eq!(defined, ["d0", "d1", "d2"]);
    }

    #[test]
    fn what_does_not_go_this_way_is_needed_in_no_part_of_an_object() {
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
        let request = whole(&schema, &definitions, Way::Request, usize::MAX);
        assert_eq!(request["$defs"]["Pet"]["allOf"][1]["required"], json!(["name"]));
        assert_eq!(request["required"], json!(["body"]));
        let response = whole(&schema, &definitions, Way::Response, usize::MAX);
        assert_eq!(response["$defs"]["Pet"]["allOf"][1], own);
        // Another object's field of that name is another field.
        let apart = json!({"allOf": [reference("Base")], "items": {"required": ["id"]}});
        let apart = whole(&apart, &definitions, Way::Request, usize::MAX);
        assert_eq!(apart["items"]["required"], json!(["id"]));
    }

    #[test]
    fn names_of_fields_are_no_words() {
        let schema = json!({"type": "object", "required": ["required"], "properties": {
            "required": {"type": "array", "items": {"type": "string"}},
            "readOnly": {"type": "boolean"},
            "properties": {"type": "object", "properties": {"id": {"type": "string", "readOnly": true}}},
            "enum": {"const": {"oneOf": 1, "readOnly": true}},
        }});
        let request = whole(&schema, &BTreeMap::new(), Way::Request, usize::MAX);
        let mut expected = schema.clone();
        expected["properties"]["properties"]["properties"] = json!({});
        assert_eq!(request, expected);
        let mut response = schema;
        response["properties"]["properties"]["properties"]["id"] = json!({"type": "string"});
        assert_eq!(whole(&response, &BTreeMap::new(), Way::Response, usize::MAX), response);
    }
}
