//! All functions of a provider with the types that they share, to be written as a file.
//!
//! A function by itself has its types by itself, cut where they are too many. Here every definition is read once and
//! by itself, where each that it refers to is only a name.

use crate::function::Function;
use crate::model::{NamedType, Notes, Type};
use crate::read::{NAME_MAX, NAMED_MAX, read, type_name};
use crate::settle::{break_cycles, with_names};
use ctx_core::{Identifier, ToolName, ToolSpec};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What a reference to a definition begins with.
const DEFINITION: &str = "#/$defs/";

/// Words whose values are no schemas.
const PLAIN: [&str; 5] = ["enum", "const", "default", "example", "examples"];

/// Words whose values are schemas by name.
const BY_NAME: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];

/// References that are followed to find a default.
const DEFAULT_STEPS_MAX: usize = 16;

/// All functions of a provider, and the types that they share.
#[derive(Clone, Debug)]
pub struct Library {
    pub(crate) provider: Identifier,
    /// What is said of the whole, first of all.
    pub(crate) title: String,
    /// Each name once, in the definitions' order.
    pub(crate) types: Vec<NamedType>,
    pub(crate) functions: Vec<Function>,
}

impl Library {
    /// The name of the type that has all functions for fields.
    pub(crate) const FUNCTIONS: &str = "Functions";

    /// A provider whose functions' schemas refer to `definitions` as `#/$defs/…`; what else they refer to can be
    /// anything.
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
            // Each by itself: what it takes and what it answers name the same types.
            let Function { result, result_notes, .. } = Function::of(&name, &answering);
            Function { result, result_notes, ..Function::of(&name, &taking) }
        };
        let functions = specs.into_iter().map(function).collect();
        Self { provider: provider.clone(), title: title.to_owned(), types, functions }
    }

    /// The same with other names for its types.
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

/// The name of the type of each definition.
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
                // A reference to a longer name would be read as another.
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

    /// A schema that refers to types by their names, and to nothing else.
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

/// A schema that stands alone, with what it refers to itself.
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

/// What has to be known of a definition where it is only named: whether a field may be left out.
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
