//! All functions of a provider with their shared types, to be written as one file.
//!
//! A [`Function`] alone has its own types, and omits some if there are too many. Here, every definition is read once
//! and separately; a reference to another definition stays a name.

use crate::function::Function;
use crate::merge::{break_cycles, rename_types};
use crate::model::{NamedType, Notes, Type};
use crate::schema_reader::{NAMED_TYPES_MAX, TYPE_NAME_MAX, read_schema, type_name};
use ctx_core::{Identifier, ToolName, ToolSpec};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Prefix of a reference to a definition.
const DEFINITION: &str = "#/$defs/";

/// Keywords whose values are not schemas.
const VALUE_KEYWORDS: [&str; 5] = ["enum", "const", "default", "example", "examples"];

/// Keywords whose values are objects of schemas by name.
const SCHEMA_MAP_KEYWORDS: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];

/// Maximum number of references that are followed to find a default.
const DEFAULT_STEPS_MAX: usize = 16;

/// All functions of a provider, with their shared types.
#[derive(Clone, Debug)]
pub struct Library {
    pub(crate) provider: Identifier,
    /// Title of the provider, for the header of a file.
    pub(crate) title: String,
    /// The shared types, with unique names.
    pub(crate) types: Vec<NamedType>,
    pub(crate) functions: Vec<Function>,
}

impl Library {
    /// Name of the type that has all functions as fields.
    pub(crate) const FUNCTIONS: &str = "Functions";

    /// Reads a provider whose schemas refer to `definitions` as `#/$defs/…`; the targets of other references are `any`.
    pub fn of<'a>(
        provider: &Identifier,
        title: &str,
        specs: impl IntoIterator<Item = &'a ToolSpec>,
        definitions: &BTreeMap<String, Value>,
    ) -> Self {
        let names = DefinitionNames::of(definitions.keys());
        let shared: BTreeMap<&str, Value> = definitions
            .iter()
            .filter_map(|(key, definition)| Some((names.get(key)?, names.rewrite_references(definition))))
            .collect();
        let read_definition = |(name, definition): (&&str, &Value)| {
            let document =
                with_definitions(definition, |name| shared.get(name).map(|of| placeholder(of, &shared)));
            let notes = definition.as_object().map(|fields| Notes::of(fields, None)).unwrap_or_default();
            NamedType {
                name: (*name).to_owned(),
                luau_type: read_schema(&document, name, NAMED_TYPES_MAX).of,
                notes,
            }
        };
        let mut types: Vec<NamedType> = shared.iter().map(read_definition).collect();
        break_cycles(&mut types);
        let function = |spec: &ToolSpec| {
            let with_all_definitions = |schema: &ctx_core::Schema| {
                let schema = names.rewrite_references(&schema.get());
                ctx_core::Schema::from(with_definitions(&schema, |name| shared.get(name).cloned()))
            };
            let name = ToolName::new(provider.clone(), Identifier::sanitize(&spec.name));
            let input_spec = ToolSpec {
                input_schema: with_all_definitions(&spec.input_schema),
                output_schema: None,
                ..spec.clone()
            };
            let output_spec = ToolSpec {
                output_schema: spec.output_schema.as_ref().map(with_all_definitions),
                ..ToolSpec::new(&spec.name, "", json!({}))
            };
            // Read separately, so that arguments and result refer to shared types by the same names.
            let Function { result, result_notes, .. } = Function::of(&name, &output_spec);
            Function { result, result_notes, ..Function::of(&name, &input_spec) }
        };
        let functions = specs.into_iter().map(function).collect();
        Self { provider: provider.clone(), title: title.to_owned(), types, functions }
    }

    /// This library with other names for its types.
    pub(crate) fn with_renamed_types(&self, name: &impl Fn(&str) -> String) -> Self {
        let mut library = self.clone();
        let rename = |of: &mut Type| {
            *of = rename_types(std::mem::replace(of, Type::Any), name);
        };
        for named in &mut library.types {
            named.name = name(&named.name);
            rename(&mut named.luau_type);
        }
        for function in &mut library.functions {
            function.arguments.iter_mut().for_each(|argument| rename(&mut argument.luau_type));
            rename(&mut function.result);
        }
        library
    }
}

