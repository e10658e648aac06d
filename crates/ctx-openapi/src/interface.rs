//! All functions of an API at once, with the definitions that their schemas share.
//!
//! The schemas of a tool are self-contained, and therefore cut where they would be too large. A listing of a
//! whole API needs every definition complete, and once.

use crate::operation::{Description, Direction, definition_name, definition_reference};
use crate::self_contained::filter_direction;
use ctx_core::ToolSpec;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Suffix of a definition's name in requests, if it differs from the same definition in responses.
const REQUEST_SUFFIX: &str = "Input";

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
        let mut request = ReachableSchemas::new(inputs, &description.definitions, Direction::Request);
        let mut response = ReachableSchemas::new(outputs, &description.definitions, Direction::Response);
        let names = request_names(&request, &response, &direction_dependent(&description.definitions));
        request.rename(&names);
        // A definition that is the same in both directions is kept in its request form.
        response.definitions.append(&mut request.definitions);
        let schemas = request.roots.into_iter().zip(response.roots);
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
        Self { functions, definitions: response.definitions }
    }
}

/// Schemas in one direction, and all definitions that they refer to, directly or not.
struct ReachableSchemas {
    roots: Vec<Option<Value>>,
    definitions: BTreeMap<String, Value>,
}

impl ReachableSchemas {
    fn new<'a>(
        roots: impl Iterator<Item = Option<&'a Value>>,
        definitions: &BTreeMap<String, Value>,
        direction: Direction,
    ) -> Self {
        let filter_direction =
            |schema: &Value| filter_direction(schema, direction, definitions, &mut usize::MAX.clone());
        let mut seen = HashSet::new();
        let mut queue = VecDeque::new();
        let mut enqueue = |schema: &Value, queue: &mut VecDeque<String>| {
            for_each_reference(schema, &mut |name| {
                if !seen.contains(name) {
                    seen.insert(name.to_owned());
                    queue.push_back(name.to_owned());
                }
            });
        };
        let roots: Vec<Option<Value>> = roots.map(|root| root.map(filter_direction)).collect();
        roots.iter().flatten().for_each(|root| enqueue(root, &mut queue));
        let mut reachable = BTreeMap::new();
        while let Some(name) = queue.pop_front() {
            let definition =
                definitions.get(&name).map_or_else(|| Value::Object(Map::new()), filter_direction);
            enqueue(&definition, &mut queue);
            reachable.insert(name, definition);
        }
        Self { roots, definitions: reachable }
    }

    fn rename(&mut self, names: &HashMap<String, String>) {
        self.roots.iter_mut().flatten().for_each(|root| rename_references(root, names));
        let definitions = std::mem::take(&mut self.definitions).into_iter();
        self.definitions = definitions
            .map(|(name, mut definition)| {
                rename_references(&mut definition, names);
                (names.get(&name).cloned().unwrap_or(name), definition)
            })
            .collect();
    }
}

/// New names for the request form of definitions that differ between requests and responses.
fn request_names(
    request: &ReachableSchemas,
    response: &ReachableSchemas,
    direction_dependent: &HashSet<&str>,
) -> HashMap<String, String> {
    let mut names = HashMap::new();
    let mut taken: HashSet<String> =
        request.definitions.keys().chain(response.definitions.keys()).cloned().collect();
    for name in request.definitions.keys() {
        if !direction_dependent.contains(name.as_str()) || !response.definitions.contains_key(name) {
            continue;
        }
        let mut new = format!("{name}{REQUEST_SUFFIX}");
        let mut ordinal = 2;
        while !taken.insert(new.clone()) {
            new = format!("{name}{REQUEST_SUFFIX}_{ordinal}");
            ordinal += 1;
        }
        names.insert(name.clone(), new);
    }
    names
}

/// Definitions with read-only or write-only fields, and those that refer to one, directly or not.
fn direction_dependent(definitions: &BTreeMap<String, Value>) -> HashSet<&str> {
    let mut referrers: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut queue = Vec::new();
    for (name, definition) in definitions {
        for_each_reference(definition, &mut |to| referrers.entry(to).or_default().push(name));
        if has_direction_mark(definition) {
            queue.push(name.as_str());
        }
    }
    let mut dependent = HashSet::new();
    while let Some(name) = queue.pop() {
        if dependent.insert(name) {
            queue.extend(referrers.get(name).into_iter().flatten());
        }
    }
    dependent
}

