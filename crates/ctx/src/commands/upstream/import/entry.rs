//! Converts one server of a client's settings to a section of ctx.toml.

use super::variables::{convert_variables, to_variable_name};
use ctx_core::Redactor;
use serde_json::{Map, Value, json};

/// Prefixes by which a value is recognised as a secret.
const SECRET_PREFIXES: [&str; 8] =
    ["Basic ", "Bearer ", "ghp_", "github_pat_", "glpat-", "sk-", "xoxb-", "xoxp-"];

/// The format of a server in the settings of a family of clients.
pub(super) struct SettingsDialect {
    /// Keys with a counterpart in ctx.toml: the client's key, our key.
    pub(super) keys: &'static [(&'static str, &'static str)],
    /// Other known keys.
    pub(super) other_keys: &'static [&'static str],
    /// Converts a string to the syntax of ctx.toml; adds notes for the user.
    pub(super) convert: fn(&str, &mut Vec<String>) -> String,
    /// Converts the other keys.
    pub(super) convert_other: fn(&Map<String, Value>, &mut SectionDraft) -> Result<(), String>,
}

/// The format of Claude, Cursor, VS Code and most others: JSON with variables that the client expands.
pub(super) const EDITORS: SettingsDialect = SettingsDialect {
    keys: &[
        ("command", "command"),
        ("args", "args"),
        ("cwd", "cwd"),
        ("env", "env"),
        ("url", "url"),
        ("headers", "headers"),
    ],
    other_keys: &["type", "transport", "disabled", "enabled"],
    convert: convert_variables,
    convert_other: convert_transport,
};

/// A section of ctx.toml under construction, with notes for the user.
#[derive(Debug, Default)]
pub(super) struct SectionDraft {
    pub(super) fields: Map<String, Value>,
    pub(super) notes: Vec<String>,
}

/// A converted server.
#[derive(Debug)]
pub(super) struct ConvertedServer {
    pub(super) section: Value,
    /// Notes about the conversion, for the user.
    pub(super) notes: Vec<String>,
    /// Suggested improvements.
    pub(super) hints: Vec<String>,
}

/// Converts a server to a section; the error is the reason why it cannot be imported.
pub(super) fn convert_server(
    name: &str,
    entry: &Value,
    dialect: &SettingsDialect,
) -> Result<ConvertedServer, String> {
    let fields = entry.as_object().ok_or("it is not an object")?;
    if fields.get("disabled") == Some(&json!(true)) || fields.get("enabled") == Some(&json!(false)) {
        return Err("it is disabled".to_owned());
    }
    let (mut section, mut hints) = (SectionDraft::default(), Vec::new());
    for (client_key, key) in dialect.keys {
        let Some(value) = fields.get(*client_key).filter(|value| !value.is_null()) else { continue };
        let notes = &mut section.notes;
        let value = match (*key, value) {
            ("args", Value::Array(items)) => {
                let items: Option<Vec<Value>> =
                    items.iter().map(|item| convert_text(item, dialect, notes)).collect();
                items.map(Value::Array)
            }
            ("env" | "headers", Value::Object(pairs)) => {
                hints.extend(
                    pairs.iter().filter_map(|(entry_name, value)| secret_hint(name, key, entry_name, value)),
                );
                let pairs = pairs.iter().filter(|(_, value)| !value.is_null());
                let pairs: Option<Map<String, Value>> = pairs
                    .map(|(name, value)| Some((name.clone(), convert_text(value, dialect, notes)?)))
                    .collect();
                pairs.map(Value::Object)
            }
            ("command" | "cwd" | "url", Value::String(_)) => convert_text(value, dialect, notes),
            _ => None,
        };
        let value = value.ok_or_else(|| malformed(client_key))?;
        // Empty lists and tables have no effect, and some editors write them into every entry.
        let is_empty =
            value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
        if !is_empty {
            section.fields.insert((*key).to_owned(), value);
        }
    }
    (dialect.convert_other)(fields, &mut section)?;
    let is_known = |key: &str| {
        dialect.keys.iter().any(|(client_key, _)| *client_key == key) || dialect.other_keys.contains(&key)
    };
    let unknown: Vec<&str> = fields.keys().map(String::as_str).filter(|key| !is_known(key)).collect();
    let SectionDraft { fields, mut notes } = section;
    if !unknown.is_empty() {
        notes.push(format!("not imported, ctx has no such setting: {}", unknown.join(", ")));
    }
    notes.dedup();
    Ok(ConvertedServer { section: Value::Object(fields), notes, hints })
}

