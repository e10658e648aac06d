//! Differences between the definition of a server and the accepted one. Texts have invisible characters escaped.

use super::definition::{FeatureDefinitions, ServerDefinition, visible};
use super::settings::ToolFilter;
use ctx_core::{Schema, ToolSpec, escape_line};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// Places in one schema that are listed for each kind of change; further ones are only counted.
const PLACES_LISTED_MAX: usize = 8;
/// [`ChangedFeature::kind`] of prompts.
pub(super) const PROMPT: &str = "prompt";
/// [`ChangedFeature::kind`] of resources.
const RESOURCE: &str = "resource";

/// How the definition of a server differs from an earlier one. The order of tools does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionDiff {
    /// Tools that were not there, by the names that the server gives them.
    pub added: Vec<String>,
    /// Tools that are gone.
    pub removed: Vec<String>,
    /// Tools whose definition has changed.
    pub changed: Vec<ChangedTool>,
    /// Changes to instructions, prompts, resources and resource templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<ChangedFeature>,
}

/// A change to something other than a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFeature {
    /// `instructions`, `prompt`, `template` or `resource`.
    pub kind: Cow<'static, str>,
    /// Its name or URI; empty for instructions.
    pub name: String,
    /// `added`, `removed` or `changed`.
    pub change: Cow<'static, str>,
    /// The changed fields, if it is `changed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<ChangedField>,
}

impl fmt::Display for ChangedFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        let fields: Vec<&str> = self.fields.iter().map(|changed| &*changed.field).collect();
        if fields.is_empty() || self.name.is_empty() { Ok(()) } else { write!(f, " ({})", fields.join(", ")) }
    }
}

/// A tool whose definition has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedTool {
    /// Its name.
    pub name: String,
    /// The parts of its definition that have changed.
    pub fields: Vec<ChangedField>,
}

/// A part of a definition that has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedField {
    /// Its name: `description`, `input_schema`, `annotations.destructive`, …
    pub field: Cow<'static, str>,
    /// The change itself.
    #[serde(flatten)]
    pub change: FieldChange,
}

/// The change of one part of a definition. `Schema` comes first, for deserialization: all of its fields are
/// required, while those of `Text` are optional.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FieldChange {
    /// A schema.
    Schema(ChangedPaths),
    /// A text or an annotation; `None` if there was or is none.
    Text {
        /// The earlier text.
        before: Option<String>,
        /// The present text.
        after: Option<String>,
    },
}

/// Places in a schema, as paths like `/properties/name`; `/` is all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedPaths {
    /// Places that are new.
    pub added: Vec<String>,
    /// Places that are gone.
    pub removed: Vec<String>,
    /// Places with another value.
    pub changed: Vec<String>,
    /// The number of further places.
    pub more: usize,
}

impl DefinitionDiff {
    /// Compares the definition `seen` with the `accepted` one; only tools that pass `filter` count.
    pub(super) fn of(accepted: &ServerDefinition, seen: &ServerDefinition, filter: &ToolFilter) -> Self {
        let specs = |definition: &'_ ServerDefinition| {
            definition.tools.iter().filter(|tool| filter.allows(&tool.spec.name)).cloned().collect::<Vec<_>>()
        };
        let (before, after) = (specs(accepted), specs(seen));
        let mut difference =
            Self::between(before.iter().map(|tool| &*tool.spec), after.iter().map(|tool| &*tool.spec));
        let more_by_name: BTreeMap<&str, _> =
            after.iter().map(|tool| (tool.spec.name.as_str(), tool.more.as_ref())).collect();
        for tool in &before {
            let (Some(old), Some(Some(new))) = (&tool.more, more_by_name.get(tool.spec.name.as_str())) else {
                continue;
            };
            let fields = json_fields(old, new);
            if fields.is_empty() {
                continue;
            }
            let name = escape_line(&tool.spec.name);
            match difference.changed.iter_mut().find(|changed| changed.name == name) {
                Some(changed) => changed.fields.extend(fields),
                None => difference.changed.push(ChangedTool { name: name.into_owned(), fields }),
            }
        }
        difference.others = changed_features(accepted, seen);
        difference
    }

    /// Compares two lists of tools.
    pub(super) fn between<'a>(
        before: impl IntoIterator<Item = &'a ToolSpec>,
        after: impl IntoIterator<Item = &'a ToolSpec>,
    ) -> Self {
        let by_name = |specs: &mut dyn Iterator<Item = &'a ToolSpec>| {
            specs.map(|spec| (spec.name.as_str(), spec)).collect::<BTreeMap<_, _>>()
        };
        let (before, after) = (by_name(&mut before.into_iter()), by_name(&mut after.into_iter()));
        let missing = |from: &BTreeMap<&str, _>, name: &&&str| !from.contains_key(**name);
        let changed = before.iter().filter_map(|(name, old)| {
            let new = after.get(name)?;
            (!std::ptr::eq(*old, *new) && old != new)
                .then(|| ChangedTool { name: escape_line(name).into_owned(), fields: fields(old, new) })
        });
        let shown = |name: &&str| escape_line(name).into_owned();
        Self {
            added: after.keys().filter(|name| missing(&before, name)).map(shown).collect(),
            removed: before.keys().filter(|name| missing(&after, name)).map(shown).collect(),
            changed: changed.collect(),
            others: Vec::new(),
        }
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty() && self.others.is_empty()
    }
}

