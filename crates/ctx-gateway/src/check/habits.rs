//! Detects habits from other languages that Luau reads as something else, or refuses with a message that does
//! not lead to the fix.

use ctx_luau::{DOLLAR_IN_STRING, KEYWORDS, TokenKind, TokenTree};
use std::collections::HashMap;

/// A construct that does not mean what its author intends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Habit {
    /// `local a, b = parallel{…}`
    ParallelNames,
    /// `for _, item in paginate(…)`
    PaginatePairs,
    /// `{ name: value }`
    ColonField,
    /// `` `${value}` ``
    DollarBrace,
    /// `if (x) { … }`
    Braces,
    /// `if x:`
    BlockColon,
    /// `x => x`
    Arrow,
    /// `list.length` of a list that the script makes.
    ListLength,
    /// `list[0]` of a list that the script makes.
    ListZero,
}

impl Habit {
    /// The hint, with the Luau form.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::ParallelNames => {
                "parallel gives one list: write `local results = parallel{...}`, or `local a, b = table.unpack(parallel{...})`"
            }
            Self::PaginatePairs => {
                "paginate gives one item a round, without an index: write `for item in paginate(...) do`"
            }
            Self::ColonField => "a table is written { name = value }",
            Self::DollarBrace => {
                "within backticks `{value}` gives a value, without `$`; a dollar sign before a value is written `\\$`"
            }
            Self::Braces => {
                "blocks have no braces: write `if x then ... end`, `for ... do ... end`, `function f(x) ... end`"
            }
            Self::BlockColon => {
                "blocks begin with `then` or `do`, not with a colon: `if x then ... end`, `for _, item in list do ... end`"
            }
            Self::Arrow => "write `function(x) return x end`",
            Self::ListLength => "#list is the length of a list, it has no field `length`",
            Self::ListZero => "a list begins at 1, not at 0",
        }
    }
}

/// All habits in a script, with their byte offsets.
pub(super) fn habits(script: &str, words: &TokenTree<'_>) -> Vec<(Habit, usize)> {
    let lists = own_lists(words);
    let found = (0..words.len()).filter_map(|at| {
        let habit = match words.name(at) {
            Some(name) => habit_of_name(words, at, name, &lists),
            None => habit_of_symbol(script, words, at),
        };
        Some((habit?, words.byte(at)))
    });
    found.collect()
}

fn habit_of_symbol(script: &str, words: &TokenTree<'_>, at: usize) -> Option<Habit> {
    let byte = words.byte(at);
    let is_quoted_field = words.text(at).is_some() && words.is_item(at) && words.symbol(at + 1, ":");
    if is_quoted_field {
        Some(Habit::ColonField)
    } else if words.symbol(at, DOLLAR_IN_STRING) {
        Some(Habit::DollarBrace)
    } else if words.symbol(at, "=") && words.symbol(at + 1, ">") && words.byte(at + 1) == byte + 1 {
        Some(Habit::Arrow)
    } else {
        (words.symbol(at, ":") && ends_block_line(script, byte)).then_some(Habit::BlockColon)
    }
}

/// Whether the colon at this byte ends a line that begins a block.
fn ends_block_line(script: &str, colon: usize) -> bool {
    const BEGINNINGS: [&str; 6] = ["if", "elif", "elseif", "else", "for", "while"];
    let rest = script.get(colon + 1..).unwrap_or_default().trim_start_matches([' ', '\t', '\r']);
    if !rest.is_empty() && !["\n", "--", "#"].iter().any(|end| rest.starts_with(end)) {
        return false;
    }
    let line = script.get(..colon).unwrap_or_default().rsplit('\n').next().unwrap_or_default();
    BEGINNINGS.contains(&line.split_whitespace().next().unwrap_or_default())
}

fn habit_of_name(words: &TokenTree<'_>, at: usize, name: &str, lists: &HashMap<&str, bool>) -> Option<Habit> {
    if words.is_field(at) {
        return None;
    }
    match name {
        "for" if words.symbol(at + 1, "(") => Some(Habit::Braces),
        "for" | "local" => several_names(words, at),
        "if" | "elseif" | "while" => is_braced_condition(words, at + 1).then_some(Habit::Braces),
        "function" => is_braced_function(words, at).then_some(Habit::Braces),
        _ if words.is_item(at) && words.symbol(at + 1, ":") => {
            // `{ list:first() }` calls a method, if there is such a variable.
            let is_call = words.name(at + 2).is_some_and(|name| !KEYWORDS.contains(&name))
                && (words.symbol(at + 3, "(") || words.symbol(at + 3, "{") || words.text(at + 3).is_some());
            (!is_call).then_some(Habit::ColonField)
        }
        _ if lists.get(name) == Some(&true) => list_habit(words, at),
        _ => None,
    }
}

