//! Adds or replaces one entry in the text of a JSON or TOML settings file, and leaves all other bytes unchanged.

use jsonc_parser::cst::{CstInputValue, CstRootNode};
use jsonc_parser::{ParseOptions, errors::ParseError};
use serde_json::{Map, Value};
use toml_edit::{DocumentMut, InlineTable, Item, Table};

/// The byte order mark, which some editors write at the beginning of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// Accepted extensions of JSON: comments and trailing commas, since people write these files by hand.
const JSON: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The format of a settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum SettingsFormat {
    /// JSON, possibly with comments.
    Json,
    Toml,
}

/// An entry to put into the file, at `key.name`.
#[derive(Debug)]
pub(in crate::commands) struct NewEntry<'a> {
    pub(in crate::commands) key: &'a str,
    pub(in crate::commands) name: &'a str,
    pub(in crate::commands) entry: &'a Value,
}

/// The result of adding an entry to a text.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::commands) enum EditOutcome {
    /// No change: the text contains the entry already.
    Unchanged,
    /// The new text; there was no entry of this name before.
    Added(String),
    /// The new text, in which the entry replaces another one of this name.
    Replaced(String),
}

/// The reason why a text cannot be edited.
#[derive(Debug, thiserror::Error)]
pub(in crate::commands) enum EditError {
    #[error("{line}:{column}: {message}")]
    Syntax { line: usize, column: usize, message: String },
    #[error("its `{0}` is not a table of servers")]
    Shape(String),
    #[error("the entry cannot be added without changing other parts of the file")]
    NotIsolated,
}

/// Applies several additions to a text, one after the other.
pub(in crate::commands) fn edit_all(
    format: SettingsFormat,
    text: &str,
    new_entries: &[NewEntry<'_>],
) -> Result<EditOutcome, EditError> {
    let mut all = EditOutcome::Unchanged;
    for new_entry in new_entries {
        let now = match &all {
            EditOutcome::Unchanged => text,
            EditOutcome::Added(text) | EditOutcome::Replaced(text) => text,
        };
        all = match (edit(format, now, new_entry)?, all) {
            (EditOutcome::Unchanged, before) => before,
            (EditOutcome::Added(text), EditOutcome::Replaced(_)) => EditOutcome::Replaced(text),
            (edited, _) => edited,
        };
    }
    Ok(all)
}

/// Applies an addition to a text. The result is parsed again and compared with the expected value.
pub(in crate::commands) fn edit(
    format: SettingsFormat,
    text: &str,
    new_entry: &NewEntry<'_>,
) -> Result<EditOutcome, EditError> {
    let without_bom = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let before = format.parse(without_bom)?;
    let servers = match before.get(new_entry.key) {
        None => None,
        Some(Value::Object(servers)) => Some(servers),
        Some(_) => return Err(EditError::Shape(new_entry.key.to_owned())),
    };
    let old = servers.and_then(|servers| servers.get(new_entry.name));
    if old == Some(new_entry.entry) {
        return Ok(EditOutcome::Unchanged);
    }
    let expected = with_entry(&before, new_entry);
    let is_exact = |edited: &String| format.parse(edited).ok().as_ref() == Some(&expected);
    let edited = match format {
        SettingsFormat::Json => edit_json(without_bom, new_entry)?,
        // A new section is appended at the end, where it separates no comment from its subject. If the servers are an
        // inline table, that is invalid TOML, and the entry is inserted into the table.
        SettingsFormat::Toml if old.is_none() => match append_toml(without_bom, new_entry)? {
            appended if is_exact(&appended) => appended,
            _ => edit_toml(without_bom, new_entry)?,
        },
        SettingsFormat::Toml => edit_toml(without_bom, new_entry)?,
    };
    if !is_exact(&edited) {
        return Err(EditError::NotIsolated);
    }
    let edited = format!("{}{edited}", &text[..text.len() - without_bom.len()]);
    Ok(if old.is_some() { EditOutcome::Replaced(edited) } else { EditOutcome::Added(edited) })
}

impl SettingsFormat {
    /// Parses a text. An empty text is an empty object.
    pub(in crate::commands) fn parse(self, text: &str) -> Result<Map<String, Value>, EditError> {
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        let value = match self {
            SettingsFormat::Json => CstRootNode::parse(text, &JSON)?.to_serde_value(),
            SettingsFormat::Toml => {
                let table: toml::Table = toml::from_str(text).map_err(|error| toml_syntax(text, &error))?;
                serde_json::to_value(table).ok()
            }
        };
        match value {
            None => Ok(Map::new()),
            Some(Value::Object(fields)) => Ok(fields),
            Some(_) => {
                Err(EditError::Syntax { line: 1, column: 1, message: "expected an object".to_owned() })
            }
        }
    }
}

/// The parsed value with the addition in it.
fn with_entry(before: &Map<String, Value>, new_entry: &NewEntry<'_>) -> Map<String, Value> {
    let mut after = before.clone();
    let servers = after.entry(new_entry.key).or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(servers) = servers {
        servers.insert(new_entry.name.to_owned(), new_entry.entry.clone());
    }
    after
}

fn edit_json(text: &str, new_entry: &NewEntry<'_>) -> Result<String, EditError> {
    let shape = || EditError::Shape(new_entry.key.to_owned());
    let root = CstRootNode::parse(text, &JSON)?;
    let object = root.object_value_or_create().ok_or_else(shape)?;
    let servers = object.object_value_or_create(new_entry.key).ok_or_else(shape)?;
    let entry = to_cst(new_entry.entry);
    match servers.get(new_entry.name) {
        Some(old) => old.set_value(entry),
        None => {
            servers.append(new_entry.name, entry);
        }
    }
    Ok(root.to_string())
}

fn to_cst(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(yes) => CstInputValue::Bool(*yes),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(to_cst).collect()),
        Value::Object(fields) => {
            CstInputValue::Object(fields.iter().map(|(key, value)| (key.clone(), to_cst(value))).collect())
        }
    }
}

