//! The definition of an upstream server: all of its text that an agent may read. That is its tools, instructions,
//! prompts, resources and resource templates.
//!
//! Definitions are stored and compared as the server sent them. Agents and people see them with invisible characters
//! escaped, so that a description cannot carry text that only a model reads (tool poisoning).

use crate::convert;
use ctx_core::{Schema, ToolSpec, escape_invisible, escape_line, has_invisible};
use rmcp::model as mcp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Places with invisible characters that are listed by name; further ones are only counted.
const INVISIBLE_PLACES_MAX: usize = 20;

/// The definition of one server. A part that is `None` has not been listed yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ServerDefinition {
    pub(super) tools: Vec<ToolDefinition>,
    /// Empty if the server sends none.
    #[serde(default)]
    pub(super) instructions: Option<String>,
    #[serde(default)]
    pub(super) prompts: Option<FeatureDefinitions>,
    #[serde(default)]
    pub(super) templates: Option<FeatureDefinitions>,
    #[serde(default)]
    pub(super) resources: Option<FeatureDefinitions>,
}

/// The definition of one tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ToolDefinition {
    /// Shared with the catalog, and with other definitions that have the same.
    #[serde(with = "shared_spec")]
    pub(super) spec: Arc<ToolSpec>,
    /// Fields that a `ToolSpec` lacks: `_meta`, `icons`, the title annotation. `None` in records of earlier versions.
    pub(super) more: Option<Map<String, Value>>,
}

/// The fields of prompts by name, or of resources and templates by URI.
pub(super) type FeatureDefinitions = BTreeMap<String, Map<String, Value>>;

impl ToolDefinition {
    pub(super) fn of(tool: mcp::Tool) -> Self {
        let title = tool.annotations.as_ref().and_then(|hints| hints.title.clone());
        let fields = [
            ("_meta", serde_json::to_value(&tool.meta)),
            ("icons", serde_json::to_value(&tool.icons)),
            ("annotations.title", serde_json::to_value(title)),
        ];
        let present = |(key, value): (&str, Result<Value, _>)| {
            Some((key.to_owned(), value.ok().filter(|value| !value.is_null())?))
        };
        let more = Some(fields.into_iter().filter_map(present).collect());
        Self { more, spec: Arc::new(convert::tool_spec(tool)) }
    }

    /// The tool for catalogs, with invisible characters escaped; `None` if its name contains any.
    fn visible_spec(&self) -> Option<Arc<ToolSpec>> {
        if is_hidden_name(&self.spec.name) {
            return None;
        }
        if !spec_contains_invisible(&self.spec) {
            return Some(self.spec.clone());
        }
        let mut spec = ToolSpec::clone(&self.spec);
        spec.title = spec.title.as_deref().map(visible);
        spec.description = visible(&spec.description);
        spec.tags.iter_mut().for_each(|tag| *tag = visible(tag));
        for schema in std::iter::once(&mut spec.input_schema).chain(&mut spec.output_schema) {
            if schema_contains_invisible(schema) {
                let mut value = (*schema.get()).clone();
                make_visible(&mut value);
                *schema = value.into();
            }
        }
        Some(Arc::new(spec))
    }
}

