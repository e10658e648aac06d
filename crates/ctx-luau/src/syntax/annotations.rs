//! Removes type annotations, which do not affect what a script does.

use super::brackets::BracketIndex;
use super::lex::{Token, TokenKind};

/// Maximum number of tokens within `<…>`; a longer range is not taken for type parameters.
const GENERIC_TOKENS_MAX: usize = 256;

/// Keywords that cannot begin a type.
const NON_TYPE_KEYWORDS: [&str; 18] = [
    "and", "break", "do", "else", "elseif", "end", "for", "function", "if", "in", "local", "not", "or",
    "repeat", "return", "then", "until", "while",
];

/// The tokens without type annotations, casts and type declarations.
pub(super) fn strip_types(tokens: Vec<Token<'_>>) -> Vec<Token<'_>> {
    let brackets = BracketIndex::new(&tokens);
    let mut marker = TypeMarker { tokens: &tokens, brackets: &brackets, is_type: vec![false; tokens.len()] };
    for at in 0..tokens.len() {
        marker.mark_at(at);
    }
    let is_type = marker.is_type;
    tokens.into_iter().zip(is_type).filter(|(_, is_type)| !is_type).map(|(token, _)| token).collect()
}

struct TypeMarker<'t, 'a> {
    tokens: &'t [Token<'a>],
    brackets: &'t BracketIndex,
    is_type: Vec<bool>,
}

impl<'a> TypeMarker<'_, 'a> {
    fn kind(&self, at: usize) -> Option<&TokenKind<'a>> {
        self.tokens.get(at).map(|token| &token.kind)
    }

    fn name(&self, at: usize) -> Option<&'a str> {
        match self.kind(at) {
            Some(TokenKind::Name(name)) => Some(name),
            _ => None,
        }
    }

    fn is_symbol(&self, at: usize, symbol: &str) -> bool {
        matches!(self.kind(at), Some(TokenKind::Symbol(found)) if *found == symbol)
    }

    fn mark(&mut self, from: usize, to: usize) {
        let to = to.min(self.is_type.len());
        if let Some(range) = self.is_type.get_mut(from..to) {
            range.fill(true);
        }
    }

    fn mark_at(&mut self, at: usize) {
        match self.kind(at) {
            _ if self.is_type.get(at) == Some(&true) => {}
            Some(TokenKind::Symbol("::")) => self.mark(at, self.type_end(at + 1)),
            Some(TokenKind::Name("type")) => self.mark_declaration(at),
            Some(TokenKind::Name("local" | "const" | "for")) => self.mark_names(at + 1),
            Some(TokenKind::Name("function")) => self.mark_function(at),
            _ => {}
        }
    }

    /// Marks `type Name<T> = …`, and an `export` before it.
    fn mark_declaration(&mut self, at: usize) {
        let is_name = self.name(at + 1).is_some_and(|name| !NON_TYPE_KEYWORDS.contains(&name));
        let is_field = at > 0 && (self.is_symbol(at - 1, ".") || self.is_symbol(at - 1, ":"));
        let generic = if self.is_symbol(at + 2, "<") { self.generic_end(at + 2) } else { at + 2 };
        if is_name && !is_field && self.is_symbol(generic, "=") {
            let is_exported = at > 0 && self.name(at - 1) == Some("export");
            self.mark(if is_exported { at - 1 } else { at }, self.type_end(generic + 1));
        }
    }

    /// Marks the types in `a: T, b: U`.
    fn mark_names(&mut self, mut at: usize) {
        while self.name(at).is_some_and(|name| !NON_TYPE_KEYWORDS.contains(&name))
            || self.is_symbol(at, "...")
        {
            at += 1;
            if self.is_symbol(at, ":") {
                let end = self.type_end(at + 1);
                self.mark(at, end);
                at = end;
            }
            if !self.is_symbol(at, ",") {
                break;
            }
            at += 1;
        }
    }

    /// Marks the types in `function a.b:c<T>(d: U): V`.
    fn mark_function(&mut self, at: usize) {
        let mut open = at + 1;
        if self.name(open).is_some_and(|name| !NON_TYPE_KEYWORDS.contains(&name)) {
            open += 1;
            while (self.is_symbol(open, ".") || self.is_symbol(open, ":")) && self.name(open + 1).is_some() {
                open += 2;
            }
        }
        if self.is_symbol(open, "<") {
            let end = self.generic_end(open);
            self.mark(open, end);
            open = end;
        }
        let Some(close) = Some(open)
            .filter(|open| self.is_symbol(*open, "("))
            .and_then(|open| self.brackets.closing_bracket(open))
        else {
            return;
        };
        self.mark_names(open + 1);
        if self.is_symbol(close + 1, ":") {
            self.mark(close + 1, self.type_end(close + 2));
        }
    }

    /// The index after the type that begins at `at`.
    fn type_end(&self, mut at: usize) -> usize {
        loop {
            while ["|", "&", "..."].iter().any(|symbol| self.is_symbol(at, symbol)) {
                at += 1;
            }
            if self.is_symbol(at, "<") {
                at = self.generic_end(at);
            }
            at = match self.kind(at) {
                Some(TokenKind::Symbol("{" | "(")) => match self.brackets.closing_bracket(at) {
                    Some(close) => close + 1,
                    None => return at,
                },
                Some(TokenKind::Text(_)) => at + 1,
                Some(TokenKind::Name(name)) if !NON_TYPE_KEYWORDS.contains(name) => self.named_end(at),
                _ => return at,
            };
            while self.is_symbol(at, "?") {
                at += 1;
            }
            if !["|", "&", "->"].iter().any(|symbol| self.is_symbol(at, symbol)) {
                return at;
            }
            at += 1;
        }
    }

    /// The index after a named type: `Name`, `module.Name<T>`, `typeof(x)`, `T...`.
    fn named_end(&self, at: usize) -> usize {
        if self.name(at) == Some("typeof") && self.is_symbol(at + 1, "(") {
            return self.brackets.closing_bracket(at + 1).map_or(at + 1, |close| close + 1);
        }
        let mut end = at + 1;
        while self.is_symbol(end, ".") && self.name(end + 1).is_some() {
            end += 2;
        }
        if self.is_symbol(end, "<") {
            end = self.generic_end(end);
        }
        if self.is_symbol(end, "...") { end + 1 } else { end }
    }

    /// The index after the `>` that closes the `<` at `open`; `open` itself if none does.
    fn generic_end(&self, open: usize) -> usize {
        let (mut at, mut depth) = (open, 0_usize);
        while at < self.tokens.len().min(open + GENERIC_TOKENS_MAX) {
            match self.kind(at) {
                Some(TokenKind::Symbol("<")) => depth += 1,
                Some(TokenKind::Symbol(">")) if depth == 1 => return at + 1,
                Some(TokenKind::Symbol(">")) => depth -= 1,
                Some(TokenKind::Symbol("(" | "{")) => match self.brackets.closing_bracket(at) {
                    Some(close) => at = close,
                    None => return open,
                },
                Some(TokenKind::Symbol(")" | "}" | "]")) => return open,
                _ => {}
            }
            at += 1;
        }
        open
    }
}