/// One line: `added a, b; removed c; changed d (description)`.
impl fmt::Display for DefinitionDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = self.changed.iter().map(|tool| {
            let fields: Vec<&str> = tool.fields.iter().map(|changed| &*changed.field).collect();
            format!("{} ({})", tool.name, fields.join(", "))
        });
        let mut parts = [
            ("added", self.added.clone()),
            ("removed", self.removed.clone()),
            ("changed", changed.collect::<Vec<_>>()),
        ];
        for (word, names) in &mut parts {
            names.extend(self.others.iter().filter(|other| other.change == *word).map(ToString::to_string));
        }
        let parts = parts.iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<String> = parts.map(|(word, names)| format!("{word} {}", names.join(", "))).collect();
        f.write_str(&parts.join("; "))
    }
}

fn fields(old: &ToolSpec, new: &ToolSpec) -> Vec<ChangedField> {
    let text = |field, before: Option<String>, after: Option<String>| {
        (before != after).then(|| text_field(field, before, after))
    };
    let hint = |field, before: Option<bool>, after: Option<bool>| {
        text(field, before.map(|hint| hint.to_string()), after.map(|hint| hint.to_string()))
    };
    let schema = |field: &'static str, before: Option<&Schema>, after: Option<&Schema>| {
        let mut places = ChangedPaths::default();
        let (before, after) = (before.map(Schema::get), after.map(Schema::get));
        compare(before.as_deref(), after.as_deref(), &mut String::new(), &mut places);
        (before != after).then_some(ChangedField { field: field.into(), change: FieldChange::Schema(places) })
    };
    let (was, is) = (&old.annotations, &new.annotations);
    let all = [
        text("title", old.title.clone(), new.title.clone()),
        text("description", Some(old.description.clone()), Some(new.description.clone())),
        text("tags", tags(old), tags(new)),
        schema("input_schema", Some(&old.input_schema), Some(&new.input_schema)),
        schema("output_schema", old.output_schema.as_ref(), new.output_schema.as_ref()),
        hint("annotations.read_only", was.read_only, is.read_only),
        hint("annotations.destructive", was.destructive, is.destructive),
        hint("annotations.idempotent", was.idempotent, is.idempotent),
        hint("annotations.open_world", was.open_world, is.open_world),
    ];
    all.into_iter().flatten().collect()
}

fn text_field(field: &'static str, before: Option<String>, after: Option<String>) -> ChangedField {
    let shown = |text: Option<String>| text.map(|text| visible(&text));
    ChangedField {
        field: field.into(),
        change: FieldChange::Text { before: shown(before), after: shown(after) },
    }
}

/// Compares fields that are stored as JSON.
fn json_fields(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<ChangedField> {
    let added = new.keys().filter(|key| !old.contains_key(*key));
    let keys = old.keys().chain(added).filter(|key| old.get(*key) != new.get(*key));
    let field = |key: &String| match (old.get(key), new.get(key)) {
        (before @ (None | Some(Value::String(_))), after @ (None | Some(Value::String(_)))) => {
            let text = |value: Option<&Value>| value.and_then(Value::as_str).map(ToOwned::to_owned);
            text_field(known_field(key), text(before), text(after))
        }
        (before, after) => {
            let mut places = ChangedPaths::default();
            compare(before, after, &mut String::new(), &mut places);
            ChangedField { field: known_field(key).into(), change: FieldChange::Schema(places) }
        }
    };
    keys.map(field).collect()
}

/// The static name of a field; `more` for any that is not listed.
fn known_field(key: &str) -> &'static str {
    const KNOWN: [&str; 9] = [
        "_meta",
        "annotations",
        "annotations.title",
        "arguments",
        "description",
        "icons",
        "mimeType",
        "name",
        "title",
    ];
    KNOWN.iter().find(|known| **known == key).copied().unwrap_or("more")
}