/// The reason why a server with a malformed value under this key is left out.
pub(super) fn malformed(key: &str) -> String {
    format!("its `{key}` is invalid")
}

fn convert_transport(fields: &Map<String, Value>, section: &mut SectionDraft) -> Result<(), String> {
    match fields.get("type").or_else(|| fields.get("transport")) {
        None | Some(Value::Null) => {}
        Some(Value::String(kind)) => match kind.as_str() {
            "sse" => {
                section.fields.insert("transport".to_owned(), json!("sse"));
            }
            "stdio" | "http" | "streamable-http" | "streamableHttp" => {}
            other => return Err(format!("unknown type `{other}`")),
        },
        Some(_) => return Err(malformed("type")),
    }
    Ok(())
}

fn convert_text(value: &Value, dialect: &SettingsDialect, notes: &mut Vec<String>) -> Option<Value> {
    match value {
        Value::String(text) => Some(json!((dialect.convert)(text, notes))),
        // Clients convert numbers and booleans to strings.
        Value::Number(_) | Value::Bool(_) => Some(json!(value.to_string())),
        _ => None,
    }
}

/// A hint how to move a secret from the file to an environment variable; `None` if the value is no secret.
fn secret_hint(server: &str, key: &str, name: &str, value: &Value) -> Option<String> {
    let value = value.as_str().filter(|value| !value.is_empty() && !value.contains("${"))?;
    let has_secret_prefix = SECRET_PREFIXES.iter().any(|prefix| value.starts_with(prefix));
    if !has_secret_prefix && !Redactor::is_secret_key(name) {
        return None;
    }
    let variable = match key {
        "env" => to_variable_name(name),
        _ => to_variable_name(&format!("{server}_{name}")),
    };
    let reference = match value.split_once(' ') {
        Some((scheme, _)) if has_secret_prefix => format!("{scheme} ${{{variable}}}"),
        _ => format!("${{{variable}}}"),
    };
    Some(format!("`{key}.{name}` looks like a secret; \"{reference}\" takes it from the environment instead"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_becomes_a_section() {
        for (entry, section) in [
            (
                json!({"type": "stdio", "command": "npx", "args": ["-y", 1], "env": {"A": "${env:B}", "N": 2}}),
                json!({"command": "npx", "args": ["-y", "1"], "env": {"A": "${B}", "N": "2"}}),
            ),
            (json!({"command": "x", "args": [], "env": {}, "cwd": null}), json!({"command": "x"})),
            (json!({"type": "http", "url": "https://x/mcp"}), json!({"url": "https://x/mcp"})),
            (
                json!({"type": "sse", "url": "https://x/sse", "headers": {"X": "1"}}),
                json!({"url": "https://x/sse", "headers": {"X": "1"}, "transport": "sse"}),
            ),
        ] {
            assert_eq!(convert_server("up", &entry, &EDITORS).unwrap().section, section);
        }
    }

    #[test]
    fn an_entry_that_cannot_be_converted_has_a_reason() {
        for (entry, why) in [
            (json!([]), "it is not an object"),
            (json!({"command": "x", "disabled": true}), "it is disabled"),
            (json!({"command": ["x"]}), "its `command` is invalid"),
            (json!({"command": "x", "args": [{}]}), "its `args` is invalid"),
            (json!({"url": "https://x", "type": "websocket"}), "unknown type `websocket`"),
        ] {
            assert_eq!(convert_server("up", &entry, &EDITORS).unwrap_err(), why);
        }
    }

    #[test]
    fn skipped_keys_and_secrets_are_reported() {
        let entry = json!({"url": "https://x", "autoApprove": [], "headers": {"Authorization": "Bearer abc", "X": "y"}});
        let converted = convert_server("git hub", &entry, &EDITORS).unwrap();
        assert_eq!(converted.notes, ["not imported, ctx has no such setting: autoApprove"]);
        assert_eq!(
            converted.hints,
            [
                "`headers.Authorization` looks like a secret; \"Bearer ${GIT_HUB_AUTHORIZATION}\" takes it from the \
              environment instead"
            ]
        );
        assert_eq!(converted.section["headers"]["Authorization"], "Bearer abc");
        let entry =
            json!({"command": "x", "env": {"API_TOKEN": "${T}", "SECRET": "${env:S}", "MODE": "fast"}});
        assert!(convert_server("up", &entry, &EDITORS).unwrap().hints.is_empty());
    }
}