/// A shared spec, stored like one that is not shared.
mod shared_spec {
    use super::{Arc, ToolSpec};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(spec: &Arc<ToolSpec>, serializer: S) -> Result<S::Ok, S::Error> {
        spec.as_ref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<ToolSpec>, D::Error> {
        ToolSpec::deserialize(deserializer).map(Arc::new)
    }
}

impl ServerDefinition {
    /// Parses a stored definition; `None` if it is unreadable. Earlier versions stored a bare array of tools.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if !text.trim_start().starts_with('[') {
            return serde_json::from_str(text).ok();
        }
        let specs: Vec<ToolSpec> = serde_json::from_str(text).ok()?;
        let tools =
            specs.into_iter().map(|spec| ToolDefinition { spec: Arc::new(spec), more: None }).collect();
        Some(Self { tools, ..Self::default() })
    }

    /// The tools for catalogs, with invisible characters escaped; tools with such characters in the name are left out.
    pub(super) fn visible_tools(&self) -> Vec<Arc<ToolSpec>> {
        self.tools.iter().filter_map(ToolDefinition::visible_spec).collect()
    }

    /// Replaces the tools that `other` has as well by its own, so that each is in memory once.
    pub(super) fn share_equal_tools(&mut self, other: &Self) {
        let by_name: HashMap<&str, &ToolDefinition> =
            other.tools.iter().map(|tool| (tool.spec.name.as_str(), tool)).collect();
        for tool in &mut self.tools {
            if let Some(other) =
                by_name.get(tool.spec.name.as_str()).filter(|other| *other.spec == *tool.spec)
            {
                tool.spec = other.spec.clone();
            }
        }
    }

    /// Copies the parts that are missing here from `seen`; returns whether there were any.
    pub(super) fn fill(&mut self, seen: &Self) -> bool {
        let mut is_filled = false;
        let by_name: BTreeMap<&str, &ToolDefinition> =
            seen.tools.iter().map(|tool| (tool.spec.name.as_str(), tool)).collect();
        for tool in self.tools.iter_mut().filter(|tool| tool.more.is_none()) {
            tool.more = by_name.get(tool.spec.name.as_str()).and_then(|seen| seen.more.clone());
            is_filled |= tool.more.is_some();
        }
        is_filled |= fill(&mut self.instructions, &seen.instructions);
        is_filled |= fill(&mut self.prompts, &seen.prompts);
        is_filled |= fill(&mut self.templates, &seen.templates);
        is_filled |= fill(&mut self.resources, &seen.resources);
        is_filled
    }

    /// Descriptions of the places that contain invisible characters.
    pub(super) fn invisible_places(&self) -> Vec<String> {
        let mut places = Vec::new();
        for ToolDefinition { spec, more } in &self.tools {
            let name = escape_line(&spec.name);
            if is_hidden_name(&spec.name) {
                places.push(format!("the name of the tool `{name}`, which is left out"));
                continue;
            }
            let schema = |schema: Option<&Schema>| schema.is_some_and(schema_contains_invisible);
            let fields = [
                ("title", spec.title.as_deref().is_some_and(has_invisible)),
                ("description", has_invisible(&spec.description)),
                ("tags", spec.tags.iter().any(|tag| has_invisible(tag))),
                ("input_schema", schema(Some(&spec.input_schema))),
                ("output_schema", schema(spec.output_schema.as_ref())),
                ("_meta", more.as_ref().is_some_and(fields_contain_invisible)),
            ];
            let fields: Vec<&str> =
                fields.iter().filter(|(_, is_found)| *is_found).map(|(field, _)| *field).collect();
            if !fields.is_empty() {
                places.push(format!("{} of the tool `{name}`", fields.join(", ")));
            }
        }
        if self.instructions.as_deref().is_some_and(has_invisible) {
            places.push("its instructions".to_owned());
        }
        let kinds = [
            ("prompt", &self.prompts),
            ("resource template", &self.templates),
            ("resource", &self.resources),
        ];
        for (kind, features) in kinds {
            let places_in_features = features
                .iter()
                .flatten()
                .filter(|(name, fields)| is_hidden_name(name) || fields_contain_invisible(fields));
            places.extend(places_in_features.map(|(name, _)| format!("the {kind} `{}`", escape_line(name))));
        }
        let more = places.len().saturating_sub(INVISIBLE_PLACES_MAX);
        places.truncate(INVISIBLE_PLACES_MAX);
        places.extend((more > 0).then(|| format!("{more} more")));
        places
    }
}

fn fill<T: Clone>(part: &mut Option<T>, seen: &Option<T>) -> bool {
    let is_filled = part.is_none() && seen.is_some();
    if is_filled {
        part.clone_from(seen);
    }
    is_filled
}

/// The fields of listed prompts, resources or templates, by `name`.
pub(super) fn feature_definitions<T: Serialize>(
    listed: &[T],
    name: impl Fn(&T) -> &str,
) -> FeatureDefinitions {
    let entry = |entry: &T| match serde_json::to_value(entry) {
        Ok(Value::Object(mut fields)) => {
            // Size and modification time belong to the content, not to the definition.
            fields.remove("size");
            if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
                annotations.remove("lastModified");
            }
            Some((name(entry).to_owned(), fields))
        }
        _ => None,
    };
    // In reverse, so that the first of two with the same name wins.
    listed.iter().rev().filter_map(entry).collect()
}

/// `text` with invisible characters escaped, for people and agents.
pub(super) fn visible(text: &str) -> String {
    escape_invisible(text).into_owned()
}

