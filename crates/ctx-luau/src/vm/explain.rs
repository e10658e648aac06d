//! Error messages for the authors of scripts, with hints for those who know other languages better.

use crate::engine::protocol::ScriptEntry;
use mlua::Value;

/// Maximum size of an error message.
const ERROR_BYTES_MAX: usize = 4 * 1024;

/// Functions and libraries of plain Lua that scripts do not have, and what to do instead.
const ABSENT: &[(&str, &str)] = &[
    ("collectgarbage", "garbage collection is automatic"),
    ("debug", "there is no `debug` library; log.debug(...) writes to the log"),
    ("dofile", "scripts cannot run other files; fs.read(path) reads a file"),
    ("gcinfo", "garbage collection is automatic"),
    ("getfenv", "function environments cannot be read"),
    ("io", "there is no `io` library; fs.read(path) reads a file, print(...) writes to the log"),
    ("load", "strings cannot be run as code; json.decode(text) parses data"),
    ("loadfile", "scripts cannot run other files; fs.read(path) reads a file"),
    ("loadstring", "strings cannot be run as code; json.decode(text) parses data"),
    ("newproxy", "use a table with a metatable"),
    ("package", "there are no modules; json, http, log and the others are globals"),
    ("require", "there are no modules; json, http, log and the others are globals"),
    ("setfenv", "function environments cannot be changed"),
    ("os.execute", "scripts cannot run programs"),
    ("os.exit", "`return` ends the script"),
    ("os.getenv", "env.get(name) reads a variable"),
    ("os.remove", "scripts cannot write files"),
    ("os.rename", "scripts cannot write files"),
    ("os.tmpname", "scripts cannot write files"),
    ("string.dump", "functions cannot be dumped as bytecode"),
];

/// Hints for `execute` scripts, which have no files, no environment variables and no network.
const ABSENT_IN_EXECUTE: &[(&str, &str)] = &[
    ("dofile", "scripts have no file access here; call a function of `sdk`"),
    ("fs", "scripts have no file access here; call a function of `sdk`"),
    ("env", "scripts have no environment variables here; write values into the script"),
    ("http", "scripts have no network here; call a function of `sdk`"),
    ("io", "scripts have no file access here; print(...) writes to the log"),
    ("loadfile", "scripts have no file access here; call a function of `sdk`"),
    ("os.getenv", "scripts have no environment variables here; write values into the script"),
    ("package", "there are no modules; json, sdk, log and the others are globals"),
    ("require", "there are no modules; json, sdk, log and the others are globals"),
];

/// Methods of lists and strings in other languages, and what to write in Luau.
const LIST_METHODS: &[(&str, &str)] = &[
    (".push(", "table.insert(list, value) appends"),
    (":push(", "table.insert(list, value) appends"),
    (".append(", "table.insert(list, value) appends"),
    (".map(", "write a loop: for _, item in list do ... end"),
    (".filter(", "write a loop: for _, item in list do ... end"),
    (".forEach(", "write a loop: for _, item in list do ... end"),
    (".join(", "table.concat(list, separator) joins strings"),
    (".includes(", "table.find(list, value) finds a value"),
    (".toString(", "tostring(value) converts to a string"),
    (".length", "#list is the length of a list"),
];

/// Hint for `:await()` on a number, a boolean or nil.
const AWAIT_HINT: &str = "this is already a value: remove :await()";
/// Hint for `+` on texts.
const CONCAT_HINT: &str = "strings are concatenated with `..`, and `..=` appends";
/// Hint for a null in a comparison.
const NULL_HINT: &str = "a null in a list is json.null: compare it with `value == json.null` first";
/// Hint for a loop over a text.
const TEXT_HINT: &str = "it is a string: if it is JSON, json.decode(text) parses it";

/// Luau's messages for a loop over a string, from functions that expect a table.
const STRING_ITERATION_ERRORS: &[&str] = &[
    "'ipairs' (table expected, got string)",
    "'pairs' (table expected, got string)",
    "'next' (table expected, got string)",
];

