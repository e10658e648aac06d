//! Checks for unknown keys. Reports all of them, each with its line and the nearest known key.

use super::ConfigError;
use super::tree::{ConfigNode, ConfigTable, SettingOrigin};
use ctx_core::nearest;
use serde_json::Value;

/// Compares the keys of a file with the JSON Schema of the settings.
pub(super) fn unknown_keys(table: &ConfigTable, schema: &Value) -> Result<(), ConfigError> {
    let mut problems = Vec::new();
    collect_unknown_keys(table, schema, "", &mut problems);
    problems.sort();
    let problems: Vec<String> = problems.into_iter().map(|(_, problem)| problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
}

/// Collects the unknown keys below `table`, with their lines.
fn collect_unknown_keys(
    table: &ConfigTable,
    schema: &Value,
    prefix: &str,
    problems: &mut Vec<(usize, String)>,
) {
    if *schema == Value::Bool(true) {
        // Free-form: the consumer of this part checks it.
        return;
    }
    let known = schema.get("properties").and_then(Value::as_object);
    // Present and not `false`: arbitrary keys are allowed.
    let others = schema.get("additionalProperties").filter(|others| **others != Value::Bool(false));
    for (key, node) in &table.entries {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match (known.and_then(|known| known.get(key)).or(others), node) {
            (Some(schema), ConfigNode::Table(inner)) => collect_unknown_keys(inner, schema, &path, problems),
            (Some(_), ConfigNode::Leaf(_)) => {}
            (None, node) => {
                let names = known.into_iter().flat_map(|known| known.keys().map(String::as_str));
                let origin = origin_of(node);
                let line = origin.map_or(0, |origin| origin.line);
                problems.push((line, unknown_key_problem(&path, key, names.collect(), origin)));
            }
        }
    }
}

fn unknown_key_problem(path: &str, key: &str, known: Vec<&str>, origin: Option<&SettingOrigin>) -> String {
    let position = origin.map_or_else(String::new, |origin| format!("{origin}: "));
    let help = match nearest(key, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known keys: {}", known.join(", ")),
    };
    format!("{position}unknown key `{path}`; {help}")
}

fn origin_of(node: &ConfigNode) -> Option<&SettingOrigin> {
    match node {
        ConfigNode::Leaf(leaf) => Some(&leaf.origin),
        ConfigNode::Table(table) => {
            // A table without a header of its own has the position of its first entry.
            table.origin.as_ref().or_else(|| table.entries.values().find_map(origin_of))
        }
    }
}
