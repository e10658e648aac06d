//! Parses the text of a document, JSON or YAML, within bounds.

use super::yaml;
use serde_json::Value;
use std::borrow::Cow;

/// Bytes of all texts of one description together.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 20;

/// Why a text is not a description.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum DescriptionError {
    /// It is longer than [`TEXT_BYTES_MAX`].
    #[error("it is larger than {} MiB", TEXT_BYTES_MAX >> 20)]
    TooLarge,
    /// It is neither JSON nor YAML. Line and column are counted from 1; line 0 means that the position is
    /// unknown.
    #[error("{}{why}", position_prefix(*line, *column))]
    Syntax { line: usize, column: usize, why: String },
    /// It is a document, but not an OpenAPI description.
    #[error("{0}")]
    NotADescription(String),
}

fn position_prefix(line: usize, column: usize) -> String {
    if line == 0 { String::new() } else { format!("line {line}, column {column}: ") }
}

/// Parses a text. A text that looks like JSON but is not valid may still be YAML, which allows more.
pub(crate) fn parse(text: &str) -> Result<Value, DescriptionError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(DescriptionError::TooLarge);
    }
    let text = text.trim_start_matches('\u{feff}');
    let looks_like_json = text.trim_start().starts_with(['{', '[']);
    if !looks_like_json {
        return yaml::parse(&replace_control_characters(text));
    }
    serde_json::from_str(text).or_else(|error| {
        yaml::parse(&replace_control_characters(text)).map_err(|_| {
            let (line, column) = json_position(text, error.line(), error.column());
            DescriptionError::Syntax { line, column, why: without_position(&error.to_string()) }
        })
    })
}

/// The position of a JSON error. One at column 0 is moved to the end of the line before.
fn json_position(text: &str, line: usize, column: usize) -> (usize, usize) {
    let before = line.checked_sub(2).filter(|_| column == 0).and_then(|index| text.lines().nth(index));
    before.map_or((line, column), |before| (line - 1, before.chars().count() + 1))
}

/// Removes ` at line 1 column 2` from a message: the position is shown separately.
fn without_position(message: &str) -> String {
    message.rsplit_once(" at line ").map_or(message, |(before, _)| before).to_owned()
}

