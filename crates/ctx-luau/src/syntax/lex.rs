//! The lexer: finds enough of a script's tokens to analyse its calls and their arguments.
//!
//! Not a parser, on purpose: sources are untrusted, and deep nesting must not exhaust the stack of a process
//! that serves others. Reads the source once, from left to right.

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub struct Token<'a> {
    /// The kind.
    pub kind: TokenKind<'a>,
    /// Byte offset of its start.
    pub at: usize,
}

/// The kind of a token, with its content.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenKind<'a> {
    /// A name or a keyword.
    Name(&'a str),
    /// A string, unescaped.
    Text(String),
    /// A number.
    Number(f64),
    /// Any other token: one character, or `==`, `~=`, `<=`, `>=`, `..`, `...`, `::`, `->`, or a boundary in
    /// an interpolated string, as [`OPEN_STRING`]. A number or an escape that is not decoded makes the symbol
    /// `?`.
    Symbol(&'a str),
}

/// The start of an interpolated string. The tokens of its expressions follow, up to [`CLOSE_STRING`].
pub const OPEN_STRING: &str = "`(";
/// The end of an interpolated string.
pub const CLOSE_STRING: &str = "`)";
/// Separates two expressions of an interpolated string.
pub const NEXT_IN_STRING: &str = "`,";
/// Precedes an expression of an interpolated string that is written `${…}`.
pub const DOLLAR_IN_STRING: &str = "`$";

const LONG_SYMBOLS: [&str; 8] = ["...", "==", "~=", "<=", ">=", "..", "::", "->"];

/// Tokenizes a script; `None` if a string or a comment has no end.
pub(super) fn tokenize(source: &str) -> Option<Vec<Token<'_>>> {
    let mut lexer = Lexer { source, at: 0, tokens: Vec::new(), strings: Vec::new() };
    lexer.run()?;
    Some(lexer.tokens)
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    tokens: Vec<Token<'a>>,
    /// For each open interpolated string, the number of open braces in its current expression.
    strings: Vec<usize>,
}

impl<'a> Lexer<'a> {
    fn run(&mut self) -> Option<()> {
        while let Some(first) = self.rest().chars().next() {
            match first {
                first if first.is_whitespace() => self.at += first.len_utf8(),
                '-' if self.rest().starts_with("--") => self.comment()?,
                '"' | '\'' => self.text(first)?,
                '[' if self.long_bracket().is_some() => {
                    let (start, text) = (self.at, self.long_text()?);
                    self.tokens.push(Token { kind: TokenKind::Text(text), at: start });
                }
                '`' => {
                    self.symbol(OPEN_STRING, 1);
                    self.string_part(true)?;
                }
                '}' if self.strings.last() == Some(&0) => {
                    self.at += 1;
                    self.strings.pop();
                    self.string_part(false)?;
                }
                first if first.is_ascii_digit() || self.is_fraction() => self.number(),
                first if first == '_' || first.is_ascii_alphabetic() => self.name(),
                _ => self.other_symbol(first),
            }
        }
        self.strings.is_empty().then_some(())
    }

    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn symbol(&mut self, symbol: &'a str, length: usize) {
        self.tokens.push(Token { kind: TokenKind::Symbol(symbol), at: self.at });
        self.at += length;
    }

    fn other_symbol(&mut self, first: char) {
        if let Some(open) = self.strings.last_mut() {
            match first {
                '{' => *open += 1,
                '}' => *open -= 1,
                _ => {}
            }
        }
        let rest = self.rest();
        let long = LONG_SYMBOLS.into_iter().find(|long| rest.starts_with(long));
        let length = long.map_or(first.len_utf8(), str::len);
        self.symbol(rest.get(..length).unwrap_or_default(), length);
    }

    fn name(&mut self) {
        let rest = self.rest();
        let end = rest.find(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric());
        let name = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        self.tokens.push(Token { kind: TokenKind::Name(name), at: self.at });
        self.at += name.len();
    }

    fn is_fraction(&self) -> bool {
        let mut letters = self.rest().bytes();
        letters.next() == Some(b'.') && letters.next().is_some_and(|digit| digit.is_ascii_digit())
    }

    fn number(&mut self) {
        let rest = self.rest();
        let mut length = 0;
        let mut before = 0;
        for byte in rest.bytes() {
            let continues = byte == b'_'
                || byte == b'.'
                || byte.is_ascii_alphanumeric()
                || (matches!(byte, b'+' | b'-') && matches!(before, b'e' | b'E') && !rest.starts_with("0x"));
            if !continues {
                break;
            }
            length += 1;
            before = byte;
        }
        let digits: String =
            rest.get(..length).unwrap_or_default().chars().filter(|digit| *digit != '_').collect();
        let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
        let value = match hexadecimal {
            Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok().map(|value| value as f64),
            None => digits.parse().ok(),
        };
        // A malformed number becomes an unknown token.
        let kind = value.map_or(TokenKind::Symbol("?"), TokenKind::Number);
        self.tokens.push(Token { kind, at: self.at });
        self.at += length;
    }

