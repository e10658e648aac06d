//! Escaping of invisible characters, so that the text a person approves is the text an agent reads.
//!
//! An invisible character is replaced by an escape with its code point, such as `\u{202e}`. Line breaks and tabs become
//! `\n`, `\r` and `\t` where they are escaped. Backslashes are not escaped: the result is for display, and is never
//! decoded.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` with invisible characters escaped. `\n`, `\r\n` and tabs are kept; a lone `\r` is escaped.
pub fn escape_invisible(text: &str) -> Cow<'_, str> {
    escape(text, Layout::MultiLine)
}

/// `text` as one line: invisible characters, line breaks and tabs are escaped, so that a value cannot fake
/// further lines of output.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    escape(text, Layout::SingleLine)
}

/// Whether [`escape_invisible`] would change `text`.
pub fn has_invisible(text: &str) -> bool {
    first_to_escape(text, Layout::MultiLine).is_some()
}

/// Whether line breaks and tabs are kept (`MultiLine`) or escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    MultiLine,
    SingleLine,
}

fn escape(text: &str, layout: Layout) -> Cow<'_, str> {
    let Some(first) = first_to_escape(text, layout) else { return Cow::Borrowed(text) };
    let (before, rest) = text.split_at(first);
    let mut escaped = String::with_capacity(text.len() + 16);
    escaped.push_str(before);
    let mut previous = before.chars().next_back();
    let mut characters = rest.chars().peekable();
    while let Some(character) = characters.next() {
        // A joiner or variation selector cannot attach to an escaped character.
        previous = if needs_escape(previous, character, characters.peek().copied(), layout) {
            write_escape(&mut escaped, character);
            None
        } else {
            escaped.push(character);
            Some(character)
        };
    }
    Cow::Owned(escaped)
}

fn write_escape(escaped: &mut String, character: char) {
    match character {
        '\n' => escaped.push_str("\\n"),
        '\r' => escaped.push_str("\\r"),
        '\t' => escaped.push_str("\\t"),
        // Writing to a `String` cannot fail.
        other => drop(write!(escaped, "\\u{{{:x}}}", u32::from(other))),
    }
}

/// Byte offset of the first character to escape.
fn first_to_escape(text: &str, layout: Layout) -> Option<usize> {
    // Fast path: most texts are printable ASCII.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return None;
    }
    let mut previous = None;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        if needs_escape(previous, character, next, layout) {
            return Some(at);
        }
        previous = Some(character);
    }
    None
}

/// Whether a character is to be escaped between these neighbours.
///
/// Escaped: control characters (line breaks and tabs depend on the layout), bidirectional controls, zero-width and
/// other format characters (Cf) without a glyph, Hangul fillers, line and paragraph separators, variation selectors
/// and the tags block (U+E0000…).
///
/// Kept, since emoji and spelling need them: U+200D within emoji sequences, U+FE0E and U+FE0F after emoji and in
/// keycaps, U+200C and U+200D between characters of scripts that need them. No two of these joiners and
/// selectors may be adjacent, except U+FE0F before U+200D. The tags of subdivision flags (🏴…) and ideographic
/// variation selectors are escaped: both can carry hidden text.
fn needs_escape(previous: Option<char>, character: char, next: Option<char>, layout: Layout) -> bool {
    let is_multi_line = layout == Layout::MultiLine;
    match character {
        '\n' | '\t' => !is_multi_line,
        '\r' => !(is_multi_line && next == Some('\n')),
        '\u{200d}' => !(joins_emoji(previous, next) || joins_letters(previous, next)),
        '\u{200c}' => !joins_letters(previous, next),
        '\u{fe0e}' | '\u{fe0f}' => {
            let is_keycap = matches!(previous, Some('0'..='9' | '#' | '*')) && next == Some('\u{20e3}');
            !(previous.is_some_and(is_emoji) || is_keycap)
        }
        other => other.is_control() || has_no_glyph(other),
    }
}

fn joins_emoji(previous: Option<char>, next: Option<char>) -> bool {
    previous.is_some_and(|previous| is_emoji(previous) || previous == '\u{fe0f}')
        && next.is_some_and(is_emoji)
}

fn joins_letters(previous: Option<char>, next: Option<char>) -> bool {
    previous.is_some_and(needs_joiners) && next.is_some_and(needs_joiners)
}

/// Characters of scripts whose spelling needs U+200C or U+200D: Arabic, Syriac, Indic, Tibetan, Myanmar and Khmer.
fn needs_joiners(character: char) -> bool {
    matches!(character, '\u{620}'..='\u{6d3}' | '\u{710}'..='\u{77f}' | '\u{8a0}'..='\u{8c9}'
        | '\u{900}'..='\u{dff}' | '\u{f40}'..='\u{fbc}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17b3}'
        | '\u{17b6}'..='\u{17d3}')
}