/// Hints for syntax errors, by a word of the line that is a keyword in another language.
const SYNTAX_WORDS: &[(&str, &str)] = &[
    ("goto", "there is no `goto`; write `continue`, `break` or a function"),
    ("let", "write `local name = value`"),
    ("var", "write `local name = value`"),
    ("async", "functions need no `async`: calls return their value"),
    ("await", "calls need no `await`: they return their value"),
    ("elif", "write `elseif`"),
    ("def", "write `function name(...) ... end`"),
    ("import", "there are no modules; json, log and the others are globals"),
    ("try", "pcall(function() ... end) catches errors"),
    ("catch", "pcall(function() ... end) catches errors"),
    ("except", "pcall(function() ... end) catches errors"),
];

/// Hints for syntax errors, by an operator of another language in the line.
const SYNTAX_OPERATORS: &[(&str, &str)] = &[
    ("=>", "write `function(x) return x end`"),
    ("!==", "not equal is `~=`"),
    ("===", "equal is `==`"),
    (" is not ", "not equal is `~=`, as in `x ~= nil`"),
    (" is ", "equal is `==`, as in `x == nil`"),
    ("!=", "not equal is `~=`"),
    ("&&", "write `and`"),
    ("||", "write `or`"),
    ("!", "write `not`"),
    ("++", "write `i += 1`"),
    ("<const>", "there is no `<const>`; write `local name = value`"),
    ("<close>", "there is no `<close>`; close it yourself"),
    ("::", "there are no labels; write `continue`, `break` or a function"),
    ("<<", "there is no operator `<<`; write bit32.lshift(a, b)"),
    (">>", "there is no operator `>>`; write bit32.rshift(a, b)"),
    ("&", "there is no operator `&`; write bit32.band(a, b)"),
    ("|", "there is no operator `|`; write bit32.bor(a, b)"),
    ("~", "there is no operator `~`; write bit32.bxor(a, b) or bit32.bnot(a)"),
    (" ? ", "write `if condition then a else b`"),
];

/// Hints for syntax errors, by what Luau was parsing.
const SYNTAX_MESSAGES: &[(&str, &str)] = &[
    ("when parsing if statement", IF_HINT),
    ("when parsing for loop", FOR_HINT),
    ("when parsing while loop", WHILE_HINT),
    ("parsing expression, got '['", "a list is written { 1, 2 }"),
];

/// Hints for blocks that begin with a colon, by the first word of the line.
const BLOCK_KEYWORDS: &[(&str, &str)] = &[
    ("if", IF_HINT),
    ("elseif", "write `elseif condition then`"),
    ("else", "write `else`, without a colon; the block ends with `end`"),
    ("for", FOR_HINT),
    ("while", WHILE_HINT),
];

const IF_HINT: &str = "write `if condition then ... end`, with neither a colon nor braces";
const FOR_HINT: &str = "write `for _, item in list do ... end`, with neither a colon nor braces";
const WHILE_HINT: &str = "write `while condition do ... end`, with neither a colon nor braces";
/// Hint for `else if` with one `end` too few.
const ELSE_IF_HINT: &str = "write `elseif`, in one word: an `else if` needs an `end` of its own";

/// Hint for a line that begins with another language's comment.
const COMMENT_HINT: &str = "a comment begins with `--`";
/// Hint for `f(name = value)`.
const ARGUMENTS_HINT: &str = "named arguments are one table: f({ name = value })";
/// Hint for `{ name: value }`.
const FIELD_HINT: &str = "a table is written { name = value }";

/// Parts of Luau's messages about an `integer` where it expects a number.
const INTEGER_ERRORS: &[&str] =
    &["integer and ", " and integer", "attempt to compare integer", "got integer)"];
/// Hint for an `integer` where Luau expects a number.
const INTEGER_HINT: &str = "whole numbers beyond 2^53 have the exact type integer; \
    integer.tonumber(x) converts one to a number; integer.add(a, b), integer.sub(a, b) and integer.lt(a, b) take two";

