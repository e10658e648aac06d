//! Paths to a part of a value, as a script would write them: `issues[1].title`, `["a b"].c`.

use crate::discover::{hint, truncate};
use ctx_core::{ToolError, nearest};
use serde_json::Value;
use std::fmt;

/// Maximum size of a path.
const PATH_BYTES_MAX: usize = 4_096;

/// A step of a path: from a value to one inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathStep {
    /// A field of an object.
    Key(String),
    /// An item of a list; the first is 1.
    Index(usize),
}

/// The steps from a value to a part of it; without steps, the whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ValuePath(Vec<PathStep>);

impl ValuePath {
    /// Parses a path.
    pub(crate) fn parse(text: &str) -> Result<Self, ToolError> {
        let invalid =
            |why: String| ToolError::bad_request(format!("the path `{}` is invalid: {why}", truncate(text)));
        if text.len() > PATH_BYTES_MAX {
            return Err(invalid(format!("it has more than {PATH_BYTES_MAX} bytes")));
        }
        let mut steps = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (step, after) = match rest.strip_prefix('[') {
                Some(inside) => parse_bracket(inside),
                None => parse_name(rest, steps.is_empty()),
            }
            .map_err(invalid)?;
            steps.push(step);
            rest = after.trim_start();
        }
        Ok(Self(steps))
    }

    /// Appends a step.
    pub(super) fn with(mut self, step: PathStep) -> Self {
        self.0.push(step);
        self
    }

    /// The part of a value at this path; an error suggests the most similar key.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Result<&'a Value, ToolError> {
        let mut found = value;
        for (steps_taken, step) in self.0.iter().enumerate() {
            found = step_into(found, step).ok_or_else(|| {
                ToolError::not_found(missing_part(found, step, &Self(self.0[..steps_taken].to_vec())))
            })?;
        }
        Ok(found)
    }
}

/// The value one step further; `None` if there is none.
fn step_into<'a>(value: &'a Value, step: &PathStep) -> Option<&'a Value> {
    match (value, step) {
        (Value::Array(items), PathStep::Index(index)) => items.get(index.checked_sub(1)?),
        (Value::Object(fields), PathStep::Key(key)) => fields.get(key),
        // A script may write a number for a key, which in JSON is always a string.
        (Value::Object(fields), PathStep::Index(index)) => fields.get(&index.to_string()),
        _ => None,
    }
}

/// The error message for a part that does not exist.
fn missing_part(value: &Value, step: &PathStep, at: &ValuePath) -> String {
    let here =
        if at.0.is_empty() { "the result".to_owned() } else { format!("`{}`", truncate(&at.to_string())) };
    let step = match step {
        PathStep::Key(key) => truncate(key),
        PathStep::Index(index) => index.to_string(),
    };
    match value {
        Value::Object(fields) => {
            let similar = nearest(&step, fields.keys().map(String::as_str));
            format!("{here} has no `{step}`{}", hint(similar))
        }
        Value::Array(items) if items.is_empty() => format!("{here} is an empty list"),
        Value::Array(items) => {
            format!("{here} is a list of {}: [1] to [{}], not `{step}`", items.len(), items.len())
        }
        other => format!("{here} is a {}: there is no `{step}` in it", super::json_type(other)),
    }
}

/// Parses `name` at the beginning, or `.name` anywhere; returns the rest as well.
fn parse_name(rest: &str, is_first: bool) -> Result<(PathStep, &str), String> {
    let rest = match rest.strip_prefix('.') {
        Some(rest) => rest,
        None if is_first => rest,
        None => return Err(format!("a `.` is missing before `{}`", truncate(rest))),
    };
    let end = rest.find(['.', '[']).unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    let name = name.trim();
    if name.is_empty() {
        return Err("a name is missing after a `.`".to_owned());
    }
    if name.contains([']', '"', '\'']) {
        return Err(format!("write `{}` as [\"…\"]", truncate(name)));
    }
    Ok((PathStep::Key(name.to_owned()), after))
}

/// Parses what follows a `[`: a number or a quoted string, and `]`.
fn parse_bracket(inside: &str) -> Result<(PathStep, &str), String> {
    let inside = inside.trim_start();
    if let Some(quote) = inside.chars().next().filter(|first| ['"', '\''].contains(first)) {
        let (key, after) = parse_quoted(&inside[1..], quote)?;
        let after = after.trim_start().strip_prefix(']').ok_or("a `]` is missing")?;
        return Ok((PathStep::Key(key), after));
    }
    let (number, after) = inside.split_once(']').ok_or("a `]` is missing")?;
    match number.trim().parse::<usize>() {
        Ok(index) if index > 0 => Ok((PathStep::Index(index), after)),
        Ok(_) => Err("indexes start at 1".to_owned()),
        Err(_) => {
            Err(format!("`{}` is neither an index of 1 or more nor a quoted string", truncate(number.trim())))
        }
    }
}