    fn comment(&mut self) -> Option<()> {
        self.at += 2;
        if self.long_bracket().is_some() {
            return self.long_text().map(drop);
        }
        self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        Some(())
    }

    /// The level of a long bracket that begins here: its number of `=`.
    fn long_bracket(&self) -> Option<usize> {
        let inside = self.rest().strip_prefix('[')?;
        let level = inside.bytes().take_while(|byte| *byte == b'=').count();
        inside.get(level..)?.starts_with('[').then_some(level)
    }

    fn long_text(&mut self) -> Option<String> {
        let level = self.long_bracket()?;
        self.at += level + 2;
        let close = format!("]{}]", "=".repeat(level));
        let length = self.rest().find(&close)?;
        let text = self.rest().get(..length)?.to_owned();
        self.at += length + close.len();
        Some(text)
    }

    fn text(&mut self, quote: char) -> Option<()> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        let mut is_plain = true;
        loop {
            let letter = self.rest().chars().next()?;
            self.at += letter.len_utf8();
            match letter {
                '\n' => return None,
                '\\' => {
                    let escaped = self.rest().chars().next()?;
                    self.at += escaped.len_utf8();
                    match escaped {
                        'n' => text.push('\n'),
                        't' => text.push('\t'),
                        '\\' | '"' | '\'' => text.push(escaped),
                        _ => is_plain = false,
                    }
                }
                letter if letter == quote => break,
                letter => text.push(letter),
            }
        }
        let kind = if is_plain { TokenKind::Text(text) } else { TokenKind::Symbol("?") };
        self.tokens.push(Token { kind, at: start });
        Some(())
    }

    /// Skips the text of an interpolated string, up to its end or the next expression.
    fn string_part(&mut self, is_first: bool) -> Option<()> {
        let mut before = None;
        loop {
            let letter = self.rest().chars().next()?;
            match letter {
                '\\' => {
                    self.at += 1;
                    self.at += self.rest().chars().next()?.len_utf8();
                    before = None;
                    continue;
                }
                '`' => {
                    self.symbol(CLOSE_STRING, 1);
                    return Some(());
                }
                '{' => {
                    match before {
                        Some('$') => self.symbol(DOLLAR_IN_STRING, 1),
                        _ if is_first => self.at += 1,
                        _ => self.symbol(NEXT_IN_STRING, 1),
                    }
                    self.strings.push(0);
                    return Some(());
                }
                letter => self.at += letter.len_utf8(),
            }
            before = Some(letter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds(source: &str) -> Vec<TokenKind<'_>> {
        tokenize(source).unwrap().into_iter().map(|token| token.kind).collect()
    }

    fn text(text: &str) -> TokenKind<'static> {
        TokenKind::Text(text.to_owned())
    }

    #[test]
    fn tokens_have_the_kind_of_their_text() {
        use TokenKind::{Name, Number, Symbol};
        assert_eq!(
            kinds("a.b['c'] = 0x1F -- no\n"),
            [
                Name("a"),
                Symbol("."),
                Name("b"),
                Symbol("["),
                text("c"),
                Symbol("]"),
                Symbol("="),
                Number(31.0),
            ]
        );
        assert_eq!(
            kinds("1_000 .5 1e-3 a..b"),
            [Number(1000.0), Number(0.5), Number(0.001), Name("a"), Symbol(".."), Name("b"),]
        );
        assert_eq!(kinds("--[==[ sdk.a.b() ]] ]==] x [[y\n]z]]"), [Name("x"), text("y\n]z")]);
        assert_eq!(kinds(r#""a\"b" '\x41'"#), [text("a\"b"), Symbol("?")]);
    }

    #[test]
    fn expressions_in_strings_are_tokenized() {
        use TokenKind::{Name, Symbol};
        assert_eq!(
            kinds("`a {f({b = `{c}`})} \\` d` e"),
            [
                Symbol(OPEN_STRING),
                Name("f"),
                Symbol("("),
                Symbol("{"),
                Name("b"),
                Symbol("="),
                Symbol(OPEN_STRING),
                Name("c"),
                Symbol(CLOSE_STRING),
                Symbol("}"),
                Symbol(")"),
                Symbol(CLOSE_STRING),
                Name("e"),
            ]
        );
    }

    #[test]
    fn unterminated_strings_and_comments_are_refused() {
        for source in ["'a", "'a\n'", "[[a", "`a", "`{a", "--[[ a", "\"\\"] {
            assert_eq!(tokenize(source), None, "{source}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_tokenized_or_refused(source in "[-a-c0-9 .\"'`{}\\[\\]()=\\\\\n,é]{0,60}") {
            let read = tokenize(&source).unwrap_or_default();
            prop_assert!(read.windows(2).all(|pair| pair[0].at < pair[1].at));
        }
    }
}
