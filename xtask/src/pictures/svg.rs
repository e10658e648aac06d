//! Text and numbers as they are written in SVG.

use std::borrow::Cow;

/// The text with the characters escaped that have a meaning in XML; characters that XML forbids are left out.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    let is_special = |char: char| matches!(char, '&' | '<' | '>' | '"') || char.is_control();
    if !text.contains(is_special) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            char if char.is_control() => {}
            char => escaped.push(char),
        }
    }
    Cow::Owned(escaped)
}

/// A number with at most two decimals and no trailing zeros.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_end_an_element_or_an_attribute() {
        assert_eq!(escaped("<a> & \"b\"\u{1b}[0m"), "&lt;a&gt; &amp; &quot;b&quot;[0m");
        assert!(matches!(escaped("plain 日本"), Cow::Borrowed(_)));
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, -0.001, 8.4, 100.0, 1.0 / 3.0, -2.5].map(number);
        assert_eq!(numbers, ["0", "0", "8.4", "100", "0.33", "-2.5"]);
    }
}
