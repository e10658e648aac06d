//! Notes: what a schema says besides types (description, default, format), as single lines for comments in Luau code.

use crate::model::{Notes, Type};
use crate::reference::reference_name;
use crate::schema_reader::type_name;
use serde_json::{Map, Value};

/// Maximum characters of a field's description.
const DESCRIPTION_MAX: usize = 300;

/// Maximum characters of a default.
const DEFAULT_MAX: usize = 60;

/// Maximum characters of a format's name.
const FORMAT_MAX: usize = 40;

/// Maximum number of numeric `enum` values that are listed.
const NUMBERS_MAX: usize = 20;

/// Maximum number of discriminator values that are listed.
const ALTERNATIVES_MAX: usize = 40;

/// Maximum characters of the list of discriminator values.
const ALTERNATIVES_CHARS_MAX: usize = 1_000;

impl Notes {
    /// The notes of a schema; `default` is separate because it may be behind a `$ref`.
    pub(crate) fn of(schema: &Map<String, Value>, default: Option<&Value>) -> Self {
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        let description = text("description").map(|text| to_single_line(text, DESCRIPTION_MAX));
        let mut remarks = Vec::new();
        if let Some(format) = text("format").or_else(|| text("contentEncoding")) {
            remarks.push(if format == "binary" {
                "bytes".to_owned()
            } else {
                to_single_line(format, FORMAT_MAX)
            });
        }
        remarks.extend(describe_numbers(schema));
        remarks.extend(describe_alternatives(schema));
        Self {
            description: description.filter(|text| !text.is_empty()),
            default: default.map(|value| to_single_line(&json_preview(value), DEFAULT_MAX)),
            deprecated: schema.get("deprecated").and_then(Value::as_bool).unwrap_or(false),
            remarks,
        }
    }

    /// All notes on one line; `None` if there are none.
    pub(crate) fn line(&self) -> Option<String> {
        let mut details = Vec::new();
        if self.deprecated {
            details.push("deprecated".to_owned());
        }
        details.extend(self.remarks.iter().cloned());
        if let Some(default) = &self.default {
            details.push(format!("default {default}"));
        }
        let details = details.join("; ");
        match &self.description {
            Some(description) if details.is_empty() => Some(description.clone()),
            Some(description) => Some(format!("{description} ({details})")),
            None if details.is_empty() => None,
            None => Some(details),
        }
    }

    /// For a tuple, adds the types of its items in order, which Luau types cannot express.
    pub(crate) fn add_tuple_order(&mut self, luau_type: &Type, print: impl Fn(&Type) -> String) {
        let luau_type = if let Type::Optional(inner) = luau_type { inner } else { luau_type };
        if let Type::Tuple(items, _) = luau_type {
            let items: Vec<String> = items.iter().map(print).collect();
            let order = format!("in this order: {}", items.join(", "));
            self.remarks.push(to_single_line(&order, DESCRIPTION_MAX));
        }
    }
}

/// The numbers that `const` or `enum` allows; Luau has no type for a single number.
fn describe_numbers(schema: &Map<String, Value>) -> Option<String> {
    let values: Vec<&Value> = match (schema.get("const"), schema.get("enum")) {
        (Some(constant), _) => vec![constant],
        (None, Some(Value::Array(values))) => values.iter().collect(),
        _ => return None,
    };
    let numbers: Vec<String> =
        values.iter().filter(|value| value.is_number()).take(NUMBERS_MAX).map(ToString::to_string).collect();
    if numbers.is_empty() {
        return None;
    }
    let more = if values.len() > numbers.len() { ", …" } else { "" };
    let one_of = if numbers.len() == 1 { "" } else { "one of " };
    Some(format!("{one_of}{}{more}", numbers.join(", ")))
}

/// The discriminator of a union (OpenAPI): which value of the named field selects which type.
fn describe_alternatives(schema: &Map<String, Value>) -> Option<String> {
    let discriminator = schema.get("discriminator")?;
    let name = discriminator.get("propertyName")?.as_str()?;
    let mapping = discriminator.get("mapping")?.as_object()?;
    let describe_alternative = |(value, target): (&String, &Value)| {
        let target = type_name(&reference_name(target.as_str()?)?);
        Some(format!("{} is {target}", Value::from(value.as_str())))
    };
    let described: Vec<String> =
        mapping.iter().take(ALTERNATIVES_MAX).filter_map(describe_alternative).collect();
    let more = if mapping.len() > ALTERNATIVES_MAX { ", …" } else { "" };
    let text = format!("by {name}: {}{more}", described.join(", "));
    (!described.is_empty()).then(|| to_single_line(&text, ALTERNATIVES_CHARS_MAX))
}

