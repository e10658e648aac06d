//! All functions of an API at once, with the definitions that their schemas share.
//!
//! The schemas of a tool are self-contained, and therefore cut where they would be too large. A listing of a
//! whole API needs every definition complete, and once.

use crate::operation::{Description, Way, definition_name, definition_reference};
use crate::whole::stripped;
use ctx_core::ToolSpec;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Suffix of a definition's name in requests, if it differs from the same definition in responses.
const SENT: &str = "Input";

/// All functions of an API.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The functions, in the description's order.
    pub functions: Vec<InterfaceFunction>,
    /// Definitions that the schemas refer to as `#/$defs/…`, by name. A definition with read-only or
    /// write-only fields is here twice if both requests and responses refer to it.
    pub definitions: BTreeMap<String, Value>,
}

/// One function of an API.
#[derive(Clone, Debug)]
pub struct InterfaceFunction {
    /// The tool spec; its schemas refer to [`Interface::definitions`].
    pub spec: ToolSpec,
    /// The HTTP method, in upper case.
    pub method: String,
    /// The path template, such as `/pets/{id}`.
    pub path: String,
    /// Whether the operation is deprecated.
    pub deprecated: bool,
}

impl Interface {
    /// The operations of a description; `specs` are those of their tools, in the same order.
    pub(crate) fn new(description: &Description, specs: impl Iterator<Item = ToolSpec>) -> Self {
        let operations = &description.operations;
        let inputs = operations.iter().map(|operation| Some(&*operation.input_schema));
        let outputs = operations.iter().map(|operation| operation.output_schema.as_deref());
        let mut sent = Reached::new(inputs, &description.definitions, Way::Request);
        let mut received = Reached::new(outputs, &description.definitions, Way::Response);
        let names = sent_names(&sent, &received, &two_faced(&description.definitions));
        sent.rename(&names);
        // A definition that is the same in both directions is kept in its request form.
        received.definitions.append(&mut sent.definitions);
        let schemas = sent.roots.into_iter().zip(received.roots);
        let function =
            |((operation, spec), (input, output)): ((_, ToolSpec), (Option<Value>, Option<Value>))| {
                let operation: &crate::operation::Operation = operation;
                InterfaceFunction {
                    spec: ToolSpec {
                        input_schema: input.unwrap_or_default().into(),
                        output_schema: output.map(Into::into),
                        ..spec
                    },
                    method: operation.method.clone(),
                    path: operation.path.clone(),
                    deprecated: operation.deprecated,
                }
            };
        let functions = operations.iter().zip(specs).zip(schemas).map(function).collect();
        Self { functions, definitions: received.definitions }
    }
}

/// Schemas in one direction, and all definitions that they refer to, directly or not.
struct Reached {
    roots: Vec<Option<Value>>,
    definitions: BTreeMap<String, Value>,
}

impl Reached {
    fn new<'a>(
        roots: impl Iterator<Item = Option<&'a Value>>,
        definitions: &BTreeMap<String, Value>,
        way: Way,
    ) -> Self {
        let stripped = |schema: &Value| stripped(schema, way, definitions, &mut usize::MAX.clone());
        let mut known = HashSet::new();
        let mut waiting = VecDeque::new();
        let mut wait = |schema: &Value, waiting: &mut VecDeque<String>| {
            references(schema, &mut |name| {
                if !known.contains(name) {
                    known.insert(name.to_owned());
                    waiting.push_back(name.to_owned());
                }
            });
        };
        let roots: Vec<Option<Value>> = roots.map(|root| root.map(stripped)).collect();
        roots.iter().flatten().for_each(|root| wait(root, &mut waiting));
        let mut reached = BTreeMap::new();
        while let Some(name) = waiting.pop_front() {
            let definition = definitions.get(&name).map_or_else(|| Value::Object(Map::new()), stripped);
            wait(&definition, &mut waiting);
            reached.insert(name, definition);
        }
        Self { roots, definitions: reached }
    }

    fn rename(&mut self, names: &HashMap<String, String>) {
        self.roots.iter_mut().flatten().for_each(|root| renamed(root, names));
        let definitions = std::mem::take(&mut self.definitions).into_iter();
        self.definitions = definitions
            .map(|(name, mut definition)| {
                renamed(&mut definition, names);
                (names.get(&name).cloned().unwrap_or(name), definition)
            })
            .collect();
    }
}

/// New names for the request form of definitions that differ between requests and responses.
fn sent_names(sent: &Reached, received: &Reached, two_faced: &HashSet<&str>) -> HashMap<String, String> {
    let mut names = HashMap::new();
    let mut taken: HashSet<String> =
        sent.definitions.keys().chain(received.definitions.keys()).cloned().collect();
    for name in sent.definitions.keys() {
        if !two_faced.contains(name.as_str()) || !received.definitions.contains_key(name) {
            continue;
        }
        let mut new = format!("{name}{SENT}");
        let mut ordinal = 2;
        while !taken.insert(new.clone()) {
            new = format!("{name}{SENT}_{ordinal}");
            ordinal += 1;
        }
        names.insert(name.clone(), new);
    }
    names
}

/// Definitions with read-only or write-only fields, and those that refer to one, directly or not.
fn two_faced(definitions: &BTreeMap<String, Value>) -> HashSet<&str> {
    let mut leading: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut waiting = Vec::new();
    for (name, definition) in definitions {
        references(definition, &mut |to| leading.entry(to).or_default().push(name));
        if is_marked(definition) {
            waiting.push(name.as_str());
        }
    }
    let mut found = HashSet::new();
    while let Some(name) = waiting.pop() {
        if found.insert(name) {
            waiting.extend(leading.get(name).into_iter().flatten());
        }
    }
    found
}