/// Parses a string up to its closing quote; returns the rest as well.
fn parse_quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut key = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => key.push(match letters.next() {
                Some((_, 'n')) => '\n',
                Some((_, 'r')) => '\r',
                Some((_, 't')) => '\t',
                Some((_, other)) => other,
                None => break,
            }),
            letter if letter == quote => return Ok((key, &text[at + letter.len_utf8()..])),
            letter => key.push(letter),
        }
    }
    Err(format!("a closing {quote} is missing"))
}

/// Whether a key needs no quotes.
pub(super) fn is_plain_key(key: &str) -> bool {
    key.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && key.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// A string as a Luau literal.
pub(super) fn luau_literal(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

impl fmt::Display for ValuePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Key(key) if is_plain_key(key) => {
                    let dot = if position == 0 { "" } else { "." };
                    write!(f, "{dot}{key}")?;
                }
                PathStep::Key(key) => write!(f, "[{}]", luau_literal(key))?,
                PathStep::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn steps(text: &str) -> Vec<PathStep> {
        ValuePath::parse(text).unwrap().0
    }

    fn key(key: &str) -> PathStep {
        PathStep::Key(key.to_owned())
    }

    #[test]
    fn a_path_is_written_as_in_a_script() {
        assert_eq!(steps(""), []);
        assert_eq!(steps("issues[1].title"), [key("issues"), PathStep::Index(1), key("title")]);
        assert_eq!(steps("[\"a b\"].c['d']"), [key("a b"), key("c"), key("d")]);
        assert_eq!(steps(r#"[ "a\"]\\\n" ] [ 12 ]"#), [key("a\"]\\\n"), PathStep::Index(12)]);
        assert_eq!(steps(" .größe.user-id "), [key("größe"), key("user-id")]);
    }

    #[test]
    fn an_invalid_path_says_why() {
        for (text, why) in [
            ("a..b", "a name is missing after a `.`"),
            ("a.", "a name is missing after a `.`"),
            ("a[0]", "indexes start at 1"),
            ("a[-1]", "`-1` is neither an index of 1 or more nor a quoted string"),
            ("a[b]", "`b` is neither an index of 1 or more nor a quoted string"),
            ("a[1", "a `]` is missing"),
            ("a[\"b\"", "a `]` is missing"),
            ("a[\"b]", "a closing \" is missing"),
            ("a[1]b", "a `.` is missing before `b`"),
            ("a]", "write `a]` as [\"…\"]"),
        ] {
            let error = ValuePath::parse(text).unwrap_err();
            assert_eq!(error.message(), format!("the path `{text}` is invalid: {why}"));
        }
        assert!(ValuePath::parse(&"a".repeat(PATH_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn a_missing_part_is_reported_with_the_nearest_key() {
        let value = json!({"issues": [{"title": "x", "7": "seven"}], "total": 1, "none": []});
        let found = |path: &str| ValuePath::parse(path).unwrap().find(&value).cloned();
        assert_eq!(found("").unwrap(), value);
        assert_eq!(found("issues[1].title").unwrap(), json!("x"));
        assert_eq!(found("issues[1][7]").unwrap(), json!("seven"));
        for (path, why) in [
            ("isues", "the result has no `isues` (did you mean `issues`?)"),
            ("issues[1].titel", "`issues[1]` has no `titel` (did you mean `title`?)"),
            ("issues[2]", "`issues` is a list of 1: [1] to [1], not `2`"),
            ("issues.title", "`issues` is a list of 1: [1] to [1], not `title`"),
            ("none[1]", "`none` is an empty list"),
            ("total.x", "`total` is a number: there is no `x` in it"),
        ] {
            assert_eq!(found(path).unwrap_err().message(), why);
        }
    }

    fn any_step() -> impl Strategy<Value = PathStep> {
        prop_oneof![
            any::<String>().prop_map(PathStep::Key),
            "[a-z_]{1,8}".prop_map(PathStep::Key),
            (1..usize::MAX).prop_map(PathStep::Index)
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(steps in proptest::collection::vec(any_step(), 0..6)) {
            let path = ValuePath(steps);
            let text = path.to_string();
            prop_assume!(text.len() <= PATH_BYTES_MAX);
            prop_assert_eq!(ValuePath::parse(&text).unwrap(), path);
        }

        #[test]
        fn any_text_is_a_path_or_an_error(text in "[a-c.\\[\\]\"'\\\\ 0-2ä]{0,20}") {
            if let Ok(path) = ValuePath::parse(&text) {
                prop_assert_eq!(ValuePath::parse(&path.to_string()).unwrap(), path);
            }
        }
    }
}
