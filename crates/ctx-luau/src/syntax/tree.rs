//! [`TokenTree`]: the tokens of a script and its brackets, without type annotations.

use super::annotations::strip_types;
use super::brackets::BracketIndex;
use super::functions::enclosing_functions;
use super::lex::{CLOSE_STRING, DOLLAR_IN_STRING, NEXT_IN_STRING, OPEN_STRING, Token, TokenKind, tokenize};

/// Keywords, which are not names. `const`, `continue`, `export` and `type` are keywords in some positions
/// only.
pub const KEYWORDS: [&str; 25] = [
    "and", "break", "const", "continue", "do", "else", "elseif", "end", "export", "false", "for", "function",
    "if", "in", "local", "nil", "not", "or", "repeat", "return", "then", "true", "type", "until", "while",
];

/// The tokens of a script, addressed by index.
pub struct TokenTree<'a> {
    tokens: Vec<Token<'a>>,
    brackets: BracketIndex,
    /// For each token, the `function` keyword of the innermost function around it.
    functions: Vec<Option<usize>>,
}

impl<'a> TokenTree<'a> {
    /// Tokenizes a script; `None` if a string or a comment has no end.
    pub fn parse(source: &'a str) -> Option<Self> {
        let tokens = strip_types(tokenize(source)?);
        let brackets = BracketIndex::new(&tokens);
        let functions = enclosing_functions(&tokens, &brackets);
        Some(Self { tokens, brackets, functions })
    }

    /// The number of tokens.
    #[allow(clippy::len_without_is_empty, reason = "not needed")]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The kind of the token at an index.
    pub fn kind(&self, at: usize) -> Option<&TokenKind<'a>> {
        self.tokens.get(at).map(|token| &token.kind)
    }

    /// The name or keyword at an index.
    pub fn name(&self, at: usize) -> Option<&'a str> {
        match self.kind(at) {
            Some(TokenKind::Name(name)) => Some(name),
            _ => None,
        }
    }

    /// The string at an index.
    pub fn text(&self, at: usize) -> Option<&str> {
        match self.kind(at) {
            Some(TokenKind::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether this symbol is at an index.
    pub fn is_symbol(&self, at: usize, symbol: &str) -> bool {
        matches!(self.kind(at), Some(TokenKind::Symbol(found)) if *found == symbol)
    }

    /// Whether one of these symbols is at an index.
    pub fn is_any_symbol(&self, at: usize, symbols: &[&str]) -> bool {
        matches!(self.kind(at), Some(TokenKind::Symbol(found)) if symbols.contains(found))
    }

    /// Whether the name at an index is a field of the expression before it: `.name` or `:name`.
    pub fn is_field(&self, at: usize) -> bool {
        at > 0 && self.is_any_symbol(at - 1, &[".", ":"])
    }

    /// Whether the name at an index is the key of a field in a table: `{ name = … }`.
    pub fn is_key(&self, at: usize) -> bool {
        self.is_symbol(at + 1, "=") && self.is_item(at)
    }

    /// Whether an item of a table begins at an index.
    pub fn is_item(&self, at: usize) -> bool {
        let begins = at > 0 && self.is_any_symbol(at - 1, &["{", ",", ";"]);
        begins
            && self.is_within_brackets(at)
            && self.enclosing_bracket(at).is_some_and(|open| self.is_symbol(open, "{"))
    }

    /// Whether an index is directly in brackets, without the body of a function in between.
    pub fn is_within_brackets(&self, at: usize) -> bool {
        let function = |at: usize| self.functions.get(at).copied().flatten();
        self.enclosing_bracket(at).is_some_and(|open| function(open) == function(at))
    }

    /// The bracket that closes the one at `open`.
    pub fn closing_bracket(&self, open: usize) -> Option<usize> {
        self.brackets.closing_bracket(open)
    }

    /// The bracket that opens the one at `close`.
    pub fn opening_bracket(&self, close: usize) -> Option<usize> {
        self.brackets.opening_bracket(close)
    }

    /// The innermost open bracket at an index.
    pub fn enclosing_bracket(&self, at: usize) -> Option<usize> {
        self.brackets.enclosing_bracket(at)
    }

    /// Whether a range of tokens contains a function literal.
    pub fn has_function(&self, from: usize, to: usize) -> bool {
        self.brackets.has_function(from, to)
    }

    /// Byte offset of the token in the source.
    pub fn byte_offset(&self, at: usize) -> usize {
        self.tokens.get(at).map_or(0, |token| token.at)
    }

    /// The bracket that opens the parameters of the function at `at`: `function a.b:c(`.
    pub fn parameters_of(&self, at: usize) -> Option<usize> {
        let mut open = at + 1;
        if self.name(open).is_some_and(|name| !KEYWORDS.contains(&name)) {
            open += 1;
            while self.is_any_symbol(open, &[".", ":"]) && self.name(open + 1).is_some() {
                open += 2;
            }
        }
        self.is_symbol(open, "(").then_some(open)
    }

    /// The index of the arguments, if a member of the value at `at` is called: `.name`, `["name"]` or
    /// `:name`.
    pub fn arguments_of_member(&self, at: usize) -> Option<usize> {
        let after = match self.kind(at + 1) {
            Some(TokenKind::Symbol("." | ":")) => self.name(at + 2).map(|_| at + 3),
            Some(TokenKind::Symbol("[")) => self.closing_bracket(at + 1).map(|close| close + 1),
            _ => None,
        }?;
        let is_call = self.is_any_symbol(after, &["(", "{", OPEN_STRING]) || self.text(after).is_some();
        is_call.then_some(after)
    }

    /// The index after the arguments of a call, which begin at `at`.
    pub fn after_arguments(&self, at: usize) -> Option<usize> {
        match self.kind(at) {
            Some(TokenKind::Text(_)) => Some(at + 1),
            Some(TokenKind::Symbol("(" | "{" | OPEN_STRING)) => {
                self.closing_bracket(at).map(|close| close + 1)
            }
            _ => None,
        }
    }

    /// Whether an expression that could end before `at` continues there.
    pub fn expression_continues(&self, at: usize) -> bool {
        const CONTINUATIONS: [&str; 22] = [
            ".",
            ":",
            "[",
            "(",
            "{",
            OPEN_STRING,
            "+",
            "-",
            "*",
            "/",
            "%",
            "^",
            "..",
            "<",
            ">",
            "<=",
            ">=",
            "==",
            "~=",
            "::",
            "?",
            "!",
        ];
        self.is_any_symbol(at, &CONTINUATIONS)
            || matches!(self.name(at), Some("and" | "or"))
            || self.text(at).is_some()
    }

    /// Whether the token is a boundary of an expression in an interpolated string.
    pub fn is_interpolation_boundary(&self, at: usize) -> bool {
        self.is_any_symbol(at, &[OPEN_STRING, CLOSE_STRING, NEXT_IN_STRING, DOLLAR_IN_STRING])
    }
}
