//! Finds the function around each token, by the ends of blocks.

use super::brackets::BracketIndex;
use super::lex::{CLOSE_STRING, Token, TokenKind};

/// A block that an `end` or an `until` closes.
struct OpenBlock {
    /// The function that contains the block.
    function: Option<usize>,
    /// Number of open conditions where the block begins.
    conditions: usize,
}

/// For each token, the `function` keyword of the innermost function around it. Unspecified for a script with
/// syntax errors.
pub(super) fn enclosing_functions(tokens: &[Token<'_>], brackets: &BracketIndex) -> Vec<Option<usize>> {
    let mut functions: Vec<Option<usize>> = Vec::with_capacity(tokens.len());
    let mut function = None;
    let mut blocks = Vec::new();
    // For each open `if`, whether it is an expression, which has no `end`; and the same for the `if` of the
    // last branch.
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
                blocks.push(OpenBlock { function, conditions: conditions.len() });
                function = Some(at);
            }
            "do" | "repeat" => blocks.push(OpenBlock { function, conditions: conditions.len() }),
            "if" => {
                let in_table = || {
                    let open = brackets.enclosing_bracket(at);
                    open.is_some_and(|open| functions.get(open).copied().flatten() == function)
                };
                let is_expression = match before {
                    Some(TokenKind::Name("then" | "else")) => is_expression_branch,
                    Some(TokenKind::Symbol(";")) => in_table(),
                    before => expects_value(before),
                };
                if !is_expression {
                    blocks.push(OpenBlock { function, conditions: conditions.len() });
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
                    function = block.function;
                    conditions.truncate(block.conditions);
                }
            }
            _ => {}
        }
    }
    functions
}

/// Whether an expression follows this token, rather than a statement.
fn expects_value(before: Option<&TokenKind<'_>>) -> bool {
    match before {
        Some(TokenKind::Name(name)) => {
            matches!(*name, "and" | "elseif" | "if" | "in" | "not" | "or" | "return" | "until" | "while")
        }
        Some(TokenKind::Symbol(symbol)) => !matches!(*symbol, ")" | "}" | "]" | CLOSE_STRING | "..." | "?"),
        _ => false,
    }
}