/// The text, followed by a blank line and the addition as a section.
fn append_toml(text: &str, new_entry: &NewEntry<'_>) -> Result<String, EditError> {
    let section = edit_toml("", new_entry)?;
    let lines = text.replace("\r\n", "\n");
    let separator = match lines.as_str() {
        "" => "",
        text if text.ends_with("\n\n") || text == "\n" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let added = format!("{separator}{section}");
    Ok(format!("{text}{}", if has_crlf_lines(text) { added.replace('\n', "\r\n") } else { added }))
}

/// Whether every line ends in CRLF.
fn has_crlf_lines(text: &str) -> bool {
    text.contains("\r\n") && text.matches('\n').count() == text.matches("\r\n").count()
}

/// The text with the addition in place of an entry of the same name, or next to the other entries.
fn edit_toml(text: &str, new_entry: &NewEntry<'_>) -> Result<String, EditError> {
    // `toml_edit` ends every line with LF, so CRLF is restored at the end.
    let has_crlf = has_crlf_lines(text);
    let mut document: DocumentMut = text.parse().map_err(|_| EditError::NotIsolated)?;
    let servers = document.entry(new_entry.key).or_insert_with(|| {
        let mut servers = Table::new();
        // Implicit: only its entries get headers such as `[servers.ctx]`.
        servers.set_implicit(true);
        Item::Table(servers)
    });
    let servers = servers.as_table_like_mut().ok_or_else(|| EditError::Shape(new_entry.key.to_owned()))?;
    let mut table = Table::new();
    for (key, value) in new_entry.entry.as_object().into_iter().flatten() {
        table.insert(key, Item::Value(toml_value(value)?));
    }
    if let Some(Item::Table(old)) = servers.get(new_entry.name) {
        // Keeps the comments above the old table, and its position.
        *table.decor_mut() = old.decor().clone();
        table.set_position(old.position());
    }
    servers.insert(new_entry.name, Item::Table(table));
    let edited = document.to_string();
    Ok(if has_crlf { edited.replace("\r\n", "\n").replace('\n', "\r\n") } else { edited })
}

fn toml_value(value: &Value) -> Result<toml_edit::Value, EditError> {
    Ok(match value {
        Value::String(text) => text.as_str().into(),
        Value::Bool(yes) => (*yes).into(),
        Value::Array(items) => {
            let items: Result<toml_edit::Array, EditError> = items.iter().map(toml_value).collect();
            items?.into()
        }
        Value::Number(number) => number.as_i64().ok_or(EditError::NotIsolated)?.into(),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| Ok((key.clone(), toml_value(value)?));
            let fields: Result<InlineTable, EditError> = fields.iter().map(field).collect();
            fields?.into()
        }
        Value::Null => return Err(EditError::NotIsolated),
    })
}

