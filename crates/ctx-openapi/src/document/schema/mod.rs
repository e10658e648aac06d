//! Converts the schemas of a description to JSON Schema (2020-12); each referenced schema becomes one
//! definition.

mod constant;
mod convert;
mod cycles;
mod pattern;

pub(super) use convert::add_remark;

use super::documents::Documents;
use super::names::UniqueNames;
use super::reference::{DocumentNode, shorten};
use crate::operation::{Direction, definition_reference};
use pattern::PatternCache;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// JSON values in all schemas of one description together; schemas beyond that accept anything.
const VALUES_MAX: usize = 1_000_000;

/// Characters of a definition's name.
const NAME_MAX: usize = 80;

/// Converts schemas, and collects the definitions that they refer to.
pub(super) struct SchemaConverter<'d> {
    documents: &'d Documents,
    /// The definition names of schemas, by document and JSON Pointer.
    names: HashMap<(usize, String), String>,
    definition_names: UniqueNames,
    queue: VecDeque<(String, DocumentNode<'d>)>,
    /// Definitions that others combine with `allOf`.
    parts: HashSet<String>,
    /// Whether keywords beside a `$ref` count.
    has_siblings: bool,
    values_left: usize,
    patterns: PatternCache,
}

impl<'d> SchemaConverter<'d> {
    pub(super) fn new(documents: &'d Documents) -> Self {
        Self {
            documents,
            names: HashMap::new(),
            definition_names: UniqueNames::default(),
            queue: VecDeque::new(),
            parts: HashSet::new(),
            has_siblings: has_siblings(documents.root()),
            values_left: VALUES_MAX,
            patterns: PatternCache::default(),
        }
    }

    /// Converts a schema of the document to JSON Schema; schemas that it refers to become definitions.
    pub(super) fn convert_for(&mut self, schema: DocumentNode<'_>, direction: Direction) -> Value {
        self.convert(schema, Some(direction), false)
    }

    /// All definitions that were referred to, directly or not.
    pub(super) fn into_definitions(mut self) -> BTreeMap<String, Value> {
        let mut definitions = BTreeMap::new();
        while let Some((name, schema)) = self.queue.pop_front() {
            let definition = self.convert(schema, None, false);
            definitions.insert(name, definition);
        }
        for name in &self.parts {
            definitions.get_mut(name).into_iter().for_each(convert::allow_more_fields);
        }
        cycles::break_cycles(&mut definitions);
        definitions
    }

    /// The `$ref` to the definition of a referenced schema; a schema that accepts anything if the reference
    /// cannot be resolved.
    fn reference_to(&mut self, from: usize, reference: &str) -> Map<String, Value> {
        let target = match self.documents.resolve_aliases(from, reference) {
            Ok(target) if target.node.value.is_object() || target.node.value.is_boolean() => target,
            Ok(_) => return Map::new(),
            Err(why) => {
                tracing::debug!("a schema {why}");
                return Map::new();
            }
        };
        let key = (target.node.document, target.pointer);
        let name = match self.names.get(&key) {
            Some(name) => name.clone(),
            None => {
                let name = self.unique_name(&key);
                self.queue.push_back((name.clone(), target.node));
                self.names.insert(key, name.clone());
                name
            }
        };
        Map::from_iter([("$ref".to_owned(), definition_reference(&name).into())])
    }

    /// A unique name for a definition: the last part of its JSON Pointer, or the name of its document.
    fn unique_name(&mut self, (document, pointer): &(usize, String)) -> String {
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
        self.definition_names.take(&base)
    }

    /// Whether a schema, or the schema that it refers to, has this mark.
    fn has_mark(&self, schema: DocumentNode<'_>, mark: &str) -> bool {
        if schema.is(mark) {
            return true;
        }
        let reference = schema.text("$ref");
        let target =
            reference.and_then(|reference| self.documents.resolve_aliases(schema.document, reference).ok());
        target.is_some_and(|target| target.node.is(mark))
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
pub(super) fn default_text(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) if text.is_empty() => return None,
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    Some(shorten(&text))
}

#[cfg(test)]
mod tests;
