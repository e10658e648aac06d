//! Detects idioms of other languages that Luau reads as something else, or refuses with a message that does
//! not lead to the fix.

use ctx_luau::{DOLLAR_IN_STRING, KEYWORDS, TokenKind, TokenTree};
use std::collections::HashMap;

/// A construct that does not mean what its author intends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ForeignIdiom {
    /// `local a, b = parallel{…}`
    DestructuredParallel,
    /// `for _, item in paginate(…)`
    IndexedPaginate,
    /// `{ name: value }`
    ColonField,
    /// `` `${value}` ``
    DollarBrace,
    /// `if (x) { … }`
    BraceBlock,
    /// `if x:`
    ColonBlock,
    /// `x => x`
    ArrowFunction,
    /// `list.length` of a list that the script makes.
    LengthField,
    /// `list[0]` of a list that the script makes.
    ZeroIndex,
}

impl ForeignIdiom {
    /// The hint, with the Luau form.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::DestructuredParallel => {
                "parallel returns one list: write `local results = parallel{...}`, or `local a, b = table.unpack(parallel{...})`"
            }
            Self::IndexedPaginate => {
                "paginate yields one item per iteration, without an index: write `for item in paginate(...) do`"
            }
            Self::ColonField => "a table is written { name = value }",
            Self::DollarBrace => {
                "in backticks, a value is written `{value}`, without `$`; a dollar sign before it is written `\\$`"
            }
            Self::BraceBlock => {
                "blocks have no braces: write `if x then ... end`, `for ... do ... end`, `function f(x) ... end`"
            }
            Self::ColonBlock => {
                "blocks begin with `then` or `do`, not with a colon: `if x then ... end`, `for _, item in list do ... end`"
            }
            Self::ArrowFunction => "write `function(x) return x end`",
            Self::LengthField => "#list is the length of a list, it has no field `length`",
            Self::ZeroIndex => "list indexes start at 1, not at 0",
        }
    }
}

/// All idioms of other languages in a script, with their byte offsets.
pub(super) fn find_foreign_idioms(script: &str, tree: &TokenTree<'_>) -> Vec<(ForeignIdiom, usize)> {
    let lists = local_lists(tree);
    let found = (0..tree.len()).filter_map(|at| {
        let idiom = match tree.name(at) {
            Some(name) => idiom_at_name(tree, at, name, &lists),
            None => idiom_at_symbol(script, tree, at),
        };
        Some((idiom?, tree.byte_offset(at)))
    });
    found.collect()
}

fn idiom_at_symbol(script: &str, tree: &TokenTree<'_>, at: usize) -> Option<ForeignIdiom> {
    let byte = tree.byte_offset(at);
    let is_quoted_field = tree.text(at).is_some() && tree.is_item(at) && tree.is_symbol(at + 1, ":");
    if is_quoted_field {
        Some(ForeignIdiom::ColonField)
    } else if tree.is_symbol(at, DOLLAR_IN_STRING) {
        Some(ForeignIdiom::DollarBrace)
    } else if tree.is_symbol(at, "=") && tree.is_symbol(at + 1, ">") && tree.byte_offset(at + 1) == byte + 1 {
        Some(ForeignIdiom::ArrowFunction)
    } else {
        (tree.is_symbol(at, ":") && is_block_header_end(script, byte)).then_some(ForeignIdiom::ColonBlock)
    }
}

/// Whether the colon at this byte ends a line that begins a block.
fn is_block_header_end(script: &str, colon: usize) -> bool {
    const BLOCK_KEYWORDS: [&str; 6] = ["if", "elif", "elseif", "else", "for", "while"];
    let rest = script.get(colon + 1..).unwrap_or_default().trim_start_matches([' ', '\t', '\r']);
    if !rest.is_empty() && !["\n", "--", "#"].iter().any(|end| rest.starts_with(end)) {
        return false;
    }
    let line = script.get(..colon).unwrap_or_default().rsplit('\n').next().unwrap_or_default();
    BLOCK_KEYWORDS.contains(&line.split_whitespace().next().unwrap_or_default())
}

fn idiom_at_name(
    tree: &TokenTree<'_>,
    at: usize,
    name: &str,
    lists: &HashMap<&str, bool>,
) -> Option<ForeignIdiom> {
    if tree.is_field(at) {
        return None;
    }
    match name {
        "for" if tree.is_symbol(at + 1, "(") => Some(ForeignIdiom::BraceBlock),
        "for" | "local" => unpacking_idiom(tree, at),
        "if" | "elseif" | "while" => is_braced_condition(tree, at + 1).then_some(ForeignIdiom::BraceBlock),
        "function" => is_braced_function(tree, at).then_some(ForeignIdiom::BraceBlock),
        _ if tree.is_item(at) && tree.is_symbol(at + 1, ":") => {
            // `{ list:first() }` calls a method, if there is such a variable.
            let is_call = tree.name(at + 2).is_some_and(|name| !KEYWORDS.contains(&name))
                && (tree.is_symbol(at + 3, "(")
                    || tree.is_symbol(at + 3, "{")
                    || tree.text(at + 3).is_some());
            (!is_call).then_some(ForeignIdiom::ColonField)
        }
        _ if lists.get(name) == Some(&true) => list_idiom(tree, at),
        _ => None,
    }
}