impl From<ParseError> for EditError {
    fn from(error: ParseError) -> Self {
        let message = error.kind().to_string();
        Self::Syntax { line: error.line_display(), column: error.column_display(), message }
    }
}

fn toml_syntax(text: &str, error: &toml::de::Error) -> EditError {
    let offset = error.span().map_or(0, |span| span.start);
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    EditError::Syntax {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        message: error.message().trim().replace('\n', ", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn new_entry(entry: &Value) -> NewEntry<'_> {
        NewEntry { key: "servers", name: "ctx", entry }
    }

    /// The text with an entry in it.
    fn edited(format: SettingsFormat, text: &str, entry: &Value) -> String {
        match edit(format, text, &new_entry(entry)).unwrap() {
            EditOutcome::Added(text) | EditOutcome::Replaced(text) => text,
            EditOutcome::Unchanged => panic!("it was there"),
        }
    }

    /// The inserted part of a text: the bytes between the unchanged beginning and the unchanged end.
    fn inserted<'a>(before: &str, after: &'a str) -> &'a str {
        let same = |(a, b): &(u8, u8)| a == b;
        let start = before.bytes().zip(after.bytes()).take_while(same).count();
        let rest = before.len() - start;
        let end = after.len() - rest;
        assert_eq!(before.as_bytes()[start..], after.as_bytes()[end..], "{after}");
        &after[start..end]
    }

    #[test]
    fn everything_around_an_entry_stays_byte_for_byte() {
        let entry = json!({"command": "/bin/ctx", "args": ["a"]});
        for text in [
            "{}",
            "{\n  // nothing yet\n}\n",
            "{\n\t\"a\": [1,\n2.50], // odd\n}\n",
            "{\n  \"servers\": {\n    \"b\": { \"x\" : 1e5 }, // about b\n    /* end */\n  },\n  \"z\": \"\\u00e9\"\n}\n",
            "{\r\n  \"servers\": {\r\n    \"b\": {}\r\n  }\r\n}\r\n",
            "\u{feff}{\n  \"servers\": {}\n}",
        ] {
            let after = edited(SettingsFormat::Json, text, &entry);
            assert!(inserted(text, &after).contains("/bin/ctx"), "{after}");
            assert_eq!(
                edit(SettingsFormat::Json, &after, &new_entry(&entry)).unwrap(),
                EditOutcome::Unchanged
            );
        }
        for text in [
            "",
            "# mine\nmodel = 'x' # quoted\n\n[tools]\nweb = true\n",
            "[servers.a]\ncommand = \"x\"\n# end\n",
            "[servers.a]\n[servers.a.env]\nK = \"v\"\n\n[z]\nlist = [ 1,\n  2 ]\n",
            "servers.a.command = \"x\"\nb = 1\n",
            "servers = { a = { command = \"x\" } } # one line\n# about b\nb = 1\n",
            "a = 1\r\n# mine\r\n[b]\r\nc = [\r\n  1,\r\n]\r\n",
        ] {
            let after = edited(SettingsFormat::Toml, text, &entry);
            assert!(inserted(text, &after).contains("/bin/ctx"), "{after}");
            assert_eq!(
                edit(SettingsFormat::Toml, &after, &new_entry(&entry)).unwrap(),
                EditOutcome::Unchanged
            );
        }
    }

    #[test]
    fn a_new_section_goes_below_every_comment() {
        let entry = json!({"command": "x"});
        for (text, separator) in [
            ("", ""),
            ("# only a comment", "\n\n"),
            ("[servers.a]\ncommand = \"a\"\n# about its last key\n\n# about b\n[b]\nc = 1\n# end\n", "\n"),
            ("[b]\nc = 1\n\n\n# [servers.off]\n# command = \"y\"\n\n", ""),
            ("servers.a.command = \"a\"\n# about b\nb = 1\n", "\n"),
        ] {
            let expected = format!("{text}{separator}[servers.ctx]\ncommand = \"x\"\n");
            assert_eq!(edited(SettingsFormat::Toml, text, &entry), expected);
        }
        let crlf_text = "a = 1\r\n# end\r\n";
        assert_eq!(
            edited(SettingsFormat::Toml, crlf_text, &entry),
            format!("{crlf_text}\r\n[servers.ctx]\r\ncommand = \"x\"\r\n")
        );
    }

    #[test]
    fn an_entry_that_differs_is_replaced_where_it_stands() {
        let entry = json!({"command": "new"});
        let text = "{\n  \"servers\": {\n    // ours\n    \"ctx\": { \"command\": \"old\" }, // said\n    \"z\": {}\n  }\n}\n";
        assert_eq!(
            edit(SettingsFormat::Json, text, &new_entry(&entry)).unwrap(),
            EditOutcome::Replaced(
                text.replace("{ \"command\": \"old\" }", "{\n      \"command\": \"new\"\n    }")
            )
        );
        let text = "# ours\n[servers.ctx]\ncommand = \"old\"\n\n# theirs\n[servers.z]\ncommand = \"z\"\n";
        assert_eq!(
            edit(SettingsFormat::Toml, text, &new_entry(&entry)).unwrap(),
            EditOutcome::Replaced(text.replace("old", "new"))
        );
    }

    #[test]
    fn syntax_errors_have_a_position() {
        let error_of =
            |format, text: &str| edit(format, text, &new_entry(&json!({}))).unwrap_err().to_string();
        assert_eq!(error_of(SettingsFormat::Json, "{\n  \"a\": tru\n}"), "2:8: Unexpected word");
        assert!(error_of(SettingsFormat::Json, "{\"a\": 1 \"b\": 2}").starts_with("1:"));
        assert_eq!(error_of(SettingsFormat::Json, "[]"), "1:1: expected an object");
        assert_eq!(
            error_of(SettingsFormat::Json, "{\"servers\": []}"),
            "its `servers` is not a table of servers"
        );
        assert!(error_of(SettingsFormat::Json, &"[".repeat(100_000)).contains("depth"));
        assert!(error_of(SettingsFormat::Toml, "a = 1\nb = \n").starts_with("2:"));
        assert_eq!(error_of(SettingsFormat::Toml, "servers = 1"), "its `servers` is not a table of servers");
        // Duplicate keys: it is unknown which of the two a client reads.
        assert!(
            edit(
                SettingsFormat::Json,
                r#"{"servers": {"a": {}}, "servers": {"b": {}}}"#,
                &new_entry(&json!({}))
            )
            .is_err()
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            let key = prop_oneof!["[a-c]", ".{0,6}", Just("servers".to_owned()), Just("ctx".to_owned())];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((key, inner), 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_json_stays_equal_apart_from_the_entry(
            value in any_json(),
            entry in any_json(),
            pretty in any::<bool>(),
            has_crlf in any::<bool>(),
        ) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap().replace('\n', if has_crlf { "\r\n" } else { "\n" });
            match edit(SettingsFormat::Json, &text, &new_entry(&entry)) {
                Ok(EditOutcome::Unchanged) => prop_assert_eq!(&value["servers"]["ctx"], &entry),
                Ok(EditOutcome::Added(after) | EditOutcome::Replaced(after)) => {
                    let expected = with_entry(value.as_object().unwrap(), &new_entry(&entry));
                    prop_assert_eq!(serde_json::from_str::<Value>(&after).unwrap(), Value::Object(expected));
                }
                Err(error) => {
                    let usable = value.as_object().is_some_and(|fields| {
                        fields.get("servers").is_none_or(Value::is_object)
                    });
                    prop_assert!(!usable, "{}: {}", error, text);
                }
            }
        }

        #[test]
        fn any_text_is_edited_or_refused(text in ".{0,60}", toml in any::<bool>()) {
            let format = if toml { SettingsFormat::Toml } else { SettingsFormat::Json };
            let entry = json!({"command": "x"});
            if let Ok(EditOutcome::Added(after)) = edit(format, &text, &new_entry(&entry)) {
                prop_assert_eq!(edit(format, &after, &new_entry(&entry)).unwrap(), EditOutcome::Unchanged);
            }
        }
    }
}
