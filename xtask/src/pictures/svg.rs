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

/// The text in at most `lines_max` lines of a proportional font; what does not fit is left out, with a mark.
pub(super) fn wrapped(text: &str, width: f64, font_size: f64, lines_max: usize) -> Vec<String> {
    let fits = |line: &str| text_width(line, font_size) <= width;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let longer = lines.last().map(|line| format!("{line} {word}")).filter(|line| fits(line));
        match (longer, lines.len() < lines_max) {
            (Some(longer), _) => {
                lines.pop();
                lines.push(longer);
            }
            (None, true) => lines.push(word.to_owned()),
            (None, false) => {
                let last = lines.pop().map(|line| cut(&line, fits));
                lines.extend(last);
                break;
            }
        }
    }
    lines
}

/// The line with a mark that it goes on, and without the words for which there is no room then.
fn cut(mut line: &str, fits: impl Fn(&str) -> bool) -> String {
    loop {
        let marked = format!("{} …", line.trim_end_matches([',', ';', ':', '(']));
        match line.rsplit_once(' ') {
            Some((shorter, _)) if !fits(&marked) => line = shorter,
            _ => return marked,
        }
    }
}

/// The width of a text in a usual sans-serif font, rather too wide than too narrow.
pub(super) fn text_width(text: &str, font_size: f64) -> f64 {
    let em = |char: char| match char {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' => 0.29,
        'f' | 't' | 'r' | ' ' | '/' | '(' | ')' | '-' | '`' => 0.36,
        'm' | 'w' | 'M' | 'W' | '…' => 0.9,
        'A'..='Z' => 0.69,
        _ => 0.57,
    };
    text.chars().map(em).sum::<f64>() * font_size
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

    #[test]
    fn text_wraps_and_says_that_it_goes_on() {
        assert_eq!(wrapped("one two three", 60.0, 12.0, 3), ["one two", "three"]);
        assert_eq!(wrapped("one two, three", 70.0, 12.0, 1), ["one two …"]);
        assert_eq!(wrapped("one two, three", 60.0, 12.0, 1), ["one …"]);
        assert_eq!(wrapped("one", 60.0, 12.0, 0), Vec::<String>::new());
    }
}
