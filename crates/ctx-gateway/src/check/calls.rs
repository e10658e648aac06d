//! Finds the calls of functions in a script's source, and the literals among their arguments.

use ctx_luau::{KEYWORDS, OPEN_STRING, TokenKind, TokenTree};
use ctx_types::Literal;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum nesting of tables that are read.
const DEPTH_MAX: usize = 32;

/// A call in the source.
#[derive(Debug, PartialEq)]
pub(super) struct Written {
    pub(super) provider: String,
    pub(super) name: String,
    /// Whether it is written `sdk.provider.name`, not `provider.name`.
    pub(super) is_sdk: bool,
    /// Whether the function is given to `paginate`, which calls it.
    pub(super) is_paged: bool,
    /// The arguments; `None` if the source does not show them.
    pub(super) arguments: Option<Vec<Literal>>,
    /// Byte offset of its start.
    pub(super) at: usize,
}

/// The calls in a script, and the names that it reads.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) calls: Vec<Written>,
    /// Names that are read, each with the first token that reads it. Includes names that the script binds.
    pub(super) read: BTreeMap<String, usize>,
    /// Providers, and functions as `provider.name`, that are read without being called: the script may test
    /// whether they exist.
    pub(super) looked_at: BTreeSet<String>,
}

/// Collects the calls and names of a script. Skips `pcall(…)`, whose author expects that the calls inside can
/// fail.
pub(super) fn look(words: &TokenTree<'_>) -> Seen {
    let mut seen = Seen::default();
    let mut at = 0;
    while at < words.len() {
        match words.name(at) {
            Some("pcall" | "xpcall") if words.symbol(at + 1, "(") => {
                at = words.closing(at + 1).unwrap_or(words.len());
                continue;
            }
            Some(_) if !words.is_field(at) => {
                written(words, at, &mut seen);
                read(words, at, &mut seen);
            }
            _ => {}
        }
        at += 1;
    }
    seen
}

/// Records a name that is read: no keyword, no target of an assignment and no key of a table.
fn read(words: &TokenTree<'_>, at: usize, seen: &mut Seen) {
    if let Some(name) = words.name(at).filter(|name| !KEYWORDS.contains(name))
        && !words.symbol(at + 1, "=")
    {
        seen.read.entry(name.to_owned()).or_insert(at);
    }
}

/// Records a call, or a function or provider that is read without being called.
fn written(words: &TokenTree<'_>, at: usize, seen: &mut Seen) {
    let is_sdk = words.name(at) == Some("sdk");
    let (provider, after) = match is_sdk {
        true => match field(words, at + 1) {
            Some(provider) => provider,
            None => return,
        },
        false => (words.name(at).unwrap_or_default().to_owned(), at + 1),
    };
    let Some((name, after)) = field(words, after) else {
        seen.looked_at.insert(provider);
        return;
    };
    let is_paged = at > 1
        && words.symbol(at - 1, "(")
        && words.name(at - 2) == Some("paginate")
        && !words.is_field(at - 2);
    let given = if is_paged { paged_arguments(words, at - 1, after) } else { arguments(words, after) };
    if matches!(given, Given::NoCall) {
        seen.looked_at.insert(format!("{provider}.{name}"));
        return;
    }
    let arguments = match given {
        Given::Seen(arguments) => Some(arguments),
        _ => None,
    };
    seen.calls.push(Written { provider, name, is_sdk, is_paged, arguments, at: words.byte(at) });
}

/// The name in `.name` or `["name"]`, and the index after it.
fn field(words: &TokenTree<'_>, at: usize) -> Option<(String, usize)> {
    if words.symbol(at, ".") {
        return words.name(at + 1).map(|name| (name.to_owned(), at + 2));
    }
    let name = words.text(at + 1).filter(|_| words.symbol(at, "[") && words.symbol(at + 2, "]"))?;
    Some((name.to_owned(), at + 3))
}

/// The arguments of a function, as far as the source shows them.
enum Given {
    NoCall,
    Hidden,
    Seen(Vec<Literal>),
}

