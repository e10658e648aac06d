//! Errors in words for the script's author.

use mlua::Value;

/// Bytes of an error's text.
const ERROR_BYTES_MAX: usize = 4 * 1024;

/// Functions and libraries of plain Lua that are not here, and what to do instead.
const ABSENT: &[(&str, &str)] = &[
    ("collectgarbage", "memory is collected by itself"),
    ("debug", "there is no `debug` library; log.debug(...) writes to the log"),
    ("dofile", "there is no other file to run; fs.read(path) reads one"),
    ("gcinfo", "memory is collected by itself"),
    ("getfenv", "environments cannot be read"),
    ("io", "there is no `io` library; fs.read(path) reads a file, print(...) writes to the log"),
    ("load", "text cannot be run as code; json.decode(text) reads data"),
    ("loadfile", "there is no other file to run; fs.read(path) reads one"),
    ("loadstring", "text cannot be run as code; json.decode(text) reads data"),
    ("newproxy", "use a table with a metatable"),
    ("package", "there are no modules; json, http, log and the others are globals"),
    ("require", "there are no modules; json, http, log and the others are globals"),
    ("setfenv", "environments cannot be changed"),
    ("os.execute", "no programs can be run"),
    ("os.exit", "`return` ends the script"),
    ("os.getenv", "env.get(name) reads a variable"),
    ("os.remove", "files cannot be changed"),
    ("os.rename", "files cannot be changed"),
    ("os.tmpname", "files cannot be changed"),
    ("string.dump", "functions cannot be turned into bytes"),
];

/// What plain Lua can say and Luau cannot: a piece of the line, and what to write.
const SYNTAX: &[(&str, &str)] = &[
    ("goto ", "there is no `goto`; write `continue`, `break` or a function"),
    ("::", "there are no labels; write `continue`, `break` or a function"),
    ("<const>", "there is no `<const>`; write `local name = value`"),
    ("<close>", "there is no `<close>`; close it yourself"),
    ("<<", "there is no operator `<<`; write bit32.lshift(a, b)"),
    (">>", "there is no operator `>>`; write bit32.rshift(a, b)"),
    ("&", "there is no operator `&`; write bit32.band(a, b)"),
    ("|", "there is no operator `|`; write bit32.bor(a, b)"),
    ("~", "there is no operator `~`; write bit32.bxor(a, b) or bit32.bnot(a)"),
];

/// How Luau complains of an `integer` where it wants a number.
const INTEGER_TROUBLES: &[&str] =
    &["integer and ", " and integer", "attempt to compare integer", "got integer)"];
/// What to do about it.
const INTEGER_HINT: &str = "whole numbers beyond 2^53 are of the type integer, which keeps every digit; \
    integer.tonumber(x) makes a number of one, integer.add(a, b), integer.sub(a, b) and integer.lt(a, b) work on two";

/// Hint for a script that tries to modify `context`.
const CONTEXT_HINT: &str =
    "`context` cannot be changed; keep values in a local variable, table.clone(t) copies a table";

/// The text of an error that a script raised.
pub(super) fn raised(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.to_string_lossy(),
        Value::Error(error) => root(error).to_string(),
        Value::Table(table) => match table.raw_get::<Value>("message").ok()? {
            Value::String(text) => text.to_string_lossy(),
            _ => return None,
        },
        Value::Nil => "the script raised nil as its error".to_owned(),
        _ => return None,
    };
    Some(shortened(&text))
}

/// The innermost cause.
pub(super) fn root(error: &mlua::Error) -> &mlua::Error {
    match error {
        mlua::Error::CallbackError { cause, .. } | mlua::Error::BadArgument { cause, .. } => root(cause),
        other => other,
    }
}

/// Cuts a text that would be a flood.
pub(super) fn shortened(text: &str) -> String {
    if text.len() <= ERROR_BYTES_MAX {
        return text.to_owned();
    }
    format!("{}… ({} bytes in all)", &text[..text.floor_char_boundary(ERROR_BYTES_MAX)], text.len())
}

/// Adds what to do, where the line shows a name that is not here.
pub(super) fn with_hint(chunk_name: &str, source: &str, message: String) -> String {
    let nil =
        message.contains("attempt to call a nil value") || message.contains("attempt to index nil with");
    let hides_result = message.contains("attempt to call a ") && !message.contains("nil value");
    if INTEGER_TROUBLES.iter().any(|trouble| message.contains(trouble)) {
        return format!("{message} ({INTEGER_HINT})");
    }
    let Some(line) = line_of(chunk_name, source, &message) else { return message };
    if message.contains("attempt to modify a readonly table") && has_word(line, "context") {
        return format!("{message} ({CONTEXT_HINT})");
    }
    if hides_result
        && has_word(line, "result")
        && let Some(hint) = result_hidden(source)
    {
        return format!("{message} ({hint})");
    }
    if nil && let Some((_, hint)) = ABSENT.iter().find(|(name, _)| has_word(line, name)) {
        return format!("{message} ({hint})");
    }
    message
}

/// Says which line hides the function `result`, if one does.
pub(super) fn result_hidden(source: &str) -> Option<String> {
    let (number, _) = source.lines().enumerate().find(|(_, line)| {
        let line = line.trim_start();
        line.strip_prefix("local ").is_some_and(|rest| {
            let names = rest.split('=').next().unwrap_or_default();
            names.split([',', ' ', '(', ':']).any(|name| name.trim() == "result")
        }) || (line.starts_with("result") && line["result".len()..].trim_start().starts_with("= "))
    })?;
    let line = number + 1;
    Some(format!(
        "line {line} gives the name `result` to a variable, which hides the function result(value): rename the variable"
    ))
}

/// The text of a syntax error.
pub(super) fn syntax(chunk_name: &str, source: &str, error: &mlua::Error) -> String {
    let text = match root(error) {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    // The compiler does not know the name: it says `3: …`.
    let text = format!("{chunk_name}:{}", text.trim_start_matches(':'));
    let text = shortened(&text);
    let Some(line) = line_of(chunk_name, source, &text) else { return text };
    match SYNTAX.iter().find(|(piece, _)| without_other(line).contains(piece)) {
        Some((_, hint)) => format!("{text} ({hint})"),
        None => text,
    }
}

/// The line without what looks like an operator and is none.
fn without_other(line: &str) -> String {
    let code = line.split("--").next().unwrap_or_default();
    code.replace("~=", "").replace("//", "")
}

fn line_of<'a>(chunk_name: &str, source: &'a str, message: &str) -> Option<&'a str> {
    let rest = message.strip_prefix(chunk_name)?.strip_prefix(':')?;
    let number: usize = rest.split(':').next()?.parse().ok()?;
    source.lines().nth(number.checked_sub(1)?)
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        !before.is_some_and(|c| is_part(c) || c == '.') && !after.is_some_and(is_part)
    })
}
