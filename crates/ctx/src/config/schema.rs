//! JSON Schema of the configuration, derived from the types that it is deserialized into.

use super::scripts::SECTION_KINDS;
use super::settings::{Settings, SourceSettings};
use ctx_core::json_schema;
use ctx_knowledge::KINDS;
use serde_json::{Value, json};

/// The schema of the whole configuration, including the keys of every kind of connector.
pub(crate) fn settings_schema() -> Value {
    let mut schema = json_schema::<Settings>();
    let common = json_schema::<SourceSettings>()["properties"].clone();
    let kinds = KINDS.iter().map(|kind| {
        let mut source = (kind.schema)();
        if let (Some(own), Some(common)) = (source["properties"].as_object_mut(), common.as_object()) {
            own.extend(common.clone());
        }
        source["additionalProperties"] = json!(false);
        (kind.name.to_owned(), json!({"description": kind.summary, "additionalProperties": source}))
    });
    let of = |group: &str| {
        let kinds = SECTION_KINDS.iter().filter(move |kind| kind.group == group);
        kinds.map(|kind| (kind.kind.to_owned(), kind.schema())).collect::<Vec<_>>()
    };
    for (group, description, kinds) in [
        (
            "connectors",
            "Where documents come from: `[connectors.<kind>.<name>]`.",
            kinds.chain(of("connectors")).collect(),
        ),
        ("tools", "Tools of your own: `[tools.script.<name>]`.", of("tools")),
        ("agents", "Personas: `[agents.<kind>.<name>]`.", of("agents")),
    ] {
        schema["properties"][group] = json!({
            "description": description,
            "properties": Value::Object(kinds.into_iter().collect()),
            "additionalProperties": false,
        });
    }
    schema
}
