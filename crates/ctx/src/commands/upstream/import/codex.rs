//! Conversion of servers in Codex's `config.toml`: strings are literal, and secrets are named by their environment
//! variables.

use super::entry::{SectionDraft, SettingsDialect, malformed};
use super::variables::{escape_literal, is_variable};
use serde_json::{Map, Value, json};

/// Special characters of the patterns in `allowed_tools` and `denied_tools`.
const PATTERN_CHARACTERS: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// `[mcp_servers.<name>]` of `~/.codex/config.toml`.
pub(super) const CODEX: SettingsDialect = SettingsDialect {
    keys: &[
        ("command", "command"),
        ("args", "args"),
        ("cwd", "cwd"),
        ("env", "env"),
        ("url", "url"),
        ("http_headers", "headers"),
    ],
    other_keys: &[
        "bearer_token_env_var",
        "disabled_tools",
        "enabled",
        "enabled_tools",
        "env_http_headers",
        "env_vars",
        "scopes",
        "startup_timeout_ms",
        "startup_timeout_sec",
        "tool_timeout_sec",
    ],
    convert: escape_literal,
    convert_other: convert_settings,
};

fn convert_settings(fields: &Map<String, Value>, section: &mut SectionDraft) -> Result<(), String> {
    let key = "env_vars";
    for entry in list_of(fields, key)? {
        // Either a name or `{ name = "…", source = "…" }`.
        let name = entry.get("name").unwrap_or(entry);
        insert_under(section, "env", text_of(name, key)?, &variable(name, key, "")?);
    }
    let key = "env_http_headers";
    match fields.get(key) {
        None => {}
        Some(Value::Object(headers)) => {
            for (header, name) in headers {
                insert_under(section, "headers", header, &variable(name, key, "")?);
            }
        }
        Some(_) => return Err(malformed(key)),
    }
    let key = "bearer_token_env_var";
    if let Some(name) = fields.get(key) {
        insert_under(section, "headers", "Authorization", &variable(name, key, "Bearer ")?);
    }
    if let Some(seconds) = fields.get("tool_timeout_sec") {
        let seconds = seconds.as_f64().map(f64::ceil).filter(|seconds| *seconds >= 1.0);
        let seconds = seconds.filter(|seconds| *seconds <= f64::from(u32::MAX));
        // A whole number within the range of u32.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
        let seconds = seconds.ok_or_else(|| malformed("tool_timeout_sec"))? as u32;
        section.fields.insert("timeout".to_owned(), json!(seconds));
    }
    convert_tools(fields, section)?;
    let scopes = list_of(fields, "scopes")?;
    if !scopes.is_empty() {
        section.fields.insert("oauth".to_owned(), json!({ "scopes": scopes }));
    }
    for key in ["startup_timeout_sec", "startup_timeout_ms"] {
        if fields.contains_key(key) {
            section.notes.push(format!(
                "not imported: {key}; `upstream_start_timeout` in [limits] applies to all servers"
            ));
        }
    }
    Ok(())
}

/// Converts the allowed and denied tools: Codex lists names, ctx.toml patterns.
fn convert_tools(fields: &Map<String, Value>, section: &mut SectionDraft) -> Result<(), String> {
    let patterns = |key: &str| -> Result<Vec<String>, String> {
        list_of(fields, key)?.iter().map(|name| Ok(pattern(text_of(name, key)?))).collect()
    };
    let (allowed, mut denied) = (patterns("enabled_tools")?, patterns("disabled_tools")?);
    // An empty list allows no tool in Codex; in ctx.toml it would have no effect, so all tools are denied instead.
    if allowed.is_empty() && fields.contains_key("enabled_tools") {
        denied = vec!["*".to_owned()];
    }
    for (key, patterns) in [("allowed_tools", allowed), ("denied_tools", denied)] {
        if !patterns.is_empty() {
            section.fields.insert(key.to_owned(), json!(patterns));
        }
    }
    Ok(())
}

