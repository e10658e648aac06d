//! Front matter of Markdown files: YAML between `---`, TOML between `+++`.
//!
//! A subset of both is parsed: top-level keys with a text, a number or a list. A block with anything else stays in the
//! text.

use super::ExtractedText;
use super::composer::one_line;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use serde_json::Value;

/// Maximum bytes of a front matter block; a longer one is treated as text.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Maximum keys read from a block.
const KEYS_MAX: usize = 100;
/// Maximum entries read from a list.
const ENTRIES_MAX: usize = 100;
/// Maximum bytes kept of a value.
const VALUE_BYTES_MAX: usize = 2_000;

/// The parsed front matter, and the text after it.
pub(super) fn split(text: &str) -> (ExtractedText, &str) {
    let block = parse_block(text, "---", read_yaml).or_else(|| parse_block(text, "+++", read_toml));
    let Some((entries, body)) = block else { return (ExtractedText::default(), text) };
    let mut extracted = ExtractedText::default();
    for (key, value) in entries.into_iter().take(KEYS_MAX) {
        apply_entry(&mut extracted, key, value);
    }
    (extracted, body)
}

type FrontMatterEntries = Vec<(String, Vec<String>)>;

fn parse_block<'a>(
    text: &'a str,
    fence: &str,
    read: fn(&[&'a str]) -> Option<FrontMatterEntries>,
) -> Option<(FrontMatterEntries, &'a str)> {
    let rest = text.strip_prefix(fence)?;
    let rest = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n'))?;
    let mut length = 0;
    let mut lines = Vec::new();
    for line in rest.split_inclusive('\n') {
        length += line.len();
        let line = line.trim_end();
        if line == fence || (fence == "---" && line == "...") {
            return Some((read(&lines)?, rest[length..].trim_start_matches(['\r', '\n'])));
        }
        if length > BLOCK_BYTES_MAX {
            return None;
        }
        lines.push(line);
    }
    None
}

fn apply_entry(extracted: &mut ExtractedText, key: String, mut values: Vec<String>) {
    values.retain(|value| !value.is_empty());
    values.truncate(ENTRIES_MAX);
    for value in &mut values {
        value.truncate(value.floor_char_boundary(VALUE_BYTES_MAX));
    }
    let Some(first) = values.first().cloned() else { return };
    match key.to_ascii_lowercase().as_str() {
        "title" => extracted.title = Some(one_line(&first)),
        "author" | "authors" => extracted.author = Some(values.join(", ")),
        "tags" | "keywords" | "categories" => {
            for value in values {
                for tag in value.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
                    if !extracted.tags.iter().any(|known| known == tag) {
                        extracted.tags.push(tag.to_owned());
                    }
                }
            }
            return;
        }
        "date" | "created" | "created_at" => extracted.created_at = parse_timestamp(&first),
        "updated" | "updated_at" | "lastmod" | "last_modified" | "modified" => {
            extracted.updated_at = parse_timestamp(&first);
        }
        _ => {}
    }
    if !matches!(key.to_ascii_lowercase().as_str(), "title" | "author" | "authors") {
        let value = if values.len() == 1 { Value::from(first) } else { Value::from(values) };
        extracted.metadata.insert(key, value);
    }
}

/// Parses a timestamp in any of the usual formats; UTC if it has no time zone.
pub(super) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let zoned = || text.parse::<Timestamp>().ok().or_else(|| text.replacen(' ', "T", 1).parse().ok());
    let civil = || {
        text.parse::<DateTime>()
            .ok()
            .or_else(|| Some(text.parse::<Date>().ok()?.to_datetime(Default::default())))
    };
    zoned().or_else(|| Some(civil()?.to_zoned(TimeZone::UTC).ok()?.timestamp()))
}

fn read_yaml(lines: &[&str]) -> Option<FrontMatterEntries> {
    let mut entries = FrontMatterEntries::new();
    let mut rest = lines.iter().copied().peekable();
    while let Some(line) = rest.next() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once(':')?;
        let indented = line.starts_with([' ', '\t', '-']);
        if indented || !(value.is_empty() || value.starts_with([' ', '\t'])) {
            return None;
        }
        let mut continuation = Vec::new();
        while let Some(next) = rest.next_if(|next| next.is_empty() || next.starts_with([' ', '\t', '-'])) {
            continuation.push(next.trim());
        }
        let value = strip_comment(value.trim());
        let key = unquote(key.trim()).to_owned();
        let values = match value {
            "" => continuation.iter().filter_map(|line| line.strip_prefix('-')).map(scalar).collect(),
            ">" | ">-" | ">+" => vec![one_line(&continuation.join(" "))],
            "|" | "|-" | "|+" => vec![continuation.join("\n").trim().to_owned()],
            list if list.starts_with('[') => {
                let whole = format!("{list} {}", continuation.join(" "));
                let inner = whole.trim().strip_prefix('[')?.strip_suffix(']')?;
                inline_list(inner)
            }
            text => vec![scalar(&format!("{text} {}", continuation.join(" ")))],
        };
        entries.push((key, values));
    }
    Some(entries)
}

