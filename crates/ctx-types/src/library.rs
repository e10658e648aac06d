//! All functions of a provider with their shared types, to be written as one file.
//!
//! A [`Function`] alone has its own types, and omits some if there are too many. Here, every definition is read once
//! and separately; a reference to another definition stays a name.

use crate::function::Function;
use crate::model::{NamedType, Notes, Type};
use crate::read::{NAME_MAX, NAMED_MAX, read, type_name};
use crate::settle::{break_cycles, with_names};
use ctx_core::{Identifier, ToolName, ToolSpec};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Prefix of a reference to a definition.
const DEFINITION: &str = "#/$defs/";

/// Keywords whose values are not schemas.
const PLAIN: [&str; 5] = ["enum", "const", "default", "example", "examples"];

/// Keywords whose values are objects of schemas by name.
const BY_NAME: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];

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
        let names = Names::of(definitions.keys());
        let shared: BTreeMap<&str, Value> = definitions
            .iter()
            .filter_map(|(key, definition)| Some((names.get(key)?, names.rewritten(definition))))
            .collect();
        let typed = |(name, definition): (&&str, &Value)| {
            let document = with_definitions(definition, |name| shared.get(name).map(|of| stub(of, &shared)));
            let notes = definition.as_object().map(|fields| Notes::of(fields, None)).unwrap_or_default();
            NamedType { name: (*name).to_owned(), of: read(&document, name, NAMED_MAX).of, notes }
        };
        let mut types: Vec<NamedType> = shared.iter().map(typed).collect();
        break_cycles(&mut types);
        let function = |spec: &ToolSpec| {
            let whole = |schema: &ctx_core::Schema| {
                let schema = names.rewritten(&schema.get());
                ctx_core::Schema::from(with_definitions(&schema, |name| shared.get(name).cloned()))
            };
            let name = ToolName::new(provider.clone(), Identifier::sanitize(&spec.name));
            let taking =
                ToolSpec { input_schema: whole(&spec.input_schema), output_schema: None, ..spec.clone() };
            let answering = ToolSpec {
                output_schema: spec.output_schema.as_ref().map(whole),
                ..ToolSpec::new(&spec.name, "", json!({}))
            };
            // Read separately, so that arguments and result refer to shared types by the same names.
            let Function { result, result_notes, .. } = Function::of(&name, &answering);
            Function { result, result_notes, ..Function::of(&name, &taking) }
        };
        let functions = specs.into_iter().map(function).collect();
        Self { provider: provider.clone(), title: title.to_owned(), types, functions }
    }

    /// This library with other names for its types.
    pub(crate) fn renamed(&self, name: &impl Fn(&str) -> String) -> Self {
        let mut library = self.clone();
        let rename = |of: &mut Type| {
            *of = with_names(std::mem::replace(of, Type::Any), name);
        };
        for named in &mut library.types {
            named.name = name(&named.name);
            rename(&mut named.of);
        }
        for function in &mut library.functions {
            function.arguments.iter_mut().for_each(|argument| rename(&mut argument.of));
            rename(&mut function.result);
        }
        library
    }
}

/// The type name of each definition.
struct Names<'a>(HashMap<&'a str, String>);

impl<'a> Names<'a> {
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
                // The reader cuts names at `NAME_MAX`, so a reference to a longer one would lead elsewhere.
                let number = format!("_{ordinal}");
                let kept: String = base.chars().take(NAME_MAX - number.len()).collect();
                name = kept + &number;
            }
            names.insert(key.as_str(), name);
        }
        Self(names)
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The schema with references by type name, and without all other references.
    fn rewritten(&self, schema: &Value) -> Value {
        match schema {
            Value::Object(fields) => {
                let mut rewritten = Map::new();
                for (word, value) in fields {
                    let value = match (word.as_str(), value) {
                        ("$ref", Value::String(reference)) => {
                            let key = reference.strip_prefix(DEFINITION);
                            let Some(name) = key.and_then(|key| self.get(key)) else { continue };
                            Value::String(format!("{DEFINITION}{name}"))
                        }
                        ("$dynamicRef" | "$recursiveRef" | "$defs" | "definitions", _) => continue,
                        (word, Value::Object(schemas)) if BY_NAME.contains(&word) => {
                            schemas.iter().map(|(name, of)| (name.clone(), self.rewritten(of))).collect()
                        }
                        (word, value) if PLAIN.contains(&word) => value.clone(),
                        (_, value) => self.rewritten(value),
                    };
                    rewritten.insert(word.clone(), value);
                }
                Value::Object(rewritten)
            }
            Value::Array(items) => items.iter().map(|item| self.rewritten(item)).collect(),
            value => value.clone(),
        }
    }
}

/// The schema with the definitions to which it refers, as a document of its own.
fn with_definitions(schema: &Value, definition: impl Fn(&str) -> Option<Value>) -> Value {
    let mut schema = schema.clone();
    let mut referred = BTreeMap::new();
    refer(&schema, &mut |name| {
        if !referred.contains_key(name) {
            referred.insert(name.to_owned(), definition(name).unwrap_or_default());
        }
    });
    if let (Value::Object(fields), false) = (&mut schema, referred.is_empty()) {
        fields.insert("$defs".to_owned(), referred.into_iter().collect());
    }
    schema
}

fn refer(schema: &Value, tell: &mut impl FnMut(&str)) {
    match schema {
        Value::Object(fields) => {
            for (word, value) in fields {
                match value {
                    Value::String(reference) if word == "$ref" => {
                        reference.strip_prefix(DEFINITION).into_iter().for_each(&mut *tell);
                    }
                    value => refer(value, tell),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| refer(item, tell)),
        _ => {}
    }
}

/// A placeholder for a definition that is only referred to by name. It keeps the default, which makes a field optional.
fn stub(definition: &Value, shared: &BTreeMap<&str, Value>) -> Value {
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