/// Hint for a script that tries to modify `context`.
const CONTEXT_HINT: &str =
    "`context` cannot be changed; keep values in a local variable, table.clone(t) copies a table";

/// The message of an error value that a script raised; `None` if it has none.
pub(super) fn raised_message(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.to_string_lossy(),
        Value::Table(table) => match table.raw_get::<Value>("message").ok()? {
            Value::String(text) => text.to_string_lossy(),
            _ => return None,
        },
        Value::Nil => "the script raised nil as its error".to_owned(),
        _ => return None,
    };
    Some(truncate(&text))
}

/// The innermost cause of an error.
pub(super) fn root_cause(error: &mlua::Error) -> &mlua::Error {
    match error {
        mlua::Error::CallbackError { cause, .. } | mlua::Error::BadArgument { cause, .. } => {
            root_cause(cause)
        }
        other => other,
    }
}

/// Truncates a text to [`ERROR_BYTES_MAX`].
pub(super) fn truncate(text: &str) -> String {
    if text.len() <= ERROR_BYTES_MAX {
        return text.to_owned();
    }
    format!("{}… ({} bytes in all)", &text[..text.floor_char_boundary(ERROR_BYTES_MAX)], text.len())
}

/// Adds a hint to the message of an error, if the line where it happened contains a known mistake.
pub(super) fn add_hint(chunk_name: &str, source: &str, entry: ScriptEntry, message: String) -> String {
    let is_nil_error =
        message.contains("attempt to call a nil value") || message.contains("attempt to index nil with");
    let calls_shadowed_result = message.contains("attempt to call a ") && !message.contains("nil value");
    if INTEGER_ERRORS.iter().any(|error| message.contains(error)) {
        return format!("{message} ({INTEGER_HINT})");
    }
    let Some(line) = line_of(chunk_name, source, &message) else { return message };
    if message.contains("attempt to modify a readonly table") && has_word(line, "context") {
        return format!("{message} ({CONTEXT_HINT})");
    }
    if calls_shadowed_result
        && has_word(line, "result")
        && let Some(hint) = shadowed_result_hint(source)
    {
        return format!("{message} ({hint})");
    }
    if is_nil_error && let Some((name, hint)) = ABSENT.iter().find(|(name, _)| has_word(line, name)) {
        let hint = execute_absence_hint(name).filter(|_| entry == ScriptEntry::Chunk).unwrap_or(hint);
        return format!("{message} ({hint})");
    }
    if is_nil_error && let Some((_, hint)) = LIST_METHODS.iter().find(|(method, _)| line.contains(method)) {
        return format!("{message} ({hint})");
    }
    if message.contains("with 'await'") || message.contains("'await' of") {
        return format!("{message} ({AWAIT_HINT})");
    }
    if message.contains("attempt to perform arithmetic (add) on") && message.contains("string") {
        return format!("{message} ({CONCAT_HINT})");
    }
    if message.contains("attempt to compare") && message.contains("userdata") {
        return format!("{message} ({NULL_HINT})");
    }
    if message.contains("iterate over a string")
        || STRING_ITERATION_ERRORS.iter().any(|error| message.contains(error))
    {
        return format!("{message} ({TEXT_HINT})");
    }
    message
}

/// The hint for a name that other kinds of script or plain Lua have, but `execute` does not.
pub(super) fn execute_absence_hint(name: &str) -> Option<&'static str> {
    let hints = ABSENT_IN_EXECUTE.iter().chain(ABSENT);
    hints.filter(|(absent, _)| *absent == name).map(|(_, hint)| *hint).next()
}

/// The hint for a variable that shadows the function `result`, if there is one.
pub(super) fn shadowed_result_hint(source: &str) -> Option<String> {
    let (number, _) = source.lines().enumerate().find(|(_, line)| {
        let line = line.trim_start();
        line.strip_prefix("local ").is_some_and(|rest| {
            let names = rest.split('=').next().unwrap_or_default();
            names.split([',', ' ', '(', ':']).any(|name| name.trim() == "result")
        }) || (line.starts_with("result") && line["result".len()..].trim_start().starts_with("= "))
    })?;
    let line = number + 1;
    Some(format!(
        "line {line} declares a variable `result`, which shadows the function result(value): rename the variable"
    ))
}

