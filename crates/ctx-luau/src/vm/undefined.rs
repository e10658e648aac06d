//! Undefined globals of an `execute` script: the error that reading one raises, instead of a nil.
//!
//! Scripts in files are spared: `x = x or {}` is common in plain Lua.

use super::explain;
use crate::host::{HOST_APIS, SERVER_PREFIX};
use ctx_core::nearest;

/// The globals of the language.
pub(crate) const LANGUAGE: &[&str] = &[
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

/// Names that mean something in JavaScript or Python, and what to write in Luau.
const OTHER_LANGUAGES: &[(&str, &str)] = &[
    ("Array", "tables are arrays: { 1, 2 }"),
    ("Date", "os.time() and os.date() tell the time"),
    ("False", "write false"),
    ("JSON", "write json.decode(text) and json.encode(value)"),
    ("Math", "write math.floor(x), in lower case"),
    ("None", "write nil"),
    ("Object", "`for key, value in t do` walks over a table"),
    ("Promise", "parallel({ f, g }) runs functions side by side"),
    ("True", "write true"),
    ("async", "functions need no `async`"),
    ("await", "calls need no `await`: they give their value"),
    ("console", "print(...) writes to the log"),
    ("def", "write `function name(...) ... end`"),
    ("dict", "tables are dictionaries: { key = value }"),
    ("f", "text with values in it is written `{value}` in backticks"),
    ("fetch", "scripts have no network; call a function of `sdk`"),
    ("int", "write math.floor(tonumber(x))"),
    ("isinstance", "write type(x) == \"table\""),
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
    let apis = HOST_APIS.iter().filter(|api| api.entries.contains(&crate::Entry::Chunk)).map(|api| api.name);
    LANGUAGE.iter().copied().chain(apis)
}

/// The description of an undefined global, with a way to put it right; `others` are names that the script may use besides
/// [`execute_globals`].
pub fn describe_undefined<'a>(name: &str, others: impl IntoIterator<Item = &'a str>) -> String {
    let written = OTHER_LANGUAGES.iter().find(|(known, _)| *known == name).map(|(_, hint)| *hint);
    let absent = || explain::absent_in_execute(name);
    if let Some(hint) = written.or_else(absent) {
        return format!("there is no `{name}`: {hint}");
    }
    let names: Vec<&str> = execute_globals().map(|name| -> &str { name }).chain(others).collect();
    match nearest(name, names) {
        Some(near) => format!("there is no variable or function `{name}` (did you mean `{near}`?)"),
        None => format!("there is no variable or function `{name}`"),
    }
}

/// The names that an `execute` script defines or is given, to judge those that it reads.
pub(crate) struct GlobalNames {
    source: Box<[u8]>,
    servers: Vec<String>,
}

impl GlobalNames {
    pub(crate) fn new(source: &[u8], apis: &[String]) -> Self {
        let servers = apis.iter().filter_map(|name| name.strip_prefix(SERVER_PREFIX)).map(str::to_owned);
        Self { source: source.into(), servers: servers.collect() }
    }

    /// The error of reading this name; none if the script assigns it somewhere, or if it is part of the language.
    pub(crate) fn error_of(&self, name: &str) -> Option<String> {
        if LANGUAGE.contains(&name) || self.is_assigned(name) {
            return None;
        }
        Some(describe_undefined(name, self.servers.iter().map(String::as_str)))
    }

    /// Whether the text has `name =` or `function name`; a comparison is none.
    fn is_assigned(&self, name: &str) -> bool {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        memchr::memmem::find_iter(&self.source, name.as_bytes()).any(|start| {
            let (before, after) = (&self.source[..start], &self.source[start + name.len()..]);
            if before.last().is_some_and(is_part) || after.first().is_some_and(is_part) {
                return false;
            }
            let after = after.trim_ascii_start();
            // `name, other = f()` assigns, too; so may every name that a comma follows.
            let is_target =
                matches!(after, [b'=', next, ..] if *next != b'=') || after.first() == Some(&b',');
            is_target || before.trim_ascii_end().ends_with(b"function")
        })
    }
}
