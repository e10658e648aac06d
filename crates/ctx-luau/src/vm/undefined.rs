//! Undefined globals of an `execute` script: to read one is an error, instead of nil.
//!
//! Scripts in files are exempt: `x = x or {}` is common in plain Lua.

use super::explain;
use crate::host::{HOST_APIS, PROVIDER_PREFIX};
use crate::syntax::{DefinedNames, TokenTree};
use ctx_core::nearest_few;
use std::cell::OnceCell;

/// Maximum number of names that a message suggests.
const SUGGESTIONS_MAX: usize = 3;
/// Minimum length of a name for which similar ones are suggested.
const SUGGESTED_BYTES_MIN: usize = 3;

/// The globals of the language itself.
pub(crate) const LANGUAGE_GLOBALS: &[&str] = &[
    "_G",
    "_VERSION",
    "assert",
    "bit32",
    "buffer",
    "coroutine",
    "error",
    "getmetatable",
    "integer",
    "ipairs",
    "math",
    "next",
    "os",
    "pairs",
    "pcall",
    "print",
    "rawequal",
    "rawget",
    "rawlen",
    "rawset",
    "select",
    "setmetatable",
    "string",
    "table",
    "tonumber",
    "tostring",
    "type",
    "typeof",
    "unpack",
    "utf8",
    "vector",
    "xpcall",
];

/// Names of JavaScript and Python, and what to write in Luau.
const OTHER_LANGUAGES: &[(&str, &str)] = &[
    ("Array", "tables are arrays: { 1, 2 }"),
    ("Date", "os.time() and os.date() return the time"),
    ("False", "write false"),
    ("JSON", "write json.decode(text) and json.encode(value)"),
    ("Math", "write math.floor(x), in lower case"),
    ("None", "write nil"),
    ("Object", "`for key, value in t do` iterates over a table"),
    ("Promise", "parallel({ f, g }) runs functions concurrently"),
    ("True", "write true"),
    ("async", "functions need no `async`"),
    ("await", "calls need no `await`: they return their value"),
    ("console", "print(...) writes to the log"),
    ("def", "write `function name(...) ... end`"),
    ("dict", "tables are dictionaries: { key = value }"),
    ("elif", "write `elseif`"),
    ("except", "pcall(function() ... end) catches errors"),
    ("f", "string interpolation is written `{value}` in backticks"),
    ("fetch", "scripts have no network; call a function of `sdk`"),
    ("import", "there are no modules; json, sdk, log and the others are globals"),
    ("int", "write math.floor(tonumber(x))"),
    ("is", "equal is `==`, as in `x == nil`"),
    ("isinstance", "write type(x) == \"table\""),
    ("lambda", "write `function(x) return x end`"),
    ("len", "write #list"),
    ("let", "write `local name = value`"),
    ("list", "tables are lists: { 1, 2 }"),
    ("new", "there are no classes"),
    ("null", "write nil, or json.null where JSON needs a null"),
    ("parseFloat", "write tonumber(text)"),
    ("parseInt", "write tonumber(text)"),
    ("range", "write `for i = 1, n do`"),
    ("str", "write tostring(x)"),
    ("switch", "write if, elseif, else"),
    ("this", "there are no classes"),
    ("throw", "write error(message)"),
    ("try", "pcall(function() ... end) catches errors"),
    ("undefined", "write nil"),
    ("var", "write `local name = value`"),
];

/// The globals of an `execute` script besides the providers that it names.
pub fn execute_globals() -> impl Iterator<Item = &'static str> {
    let apis =
        HOST_APIS.iter().filter(|api| api.entries.contains(&crate::ScriptEntry::Chunk)).map(|api| api.name);
    LANGUAGE_GLOBALS.iter().copied().chain(apis)
}

/// The error message for an undefined global, with a hint. `others` are names that the script may use besides
/// those that it defines and [`execute_globals`].
pub fn describe_undefined<'a>(
    name: &str,
    defined: &'a DefinedNames,
    others: impl IntoIterator<Item = &'a str>,
) -> String {
    let other_language = OTHER_LANGUAGES.iter().find(|(known, _)| *known == name).map(|(_, hint)| *hint);
    let absent = || explain::execute_absence_hint(name);
    if let Some(hint) = other_language.or_else(absent) {
        return format!("there is no `{name}`: {hint}");
    }
    if let Some(line) = defined.line_of(name) {
        return format!(
            "there is no variable `{name}` here: the one of line {line} is local to its block; declare it before the block"
        );
    }
    let others = execute_globals().map(|name| -> &str { name }).chain(others);
    let known = defined.names().chain(others.filter(|name| defined.line_of(name).is_none()));
    // All names of one or two letters are similar.
    let count_max = if name.len() < SUGGESTED_BYTES_MIN { 0 } else { SUGGESTIONS_MAX };
    let similar: Vec<String> = nearest_few(name, known, count_max)
        .into_iter()
        .map(|similar| match defined.line_of(similar) {
            Some(line) => format!("`{similar}` of line {line}"),
            None => format!("`{similar}`"),
        })
        .collect();
    let hint =
        if similar.is_empty() { String::new() } else { format!(" (did you mean {}?)", similar.join(" or ")) };
    format!("there is no variable or function `{name}`{hint}")
}

/// The names that an `execute` script may read: those that it defines, and its globals.
pub(crate) struct GlobalNames {
    source: Box<[u8]>,
    providers: Vec<String>,
    /// Computed when the first undefined name is read, which most scripts never do. `None` if the source
    /// cannot be tokenized.
    defined: OnceCell<Option<DefinedNames>>,
}

impl GlobalNames {
    pub(crate) fn new(source: &[u8], apis: &[String]) -> Self {
        let providers = apis.iter().filter_map(|name| name.strip_prefix(PROVIDER_PREFIX)).map(str::to_owned);
        Self { source: source.into(), providers: providers.collect(), defined: OnceCell::new() }
    }

    /// The error for reading this name; `None` if the script assigns it somewhere, or if it is part of the
    /// language.
    pub(crate) fn error_of(&self, name: &str) -> Option<String> {
        if LANGUAGE_GLOBALS.contains(&name) {
            return None;
        }
        let defined = self.defined.get_or_init(|| {
            let source = std::str::from_utf8(&self.source).ok()?;
            TokenTree::parse(source).map(|tree| DefinedNames::collect(source, &tree))
        });
        let defined = defined.as_ref().filter(|defined| !defined.may_be_global(name))?;
        Some(describe_undefined(name, defined, self.providers.iter().map(String::as_str)))
    }
}