/// Compares instructions, prompts, resources and resource templates.
fn changed_features(accepted: &ServerDefinition, seen: &ServerDefinition) -> Vec<ChangedFeature> {
    let mut changes = Vec::new();
    if let (Some(before), Some(after)) = (&accepted.instructions, &seen.instructions)
        && before != after
    {
        let fields = vec![text_field("instructions", Some(before.clone()), Some(after.clone()))];
        changes.push(ChangedFeature {
            kind: "instructions".into(),
            name: String::new(),
            change: "changed".into(),
            fields,
        });
    }
    let mut compare =
        |kind: &'static str, before: &Option<FeatureDefinitions>, after: &Option<FeatureDefinitions>| {
            let (Some(before), Some(after)) = (before, after) else { return };
            let mut push = |name: &str, change: &'static str, fields| {
                let (kind, name, change) = (kind.into(), escape_line(name).into_owned(), change.into());
                changes.push(ChangedFeature { kind, name, change, fields });
            };
            // Resources are added and removed with the data they stand for; only changes to one of them count.
            let is_volatile = kind == RESOURCE;
            for (name, old) in before {
                match after.get(name) {
                    Some(new) if old != new => push(name, "changed", json_fields(old, new)),
                    None if !is_volatile => push(name, "removed", Vec::new()),
                    _ => {}
                }
            }
            for name in after.keys().filter(|name| !is_volatile && !before.contains_key(*name)) {
                push(name, "added", Vec::new());
            }
        };
    compare(PROMPT, &accepted.prompts, &seen.prompts);
    compare("template", &accepted.templates, &seen.templates);
    compare(RESOURCE, &accepted.resources, &seen.resources);
    changes
}

/// The tags as one text, separated by a line break, which no tag contains.
fn tags(spec: &ToolSpec) -> Option<String> {
    (!spec.tags.is_empty()).then(|| spec.tags.join("\n"))
}