fn read_toml(lines: &[&str]) -> Option<FrontMatterEntries> {
    let mut entries = FrontMatterEntries::new();
    let mut rest = lines.iter().copied();
    while let Some(line) = rest.next() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with('[') {
            // TOML tables hold settings of the site, not properties of the text.
            break;
        }
        let (key, value) = line.split_once('=')?;
        let mut value = strip_comment(value.trim()).to_owned();
        while value.starts_with('[') && !value.ends_with(']') {
            value.push(' ');
            value.push_str(strip_comment(rest.next()?.trim()));
        }
        let values = match value.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
            Some(inner) => inline_list(inner),
            None => vec![scalar(&value)],
        };
        entries.push((unquote(key.trim()).to_owned(), values));
    }
    Some(entries)
}

/// The entries of an inline list; commas inside quotes do not separate.
fn inline_list(inner: &str) -> Vec<String> {
    let mut entries = vec![String::new()];
    let mut quote = None;
    for char in inner.chars() {
        match (quote, char) {
            (None, '"' | '\'') => quote = Some(char),
            (Some(open), close) if open == close => quote = None,
            (None, ',') => {
                entries.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = entries.last_mut() {
            last.push(char);
        }
    }
    entries.iter().map(|entry| scalar(entry)).filter(|entry| !entry.is_empty()).collect()
}

fn scalar(text: &str) -> String {
    let text = text.trim();
    match text.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')) {
        Some(inner) => inner.replace("\\\"", "\"").replace("\\\\", "\\"),
        None => unquote(text).to_owned(),
    }
}

fn unquote(text: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|inner| inner.strip_suffix(quote)) {
            return inner;
        }
    }
    text
}

/// Removes a trailing comment from a value.
fn strip_comment(value: &str) -> &str {
    if value.starts_with(['"', '\'']) {
        return value;
    }
    value.split(" #").next().unwrap_or_default().trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn yaml_gives_title_author_tags_dates_and_the_rest() {
        let text = "---\r\ntitle: \"Plan: the harbour\" \nauthor: Ada\ntags: [sea, 'light house', sea]\nkeywords:\n  - ships\n- boats # small ones\ndescription: >\n  Where ships\n  sleep.\ndate: 2024-03-01\nlastmod: 2024-03-02 10:00:00+01:00\ndraft: false\nnested:\n  key: value\n---\n\n# Heading\n";
        let (extracted, body) = split(text);
        assert_eq!(body, "# Heading\n");
        assert_eq!(extracted.title.as_deref(), Some("Plan: the harbour"));
        assert_eq!(extracted.author.as_deref(), Some("Ada"));
        assert_eq!(extracted.tags, ["sea", "light house", "ships", "boats # small ones"]);
        assert_eq!(extracted.created_at, Some("2024-03-01T00:00:00Z".parse().unwrap()));
        assert_eq!(extracted.updated_at, Some("2024-03-02T09:00:00Z".parse().unwrap()));
        let metadata = json!({
            "description": "Where ships sleep.", "date": "2024-03-01",
            "lastmod": "2024-03-02 10:00:00+01:00", "draft": "false",
        });
        assert_eq!(Value::Object(extracted.metadata), metadata);
    }

    #[test]
    fn toml_gives_the_same() {
        let text = "+++\ntitle = \"A\"\ntags = [\n  \"x, y\",\n  'z',\n]\nauthors = [\"Ada\", \"Bo\"]\ndate = 2024-03-01T10:00:00Z\n[extra]\nnot = = this\n+++\nBody";
        let (extracted, body) = split(text);
        assert_eq!((extracted.title.as_deref(), extracted.author.as_deref()), (Some("A"), Some("Ada, Bo")));
        assert_eq!(extracted.tags, ["x", "y", "z"]);
        assert_eq!((extracted.created_at.is_some(), body), (true, "Body"));
    }

    #[test]
    fn what_cannot_be_read_stays_in_the_text() {
        for text in
            ["---\nno key here\n---\nBody", "---\ntitle: x\nno end", "+++\nnot toml\n+++\n", "----\n", "---"]
        {
            assert_eq!(split(text), (ExtractedText::default(), text));
        }
        // A horizontal rule between paragraphs is not front matter.
        let ruled = "---\n\nA paragraph.\n\n---\n\nAnother.";
        assert_eq!(split(ruled).1, ruled);
    }

    proptest! {
        #[test]
        fn any_block_is_read_or_left_alone(block in "([a-z:=\\[\\]\"'#>|, -]|\n|\r\n|é|---){0,200}") {
            for fence in ["---", "+++"] {
                let text = format!("{fence}\n{block}\n{fence}\nbody");
                let (_, body) = split(&text);
                prop_assert!(text.ends_with(body));
            }
        }
    }
}
