//! The calls of functions that a script writes down, and what it writes into them.

use super::lex::{CLOSE_STRING, Kind, OPEN_STRING, Token};
use ctx_types::Literal;
use std::collections::{BTreeMap, BTreeSet};

/// How deep tables are read.
const DEPTH_MAX: usize = 32;

/// Tokens after `local` and `for` that are searched for the names they bind.
const BINDING_TOKENS_MAX: usize = 64;

/// Words that are no names.
const KEYWORDS: [&str; 25] = [
    "and", "break", "const", "continue", "do", "else", "elseif", "end", "export", "false", "for", "function",
    "if", "in", "local", "nil", "not", "or", "repeat", "return", "then", "true", "type", "until", "while",
];

/// A call as it is written.
#[derive(Debug, PartialEq)]
pub(super) struct Written {
    pub(super) provider: String,
    pub(super) name: String,
    /// Whether it is written `sdk.provider.name`, not `provider.name`.
    pub(super) is_sdk: bool,
    /// Whether it is left to `paginate`.
    pub(super) is_paged: bool,
    /// What it is called with; `None` where that cannot be seen.
    pub(super) arguments: Option<Vec<Literal>>,
    /// Whether it is compared, or is a condition, without being awaited.
    pub(super) is_condition: bool,
    /// The variable that holds its promise: `local NAME = provider.name(…)`.
    pub(super) variable: Option<String>,
    /// Where it begins, in bytes.
    pub(super) at: usize,
}

/// A form that runs and gives something else than it seems to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Misreading {
    /// `local a, b = parallel{…}`
    ParallelNames,
    /// `for _, item in paginate(…)`
    PaginatePairs,
    /// `{ name: value }`
    ColonField,
}

/// What can be seen of a script.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) calls: Vec<Written>,
    /// Names that the script gives a meaning of its own somewhere.
    pub(super) bound: BTreeSet<String>,
    /// Those of them that have only one.
    pub(super) bound_once: BTreeSet<String>,
    /// Names that are compared, or are a condition, each with the position of the first such use, in bytes.
    pub(super) conditions: BTreeMap<String, usize>,
    /// Names that are read, each once, with the position of the first, in bytes. Names that the script binds are among them.
    pub(super) read: BTreeMap<String, usize>,
    /// Forms that give something else than they seem to, with their positions in bytes.
    pub(super) misread: Vec<(Misreading, usize)>,
    /// Whether it declares types of its own.
    pub(super) has_type_aliases: bool,
    /// Whether calls through a provider's own global give promises: the engine decides by the same words.
    pub(super) has_promises: bool,
    /// Providers, and functions as `provider.name`, that are looked at without being called: the script may
    /// know that they can be missing.
    pub(super) looked_at: BTreeSet<String>,
}