/// Detects several names for the one list that `parallel` returns, and two names for the items of `paginate`.
fn several_names(words: &TokenTree<'_>, at: usize) -> Option<Habit> {
    let names = words.names(at + 1);
    let last = *names.last()?;
    let (is_for, value) = match words.name(at) {
        Some("for") => (true, "paginate"),
        _ => (false, "parallel"),
    };
    let ends = if is_for { words.name(last + 1) == Some("in") } else { words.symbol(last + 1, "=") };
    let is_alone = || words.closing(last + 3).is_some_and(|close| !words.symbol(close + 1, ","));
    let is_misread = names.len() > 1 && ends && words.name(last + 2) == Some(value) && is_alone();
    is_misread.then_some(if is_for { Habit::PaginatePairs } else { Habit::ParallelNames })
}

/// Whether a condition is written `(x) {`, which calls `x` with a table: no `then` or operator can follow the block.
fn is_braced_condition(words: &TokenTree<'_>, open: usize) -> bool {
    let close = if words.symbol(open, "(") { words.closing(open) } else { None };
    let brace = close.map(|close| close + 1).filter(|brace| words.symbol(*brace, "{"));
    brace.is_some_and(|brace| match words.closing(brace) {
        Some(end) => !words.goes_on(end + 1) && !matches!(words.name(end + 1), Some("then" | "do")),
        None => true,
    })
}

/// Whether a function is written `function f(x) {`.
fn is_braced_function(words: &TokenTree<'_>, at: usize) -> bool {
    let close = words.parameters_of(at).and_then(|open| words.closing(open));
    close.is_some_and(|close| words.symbol(close + 1, "{"))
}

/// Detects reads of `list.length` and `list[0]`.
fn list_habit(words: &TokenTree<'_>, at: usize) -> Option<Habit> {
    if words.symbol(at + 1, ".") && words.name(at + 2) == Some("length") {
        return Some(Habit::ListLength);
    }
    let is_zero = matches!(words.kind(at + 2), Some(TokenKind::Number(zero)) if *zero == 0.0);
    (words.symbol(at + 1, "[") && is_zero && words.symbol(at + 3, "]")).then_some(Habit::ListZero)
}

/// Local variables that certainly hold lists: bound once, with a table of items or one that is filled by
/// `table.insert` or `list[#list + 1] = …`, and never assigned another field. The value says whether items
/// are known.
fn own_lists<'a>(words: &TokenTree<'a>) -> HashMap<&'a str, bool> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for binding in words.bindings() {
        *counts.entry(binding.name).or_default() += 1;
    }
    let mut lists = HashMap::new();
    for at in 0..words.len() {
        let Some(local) = words.local(at) else { continue };
        let (&[name], Some(open)) = (local.names.as_slice(), local.value) else { continue };
        let close = if words.symbol(open, "{") { words.closing(open) } else { None };
        if let (Some(name), Some(close)) =
            (words.name(name).filter(|name| counts.get(name) == Some(&1)), close)
            && !words.goes_on(close + 1)
            && (open + 1..close).all(|at| !words.symbol(at, "=") || words.enclosing(at) != Some(open))
        {
            lists.insert(name, close > open + 1);
        }
    }
    for at in 0..words.len() {
        let Some(name) = words.name(at).filter(|name| lists.contains_key(name) && !words.is_field(at)) else {
            continue;
        };
        let is_inserted = at > 3
            && words.symbol(at + 1, ",")
            && words.symbol(at - 1, "(")
            && words.name(at - 2) == Some("insert")
            && words.name(at - 4) == Some("table");
        let index_end = if words.symbol(at + 1, "[") { words.closing(at + 1) } else { None };
        let is_appended = words.symbol(at + 2, "#") && words.name(at + 3) == Some(name);
        let is_object = at > 1
            && words.symbol(at - 1, "(")
            && matches!(words.name(at - 2), Some("setmetatable" | "rawset"));
        match index_end {
            _ if is_object => drop(lists.remove(name)),
            Some(close) if words.symbol(close + 1, "=") && is_appended => drop(lists.insert(name, true)),
            Some(close) if words.symbol(close + 1, "=") => drop(lists.remove(name)),
            None if words.symbol(at + 1, ".") && words.symbol(at + 3, "=") => drop(lists.remove(name)),
            _ if is_inserted => drop(lists.insert(name, true)),
            _ => {}
        }
    }
    lists
}