fn arguments(words: &TokenTree<'_>, at: usize) -> Given {
    match words.kind(at) {
        Some(TokenKind::Text(text)) => Given::Seen(vec![Literal::Text(text.clone())]),
        Some(TokenKind::Symbol("{" | "(")) => {
            let Some(close) = words.closing(at) else { return Given::Hidden };
            if words.has_function(at, close) {
                return Given::Hidden;
            }
            if words.symbol(at, "{") {
                return Given::Seen(vec![table(words, at, close, 0)]);
            }
            let values = split(words, at + 1, close).into_iter().map(|(from, to)| value(words, from, to, 0));
            Given::Seen(values.collect())
        }
        _ => Given::NoCall,
    }
}

/// The arguments with which `paginate(function, arguments)` calls its function; `open` is the bracket of
/// `paginate`, `after` the index after the function.
fn paged_arguments(words: &TokenTree<'_>, open: usize, after: usize) -> Given {
    let Some(close) = words.closing(open).filter(|close| !words.has_function(open, *close)) else {
        return Given::Hidden;
    };
    match split(words, open + 1, close)[..] {
        [(_, end)] if end == after => Given::Seen(Vec::new()),
        [(_, end), (from, to)] if end == after => Given::Seen(vec![value(words, from, to, 0)]),
        // The function is called or indexed before `paginate` gets it.
        _ => arguments(words, after),
    }
}

/// The ranges of tokens between commas or semicolons.
fn split(words: &TokenTree<'_>, from: usize, to: usize) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (from, from);
    while at < to {
        if words.symbol(at, ",") || words.symbol(at, ";") {
            parts.push((start, at));
            start = at + 1;
        } else if let Some(TokenKind::Symbol("(" | "{" | "[" | OPEN_STRING)) = words.kind(at) {
            at = words.closing(at).unwrap_or(to);
        }
        at += 1;
    }
    if start < to {
        parts.push((start, to));
    }
    parts
}

fn value(words: &TokenTree<'_>, from: usize, to: usize, depth: usize) -> Literal {
    match (words.kind(from), to.saturating_sub(from)) {
        (Some(TokenKind::Text(text)), 1) => Literal::Text(text.clone()),
        (Some(TokenKind::Number(number)), 1) => Literal::Number(*number),
        (Some(TokenKind::Name("true")), 1) => Literal::Boolean(true),
        (Some(TokenKind::Name("false")), 1) => Literal::Boolean(false),
        (Some(TokenKind::Name("nil")), 1) => Literal::Nil,
        (Some(TokenKind::Symbol("-")), 2) => match words.kind(from + 1) {
            Some(TokenKind::Number(number)) => Literal::Number(-number),
            _ => Literal::Unknown,
        },
        (Some(TokenKind::Symbol("{")), _) if words.closing(from) == Some(to - 1) => {
            table(words, from, to - 1, depth + 1)
        }
        _ => Literal::Unknown,
    }
}

fn table(words: &TokenTree<'_>, open: usize, close: usize, depth: usize) -> Literal {
    if depth > DEPTH_MAX {
        return Literal::Unknown;
    }
    let (mut fields, mut items, mut whole) = (Vec::new(), Vec::new(), true);
    for (from, to) in split(words, open + 1, close) {
        if let Some(name) = words.name(from).filter(|_| words.symbol(from + 1, "=")) {
            fields.push((name.to_owned(), value(words, from + 2, to, depth)));
        } else if words.symbol(from, "[") {
            match words.text(from + 1) {
                Some(name) if words.symbol(from + 2, "]") && words.symbol(from + 3, "=") => {
                    fields.push((name.to_owned(), value(words, from + 4, to, depth)));
                }
                _ => whole = false,
            }
        } else {
            items.push(value(words, from, to, depth));
        }
    }
    match (fields.is_empty(), items.is_empty()) {
        (true, false) if whole => Literal::List(items),
        (_, true) => Literal::Table { fields, whole },
        // A table with both has no form in JSON.
        _ => Literal::Unknown,
    }
}
