//! How the tools of a server differ from those that were accepted.

use ctx_core::{Schema, ToolSpec};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Places in one schema that are told of each kind; of more, only the number is.
const PLACES_TOLD_MAX: usize = 8;

/// How a list of tools differs from an earlier one. The order of tools does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Tools that were not there, by the names that the server gives them.
    pub added: Vec<String>,
    /// Tools that are gone.
    pub removed: Vec<String>,
    /// Tools that say something else of themselves.
    pub changed: Vec<ChangedTool>,
}

/// A tool that says something else of itself than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedTool {
    /// Its name.
    pub name: String,
    /// What of it is something else.
    pub fields: Vec<ChangedField>,
}

/// A part of a tool's definition that is something else than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedField {
    /// Which: `description`, `input_schema`, `annotations.destructive`, …
    pub field: &'static str,
    /// What it was, and what it is.
    #[serde(flatten)]
    pub change: FieldChange,
}

/// What became of a part of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum FieldChange {
    /// A text or a hint; none where there was or is nothing.
    Text {
        /// What it was.
        before: Option<String>,
        /// What it is.
        after: Option<String>,
    },
    /// A schema.
    Schema(ChangedPlaces),
}

/// Places in a schema, as paths like `/properties/name`; `/` is all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangedPlaces {
    /// Where something is that was not there.
    pub added: Vec<String>,
    /// Where something was.
    pub removed: Vec<String>,
    /// Where something else is.
    pub changed: Vec<String>,
    /// How many more there are.
    pub more: usize,
}

impl Difference {
    /// How `after` differs from `before`.
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
            (old != new).then(|| ChangedTool { name: (*name).to_owned(), fields: fields(old, new) })
        });
        Self {
            added: after.keys().filter(|name| missing(&before, name)).map(ToString::to_string).collect(),
            removed: before.keys().filter(|name| missing(&after, name)).map(ToString::to_string).collect(),
            changed: changed.collect(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// In a line: `added a, b; removed c; changed d (description)`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = self.changed.iter().map(|tool| {
            let fields: Vec<&str> = tool.fields.iter().map(|changed| changed.field).collect();
            format!("{} ({})", tool.name, fields.join(", "))
        });
        let parts = [
            ("added", self.added.clone()),
            ("removed", self.removed.clone()),
            ("changed", changed.collect::<Vec<_>>()),
        ];
        let parts = parts.iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<String> = parts.map(|(word, names)| format!("{word} {}", names.join(", "))).collect();
        f.write_str(&parts.join("; "))
    }
}

fn fields(old: &ToolSpec, new: &ToolSpec) -> Vec<ChangedField> {
    let text = |field, before: Option<String>, after: Option<String>| {
        (before != after).then_some(ChangedField { field, change: FieldChange::Text { before, after } })
    };
    let hint = |field, before: Option<bool>, after: Option<bool>| {
        text(field, before.map(|hint| hint.to_string()), after.map(|hint| hint.to_string()))
    };
    let schema = |field, before: Option<&Schema>, after: Option<&Schema>| {
        let mut places = ChangedPlaces::default();
        let (before, after) = (before.map(Schema::get), after.map(Schema::get));
        compare(before.as_deref(), after.as_deref(), &mut String::new(), &mut places);
        (before != after).then_some(ChangedField { field, change: FieldChange::Schema(places) })
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

/// All its tags, told apart by what is in none of them.
fn tags(spec: &ToolSpec) -> Option<String> {
    (!spec.tags.is_empty()).then(|| spec.tags.join("\n"))
}

/// Notes where two schemas differ, as deep down as both are objects.
fn compare(before: Option<&Value>, after: Option<&Value>, path: &mut String, places: &mut ChangedPlaces) {
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
    if list.len() == PLACES_TOLD_MAX {
        places.more += 1;
        return;
    }
    list.push(if path.is_empty() { "/".to_owned() } else { path.clone() });
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
    fn a_difference_says_what_was_and_what_is() {
        let schema = |kind| json!({"properties": {"a/b": {"type": kind}}, "required": []});
        let before = [tool("read", "Reads.", schema("string")), tool("gone", "", json!({}))];
        let mut taken = schema("integer");
        taken["properties"]["notes"] = json!({"type": "string"});
        taken.as_object_mut().unwrap().remove("required");
        let mut read = tool("read", "Reads, and tells.", taken);
        read.output_schema = Some(json!({}).into());
        read.annotations.destructive = Some(true);
        let difference = Difference::between(&before, &[tool("new", "", json!({})), read]);
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
    fn of_many_places_only_some_are_told() {
        let many = |count: usize| {
            let keys = (0..count).map(|number| (number.to_string(), json!(1)));
            tool("t", "", Value::Object(keys.collect()))
        };
        let difference = Difference::between(&[many(0)], &[many(30)]);
        let FieldChange::Schema(places) = &difference.changed[0].fields[0].change else { panic!() };
        assert_eq!((places.added.len(), places.more), (PLACES_TOLD_MAX, 30 - PLACES_TOLD_MAX));
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
            let difference = Difference::between(before.values(), after.values().rev());
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
        fn a_schema_that_differs_does_so_at_a_place(before in any_schema(), after in any_schema()) {
            let mut places = ChangedPlaces::default();
            compare(Some(&before), Some(&after), &mut String::new(), &mut places);
            let told = places.added.len() + places.removed.len() + places.changed.len();
            prop_assert_eq!(told == 0, before == after);
        }

        #[test]
        fn a_tool_is_remembered_as_it_was(tool in any_tool()) {
            let text = serde_json::to_string(&tool).unwrap();
            prop_assert_eq!(serde_json::from_str::<ToolSpec>(&text).unwrap(), tool);
        }
    }
}