fn is_marked(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().any(|(word, value)| match value {
            Value::Bool(true) => word == Way::Request.gone() || word == Way::Response.gone(),
            value => is_marked(value),
        }),
        Value::Array(items) => items.iter().any(is_marked),
        _ => false,
    }
}

/// Calls `tell` with the name of each definition that a schema refers to.
fn references<'a>(schema: &'a Value, tell: &mut impl FnMut(&'a str)) {
    match schema {
        Value::Object(fields) => {
            for (word, value) in fields {
                match value {
                    Value::String(reference) if word == "$ref" => {
                        definition_name(reference).into_iter().for_each(&mut *tell);
                    }
                    value => references(value, tell),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, tell)),
        _ => {}
    }
}

fn renamed(schema: &mut Value, names: &HashMap<String, String>) {
    match schema {
        Value::Object(fields) => {
            for (word, value) in fields {
                match value {
                    Value::String(reference) if word == "$ref" => {
                        if let Some(name) = definition_name(reference).and_then(|name| names.get(name)) {
                            *reference = definition_reference(name);
                        }
                    }
                    value => renamed(value, names),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| renamed(item, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Alone, Home, load};
    use serde_json::json;

    fn interface(schemas: &Value, paths: &Value) -> Interface {
        let document = json!({
            "openapi": "3.0.3", "info": {"title": "Pets", "version": "1"},
            "paths": paths, "components": {"schemas": schemas},
        });
        let home = Home::Directory("description".to_owned());
        let description = load(&document.to_string(), home, &Alone).unwrap();
        let names = description.operations.iter().map(|operation| operation.name.clone());
        let specs: Vec<ToolSpec> = names.map(|name| ToolSpec::new(name, "", json!({}))).collect();
        Interface::new(&description, specs.into_iter())
    }

    fn operation(sent: Option<&str>, received: &str) -> Value {
        let content = |name: &str| json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}});
        let mut operation = json!({"responses": {"200": {"description": "", "content": content(received)}}});
        if let Some(sent) = sent {
            operation["requestBody"] = json!({"required": true, "content": content(sent)});
        }
        operation
    }

    #[test]
    fn what_goes_both_ways_and_differs_is_there_twice() {
        let schemas = json!({
            "Pet": {"type": "object", "required": ["id", "tag"], "properties": {
                "id": {"type": "integer", "readOnly": true},
                "tag": {"$ref": "#/components/schemas/Tag"},
            }},
            "Owner": {"type": "object", "properties": {"pet": {"$ref": "#/components/schemas/Pet"}}},
            "Tag": {"type": "object", "properties": {"name": {"type": "string"}}},
            "OwnerInput": {"type": "object"},
            "Wish": {"type": "object", "properties": {"owner": {"$ref": "#/components/schemas/Owner"}}},
        });
        let paths = json!({
            "/owners": {"post": operation(Some("Owner"), "Owner")},
            "/wishes": {"post": operation(Some("Wish"), "OwnerInput")},
        });
        let interface = interface(&schemas, &paths);
        let names: Vec<&String> = interface.definitions.keys().collect();
        assert_eq!(names, ["Owner", "OwnerInput", "OwnerInput_2", "Pet", "PetInput", "Tag", "Wish"]);
        let of = |name: &str| &interface.definitions[name];
        assert_eq!(of("Pet")["required"], json!(["id", "tag"]));
        assert_eq!(of("PetInput")["required"], json!(["tag"]));
        assert_eq!(of("PetInput")["properties"], json!({"tag": {"$ref": "#/$defs/Tag"}}));
        assert_eq!(of("Owner")["properties"]["pet"]["$ref"], "#/$defs/Pet");
        assert_eq!(of("OwnerInput_2")["properties"]["pet"]["$ref"], "#/$defs/PetInput");
        assert_eq!(of("Wish")["properties"]["owner"]["$ref"], "#/$defs/OwnerInput_2");
        let adding = &interface.functions[0];
        assert_eq!((adding.method.as_str(), adding.path.as_str()), ("POST", "/owners"));
        assert_eq!(adding.spec.input_schema.get()["properties"]["body"]["$ref"], "#/$defs/OwnerInput_2");
        assert_eq!(adding.spec.output_schema.as_ref().unwrap().get()["$ref"], "#/$defs/Owner");
    }

    #[test]
    fn what_only_one_way_reaches_keeps_its_name() {
        let schemas = json!({
            "Pet": {"type": "object", "properties": {
                "id": {"type": "integer", "readOnly": true},
                "history": {"$ref": "#/components/schemas/History", "readOnly": true},
                "key": {"type": "string", "writeOnly": true},
            }},
            "History": {"type": "object", "properties": {"at": {"type": "string", "readOnly": true}}},
            "Done": {"type": "boolean"},
        });
        let sent = interface(&schemas, &json!({"/pets": {"post": operation(Some("Pet"), "Done")}}));
        assert_eq!(sent.definitions["Pet"]["properties"].as_object().unwrap().len(), 1);
        let received = interface(&schemas, &json!({"/pets": {"get": operation(None, "Pet")}}));
        assert_eq!(received.definitions.keys().collect::<Vec<_>>(), ["History", "Pet"]);
        assert!(received.definitions["Pet"]["properties"].get("key").is_none());
    }
}
