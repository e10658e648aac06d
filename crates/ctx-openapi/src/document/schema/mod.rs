//! Converts the schemas of a description to JSON Schema (2020-12); each referenced schema becomes one
//! definition.

mod constant;
mod convert;
mod cycles;
mod pattern;

pub(super) use convert::add_remark;

use super::names::Unique;
use super::reference::{Node, shortened};
use super::sources::Documents;
use crate::operation::{Way, definition_reference};
use pattern::Patterns;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// JSON values in all schemas of one description together; schemas beyond that accept anything.
const VALUES_MAX: usize = 1_000_000;

/// Characters of a definition's name.
const NAME_MAX: usize = 80;

/// Converts schemas, and collects the definitions that they refer to.
pub(super) struct Schemas<'d> {
    documents: &'d Documents,
    /// The definition names of schemas, by document and JSON Pointer.
    names: HashMap<(usize, String), String>,
    taken: Unique,
    waiting: VecDeque<(String, Node<'d>)>,
    /// Definitions that others combine with `allOf`.
    parts: HashSet<String>,
    /// Whether keywords beside a `$ref` count.
    has_siblings: bool,
    values_left: usize,
    patterns: Patterns,
}

impl<'d> Schemas<'d> {
    pub(super) fn new(documents: &'d Documents) -> Self {
        Self {
            documents,
            names: HashMap::new(),
            taken: Unique::default(),
            waiting: VecDeque::new(),
            parts: HashSet::new(),
            has_siblings: has_siblings(documents.root()),
            values_left: VALUES_MAX,
            patterns: Patterns::default(),
        }
    }

    /// Converts a schema of the document to JSON Schema; schemas that it refers to become definitions.
    pub(super) fn schema(&mut self, schema: Node<'_>, way: Way) -> Value {
        self.convert(schema, Some(way), false)
    }

    /// All definitions that were referred to, directly or not.
    pub(super) fn into_definitions(mut self) -> BTreeMap<String, Value> {
        let mut definitions = BTreeMap::new();
        while let Some((name, schema)) = self.waiting.pop_front() {
            let definition = self.convert(schema, None, false);
            definitions.insert(name, definition);
        }
        for name in &self.parts {
            definitions.get_mut(name).into_iter().for_each(convert::open);
        }
        cycles::cut(&mut definitions);
        definitions
    }

    /// The `$ref` to the definition of a referenced schema; a schema that accepts anything if the reference
    /// cannot be resolved.
    fn refer(&mut self, from: usize, reference: &str) -> Map<String, Value> {
        let found = match self.documents.find_last(from, reference) {
            Ok(found) if found.node.value.is_object() || found.node.value.is_boolean() => found,
            Ok(_) => return Map::new(),
            Err(why) => {
                tracing::debug!("a schema {why}");
                return Map::new();
            }
        };
        let key = (found.node.document, found.pointer);
        let name = match self.names.get(&key) {
            Some(name) => name.clone(),
            None => {
                let name = self.name(&key);
                self.waiting.push_back((name.clone(), found.node));
                self.names.insert(key, name.clone());
                name
            }
        };
        Map::from_iter([("$ref".to_owned(), definition_reference(&name).into())])
    }

    /// A unique name for a definition: the last part of its JSON Pointer, or the name of its document.
    fn name(&mut self, (document, pointer): &(usize, String)) -> String {
        let last = pointer.rsplit('/').next().unwrap_or_default().replace("~1", "/").replace("~0", "~");
        let part = if last.is_empty() {
            let file = self.documents.address(*document).rsplit('/').next().unwrap_or_default();
            file.split('.').next().unwrap_or_default().to_owned()
        } else {
            last
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let plain = part.chars().map(|c| if is_plain(c) { c } else { '_' }).take(NAME_MAX);
        let base: String = plain.collect();
        let base = if base.trim_matches(['_', '-', '.']).is_empty() { "Schema".to_owned() } else { base };
        self.taken.take(&base)
    }

    /// Whether a schema, or the schema that it refers to, has this mark.
    fn is_marked(&self, schema: Node<'_>, mark: &str) -> bool {
        if schema.is(mark) {
            return true;
        }
        let reference = schema.text("$ref");
        let found = reference.and_then(|reference| self.documents.find_last(schema.document, reference).ok());
        found.is_some_and(|found| found.node.is(mark))
    }
}

/// Whether keywords beside a `$ref` count, as they do since OpenAPI 3.1.
fn has_siblings(root: &Value) -> bool {
    let version = root
        .get("openapi")
        .map(|version| version.as_str().map_or_else(|| version.to_string(), str::to_owned));
    let is_older = |version: &String| {
        ["2", "3.0"]
            .iter()
            .any(|older| version.trim() == *older || version.trim().starts_with(&format!("{older}.")))
    };
    version.is_some_and(|version| !is_older(&version))
}

/// A default value for a description: short; `None` if it is null or empty.
pub(super) fn told(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) if text.is_empty() => return None,
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    Some(shortened(&text))
}

#[cfg(test)]
mod tests;
