//! Which function each token is in: where the blocks of a script end.

use super::brackets::BracketIndex;
use super::lex::{CLOSE_STRING, Token, TokenKind};

/// A block that an `end` or an `until` closes.
struct Block {
    /// The function around it.
    around: Option<usize>,
    /// How many conditions were open where it began.
    conditions: usize,
}

/// By token: the `function` keyword of the innermost function around it. Of a script that is none, anything.
pub(super) fn functions_around(tokens: &[Token<'_>], brackets: &BracketIndex) -> Vec<Option<usize>> {
    let mut functions: Vec<Option<usize>> = Vec::with_capacity(tokens.len());
    let mut function = None;
    let mut blocks = Vec::new();
    // Whether each condition that is open is an expression, which has no `end`; and the same of the last branch.
    let (mut conditions, mut is_expression_branch) = (Vec::new(), false);
    for (at, token) in tokens.iter().enumerate() {
        functions.push(function);
        let TokenKind::Name(name) = token.kind else { continue };
        let before = at.checked_sub(1).and_then(|before| tokens.get(before)).map(|token| &token.kind);
        if matches!(before, Some(TokenKind::Symbol("." | ":"))) {
            continue;
        }
        match name {
            "function" => {
                blocks.push(Block { around: function, conditions: conditions.len() });
                function = Some(at);
            }
            "do" | "repeat" => blocks.push(Block { around: function, conditions: conditions.len() }),
            "if" => {
                let in_table = || {
                    let open = brackets.enclosing(at);
                    open.is_some_and(|open| functions.get(open).copied().flatten() == function)
                };
                let is_expression = match before {
                    Some(TokenKind::Name("then" | "else")) => is_expression_branch,
                    Some(TokenKind::Symbol(";")) => in_table(),
                    before => expects_value(before),
                };
                if !is_expression {
                    blocks.push(Block { around: function, conditions: conditions.len() });
                }
                conditions.push(is_expression);
            }
            "then" => is_expression_branch = conditions.last() == Some(&true),
            "else" => {
                is_expression_branch = conditions.last() == Some(&true);
                if is_expression_branch {
                    conditions.pop();
                }
            }
            "end" | "until" => {
                if let Some(block) = blocks.pop() {
                    function = block.around;
                    conditions.truncate(block.conditions);
                }
            }
            _ => {}
        }
    }
    functions
}

/// Whether a value follows this token, not a statement.
fn expects_value(before: Option<&TokenKind<'_>>) -> bool {
    match before {
        Some(TokenKind::Name(name)) => {
            matches!(*name, "and" | "elseif" | "if" | "in" | "not" | "or" | "return" | "until" | "while")
        }
        Some(TokenKind::Symbol(symbol)) => !matches!(*symbol, ")" | "}" | "]" | CLOSE_STRING | "..." | "?"),
        _ => false,
    }
}