/// The type name of each definition.
struct DefinitionNames<'a>(HashMap<&'a str, String>);

impl<'a> DefinitionNames<'a> {
    fn of(keys: impl Iterator<Item = &'a String>) -> Self {
        let mut taken = HashSet::from([Library::FUNCTIONS.to_owned()]);
        let mut next: HashMap<String, usize> = HashMap::new();
        let mut names = HashMap::new();
        for key in keys {
            let base = type_name(key);
            let mut name = base.clone();
            while !taken.insert(name.clone()) {
                let ordinal = next.entry(base.clone()).or_insert(1);
                *ordinal += 1;
                // The reader cuts names at `TYPE_NAME_MAX`, so a reference to a longer one would lead elsewhere.
                let number = format!("_{ordinal}");
                let prefix: String = base.chars().take(TYPE_NAME_MAX - number.len()).collect();
                name = prefix + &number;
            }
            names.insert(key.as_str(), name);
        }
        Self(names)
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The schema with references by type name, and without all other references.
    fn rewrite_references(&self, schema: &Value) -> Value {
        match schema {
            Value::Object(fields) => {
                let mut rewritten = Map::new();
                for (keyword, value) in fields {
                    let value = match (keyword.as_str(), value) {
                        ("$ref", Value::String(reference)) => {
                            let key = reference.strip_prefix(DEFINITION);
                            let Some(name) = key.and_then(|key| self.get(key)) else { continue };
                            Value::String(format!("{DEFINITION}{name}"))
                        }
                        ("$dynamicRef" | "$recursiveRef" | "$defs" | "definitions", _) => continue,
                        (keyword, Value::Object(schemas)) if SCHEMA_MAP_KEYWORDS.contains(&keyword) => {
                            schemas
                                .iter()
                                .map(|(name, of)| (name.clone(), self.rewrite_references(of)))
                                .collect()
                        }
                        (keyword, value) if VALUE_KEYWORDS.contains(&keyword) => value.clone(),
                        (_, value) => self.rewrite_references(value),
                    };
                    rewritten.insert(keyword.clone(), value);
                }
                Value::Object(rewritten)
            }
            Value::Array(items) => items.iter().map(|item| self.rewrite_references(item)).collect(),
            value => value.clone(),
        }
    }
}

/// The schema with the definitions to which it refers, as a document of its own.
fn with_definitions(schema: &Value, definition: impl Fn(&str) -> Option<Value>) -> Value {
    let mut schema = schema.clone();
    let mut referenced = BTreeMap::new();
    visit_references(&schema, &mut |name| {
        if !referenced.contains_key(name) {
            referenced.insert(name.to_owned(), definition(name).unwrap_or_default());
        }
    });
    if let (Value::Object(fields), false) = (&mut schema, referenced.is_empty()) {
        fields.insert("$defs".to_owned(), referenced.into_iter().collect());
    }
    schema
}

fn visit_references(schema: &Value, visit: &mut impl FnMut(&str)) {
    match schema {
        Value::Object(fields) => {
            for (keyword, value) in fields {
                match value {
                    Value::String(reference) if keyword == "$ref" => {
                        reference.strip_prefix(DEFINITION).into_iter().for_each(&mut *visit);
                    }
                    value => visit_references(value, visit),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| visit_references(item, visit)),
        _ => {}
    }
}

/// A placeholder for a definition that is only referred to by name. It keeps the default, which makes a field optional.
fn placeholder(definition: &Value, shared: &BTreeMap<&str, Value>) -> Value {
    let mut schema = definition;
    for _ in 0..DEFAULT_STEPS_MAX {
        if let Some(default) = schema.get("default") {
            return json!({ "default": default });
        }
        let reference = schema.get("$ref").and_then(Value::as_str);
        let Some(next) = reference.and_then(|name| shared.get(name.strip_prefix(DEFINITION)?)) else { break };
        schema = next;
    }
    if definition.is_object() { Value::Object(Map::new()) } else { definition.clone() }
}