/// Detects several names for the one list that `parallel` returns, and two names for the items of `paginate`.
fn unpacking_idiom(tree: &TokenTree<'_>, at: usize) -> Option<ForeignIdiom> {
    let names = tree.names(at + 1);
    let last = *names.last()?;
    let (is_for, value) = match tree.name(at) {
        Some("for") => (true, "paginate"),
        _ => (false, "parallel"),
    };
    let ends_list = if is_for { tree.name(last + 1) == Some("in") } else { tree.is_symbol(last + 1, "=") };
    let is_alone = || tree.closing_bracket(last + 3).is_some_and(|close| !tree.is_symbol(close + 1, ","));
    let is_idiom = names.len() > 1 && ends_list && tree.name(last + 2) == Some(value) && is_alone();
    is_idiom.then_some(if is_for {
        ForeignIdiom::IndexedPaginate
    } else {
        ForeignIdiom::DestructuredParallel
    })
}

/// Whether a condition is written `(x) {`, which calls `x` with a table: no `then` or operator can follow the block.
fn is_braced_condition(tree: &TokenTree<'_>, open: usize) -> bool {
    let close = if tree.is_symbol(open, "(") { tree.closing_bracket(open) } else { None };
    let brace = close.map(|close| close + 1).filter(|brace| tree.is_symbol(*brace, "{"));
    brace.is_some_and(|brace| match tree.closing_bracket(brace) {
        Some(end) => {
            !tree.expression_continues(end + 1) && !matches!(tree.name(end + 1), Some("then" | "do"))
        }
        None => true,
    })
}

/// Whether a function is written `function f(x) {`.
fn is_braced_function(tree: &TokenTree<'_>, at: usize) -> bool {
    let close = tree.parameters_of(at).and_then(|open| tree.closing_bracket(open));
    close.is_some_and(|close| tree.is_symbol(close + 1, "{"))
}

/// Detects reads of `list.length` and `list[0]`.
fn list_idiom(tree: &TokenTree<'_>, at: usize) -> Option<ForeignIdiom> {
    if tree.is_symbol(at + 1, ".") && tree.name(at + 2) == Some("length") {
        return Some(ForeignIdiom::LengthField);
    }
    let is_zero = matches!(tree.kind(at + 2), Some(TokenKind::Number(zero)) if *zero == 0.0);
    (tree.is_symbol(at + 1, "[") && is_zero && tree.is_symbol(at + 3, "]")).then_some(ForeignIdiom::ZeroIndex)
}

/// Local variables that certainly hold lists: bound once, with a table of items or one that is filled by
/// `table.insert` or `list[#list + 1] = …`, and never assigned another field. The value says whether items
/// are known.
fn local_lists<'a>(tree: &TokenTree<'a>) -> HashMap<&'a str, bool> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for binding in tree.bindings() {
        *counts.entry(binding.name).or_default() += 1;
    }
    let mut lists = HashMap::new();
    for at in 0..tree.len() {
        let Some(local) = tree.local_declaration(at) else { continue };
        let (&[name], Some(open)) = (local.names.as_slice(), local.value) else { continue };
        let close = if tree.is_symbol(open, "{") { tree.closing_bracket(open) } else { None };
        if let (Some(name), Some(close)) =
            (tree.name(name).filter(|name| counts.get(name) == Some(&1)), close)
            && !tree.expression_continues(close + 1)
            && (open + 1..close)
                .all(|at| !tree.is_symbol(at, "=") || tree.enclosing_bracket(at) != Some(open))
        {
            lists.insert(name, close > open + 1);
        }
    }
    for at in 0..tree.len() {
        let Some(name) = tree.name(at).filter(|name| lists.contains_key(name) && !tree.is_field(at)) else {
            continue;
        };
        let is_inserted = at > 3
            && tree.is_symbol(at + 1, ",")
            && tree.is_symbol(at - 1, "(")
            && tree.name(at - 2) == Some("insert")
            && tree.name(at - 4) == Some("table");
        let index_end = if tree.is_symbol(at + 1, "[") { tree.closing_bracket(at + 1) } else { None };
        let is_appended = tree.is_symbol(at + 2, "#") && tree.name(at + 3) == Some(name);
        let is_object = at > 1
            && tree.is_symbol(at - 1, "(")
            && matches!(tree.name(at - 2), Some("setmetatable" | "rawset"));
        match index_end {
            _ if is_object => drop(lists.remove(name)),
            Some(close) if tree.is_symbol(close + 1, "=") && is_appended => drop(lists.insert(name, true)),
            Some(close) if tree.is_symbol(close + 1, "=") => drop(lists.remove(name)),
            None if tree.is_symbol(at + 1, ".") && tree.is_symbol(at + 3, "=") => drop(lists.remove(name)),
            _ if is_inserted => drop(lists.insert(name, true)),
            _ => {}
        }
    }
    lists
}
