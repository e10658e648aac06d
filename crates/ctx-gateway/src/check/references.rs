//! Finds the calls of functions in a script's source, and the literals among their arguments.

use ctx_luau::{KEYWORDS, OPEN_STRING, TokenKind, TokenTree};
use ctx_types::Literal;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum nesting of tables that are read.
const DEPTH_MAX: usize = 32;

/// A call in the source.
#[derive(Debug, PartialEq)]
pub(super) struct SourceCall {
    pub(super) provider: String,
    pub(super) name: String,
    /// Whether it is written `sdk.provider.name`, not `provider.name`.
    pub(super) is_sdk: bool,
    /// Whether the function is given to `paginate`, which calls it.
    pub(super) is_paginated: bool,
    /// The arguments; `None` if the source does not show them.
    pub(super) arguments: Option<Vec<Literal>>,
    /// Byte offset of its start.
    pub(super) at: usize,
}

/// The calls in a script, and the names that it reads.
#[derive(Debug, Default)]
pub(super) struct ScriptReferences {
    pub(super) calls: Vec<SourceCall>,
    /// Names that are read, each with the first token that reads it. Includes names that the script binds.
    pub(super) names_read: BTreeMap<String, usize>,
    /// Providers, and functions as `provider.name`, that are read without being called: the script may test
    /// whether they exist.
    pub(super) uncalled: BTreeSet<String>,
}

/// Collects the calls and names of a script. Skips `pcall(…)`, whose author expects that the calls inside can
/// fail.
pub(super) fn collect_references(tree: &TokenTree<'_>) -> ScriptReferences {
    let mut references = ScriptReferences::default();
    let mut at = 0;
    while at < tree.len() {
        match tree.name(at) {
            Some("pcall" | "xpcall") if tree.is_symbol(at + 1, "(") => {
                at = tree.closing_bracket(at + 1).unwrap_or(tree.len());
                continue;
            }
            Some(_) if !tree.is_field(at) => {
                record_call(tree, at, &mut references);
                record_name(tree, at, &mut references);
            }
            _ => {}
        }
        at += 1;
    }
    references
}

/// Records a name that is read: no keyword, no target of an assignment and no key of a table.
fn record_name(tree: &TokenTree<'_>, at: usize, references: &mut ScriptReferences) {
    if let Some(name) = tree.name(at).filter(|name| !KEYWORDS.contains(name))
        && !tree.is_symbol(at + 1, "=")
    {
        references.names_read.entry(name.to_owned()).or_insert(at);
    }
}

/// Records a call, or a function or provider that is read without being called.
fn record_call(tree: &TokenTree<'_>, at: usize, references: &mut ScriptReferences) {
    let is_sdk = tree.name(at) == Some("sdk");
    let (provider, after) = match is_sdk {
        true => match parse_field(tree, at + 1) {
            Some(provider) => provider,
            None => return,
        },
        false => (tree.name(at).unwrap_or_default().to_owned(), at + 1),
    };
    let Some((name, after)) = parse_field(tree, after) else {
        references.uncalled.insert(provider);
        return;
    };
    let is_paginated = at > 1
        && tree.is_symbol(at - 1, "(")
        && tree.name(at - 2) == Some("paginate")
        && !tree.is_field(at - 2);
    let arguments = if is_paginated {
        read_paginated_arguments(tree, at - 1, after)
    } else {
        read_arguments(tree, after)
    };
    if matches!(arguments, CallArguments::NoCall) {
        references.uncalled.insert(format!("{provider}.{name}"));
        return;
    }
    let arguments = match arguments {
        CallArguments::Literals(arguments) => Some(arguments),
        _ => None,
    };
    references.calls.push(SourceCall {
        provider,
        name,
        is_sdk,
        is_paginated,
        arguments,
        at: tree.byte_offset(at),
    });
}

/// The name in `.name` or `["name"]`, and the index after it.
fn parse_field(tree: &TokenTree<'_>, at: usize) -> Option<(String, usize)> {
    if tree.is_symbol(at, ".") {
        return tree.name(at + 1).map(|name| (name.to_owned(), at + 2));
    }
    let name = tree.text(at + 1).filter(|_| tree.is_symbol(at, "[") && tree.is_symbol(at + 2, "]"))?;
    Some((name.to_owned(), at + 3))
}

/// The arguments of a function reference, as far as the source shows them.
enum CallArguments {
    /// The function is read without being called.
    NoCall,
    /// The source does not show the arguments.
    Hidden,
    Literals(Vec<Literal>),
}