fn has_direction_mark(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().any(|(keyword, value)| match value {
            Value::Bool(true) => {
                keyword == Direction::Request.excluding_keyword()
                    || keyword == Direction::Response.excluding_keyword()
            }
            value => has_direction_mark(value),
        }),
        Value::Array(items) => items.iter().any(has_direction_mark),
        _ => false,
    }
}

/// Calls `visit` with the name of each definition that a schema refers to.
fn for_each_reference<'a>(schema: &'a Value, visit: &mut impl FnMut(&'a str)) {
    match schema {
        Value::Object(fields) => {
            for (keyword, value) in fields {
                match value {
                    Value::String(reference) if keyword == "$ref" => {
                        definition_name(reference).into_iter().for_each(&mut *visit);
                    }
                    value => for_each_reference(value, visit),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| for_each_reference(item, visit)),
        _ => {}
    }
}

fn rename_references(schema: &mut Value, names: &HashMap<String, String>) {
    match schema {
        Value::Object(fields) => {
            for (keyword, value) in fields {
                match value {
                    Value::String(reference) if keyword == "$ref" => {
                        if let Some(name) = definition_name(reference).and_then(|name| names.get(name)) {
                            *reference = definition_reference(name);
                        }
                    }
                    value => rename_references(value, names),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename_references(item, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{RootLocation, SingleDocument, load};
    use serde_json::json;

    fn interface(schemas: &Value, paths: &Value) -> Interface {
        let document = json!({
            "openapi": "3.0.3", "info": {"title": "Pets", "version": "1"},
            "paths": paths, "components": {"schemas": schemas},
        });
        let location = RootLocation::Directory("description".to_owned());
        let description = load(&document.to_string(), location, &SingleDocument).unwrap();
        let names = description.operations.iter().map(|operation| operation.name.clone());
        let specs: Vec<ToolSpec> = names.map(|name| ToolSpec::new(name, "", json!({}))).collect();
        Interface::new(&description, specs.into_iter())
    }

    fn operation(request: Option<&str>, response: &str) -> Value {
        let content = |name: &str| json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}});
        let mut operation = json!({"responses": {"200": {"description": "", "content": content(response)}}});
        if let Some(request) = request {
            operation["requestBody"] = json!({"required": true, "content": content(request)});
        }
        operation
    }

    #[test]
    fn a_definition_that_differs_by_direction_is_listed_twice() {
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
        let post_function = &interface.functions[0];
        assert_eq!((post_function.method.as_str(), post_function.path.as_str()), ("POST", "/owners"));
        assert_eq!(
            post_function.spec.input_schema.get()["properties"]["body"]["$ref"],
            "#/$defs/OwnerInput_2"
        );
        assert_eq!(post_function.spec.output_schema.as_ref().unwrap().get()["$ref"], "#/$defs/Owner");
    }

    #[test]
    fn a_definition_used_in_one_direction_keeps_its_name() {
        let schemas = json!({
            "Pet": {"type": "object", "properties": {
                "id": {"type": "integer", "readOnly": true},
                "history": {"$ref": "#/components/schemas/History", "readOnly": true},
                "key": {"type": "string", "writeOnly": true},
            }},
            "History": {"type": "object", "properties": {"at": {"type": "string", "readOnly": true}}},
            "Done": {"type": "boolean"},
        });
        let request = interface(&schemas, &json!({"/pets": {"post": operation(Some("Pet"), "Done")}}));
        assert_eq!(request.definitions["Pet"]["properties"].as_object().unwrap().len(), 1);
        let response = interface(&schemas, &json!({"/pets": {"get": operation(None, "Pet")}}));
        assert_eq!(response.definitions.keys().collect::<Vec<_>>(), ["History", "Pet"]);
        assert!(response.definitions["Pet"]["properties"].get("key").is_none());
    }
}
