//! Finds excessive nesting of flow collections (`[`, `{`) in a YAML text before it is parsed: the parser's
//! scanner takes quadratic time in the depth.
//!
//! Brackets inside scalars and comments do not nest, so their ends have to be found exactly as the scanner of
//! libyaml finds them: these rules are its rules, and a test compares the two. After an error at which the
//! scanner would stop, the rest is not examined.

use std::str::Chars;

/// Maximum number of characters of a simple key (one without `?`).
const KEY_CHARS_MAX: usize = 1024;

/// Line and column, counted from 1, of the bracket that exceeds this depth.
pub(super) fn find_excessive(text: &str, depth_max: usize) -> Option<(usize, usize)> {
    let mut scanner = Scanner {
        rest: text.chars(),
        position: Position { index: 0, line: 1, column: 0 },
        depth: 0,
        indents: Vec::new(),
        key: None,
        may_be_key: true,
    };
    while scanner.depth <= depth_max {
        scanner.consume_token()?;
    }
    Some((scanner.position.line, scanner.position.column))
}

#[derive(Clone, Copy)]
struct Position {
    index: usize,
    line: usize,
    column: usize,
}

struct Scanner<'t> {
    rest: Chars<'t>,
    position: Position,
    /// Open flow collections.
    depth: usize,
    /// Columns of the open block collections, the innermost last.
    indents: Vec<usize>,
    /// Start of the token that a following `:` makes a key; in block context only.
    key: Option<Position>,
    /// Whether the next token may become a key.
    may_be_key: bool,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn peek_second(&self) -> Option<char> {
        self.rest.clone().nth(1)
    }

    fn advance(&mut self) {
        let Some(char) = self.rest.next() else { return };
        self.position.index += 1;
        self.position.column += 1;
        if is_break(char) {
            // `\r\n` is one line break.
            self.position.line += usize::from(char != '\r' || self.peek() != Some('\n'));
            self.position.column = 0;
        }
    }

    fn skip_while(&mut self, is_skipped: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&is_skipped) {
            self.advance();
        }
    }

    fn is_block(&self) -> bool {
        self.depth == 0
    }

    /// Consumes one token; `None` at the end, and where libyaml's scanner stops with an error.
    fn consume_token(&mut self) -> Option<()> {
        self.skip_space();
        if self.is_block() {
            while self.indents.last().is_some_and(|indent| *indent > self.position.column) {
                self.indents.pop();
            }
        }
        let char = self.peek()?;
        let before_blank = self.peek_second().is_none_or(is_blank_or_break);
        match char {
            '%' if self.position.column == 0 => self.skip_while(|char| !is_break(char)),
            '-' | '.' if self.is_document_marker() => {
                (0..3).for_each(|_| self.advance());
                self.indents.clear();
                (self.key, self.may_be_key) = (None, false);
            }
            '[' | '{' => {
                self.save_key();
                self.depth += 1;
                self.advance();
            }
            ']' | '}' => {
                self.depth = self.depth.saturating_sub(1);
                self.may_be_key = false;
                self.advance();
            }
            ',' => self.advance(),
            '-' if before_blank => self.indicator(true)?,
            '?' if before_blank || !self.is_block() => self.indicator(true)?,
            ':' if before_blank || !self.is_block() => self.indicator(false)?,
            '*' | '&' => {
                self.save_key();
                self.advance();
                self.skip_while(|char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-'));
            }
            '!' => self.tag(),
            '|' | '>' if self.is_block() => self.block_scalar(),
            '\'' | '"' => self.quoted_scalar(char),
            '%' | '@' | '`' | '|' | '>' | '\t' => return None,
            _ => self.plain_scalar()?,
        }
        Some(())
    }

    /// Skips spaces and comments between tokens.
    fn skip_space(&mut self) {
        loop {
            // A tab where a key may begin is an error.
            let takes_tabs = !self.is_block() || !self.may_be_key;
            self.skip_while(|char| char == ' ' || (char == '\t' && takes_tabs));
            if self.peek() == Some('#') {
                self.skip_while(|char| !is_break(char));
            }
            if !self.peek().is_some_and(is_break) {
                return;
            }
            self.advance();
            self.may_be_key |= self.is_block();
        }
    }

    /// Whether a `---` or `...` marker is next.
    fn is_document_marker(&self) -> bool {
        let mut rest = self.rest.clone();
        let marks = [rest.next(), rest.next(), rest.next()];
        self.position.column == 0
            && (marks == [Some('-'); 3] || marks == [Some('.'); 3])
            && rest.next().is_none_or(is_blank_or_break)
    }

    /// Records the start of a token that may be a key, or the beginning of one.
    fn save_key(&mut self) {
        if self.is_block() {
            if self.may_be_key {
                self.key = Some(self.position);
            }
            self.may_be_key = false;
        }
    }

    /// Block indicators: `- ` and `? ` open a collection at their own column, `: ` opens one where its key
    /// began.
    fn indicator(&mut self, opens_here: bool) -> Option<()> {
        if self.is_block() {
            let is_key = |key: &Position| {
                key.line == self.position.line
                    && key.index + KEY_CHARS_MAX >= self.position.index
                    && !opens_here
            };
            let key = self.key.take().filter(is_key);
            if key.is_none() && !self.may_be_key {
                return None;
            }
            let column = key.map_or(self.position.column, |key| key.column);
            if self.indents.last().is_none_or(|indent| *indent < column) {
                self.indents.push(column);
            }
            self.may_be_key = key.is_none();
        }
        self.advance();
        Some(())
    }

    fn tag(&mut self) {
        self.save_key();
        if self.peek_second() == Some('<') {
            self.skip_while(|char| char != '>' && !is_blank_or_break(char));
        }
        let is_block = self.is_block();
        self.skip_while(|char| !is_blank_or_break(char) && (is_block || char != ','));
    }

    /// A block scalar: `|` or `>`, and the lines that are indented more than the collection around it.
    fn block_scalar(&mut self) {
        let (parent, mut indent) = (self.indents.last().copied(), 0);
        self.advance();
        while let Some(char @ ('+' | '-' | '1'..='9')) = self.peek() {
            if let Some(digit) = char.to_digit(10) {
                indent = parent.unwrap_or(0) + digit as usize;
            }
            self.advance();
        }
        self.skip_while(|char| !is_break(char));
        self.advance_line();
        indent = self.skip_empty_lines(indent, parent.map_or(1, |parent| parent + 1));
        while self.position.column == indent && self.peek().is_some() {
            self.skip_while(|char| !is_break(char));
            self.advance_line();
            self.skip_empty_lines(indent, 0);
        }
        (self.key, self.may_be_key) = (None, true);
    }

    /// Skips empty lines and the indentation of the next line. An `indent` of 0 is detected, and is at least
    /// `indent_min`.
    fn skip_empty_lines(&mut self, indent: usize, indent_min: usize) -> usize {
        let mut found = indent_min;
        loop {
            while (indent == 0 || self.position.column < indent) && self.peek() == Some(' ') {
                self.advance();
            }
            found = found.max(self.position.column);
            if !self.peek().is_some_and(is_break) {
                return if indent == 0 { found } else { indent };
            }
            self.advance_line();
        }
    }

    fn advance_line(&mut self) {
        if self.peek() == Some('\r') && self.peek_second() == Some('\n') {
            self.advance();
        }
        self.advance();
    }

    fn quoted_scalar(&mut self, quote: char) {
        self.save_key();
        self.advance();
        while let Some(char) = self.peek() {
            let is_escape = match quote {
                '"' => char == '\\',
                _ => char == '\'' && self.peek_second() == Some('\''),
            };
            self.advance();
            if is_escape {
                self.advance();
            } else if char == quote {
                return;
            }
        }
    }

    /// A plain scalar (without quotes), which may continue on the next line.
    fn plain_scalar(&mut self) -> Option<()> {
        self.save_key();
        let indent = self.indents.last().map_or(0, |indent| indent + 1);
        let is_flow = !self.is_block();
        loop {
            if self.peek() == Some('#') || self.is_document_marker() {
                return Some(());
            }
            while let Some(char) = self.peek().filter(|char| !is_blank_or_break(*char)) {
                let next = self.peek_second();
                if char == ':' && is_flow && next.is_some_and(|next| ",?[]{}".contains(next)) {
                    return None;
                }
                let ends = char == ':' && next.is_none_or(is_blank_or_break);
                if ends || (is_flow && ",[]{}".contains(char)) {
                    return Some(());
                }
                self.advance();
            }
            self.peek()?;
            while let Some(char) = self.peek().filter(|char| is_blank_or_break(*char)) {
                self.advance();
                self.may_be_key |= is_break(char);
            }
            if !is_flow && self.position.column < indent {
                return Some(());
            }
        }
    }
}