fn read_arguments(tree: &TokenTree<'_>, at: usize) -> CallArguments {
    match tree.kind(at) {
        Some(TokenKind::Text(text)) => CallArguments::Literals(vec![Literal::Text(text.clone())]),
        Some(TokenKind::Symbol("{" | "(")) => {
            let Some(close) = tree.closing_bracket(at) else { return CallArguments::Hidden };
            if tree.has_function(at, close) {
                return CallArguments::Hidden;
            }
            if tree.is_symbol(at, "{") {
                return CallArguments::Literals(vec![table_literal(tree, at, close, 0)]);
            }
            let values =
                split_list(tree, at + 1, close).into_iter().map(|(from, to)| literal(tree, from, to, 0));
            CallArguments::Literals(values.collect())
        }
        _ => CallArguments::NoCall,
    }
}

/// The arguments with which `paginate(function, arguments)` calls its function; `open` is the bracket of
/// `paginate`, `after` the index after the function.
fn read_paginated_arguments(tree: &TokenTree<'_>, open: usize, after: usize) -> CallArguments {
    let Some(close) = tree.closing_bracket(open).filter(|close| !tree.has_function(open, *close)) else {
        return CallArguments::Hidden;
    };
    match split_list(tree, open + 1, close)[..] {
        [(_, end)] if end == after => CallArguments::Literals(Vec::new()),
        [(_, end), (from, to)] if end == after => CallArguments::Literals(vec![literal(tree, from, to, 0)]),
        // The function is called or indexed before `paginate` gets it.
        _ => read_arguments(tree, after),
    }
}

/// The ranges of tokens between commas or semicolons.
fn split_list(tree: &TokenTree<'_>, from: usize, to: usize) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (from, from);
    while at < to {
        if tree.is_symbol(at, ",") || tree.is_symbol(at, ";") {
            parts.push((start, at));
            start = at + 1;
        } else if let Some(TokenKind::Symbol("(" | "{" | "[" | OPEN_STRING)) = tree.kind(at) {
            at = tree.closing_bracket(at).unwrap_or(to);
        }
        at += 1;
    }
    if start < to {
        parts.push((start, to));
    }
    parts
}

/// The literal in a range of tokens; [`Literal::Unknown`] for any other expression.
fn literal(tree: &TokenTree<'_>, from: usize, to: usize, depth: usize) -> Literal {
    match (tree.kind(from), to.saturating_sub(from)) {
        (Some(TokenKind::Text(text)), 1) => Literal::Text(text.clone()),
        (Some(TokenKind::Number(number)), 1) => Literal::Number(*number),
        (Some(TokenKind::Name("true")), 1) => Literal::Boolean(true),
        (Some(TokenKind::Name("false")), 1) => Literal::Boolean(false),
        (Some(TokenKind::Name("nil")), 1) => Literal::Nil,
        (Some(TokenKind::Symbol("-")), 2) => match tree.kind(from + 1) {
            Some(TokenKind::Number(number)) => Literal::Number(-number),
            _ => Literal::Unknown,
        },
        (Some(TokenKind::Symbol("{")), _) if tree.closing_bracket(from) == Some(to - 1) => {
            table_literal(tree, from, to - 1, depth + 1)
        }
        _ => Literal::Unknown,
    }
}

fn table_literal(tree: &TokenTree<'_>, open: usize, close: usize, depth: usize) -> Literal {
    if depth > DEPTH_MAX {
        return Literal::Unknown;
    }
    let (mut fields, mut items, mut whole) = (Vec::new(), Vec::new(), true);
    for (from, to) in split_list(tree, open + 1, close) {
        if let Some(name) = tree.name(from).filter(|_| tree.is_symbol(from + 1, "=")) {
            fields.push((name.to_owned(), literal(tree, from + 2, to, depth)));
        } else if tree.is_symbol(from, "[") {
            match tree.text(from + 1) {
                Some(name) if tree.is_symbol(from + 2, "]") && tree.is_symbol(from + 3, "=") => {
                    fields.push((name.to_owned(), literal(tree, from + 4, to, depth)));
                }
                _ => whole = false,
            }
        } else {
            items.push(literal(tree, from, to, depth));
        }
    }
    match (fields.is_empty(), items.is_empty()) {
        (true, false) if whole => Literal::List(items),
        (_, true) => Literal::Table { fields, whole },
        // A table with both has no form in JSON.
        _ => Literal::Unknown,
    }
}
