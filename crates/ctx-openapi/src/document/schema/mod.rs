//! Schemas of a document as JSON Schema (2020-12): what is named becomes a definition, once.

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

/// Values in all schemas of one description together; what comes after can be anything.
const VALUES_MAX: usize = 1_000_000;

/// Characters of a definition's name.
const NAME_MAX: usize = 80;

/// Makes schemas, and remembers what they refer to.
pub(super) struct Schemas<'d> {
    documents: &'d Documents,
    /// What a place in a document is called.
    names: HashMap<(usize, String), String>,
    taken: Unique,
    waiting: VecDeque<(String, Node<'d>)>,
    /// Definitions that are parts of others.
    parts: HashSet<String>,
    /// Whether words beside a reference count.
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

    /// A schema of the document as JSON Schema; what it refers to becomes definitions.
    pub(super) fn schema(&mut self, schema: Node<'_>, way: Way) -> Value {
        self.convert(schema, Some(way), false)
    }

    /// All definitions that were referred to.
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

    /// A reference to a definition; to anything, where it leads nowhere.
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

    /// A name for a place that no other has: its last part, or its document's.
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

    /// Whether a mark is on a schema, or on what it refers to.
    fn is_marked(&self, schema: Node<'_>, mark: &str) -> bool {
        if schema.is(mark) {
            return true;
        }
        let reference = schema.text("$ref");
        let found = reference.and_then(|reference| self.documents.find_last(schema.document, reference).ok());
        found.is_some_and(|found| found.node.is(mark))
    }
}

/// Whether words beside a reference count: since version 3.1.
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

/// What a value may be told as: short, in code.
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
