//! Matches the brackets of a script.

use super::lex::{CLOSE_STRING, OPEN_STRING, Token, TokenKind};

/// Bracket pairs and `function` counts of all tokens, from one linear pass: with a scan per lookup, deep nesting would
/// take quadratic time.
pub(super) struct BracketIndex {
    closing: Vec<usize>,
    opening: Vec<usize>,
    enclosing: Vec<usize>,
    /// For each token, the number of `function` keywords before it.
    functions_before: Vec<usize>,
}

impl BracketIndex {
    const NONE: usize = usize::MAX;

    pub(super) fn new(tokens: &[Token<'_>]) -> Self {
        let none = vec![Self::NONE; tokens.len()];
        let (mut closing, mut opening, mut enclosing) = (none.clone(), none.clone(), none);
        let mut functions_before = Vec::with_capacity(tokens.len() + 1);
        let (mut open, mut functions) = (Vec::new(), 0);
        for (at, token) in tokens.iter().enumerate() {
            functions_before.push(functions);
            let is_close = matches!(token.kind, TokenKind::Symbol(")" | "}" | "]" | CLOSE_STRING));
            if let Some(opened) = if is_close { open.pop() } else { None } {
                closing[opened] = at;
                opening[at] = opened;
            }
            enclosing[at] = open.last().copied().unwrap_or(Self::NONE);
            match token.kind {
                TokenKind::Symbol("(" | "{" | "[" | OPEN_STRING) => open.push(at),
                TokenKind::Name("function") => functions += 1,
                _ => {}
            }
        }
        functions_before.push(functions);
        Self { closing, opening, enclosing, functions_before }
    }

    fn get(indices: &[usize], at: usize) -> Option<usize> {
        indices.get(at).copied().filter(|index| *index != Self::NONE)
    }

    pub(super) fn closing_bracket(&self, open: usize) -> Option<usize> {
        Self::get(&self.closing, open)
    }

    pub(super) fn opening_bracket(&self, close: usize) -> Option<usize> {
        Self::get(&self.opening, close)
    }

    pub(super) fn enclosing_bracket(&self, at: usize) -> Option<usize> {
        Self::get(&self.enclosing, at)
    }

    pub(super) fn has_function(&self, from: usize, to: usize) -> bool {
        self.functions_before.get(from) < self.functions_before.get(to)
    }
}