/// Emoji that take variation selectors and U+200D; the ranges also contain other characters, all visible.
fn is_emoji(character: char) -> bool {
    matches!(character, '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}'
        | '\u{2194}'..='\u{21aa}' | '\u{231a}'..='\u{23ff}' | '\u{24c2}' | '\u{25aa}'..='\u{27bf}'
        | '\u{2934}' | '\u{2935}' | '\u{2b05}'..='\u{2b55}' | '\u{3030}' | '\u{303d}' | '\u{3297}'
        | '\u{3299}' | '\u{1f000}'..='\u{1faff}')
}

/// Default-ignorable code points, format characters (Cf) without a glyph, and line and paragraph separators.
fn has_no_glyph(character: char) -> bool {
    matches!(character, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_escaped() {
        for (text, expected) in [
            ("a\u{200b}b", r"a\u{200b}b"),
            ("\u{202e}txt.exe", r"\u{202e}txt.exe"),
            ("\u{2066}a\u{2069}", r"\u{2066}a\u{2069}"),
            ("a\u{e0041}\u{e007f}", r"a\u{e0041}\u{e007f}"),
            ("a\u{fe0f}", r"a\u{fe0f}"),
            ("a\u{fe00}\u{e0100}", r"a\u{fe00}\u{e0100}"),
            ("so\u{ad}ft", r"so\u{ad}ft"),
            ("\u{feff}a\u{2060}\u{180e}\u{34f}\u{3164}", r"\u{feff}a\u{2060}\u{180e}\u{34f}\u{3164}"),
            ("a\u{2028}b\u{2029}c", r"a\u{2028}b\u{2029}c"),
            ("\u{1b}[2J\u{7}\u{0}\u{7f}\u{9b}", r"\u{1b}[2J\u{7}\u{0}\u{7f}\u{9b}"),
            ("a\rb", r"a\rb"),
        ] {
            assert!(has_invisible(text), "{text:?}");
            assert_eq!(escape_invisible(text), expected);
            assert_eq!(escape_line(text), expected);
        }
    }

    #[test]
    fn joiners_and_selectors_that_text_needs_are_kept() {
        for text in [
            "",
            "plain text: \\u{202e}",
            "naïve Straße 日本語 עברית العربية",
            "👩‍👩‍👧‍👦 🏳️‍🌈 ❤️ ☎︎ 1️⃣ #️⃣ 👍🏽 🧑🏽‍🚀",
            "می‌خواهم",
            "क्‍ष",
        ] {
            assert!(!has_invisible(text), "{text:?}");
            assert_eq!(escape_invisible(text), text);
            assert_eq!(escape_line(text), text);
        }
        assert_eq!(escape_invisible("a\r\n\tb\n"), "a\r\n\tb\n");
        assert!(!has_invisible("a\r\n\tb\n"));
    }

    #[test]
    fn escape_line_escapes_line_breaks_and_tabs() {
        assert_eq!(escape_line("a\nb\r\n\tc"), r"a\nb\r\n\tc");
    }

    #[test]
    fn misplaced_joiners_and_selectors_are_escaped() {
        for (text, expected) in [
            // Repeated: of two selectors the second is escaped, of two joiners both.
            ("❤\u{fe0f}\u{fe0f}", "❤\u{fe0f}\\u{fe0f}"),
            ("👩\u{200d}\u{200d}👧", r"👩\u{200d}\u{200d}👧"),
            ("a\u{200d}b", r"a\u{200d}b"),
            ("👩\u{200d}", r"👩\u{200d}"),
            ("1\u{fe0f}", r"1\u{fe0f}"),
            ("\u{645}\u{200c}\u{200c}\u{62e}", "\u{645}\\u{200c}\\u{200c}\u{62e}"),
            ("\u{200c}", r"\u{200c}"),
            ("a\u{fe0f}\u{200d}👧", r"a\u{fe0f}\u{200d}👧"),
        ] {
            assert_eq!(escape_invisible(text), expected, "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn escaping_is_idempotent(
            text in "[a1#❤👩\u{645}\u{200b}-\u{200d}\u{fe0e}\u{fe0f}\u{20e3}\u{202e}\u{e0041}\r\n\t]{0,12}|\\PC*",
        ) {
            let escaped = escape_invisible(&text).into_owned();
            let line = escape_line(&text).into_owned();
            proptest::prop_assert!(!has_invisible(&escaped), "{:?}", escaped);
            proptest::prop_assert_eq!(escape_line(&line), line.as_str());
            proptest::prop_assert_eq!(has_invisible(&text), escaped != text);
        }
    }
}