/// A pattern that matches only this name.
fn pattern(name: &str) -> String {
    let escaped = |c: char| if PATTERN_CHARACTERS.contains(&c) { format!("[{c}]") } else { c.to_string() };
    name.chars().map(escaped).collect()
}

/// A reference to a variable in the syntax of ctx.toml, after `before`. Codex has only the variable's name.
fn variable(name: &Value, key: &str, before: &str) -> Result<String, String> {
    let name = text_of(name, key)?;
    if !is_variable(name) {
        return Err(format!("`{name}` in its `{key}` is not the name of a variable"));
    }
    Ok(format!("{before}${{{name}}}"))
}

fn insert_under(section: &mut SectionDraft, table: &str, name: &str, value: &str) {
    let table = section.fields.entry(table).or_insert_with(|| json!({}));
    if let Value::Object(pairs) = table {
        pairs.insert(name.to_owned(), json!(value));
    }
}

fn list_of<'a>(fields: &'a Map<String, Value>, key: &str) -> Result<&'a [Value], String> {
    match fields.get(key) {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(malformed(key)),
    }
}

fn text_of<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| malformed(key))
}

#[cfg(test)]
mod tests {
    use super::super::entry::convert_server;
    use super::*;

    #[test]
    fn every_setting_with_a_counterpart_is_converted() {
        for (entry, section) in [
            (
                json!({"command": "x", "args": ["${A}"], "env": {"B": "b"}, "cwd": "/w", "env_vars": ["C", {"name": "D"}]}),
                json!({"command": "x", "args": ["$${A}"], "cwd": "/w", "env": {"B": "b", "C": "${C}", "D": "${D}"}}),
            ),
            (
                json!({"url": "https://x", "bearer_token_env_var": "T", "http_headers": {"X": "1"}, "env_http_headers": {"Y": "V"}}),
                json!({"url": "https://x", "headers": {"X": "1", "Y": "${V}", "Authorization": "Bearer ${T}"}}),
            ),
            (
                json!({"command": "x", "enabled": true, "tool_timeout_sec": 2.5, "enabled_tools": ["a", "b*"], "disabled_tools": ["c"]}),
                json!({"command": "x", "timeout": 3, "allowed_tools": ["a", "b[*]"], "denied_tools": ["c"]}),
            ),
            (json!({"command": "x", "enabled_tools": []}), json!({"command": "x", "denied_tools": ["*"]})),
            (
                json!({"url": "https://x", "scopes": ["read"]}),
                json!({"url": "https://x", "oauth": {"scopes": ["read"]}}),
            ),
        ] {
            assert_eq!(convert_server("up", &entry, &CODEX).unwrap().section, section);
        }
    }

    #[test]
    fn settings_without_a_counterpart_are_named() {
        let entry = json!({"command": "x", "args": ["${A}"], "startup_timeout_sec": 5, "required": true, "tools": {}});
        assert_eq!(
            convert_server("up", &entry, &CODEX).unwrap().notes,
            [
                "`${A}` is not a variable in that file; kept as literal text",
                "not imported: startup_timeout_sec; `upstream_start_timeout` in [limits] applies to all servers",
                "not imported, ctx has no such setting: required, tools",
            ]
        );
    }

    #[test]
    fn an_entry_that_cannot_be_converted_has_a_reason() {
        for (entry, why) in [
            (json!({"command": "x", "enabled": false}), "it is disabled"),
            (json!({"command": "x", "tool_timeout_sec": 0}), "its `tool_timeout_sec` is invalid"),
            (json!({"command": "x", "tool_timeout_sec": 1e12}), "its `tool_timeout_sec` is invalid"),
            (json!({"command": "x", "enabled_tools": "a"}), "its `enabled_tools` is invalid"),
            (
                json!({"url": "https://x", "bearer_token_env_var": "a b"}),
                "`a b` in its `bearer_token_env_var` is not the name of a variable",
            ),
        ] {
            assert_eq!(convert_server("up", &entry, &CODEX).unwrap_err(), why);
        }
    }
}
