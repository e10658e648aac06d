//! Expands `${VAR}` and `${VAR:-default}` in string values, once, at load; `$${` is a literal `${`.

use super::tree::{ConfigLayer, ConfigLeaf, ConfigNode, ConfigTable, SettingOrigin};
use super::{ConfigError, VariableLookup};
use serde_json::Value;

/// Length of the path to a section that can be dropped on its own, by group; one for all other groups.
const SECTION_DEPTHS: &[(&str, usize)] =
    &[("agents", 3), ("apis", 2), ("connectors", 3), ("mcp_servers", 2), ("tools", 3)];
/// Sections where an unset variable is an error. Without the frozen parameters, callers could choose their
/// values.
const VITAL_SECTIONS: &[&str] = &["db", "frozen_params", "server"];

/// A reference to a variable that is not set.
struct UnsetVariable {
    path: Vec<String>,
    variable: String,
    origin: SettingOrigin,
}

/// Expands every string. Drops a section that refers to an unset variable, with a warning; in a vital
/// section, the unset variable is an error.
pub(super) fn expand(
    layer: &mut ConfigLayer,
    variables: VariableLookup<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), ConfigError> {
    let mut unset = Vec::new();
    expand_table(&mut layer.table, &mut Vec::new(), variables, &mut unset);
    let mut problems = Vec::new();
    for UnsetVariable { path, variable, origin } in unset {
        let key = path.join(".");
        if path.first().is_some_and(|section| VITAL_SECTIONS.contains(&section.as_str())) {
            problems.push(format!("{origin}: `{key}` needs the variable {variable}, which is not set"));
            continue;
        }
        let section = droppable_section(&path);
        let name = section.join(".");
        warnings.push(format!(
            "{origin}: [{name}] is left out: `{key}` needs the variable {variable}, which is not set"
        ));
        remove(&mut layer.table, section);
    }
    if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
}

fn expand_table(
    table: &mut ConfigTable,
    path: &mut Vec<String>,
    variables: VariableLookup<'_>,
    unset: &mut Vec<UnsetVariable>,
) {
    for (key, node) in &mut table.entries {
        path.push(key.clone());
        match node {
            ConfigNode::Table(inner) => expand_table(inner, path, variables, unset),
            ConfigNode::Leaf(ConfigLeaf { value, origin, variables: used }) => {
                if let Err(variable) = expand_value(value, variables, used) {
                    unset.push(UnsetVariable { path: path.clone(), variable, origin: origin.clone() });
                }
            }
        }
        path.pop();
    }
}

/// Expands the strings in a value; the error is the name of a variable that is not set.
pub(super) fn expand_value(
    value: &mut Value,
    variables: VariableLookup<'_>,
    used: &mut Vec<String>,
) -> Result<(), String> {
    match value {
        Value::String(text) => {
            *text = expand_text(text, variables, used)?;
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| expand_value(item, variables, used)),
        Value::Object(fields) => {
            fields.values_mut().try_for_each(|field| expand_value(field, variables, used))
        }
        _ => Ok(()),
    }
}

/// The text with variables replaced. Appends their names to `used`. The error is the name of a variable that
/// is not set.
fn expand_text(text: &str, variables: VariableLookup<'_>, used: &mut Vec<String>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if rest[..start].ends_with('$') {
            expanded.push_str(&rest[..start - 1]);
            expanded.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        // An unclosed `${` is literal text.
        let Some(length) = rest[start..].find('}') else { break };
        expanded.push_str(&rest[..start]);
        let inside = &rest[start + 2..start + length];
        let (name, default) =
            inside.split_once(":-").map_or((inside, None), |(name, default)| (name, Some(default)));
        let value = variables(name).filter(|value| !(value.is_empty() && default.is_some()));
        match (value, default) {
            (Some(value), _) => {
                expanded.push_str(&value);
                used.push(name.to_owned());
            }
            (None, Some(default)) => expanded.push_str(default),
            (None, None) => return Err(name.to_owned()),
        }
        rest = &rest[start + length + 1..];
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// The path of the smallest section around a key that can be dropped on its own.
pub(super) fn droppable_section(path: &[String]) -> &[String] {
    let depth = SECTION_DEPTHS
        .iter()
        .find(|(name, _)| path.first().is_some_and(|first| first == name))
        .map_or(1, |(_, depth)| *depth);
    &path[..depth.min(path.len())]
}

/// Removes the node at this path from a table.
pub(super) fn remove(table: &mut ConfigTable, path: &[String]) {
    let [first, rest @ ..] = path else { return };
    if rest.is_empty() {
        table.entries.remove(first);
    } else if let Some(ConfigNode::Table(inner)) = table.entries.get_mut(first) {
        remove(inner, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand_variables(text: &str) -> Result<String, String> {
        expand_with_names(text).map(|(expanded, _)| expanded)
    }

    fn expand_with_names(text: &str) -> Result<(String, Vec<String>), String> {
        let variables = |name: &str| match name {
            "HOME" => Some("/home/u".to_owned()),
            "EMPTY" => Some(String::new()),
            "TWICE" => Some("${HOME}".to_owned()),
            _ => None,
        };
        let mut used = Vec::new();
        Ok((expand_text(text, &variables, &mut used)?, used))
    }

    #[test]
    fn expanded_variables_are_recorded_and_defaults_are_not() {
        let used = |text| expand_with_names(text).map(|(_, used)| used);
        assert_eq!(used("${HOME}/${NOPE:-b}/${TWICE:-c}"), Ok(vec!["HOME".to_owned(), "TWICE".to_owned()]));
        assert_eq!(used("$${HOME}"), Ok(Vec::new()));
    }

    #[test]
    fn variables_expand_once() {
        assert_eq!(expand_variables("${HOME}/notes"), Ok("/home/u/notes".to_owned()));
        assert_eq!(expand_variables("a${NOPE:-b}c${HOME}"), Ok("abc/home/u".to_owned()));
        assert_eq!(expand_variables("${TWICE}"), Ok("${HOME}".to_owned()));
        assert_eq!(expand_variables("${EMPTY}"), Ok(String::new()));
        assert_eq!(expand_variables("${EMPTY:-x}"), Ok("x".to_owned()));
        assert_eq!(expand_variables("$${HOME} $HOME ${"), Ok("${HOME} $HOME ${".to_owned()));
        assert_eq!(expand_variables("${NOPE}"), Err("NOPE".to_owned()));
    }
}