/// Replaces control characters, which YAML does not allow but vendors write, by spaces: positions stay the
/// same.
fn replace_control_characters(text: &str) -> Cow<'_, str> {
    let is_forbidden = |c: char| {
        let is_control = c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}');
        is_control || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
    };
    match text.contains(is_forbidden) {
        true => Cow::Owned(text.chars().map(|c| if is_forbidden(c) { ' ' } else { c }).collect()),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn error_position(text: &str) -> (usize, usize) {
        match parse(text) {
            Err(DescriptionError::Syntax { line, column, .. }) => (line, column),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn json_and_yaml_are_told_apart() {
        for text in
            ["{\"a\": [1, \"x\"]}", "a: [1, x]", "\u{feff}a:\n- 1\n- x\n", " {a: [1, x,]}", "{'a': [1, x]}"]
        {
            assert_eq!(parse(text), Ok(json!({"a": [1, "x"]})), "{text}");
        }
    }

    #[test]
    fn yaml_means_what_people_mean() {
        let text = "no: no\nversion: 012\n200: ok\ntrue: 1\nbig: 99999999999999999999999\nbase: &base {a: 1, b: 1}\n\
                    merged:\n  <<: *base\n  b: 2\ntagged: !thing [1]\n\"control\": \"a\u{1}b\"\nempty:\n";
        assert_eq!(
            parse(text),
            Ok(json!({
                "no": "no", "version": "012", "200": "ok", "true": 1, "big": 1e23, "base": {"a": 1, "b": 1},
                "merged": {"b": 2, "a": 1}, "tagged": [1], "control": "a b", "empty": null,
            }))
        );
    }

    #[test]
    fn syntax_errors_have_their_position() {
        assert_eq!(error_position("{\"a\": 1,\n \"b\": ]}"), (2, 7));
        assert_eq!(error_position("a: 1\nb: \"never closed\nc: 2\nd: 3\n"), (2, 4));
        assert_eq!(error_position("a: 1\nb:\n\t- 1\n"), (3, 1));
        assert_eq!(error_position("a: 1\nb: c: d\n"), (2, 5));
        assert_eq!(error_position("paths:\n  /a:\n    get: {}\n   post: {}\n"), (4, 4));
        assert_eq!(error_position("a: 1\nb\nc: 2\n"), (2, 1));
        assert_eq!(error_position("a: {b: \"x\\qy\"}\n"), (1, 10));
        assert_eq!(error_position("a: 1\nb: *gone\n"), (2, 4));
        assert_eq!(error_position("{\"a\": \"never closed\n\", \"b\": 2"), (1, 20));
    }

    #[test]
    fn an_unclosed_bracket_is_reported_at_its_start() {
        let error = parse("openapi: 3.0.0\ntags: [a, b\npaths: {}\n").unwrap_err().to_string();
        let expected = "line 3, column 6: did not find expected ',' or ']', in the collection that begins at line 2, \
                        column 7";
        assert_eq!(error, expected);
    }

    #[test]
    fn alias_bombs_are_stopped() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let items = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert!(matches!(parse(&bomb), Err(DescriptionError::Syntax { .. })));
        assert!(parse("a: &a [*a]").is_err());
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&"- ".repeat(100_000)).is_err());
        assert_eq!(parse(&" ".repeat(TEXT_BYTES_MAX + 1)), Err(DescriptionError::TooLarge));
    }

    #[test]
    fn brackets_nested_too_deeply_are_refused_before_they_are_read() {
        // The parser takes quadratic time in the depth.
        for (before, open) in [
            ("", "["),
            ("{\"a\": ", "["),
            ("{\"a\": ", "{\"a\":"),
            ("a: ", "["),
            ("a:\n - ", "{a: "),
            ("a: [b-', ", "["),
        ] {
            let error = parse(&format!("{before}{}", open.repeat(100_000))).unwrap_err();
            assert!(matches!(error, DescriptionError::Syntax { .. }), "{error}");
        }
        // Brackets inside scalars do not nest.
        let prose = "a: the interval [0, 1) {and so on\n".repeat(2_000).replace("a:", "- ");
        assert!(parse(&prose).is_ok());
        let quoted = "- \"[[[[\"\n- '{{{{'\n- \"a\\\\\"\n- 'it''s [['\n".repeat(1_000);
        assert!(parse(&quoted).is_ok(), "{:?}", parse(&quoted));
        let markdown = "- text: |\n    - [ ] {a\n\n      [[b\n  other: >-\n    ([\n".repeat(1_000);
        assert!(parse(&markdown).is_ok(), "{:?}", parse(&markdown));
        let flow = format!("x: [{}]", "{a: [1, 2]}, 'it''s [', ".repeat(1_000));
        assert!(parse(&flow).is_ok(), "{:?}", parse(&flow));
    }

    #[test]
    fn alias_bombs_of_long_strings_are_stopped() {
        let text = "x".repeat(TEXT_BYTES_MAX >> 6);
        // As a value, and as a name.
        for use_of_it in ["- *x\n", "- {*x : 1}\n"] {
            let few = format!("- &x {text}\n{}", use_of_it.repeat(3));
            assert!(parse(&few).is_ok(), "{use_of_it}");
            let many = format!("- &x {text}\n{}", use_of_it.repeat(4 << 6));
            let error = parse(&many).unwrap_err().to_string();
            assert!(error.contains("aliases make it too large"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn json_is_the_same_as_yaml(items in proptest::collection::vec(("[a-z \\-:#]{0,8}", any::<i64>()), 0..8)) {
            let value: Value = items.into_iter().map(|(name, item)| (name, json!([item, null, true]))).collect();
            let text = value.to_string();
            prop_assert_eq!(yaml::parse(&text), Ok(value));
        }

        #[test]
        fn any_text_is_a_value_or_an_error(text in "[\\[\\]{}:,&*!|>#\"' \\n\\ta-c0-9-]{0,60}") {
            let _ = parse(&text);
        }
    }
}
