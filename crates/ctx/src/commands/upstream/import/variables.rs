//! Converts variable references of editors (`${env:NAME}`, `${input:id}` and others) to those of ctx.toml (`${NAME}`).

/// Converts a string of an editor's settings to the syntax of ctx.toml; adds notes for the user.
pub(super) fn convert_variables(text: &str, notes: &mut Vec<String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, from) = rest.split_at(start);
        expanded.push_str(before);
        // After another `$`, ctx.toml has no syntax for a variable.
        let variable = from[2..].split_once('}').filter(|_| !before.ends_with('$'));
        match variable.and_then(|(inside, after)| Some((variable_of(inside, notes)?, after))) {
            Some((variable, after)) => {
                expanded.push_str(&variable);
                rest = after;
            }
            None => {
                expanded.push_str("$${");
                rest = &from[2..];
            }
        }
    }
    expanded + rest
}

/// Escapes a literal string for ctx.toml, where `${NAME}` would be a variable; adds notes for the user.
pub(super) fn escape_literal(text: &str, notes: &mut Vec<String>) -> String {
    for after in text.split("${").skip(1) {
        if let Some((name, _)) = after.split_once('}').filter(|(name, _)| is_variable(name)) {
            notes.push(format!("`${{{name}}}` is not a variable in that file; kept as literal text"));
        }
    }
    text.replace("${", "$${")
}

/// The replacement of `${inside}` in ctx.toml; `None` if it is no variable.
fn variable_of(inside: &str, notes: &mut Vec<String>) -> Option<String> {
    if let Some(input) = inside.strip_prefix("input:") {
        let variable = to_variable_name(input);
        notes.push(format!("the editor asks for `{input}`; set the variable {variable} instead"));
        return Some(format!("${{{variable}}}"));
    }
    match inside {
        "workspaceFolder" => {
            notes.push("`${workspaceFolder}` became `.`, which is where the server runs".to_owned());
            return Some(".".to_owned());
        }
        "userHome" => return Some("${HOME}".to_owned()),
        "pathSeparator" | "/" => return Some(std::path::MAIN_SEPARATOR.to_string()),
        _ => {}
    }
    let inside = inside.strip_prefix("env:").unwrap_or(inside);
    let name = inside.split_once(":-").map_or(inside, |(name, _)| name);
    if is_variable(name) {
        return Some(format!("${{{inside}}}"));
    }
    if name.split_once(':').is_some_and(|(kind, _)| is_variable(kind)) {
        notes.push(format!("`${{{name}}}` is not supported; kept as literal text"));
    }
    None
}

pub(super) fn is_variable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(plain) && name.chars().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Derives the name of an environment variable from another name.
pub(super) fn to_variable_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = text.chars().map(plain).collect();
    if is_variable(&name) { name } else { format!("_{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::expand_variables;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn editor_variables_are_converted() {
        for (theirs, expanded) in [
            ("plain $HOME {}", "plain $HOME {}"),
            ("Bearer ${env:TOKEN}", "Bearer ${TOKEN}"),
            ("${TOKEN}-${TOKEN:-none}", "${TOKEN}-${TOKEN:-none}"),
            ("${userHome}${/}x", "${HOME}/x"),
            ("${input:api-key}", "${API_KEY}"),
            ("${workspaceFolder}/data", "./data"),
            ("${}", "$${}"),
            ("${a b} ${", "$${a b} $${"),
            ("${command:x}", "$${command:x}"),
            ("$${TOKEN}", "$$${TOKEN}"),
        ] {
            assert_eq!(convert_variables(theirs, &mut Vec::new()), expanded, "{theirs}");
        }
    }

    #[test]
    fn unsupported_variables_are_reported() {
        let mut notes = Vec::new();
        convert_variables("${input:key} ${command:pick} ${env:A} ${x y}", &mut notes);
        assert_eq!(
            notes,
            [
                "the editor asks for `key`; set the variable KEY instead",
                "`${command:pick}` is not supported; kept as literal text"
            ]
        );
    }

    proptest! {
        #[test]
        fn converted_text_has_the_same_meaning(
            parts in prop::collection::vec("\\$|\\{|\\}|\\$\\{|[a-b]|\\$\\{A\\}|\\$\\{1\\}| ", 0..12),
        ) {
            let theirs = parts.concat();
            let expanded = convert_variables(&theirs, &mut Vec::new());
            let itself = |name: &str| Some(format!("${{{name}}}"));
            prop_assert_eq!(expand_variables(json!(expanded), &itself), Ok(json!(&theirs)));
            let literal = escape_literal(&theirs, &mut Vec::new());
            prop_assert_eq!(expand_variables(json!(literal), &|_: &str| None), Ok(json!(theirs)));
        }
    }
}