/// Records the places where two schemas differ; descends while both are objects.
fn compare(before: Option<&Value>, after: Option<&Value>, path: &mut String, places: &mut ChangedPaths) {
    let list = match (before, after) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let added = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(added) {
                let length = path.len();
                path.push('/');
                path.push_str(&key.replace('~', "~0").replace('/', "~1"));
                compare(old.get(key), new.get(key), path, places);
                path.truncate(length);
            }
            return;
        }
        (before, after) if before == after => return,
        (None, _) => &mut places.added,
        (_, None) => &mut places.removed,
        _ => &mut places.changed,
    };
    if list.len() == PLACES_LISTED_MAX {
        places.more += 1;
        return;
    }
    list.push(if path.is_empty() { "/".to_owned() } else { escape_line(path).into_owned() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_core::Annotations;
    use proptest::prelude::*;
    use serde_json::json;

    fn tool(name: &str, description: &str, input: Value) -> ToolSpec {
        ToolSpec::new(name, description, input)
    }

    #[test]
    fn a_difference_has_both_values_of_each_field() {
        let schema = |kind| json!({"properties": {"a/b": {"type": kind}}, "required": []});
        let before = [tool("read", "Reads.", schema("string")), tool("gone", "", json!({}))];
        let mut filter = schema("integer");
        filter["properties"]["notes"] = json!({"type": "string"});
        filter.as_object_mut().unwrap().remove("required");
        let mut read = tool("read", "Reads, and tells.", filter);
        read.output_schema = Some(json!({}).into());
        read.annotations.destructive = Some(true);
        let difference = DefinitionDiff::between(&before, &[tool("new", "", json!({})), read]);
        assert_eq!(
            difference.to_string(),
            "added new; removed gone; \
             changed read (description, input_schema, output_schema, annotations.destructive)"
        );
        assert_eq!(
            serde_json::to_value(&difference.changed[0].fields).unwrap(),
            json!([
                {"field": "description", "before": "Reads.", "after": "Reads, and tells."},
                {"field": "input_schema", "added": ["/properties/notes"], "removed": ["/required"],
                 "changed": ["/properties/a~1b/type"], "more": 0},
                {"field": "output_schema", "added": ["/"], "removed": [], "changed": [], "more": 0},
                {"field": "annotations.destructive", "before": null, "after": "true"},
            ])
        );
    }

    #[test]
    fn a_difference_is_read_back_from_its_json() {
        let schema = |kind| json!({"properties": {"a": {"type": kind}}});
        let before = [tool("read", "Reads.", schema("string")), tool("gone", "", json!({}))];
        let mut read = tool("read", "Reads, and tells.", schema("integer"));
        read.annotations.destructive = Some(true);
        let mut difference = DefinitionDiff::between(&before, &[read]);
        difference.others.push(ChangedFeature {
            kind: PROMPT.into(),
            name: "greet".to_owned(),
            change: "added".into(),
            fields: Vec::new(),
        });
        let json = serde_json::to_value(&difference).unwrap();
        assert_eq!(serde_json::from_value::<DefinitionDiff>(json).unwrap(), difference);
    }

    #[test]
    fn only_some_of_many_changed_paths_are_listed() {
        let many = |count: usize| {
            let keys = (0..count).map(|number| (number.to_string(), json!(1)));
            tool("t", "", Value::Object(keys.collect()))
        };
        let difference = DefinitionDiff::between(&[many(0)], &[many(30)]);
        let FieldChange::Schema(places) = &difference.changed[0].fields[0].change else { panic!() };
        assert_eq!((places.added.len(), places.more), (PLACES_LISTED_MAX, 30 - PLACES_LISTED_MAX));
    }

    fn any_schema() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(json!(null)), any::<bool>().prop_map(Value::from), "[ab]".prop_map(Value::from)];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c/~]", inner, 0..3)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// Always an object, as MCP has it.
    fn any_output() -> impl Strategy<Value = Value> {
        any_schema().prop_map(|schema| json!({ "properties": schema }))
    }

    fn any_tool() -> impl Strategy<Value = ToolSpec> {
        let hint = || prop::option::of(any::<bool>());
        let hints = (hint(), hint(), hint(), hint());
        let tags = prop::collection::vec("[tu]", 0..3);
        let texts = ("[a-d]", prop::option::of("[xy]"), "[xy]?", tags);
        (texts, any_schema(), prop::option::of(any_output()), hints).prop_map(
            |((name, title, description, tags), input_schema, output_schema, hints)| {
                let (read_only, destructive, idempotent, open_world) = hints;
                let annotations = Annotations { read_only, destructive, idempotent, open_world };
                let output_schema = output_schema.map(Schema::from);
                let spec = ToolSpec::new(name, description, input_schema);
                ToolSpec { title, output_schema, annotations, tags, ..spec }
            },
        )
    }

    fn any_tools() -> impl Strategy<Value = BTreeMap<String, ToolSpec>> {
        let named = |tools: Vec<ToolSpec>| tools.into_iter().map(|tool| (tool.name.clone(), tool)).collect();
        prop::collection::vec(any_tool(), 0..5).prop_map(named)
    }

    proptest! {
        #[test]
        fn there_is_no_difference_only_between_equals_and_every_tool_of_one_is_named(
            before in any_tools(),
            other in any_tools(),
            same in any::<bool>(),
        ) {
            let after = if same { before.clone() } else { other };
            let difference = DefinitionDiff::between(before.values(), after.values().rev());
            prop_assert_eq!(difference.is_empty(), before == after);
            for name in before.keys().chain(after.keys()) {
                let changed = difference.changed.iter().find(|changed| changed.name == *name);
                prop_assert_eq!(difference.added.contains(name), !before.contains_key(name));
                prop_assert_eq!(difference.removed.contains(name), !after.contains_key(name));
                let in_both = before.contains_key(name) && after.contains_key(name);
                prop_assert_eq!(changed.is_some(), in_both && before[name] != after[name]);
                prop_assert!(changed.is_none_or(|changed| !changed.fields.is_empty()));
            }
        }

        #[test]
        fn schemas_that_differ_have_a_changed_path(before in any_schema(), after in any_schema()) {
            let mut places = ChangedPaths::default();
            compare(Some(&before), Some(&after), &mut String::new(), &mut places);
            let listed = places.added.len() + places.removed.len() + places.changed.len();
            prop_assert_eq!(listed == 0, before == after);
        }

        #[test]
        fn a_tool_spec_survives_a_round_trip(tool in any_tool()) {
            let text = serde_json::to_string(&tool).unwrap();
            prop_assert_eq!(serde_json::from_str::<ToolSpec>(&text).unwrap(), tool);
        }
    }
}