/// Looks through the words of a script. Calls inside of `pcall` are left out: whoever writes that expects it to
/// fail.
pub(super) fn look(tokens: &[Token<'_>]) -> Seen {
    let brackets = BracketIndex::of(tokens);
    let words = Words { tokens, brackets: &brackets };
    let mut seen = Seen::default();
    let mut bound = TokenRanges::default();
    let mut at = 0;
    while at < tokens.len() {
        match words.name(at) {
            Some("pcall" | "xpcall") if words.symbol(at + 1, "(") => {
                let end = words.closing(at + 1).unwrap_or(tokens.len());
                for inside in at + 1..end {
                    bind(words, inside, &mut bound);
                }
                at = end;
                continue;
            }
            Some(_) if !words.is_field(at) => {
                bind(words, at, &mut bound);
                written(words, at, &mut seen);
                read(words, at, &mut seen);
                misread(words, at, &mut seen);
            }
            _ => {}
        }
        at += 1;
    }
    seen.has_type_aliases = tokens.windows(2).any(|pair| {
        matches!((&pair[0].kind, &pair[1].kind), (Kind::Name("type"), Kind::Name(name)) if !KEYWORDS.contains(name))
    });
    seen.has_promises = tokens.iter().any(|token| matches!(token.kind, Kind::Name("await" | "parallel")));
    for name in bound.positions(tokens.len()).filter_map(|at| words.name(at)) {
        match seen.bound.insert(name.to_owned()) {
            true => seen.bound_once.insert(name.to_owned()),
            false => seen.bound_once.remove(name),
        };
    }
    seen
}

/// Bracket pairs and `function` counts of all tokens, from one linear pass: with a scan per lookup, deep nesting would
/// take quadratic time.
struct BracketIndex {
    /// By token: the position of the bracket that closes the one opened there.
    closing: Vec<Option<usize>>,
    /// By token: the number of `function` keywords before it.
    functions_before: Vec<usize>,
}

impl BracketIndex {
    fn of(tokens: &[Token<'_>]) -> Self {
        let mut closing = vec![None; tokens.len()];
        let mut functions_before = Vec::with_capacity(tokens.len() + 1);
        let (mut open, mut functions) = (Vec::new(), 0);
        for (at, token) in tokens.iter().enumerate() {
            functions_before.push(functions);
            match &token.kind {
                Kind::Symbol("(" | "{" | "[" | OPEN_STRING) => open.push(at),
                Kind::Symbol(")" | "}" | "]" | CLOSE_STRING) => {
                    if let Some(closed) = open.pop().and_then(|opened| closing.get_mut(opened)) {
                        *closed = Some(at);
                    }
                }
                Kind::Name("function") => functions += 1,
                _ => {}
            }
        }
        functions_before.push(functions);
        Self { closing, functions_before }
    }
}

/// Ranges of token positions, which may overlap.
#[derive(Default)]
struct TokenRanges(Vec<(usize, usize)>);

impl TokenRanges {
    fn add(&mut self, from: usize, to: usize) {
        if from < to {
            self.0.push((from, to));
        }
    }

    /// Each position below `end` once.
    fn positions(mut self, end: usize) -> impl Iterator<Item = usize> {
        self.0.sort_unstable();
        let mut next = 0;
        self.0.into_iter().flat_map(move |(from, to)| {
            let range = from.max(next)..to.min(end);
            next = next.max(range.end);
            range
        })
    }
}

#[derive(Clone, Copy)]
struct Words<'a> {
    tokens: &'a [Token<'a>],
    brackets: &'a BracketIndex,
}

impl<'a> Words<'a> {
    fn kind(self, at: usize) -> Option<&'a Kind<'a>> {
        self.tokens.get(at).map(|token| &token.kind)
    }