fn is_break(char: char) -> bool {
    matches!(char, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_blank_or_break(char: char) -> bool {
    matches!(char, ' ' | '\t') || is_break(char)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;

    /// Deeper than the parser allows, so that it says whether it took brackets for structure.
    const DEPTH: usize = 200;

    const PIECES: [&str; 44] = [
        "a", "b c", "- ", "-", ": ", ":", "? ", "?", "|\n", "| # c\n", ">2\n", "|-\n", ">", "'", "\"", "\\",
        "''", "#", " #", "\n", "\n  ", "\n    ", "\n\n", "\n \n", "[", "]", "{", "}", ",", ", ", "&a ",
        "!t ", "!<x,y> ", "*a", "---\n", "--- ", "\u{85}", "\r\n", "x: ", "\n  y: ", " ", "\t", "%", "...\n",
    ];

    /// This many brackets after the text, closed again.
    fn with_brackets(before: &str, depth: usize) -> String {
        format!("{before}{}{}", "[".repeat(depth), "]".repeat(depth))
    }

    fn exceeds_recursion_limit(text: &str) -> Result<bool, yaml_serde::Error> {
        match serde_json::Value::deserialize(yaml_serde::Deserializer::from_str(text)) {
            Ok(_) => Ok(false),
            Err(error) if error.to_string().contains("recursion limit") => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether the parser takes brackets after this text for structure: then many of them exceed its recursion limit.
    /// `None` where it stops at another error, or at an alias that contains itself, which exceeds the limit too.
    fn takes_for_structure(before: &str) -> Option<bool> {
        let has_alias_cycle = exceeds_recursion_limit(&with_brackets(before, 1)).is_ok_and(|exceeds| exceeds);
        let is_deep = exceeds_recursion_limit(&with_brackets(before, DEPTH)).ok()?;
        (!has_alias_cycle).then_some(is_deep)
    }

    #[test]
    fn an_alias_that_contains_itself_says_nothing_about_brackets() {
        assert_eq!(takes_for_structure("&a \n  y: *a #"), None);
        assert_eq!(takes_for_structure("&a \n  y: "), Some(true));
    }

    #[test]
    fn brackets_in_scalars_do_not_nest() {
        let brackets = "[".repeat(DEPTH);
        for (before, expected) in [
            ("x: ", true),
            ("x: [a-', ", true),
            ("x: [a:b', ", true),
            ("x: [a#', ", true),
            ("x: a\n  [ 'b\ny: ", true),
            ("x: |\n  'a\ny: ", true),
            ("x: |\n   \n  y: ", true),
            ("# c\u{85}x: ", true),
            ("--- ", true),
            ("x: [!<a,'>, ", true),
            ("x: |\n  ", false),
            ("- - |\n   ", false),
            ("x: a\n  b ", false),
            ("x: 'it''s ", false),
            ("x: \"\\\\\\\" ", false),
            ("x: a # ", false),
            ("x: >1\n\n  ", false),
        ] {
            assert_eq!(
                find_excessive(&format!("{before}{brackets}"), DEPTH - 1).is_some(),
                expected,
                "{before}"
            );
        }
        assert_eq!(find_excessive("a:\n  [[", 1), Some((2, 4)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn nesting_is_counted_as_the_parser_counts_it(
            pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..14),
        ) {
            let before = pieces.concat();
            if let Some(expected) = takes_for_structure(&before) {
                let found = find_excessive(&with_brackets(&before, DEPTH), DEPTH - 1).is_some();
                prop_assert_eq!(found, expected, "{:?}", before);
            }
        }
    }
}