/// A value as JSON, abbreviated: a long string is cut, a large or nested array or object becomes `[…]` or `{…}`.
fn json_preview(value: &Value) -> String {
    match value {
        Value::String(text) => Value::String(text.chars().take(DEFAULT_MAX).collect()).to_string(),
        Value::Array(items) if items.is_empty() => "[]".to_owned(),
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Array(items) if items.iter().all(is_short_scalar) && items.len() < DEFAULT_MAX => {
            value.to_string()
        }
        Value::Array(_) => "[…]".to_owned(),
        Value::Object(fields) if fields.values().all(is_short_scalar) && fields.len() < DEFAULT_MAX => {
            value.to_string()
        }
        Value::Object(_) => "{…}".to_owned(),
        scalar => scalar.to_string(),
    }
}

fn is_short_scalar(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= DEFAULT_MAX,
        other => !other.is_array() && !other.is_object(),
    }
}

/// The text as one line. A line of more than `characters_max` characters is cut, so that it has at most that many with
/// the `…` at its end. Drops invisible characters, which could hide or reorder text.
pub(crate) fn to_single_line(text: &str, characters_max: usize) -> String {
    let mut line = String::new();
    let mut count = 0;
    // Length in bytes of the part that is kept if the line is cut: one character is left for `…`.
    let mut cut_bytes = 0;
    let mut space = false;
    for character in text.chars() {
        if character.is_whitespace() || character.is_control() {
            space = true;
            continue;
        }
        if is_invisible(character) {
            continue;
        }
        let separator = if space && !line.is_empty() { " " } else { "" };
        count += separator.len() + 1;
        if count > characters_max {
            line.truncate(cut_bytes);
            line.push('…');
            break;
        }
        line.push_str(separator);
        line.push(character);
        if count < characters_max {
            cut_bytes = line.len();
        }
        space = false;
    }
    line
}

/// Whether a character is invisible: zero-width, a formatting character, or a bidirectional control.
pub(crate) fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn note_line(schema: &Value) -> Option<String> {
        Notes::of(schema.as_object().unwrap(), schema.get("default")).line()
    }

    #[test]
    fn notes_are_one_line_without_invisible_characters() {
        assert_eq!(to_single_line("a\r\n\tb\u{2028}c\u{0}d", 80), "a b c d");
        assert_eq!(to_single_line("abc\u{202e}def", 80), "abcdef");
        assert_eq!(to_single_line(" \n ", 80), "");
    }

    #[test]
    fn only_a_line_above_the_maximum_is_cut_and_never_exceeds_it() {
        for (text, expected) in [
            ("abc", "abc"),
            ("abcd", "abcd"),
            ("abcd \n\u{200b}", "abcd"),
            (" a  b ", "a b"),
            ("ab c", "ab c"),
            ("abcde", "abc…"),
            ("abcd e", "abc…"),
            ("abc d", "abc…"),
            ("ab c d", "ab…"),
            ("ab cd", "ab…"),
            ("a b c", "a b…"),
            ("ééééé", "ééé…"),
        ] {
            assert_eq!(to_single_line(text, 4), expected, "{text:?}");
        }
        assert_eq!(to_single_line("a", 1), "a");
        assert_eq!(to_single_line("ab", 1), "…");
    }

    #[test]
    fn notes_add_what_types_cannot_express() {
        for (schema, expected) in [
            (json!({"description": "How many.", "default": 10}), Some("How many. (default 10)")),
            (json!({"deprecated": true, "default": "a"}), Some(r#"deprecated; default "a""#)),
            (json!({"format": "binary"}), Some("bytes")),
            (json!({"format": "date-time"}), Some("date-time")),
            (json!({"enum": [1, 2, 3]}), Some("one of 1, 2, 3")),
            (json!({"enum": ["a"]}), None),
            (
                json!({"discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/a-dog"}}}),
                Some(r#"by kind: "cat" is Cat, "dog" is a_dog"#),
            ),
            (json!({"discriminator": {"propertyName": "kind"}}), None),
            (json!({"default": {"deep": [1]}}), Some("default {…}")),
            (json!({"default": ["a", 1]}), Some(r#"default ["a",1]"#)),
            (json!({"description": 7, "deprecated": "no"}), None),
        ] {
            assert_eq!(note_line(&schema).as_deref(), expected, "{schema}");
        }
    }
}