/// The message of a syntax error, with a hint if its cause is a known mistake.
pub(super) fn syntax_error_message(chunk_name: &str, source: &str, error: &mlua::Error) -> String {
    let text = match root_cause(error) {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    // The compiler's messages begin with the line, without the script's name.
    let text = format!("{chunk_name}:{}", text.trim_start_matches(':'));
    let text = truncate(&text);
    // A missing `end` is reported at a line that may not even exist, so all lines are searched.
    let has_else_if = || source.lines().any(|line| code_of(line).contains("else if "));
    let hint = match text.contains("Expected 'end'") && has_else_if() {
        true => Some(ELSE_IF_HINT),
        false => block_hint(chunk_name, source, &text)
            .or_else(|| line_of(chunk_name, source, &text).and_then(|line| syntax_hint(line, &text))),
    };
    hint.map_or_else(|| text.clone(), |hint| format!("{text} ({hint})"))
}

/// The hint for a block that begins with a colon (`if x:`), in the line of the error or the one before: Luau
/// reads the colon as the call of a method, and fails only on the next line.
fn block_hint(chunk_name: &str, source: &str, message: &str) -> Option<&'static str> {
    let number = line_number(chunk_name, message)?;
    let nearby_lines = source.lines().take(number).skip(number.saturating_sub(2));
    let block_lines = nearby_lines.map(code_of).filter(|code| code.trim_end().ends_with(':'));
    let words: Vec<String> = block_lines
        .filter_map(|code| code.split_whitespace().next().map(|word| word.trim_end_matches(':').to_owned()))
        .collect();
    BLOCK_KEYWORDS
        .iter()
        .find(|(word, _)| words.iter().any(|first_word| first_word == word))
        .map(|(_, hint)| *hint)
}

/// The hint for a line that is written in the syntax of another language.
fn syntax_hint(line: &str, message: &str) -> Option<&'static str> {
    if ["//", "/*", "#"].iter().any(|comment| line.trim_start().starts_with(comment)) {
        return Some(COMMENT_HINT);
    }
    let code = code_of(line);
    let by_word = SYNTAX_WORDS.iter().find(|(word, _)| has_word(&code, word));
    let by_operator = || SYNTAX_OPERATORS.iter().find(|(operator, _)| code.contains(operator));
    let by_message = || SYNTAX_MESSAGES.iter().find(|(piece, _)| message.contains(piece));
    let hint = by_word.or_else(by_operator).or_else(by_message).map(|(_, hint)| *hint);
    if hint.is_none() && message.contains("got '='") && code.contains('(') {
        return Some(ARGUMENTS_HINT);
    }
    let is_field = message.contains("got ':'") || message.contains("when parsing method name");
    hint.or_else(|| is_field.then_some(FIELD_HINT))
}

/// The line without strings, comments and `~=`, which contains what looks like the operator `~`.
fn code_of(line: &str) -> String {
    let code = line.split("--").next().unwrap_or_default();
    let mut open = None;
    let outside = |letter: &char| match open {
        Some(quote) => {
            if *letter == quote {
                open = None;
            }
            false
        }
        None if matches!(letter, '"' | '\'' | '`') => {
            open = Some(*letter);
            false
        }
        None => true,
    };
    code.chars().filter(outside).collect::<String>().replace("~=", "")
}

fn line_of<'a>(chunk_name: &str, source: &'a str, message: &str) -> Option<&'a str> {
    source.lines().nth(line_number(chunk_name, message)?.checked_sub(1)?)
}

fn line_number(chunk_name: &str, message: &str) -> Option<usize> {
    message.strip_prefix(chunk_name)?.strip_prefix(':')?.split(':').next()?.parse().ok()
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        !before.is_some_and(|c| is_part(c) || c == '.') && !after.is_some_and(is_part)
    })
}