    fn name(self, at: usize) -> Option<&'a str> {
        match self.kind(at) {
            Some(Kind::Name(name)) => Some(name),
            _ => None,
        }
    }

    fn text(self, at: usize) -> Option<&'a str> {
        match self.kind(at) {
            Some(Kind::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn symbol(self, at: usize, symbol: &str) -> bool {
        matches!(self.kind(at), Some(Kind::Symbol(found)) if *found == symbol)
    }

    /// Whether a word is a field of what stands before it, or a field's name in a table.
    fn is_field(self, at: usize) -> bool {
        at > 0 && (self.symbol(at - 1, ".") || self.symbol(at - 1, ":"))
    }

    /// Position of the bracket that closes the one at `open`.
    fn closing(self, open: usize) -> Option<usize> {
        self.brackets.closing.get(open).copied().flatten()
    }

    /// Whether a word is the first that `paginate` is given.
    fn is_paged(self, at: usize) -> bool {
        at > 1 && self.symbol(at - 1, "(") && self.name(at - 2) == Some("paginate") && !self.is_field(at - 2)
    }

    /// Whether a range of tokens contains a function literal, whose blocks this check does not parse.
    fn has_function(self, from: usize, to: usize) -> bool {
        let before = |at: usize| self.brackets.functions_before.get(at);
        before(from) < before(to)
    }
}

/// Notes names that get another meaning; rather too many than too few.
fn bind(words: Words<'_>, at: usize, bound: &mut TokenRanges) {
    let ahead = at + 1..words.tokens.len().min(at + BINDING_TOKENS_MAX);
    match words.name(at) {
        Some("local") => {
            let end = ahead.clone().find(|at| words.symbol(*at, "=") || words.name(*at) == Some("local"));
            // Without a value the list ends where nothing goes on; a few names too many do no harm.
            bound.add(at + 1, end.unwrap_or(ahead.end));
        }
        Some("for") => {
            let end = ahead.clone().find(|at| words.symbol(*at, "=") || words.name(*at) == Some("in"));
            bound.add(at + 1, end.unwrap_or(at + 1));
        }
        Some("function") => {
            let open = (at + 1..words.tokens.len().min(at + 16)).find(|at| words.symbol(*at, "("));
            let close = open.and_then(|open| words.closing(open));
            bound.add(at + 1, close.unwrap_or(at + 1));
        }
        Some(_) if words.symbol(at + 1, "=") => bound.add(at, at + 1),
        // `a, b = f()`
        Some(_) if words.symbol(at + 1, ",") => {
            let ends = |last: &usize| words.name(*last).is_none() || !words.symbol(last + 1, ",");
            let last = (at..ahead.end).step_by(2).find(ends);
            if let Some(last) = last.filter(|last| words.name(*last).is_some() && words.symbol(last + 1, "="))
            {
                bound.add(at, last + 1);
            }
        }
        _ => {}
    }
}

/// Notes forms that run and give something else than they seem to: several names for the one list of `parallel`, and two
/// names for the items of `paginate`.
fn misread(words: Words<'_>, at: usize, seen: &mut Seen) {
    let is_for = words.name(at) == Some("for");
    if !is_for && words.name(at) != Some("local") {
        return;
    }
    let mut names = 0;
    let mut next = at + 1;
    while words.name(next).is_some() && names < BINDING_TOKENS_MAX {
        names += 1;
        if !words.symbol(next + 1, ",") {
            break;
        }
        next += 2;
    }
    let (ends, value) = match is_for {
        true => (words.name(next + 1) == Some("in"), "paginate"),
        false => (words.symbol(next + 1, "="), "parallel"),
    };
    let is_alone = || words.closing(next + 3).is_some_and(|close| !words.symbol(close + 1, ","));
    if names > 1 && ends && words.name(next + 2) == Some(value) && is_alone() {
        let what = if is_for { Misreading::PaginatePairs } else { Misreading::ParallelNames };
        seen.misread.push((what, words.tokens.get(at).map_or(0, |token| token.at)));
    }
}

/// Notes a name that is read: no keyword, no part of a type, no target of an assignment and no key of a table.
fn read(words: Words<'_>, at: usize, seen: &mut Seen) {
    let Some(name) = words.name(at).filter(|name| !KEYWORDS.contains(name)) else { return };
    // `{ status: "open" }`
    let is_value =
        matches!(words.kind(at + 2), Some(Kind::Text(_) | Kind::Number(_) | Kind::Name("true" | "false")));
    if at > 0 && words.symbol(at - 1, "{") && words.symbol(at + 1, ":") && is_value {
        seen.misread.push((Misreading::ColonField, words.tokens.get(at).map_or(0, |token| token.at)));
        return;
    }
    let follows_type =
        at > 0 && ["::", "->", "<", "|", "&"].iter().any(|symbol| words.symbol(at - 1, symbol));
    let is_condition = is_condition(words, at, at + 1);
    if !follows_type && !words.symbol(at + 1, "=") {
        let at = words.tokens.get(at).map_or(0, |token| token.at);
        seen.read.entry(name.to_owned()).or_insert(at);
        if is_condition {
            seen.conditions.entry(name.to_owned()).or_insert(at);
        }
    }
}

/// Whether a call that ends before `after` is compared with `==`, or decides a condition, as it is. An operator before it,
/// or a field, an index or an operator behind it, takes its value.
fn is_condition(words: Words<'_>, at: usize, after: usize) -> bool {
    const OPERATORS: [&str; 11] = ["+", "-", "*", "/", "%", "^", "..", "<", ">", "<=", ">="];
    let is_operator = |at: usize| OPERATORS.iter().any(|symbol| words.symbol(at, symbol));
    let is_accessed = [".", ":", "[", "(", "{"].iter().any(|symbol| words.symbol(after, symbol));
    let is_operand = at.checked_sub(1).is_some_and(|before| is_operator(before) || words.symbol(before, "#"));
    if is_accessed || is_operand || is_operator(after) {
        return false;
    }
    let is_equality = |at: usize| words.symbol(at, "==") || words.symbol(at, "~=");
    let before = at.checked_sub(1);
    let begins = before.and_then(|before| words.name(before));
    let begins = begins.is_some_and(|word| matches!(word, "if" | "elseif" | "while" | "until" | "not"));
    let ends = words.name(after).is_some_and(|word| matches!(word, "then" | "and" | "or"));
    begins || ends || is_equality(after) || before.is_some_and(is_equality)
}

/// Notes a call, or a look at what might be called.
fn written(words: Words<'_>, at: usize, seen: &mut Seen) {
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
    let is_paged = words.is_paged(at);
    let given = if is_paged { paged_arguments(words, at - 1, after) } else { arguments(words, after) };
    if matches!(given, Given::NoCall) {
        seen.looked_at.insert(format!("{provider}.{name}"));
        return;
    }
    let end = words.closing(after).map_or(after + 1, |close| close + 1);
    let is_condition = !is_sdk && is_condition(words, at, end);
    let variable = if is_sdk { None } else { variable(words, at, end) };
    let arguments = match given {
        Given::Seen(arguments) => Some(arguments),
        _ => None,
    };
    let at = words.tokens.get(at).map_or(0, |token| token.at);
    seen.calls.push(Written { provider, name, is_sdk, is_paged, arguments, is_condition, variable, at });
}

/// The variable of `local NAME = call`, where the call, from `at` to `after`, is all that it gets.
fn variable(words: Words<'_>, at: usize, after: usize) -> Option<String> {
    const CONTINUES: [&str; 20] = [
        ".", ":", "[", "(", "{", ",", "+", "-", "*", "/", "%", "^", "..", "<", ">", "<=", ">=", "==", "~=",
        "::",
    ];
    let is_local = at >= 3 && words.symbol(at - 1, "=") && words.name(at - 3) == Some("local");
    let goes_on = CONTINUES.iter().any(|symbol| words.symbol(after, symbol))
        || matches!(words.name(after), Some("and" | "or"));
    words.name(at.checked_sub(2)?).filter(|_| is_local && !goes_on).map(str::to_owned)
}

/// `.name` or `["name"]`, and where it ends.
fn field(words: Words<'_>, at: usize) -> Option<(String, usize)> {
    if words.symbol(at, ".") {
        return words.name(at + 1).map(|name| (name.to_owned(), at + 2));
    }
    let name = words.text(at + 1).filter(|_| words.symbol(at, "[") && words.symbol(at + 2, "]"))?;
    Some((name.to_owned(), at + 3))
}

/// What a function is called with.
enum Given {
    NoCall,
    Hidden,
    Seen(Vec<Literal>),
}

fn arguments(words: Words<'_>, at: usize) -> Given {
    match words.kind(at) {
        Some(Kind::Text(text)) => Given::Seen(vec![Literal::Text(text.clone())]),
        Some(Kind::Symbol("{" | "(")) => {
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

/// What `paginate(function, arguments)` calls its function with; `open` is its bracket, `after` follows the function.
fn paged_arguments(words: Words<'_>, open: usize, after: usize) -> Given {
    let Some(close) = words.closing(open).filter(|close| !words.has_function(open, *close)) else {
        return Given::Hidden;
    };
    match split(words, open + 1, close)[..] {
        [(_, end)] if end == after => Given::Seen(Vec::new()),
        [(_, end), (from, to)] if end == after => Given::Seen(vec![value(words, from, to, 0)]),
        // The function is called, or asked for something, before `paginate` gets it.
        _ => arguments(words, after),
    }
}

/// The parts between commas.
fn split(words: Words<'_>, from: usize, to: usize) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (from, from);
    while at < to {
        if words.symbol(at, ",") || words.symbol(at, ";") {
            parts.push((start, at));
            start = at + 1;
        } else if let Some(Kind::Symbol("(" | "{" | "[" | OPEN_STRING)) = words.kind(at) {
            at = words.closing(at).unwrap_or(to);
        }
        at += 1;
    }
    if start < to {
        parts.push((start, to));
    }
    parts
}

fn value(words: Words<'_>, from: usize, to: usize, depth: usize) -> Literal {
    match (words.kind(from), to.saturating_sub(from)) {
        (Some(Kind::Text(text)), 1) => Literal::Text(text.clone()),
        (Some(Kind::Number(number)), 1) => Literal::Number(*number),
        (Some(Kind::Name("true")), 1) => Literal::Boolean(true),
        (Some(Kind::Name("false")), 1) => Literal::Boolean(false),
        (Some(Kind::Name("nil")), 1) => Literal::Nil,
        (Some(Kind::Symbol("-")), 2) => match words.kind(from + 1) {
            Some(Kind::Number(number)) => Literal::Number(-number),
            _ => Literal::Unknown,
        },
        (Some(Kind::Symbol("{")), _) if words.closing(from) == Some(to - 1) => {
            table(words, from, to - 1, depth + 1)
        }
        _ => Literal::Unknown,
    }
}

fn table(words: Words<'_>, open: usize, close: usize, depth: usize) -> Literal {
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
        // Both at once is nothing that JSON has.
        _ => Literal::Unknown,
    }
}