/// Whether a name contains invisible characters or line breaks, and so does not read as what it is.
pub(super) fn is_hidden_name(name: &str) -> bool {
    escape_line(name) != name
}

/// Escapes invisible characters in all strings and keys of a JSON value.
pub(super) fn make_visible(value: &mut Value) {
    match value {
        Value::String(text) if has_invisible(text) => *text = visible(text),
        Value::Array(values) => values.iter_mut().for_each(make_visible),
        Value::Object(fields) => {
            if fields.keys().any(|key| has_invisible(key)) {
                *fields =
                    std::mem::take(fields).into_iter().map(|(key, value)| (visible(&key), value)).collect();
            }
            fields.values_mut().for_each(make_visible);
        }
        _ => {}
    }
}

/// Whether a text of a tool that agents read contains invisible characters.
fn spec_contains_invisible(spec: &ToolSpec) -> bool {
    let texts = spec.title.iter().chain([&spec.description]).chain(&spec.tags);
    texts.into_iter().any(|text| has_invisible(text))
        || std::iter::once(&spec.input_schema).chain(&spec.output_schema).any(schema_contains_invisible)
}

fn schema_contains_invisible(schema: &Schema) -> bool {
    match schema.identity() {
        // In JSON without escapes, all strings are as they are written.
        Some(text) if !text.contains('\\') => has_invisible(&text),
        _ => contains_invisible(&schema.get()),
    }
}

fn contains_invisible(value: &Value) -> bool {
    match value {
        Value::String(text) => has_invisible(text),
        Value::Array(values) => values.iter().any(contains_invisible),
        Value::Object(fields) => fields_contain_invisible(fields),
        _ => false,
    }
}

fn fields_contain_invisible(fields: &Map<String, Value>) -> bool {
    fields.iter().any(|(key, value)| has_invisible(key) || contains_invisible(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(fields: Value) -> ToolDefinition {
        ToolDefinition::of(serde_json::from_value(fields).unwrap())
    }

    #[test]
    fn invisible_characters_are_escaped_for_agents_and_reported() {
        let schema = json!({"type": "object", "properties": {"a\u{200b}": {"description": "\u{e0041}x", "enum": ["ok"]}}});
        let poisoned =
            tool(json!({"name": "read", "description": "Reads.\n\u{202e}tes", "inputSchema": schema,
            "_meta": {"note": ["\u{2066}"]}}));
        let unnamed = tool(json!({"name": "re\u{200b}ad", "inputSchema": {"type": "object"}}));
        let plain =
            tool(json!({"name": "list", "description": "Lists 👩‍👩‍👧.", "inputSchema": {"type": "object"}}));
        let definition = ServerDefinition {
            tools: vec![poisoned, unnamed, plain],
            instructions: Some("be\u{ad}ware".to_owned()),
            prompts: Some(feature_definitions(&[mcp::Prompt::new("p", Some("\u{200b}"), None)], |prompt| {
                &prompt.name
            })),
            ..ServerDefinition::default()
        };
        let shown = definition.visible_tools();
        assert_eq!(shown.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["read", "list"]);
        assert_eq!(shown[0].description, "Reads.\n\\u{202e}tes");
        assert_eq!(
            *shown[0].input_schema.get(),
            json!({"type": "object", "properties": {"a\\u{200b}": {"description": "\\u{e0041}x", "enum": ["ok"]}}})
        );
        assert_eq!(shown[1], definition.tools[2].spec);
        assert_eq!(
            definition.invisible_places(),
            [
                "description, input_schema, _meta of the tool `read`",
                "the name of the tool `re\\u{200b}ad`, which is left out",
                "its instructions",
                "the prompt `p`",
            ]
        );
    }

    #[test]
    fn definitions_of_earlier_versions_are_read_and_completed() {
        let now = ServerDefinition {
            tools: vec![tool(json!({"name": "read", "inputSchema": {"type": "object"}, "_meta": {"a": 1}}))],
            instructions: Some(String::new()),
            ..ServerDefinition::default()
        };
        let before = serde_json::to_string(&[&*now.tools[0].spec]).unwrap();
        let mut before = ServerDefinition::parse(&before).unwrap();
        assert!(before != now && before.fill(&now) && !before.fill(&now));
        assert_eq!(before, now);
        assert_eq!(ServerDefinition::parse(&serde_json::to_string(&now).unwrap()), Some(now));
        assert_eq!(ServerDefinition::parse("{"), None);
    }
}
