//! Media types: how each is encoded, and which is preferred.

use super::reference::Node;
use super::sources::Documents;
use serde_json::Value;

/// Kinds of media types, the preferred first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Json,
    Form,
    Multipart,
    Text,
    Binary,
}

/// The kind of a media type.
pub(super) fn kind(content_type: &str) -> Kind {
    let name = essence(content_type);
    let (family, kind) = name.split_once('/').unwrap_or((name.as_str(), ""));
    match (family, kind) {
        (_, "json" | "x-json" | "hal+json") | ("*" | "application", "*") => Kind::Json,
        (_, kind) if kind.ends_with("+json") => Kind::Json,
        ("json" | "*", "") => Kind::Json,
        ("application", "x-www-form-urlencoded") => Kind::Form,
        ("multipart", _) => Kind::Multipart,
        ("text", _) => Kind::Text,
        ("application", "xml" | "yaml" | "x-yaml" | "graphql" | "javascript" | "sql" | "toml") => Kind::Text,
        ("application", "x-ndjson" | "ndjson" | "jsonl" | "json-seq" | "x-jsonlines" | "jwt" | "sdp") => {
            Kind::Text
        }
        (_, kind) if kind.ends_with("+xml") || kind.ends_with("+yaml") => Kind::Text,
        _ => Kind::Binary,
    }
}

/// A media type in lower case, without its parameters.
pub(super) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// A media type that can be sent: a default for a range such as `image/*`.
pub(super) fn sendable(content_type: &str) -> String {
    let is_range = content_type.contains('*') || !content_type.contains('/');
    let name = match kind(content_type) {
        _ if !is_range => content_type.trim(),
        Kind::Json => "application/json",
        Kind::Form => "application/x-www-form-urlencoded",
        Kind::Multipart => "multipart/form-data",
        Kind::Text => "text/plain",
        Kind::Binary => "application/octet-stream",
    };
    let is_plain = |c: char| c.is_ascii() && !c.is_ascii_control();
    if name.chars().all(is_plain) { name.to_owned() } else { "application/octet-stream".to_owned() }
}

/// Whether a schema is that of bytes.
pub(super) fn is_file(documents: &Documents, schema: Node<'_>) -> bool {
    let Ok(schema) = documents.follow(schema) else { return false };
    let is_text = matches!(schema.text("type"), None | Some("string"));
    let is_encoded = schema.value.get("contentEncoding").is_some();
    let is_bytes = schema.text("format") == Some("binary")
        || (schema.text("contentMediaType").is_some_and(|name| kind(name) == Kind::Binary) && !is_encoded);
    (is_text && is_bytes) || schema.text("type") == Some("file")
}

/// Whether a field of a body is a file, or a list of files. Since OpenAPI 3.1 the schema may leave that to
/// `contentType` in the field's `encoding`.
pub(super) fn files(documents: &Documents, schema: Node<'_>, content_type: Option<&str>) -> Option<Files> {
    let is_told = content_type.is_some_and(|kinds| {
        let first = kinds.split(',').next().unwrap_or_default();
        kind(first) == Kind::Binary
    });
    let is_one = |schema| is_file(documents, schema) || (is_told && is_open(documents, schema));
    if is_one(schema) {
        return Some(Files::One);
    }
    let items = documents.follow(schema).ok().and_then(|schema| schema.get("items"));
    items.is_some_and(is_one).then_some(Files::List)
}

/// Whether a field is one file or a list of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Files {
    One,
    List,
}

impl Files {
    /// The schema of such a field.
    pub(super) fn schema(self, description: Option<&str>) -> Value {
        match self {
            Self::One => file_schema(description),
            Self::List => serde_json::json!({"type": "array", "items": file_schema(description)}),
        }
    }
}

/// Whether a schema allows any string, and says nothing more.
fn is_open(documents: &Documents, schema: Node<'_>) -> bool {
    let Ok(schema) = documents.follow(schema) else { return false };
    let says = |word: &str| schema.value.get(word).is_some();
    let is_text = match schema.text("type") {
        Some(kind) => kind == "string",
        None => !says("type"),
    };
    let others =
        ["enum", "const", "properties", "items", "allOf", "anyOf", "oneOf", "contentEncoding", "format"];
    is_text && !others.into_iter().any(says)
}

/// The schema of a file argument: a string, or an object that holds the bytes, or one that refers to a kept
/// file, as a response of bytes does. It must match what `request/file.rs` accepts, which also takes
/// `filename` for `name`.
pub(super) fn file_schema(description: Option<&str>) -> Value {
    let mut schema = serde_json::json!({
        "format": "binary",
        "anyOf": [
            {"type": "string"},
            {"type": "object", "properties": {
                "base64": {"type": "string", "contentEncoding": "base64"},
                "name": {"type": "string"},
                "content_type": {"type": "string"},
            }, "required": ["base64"]},
            {"type": "object", "description": "A file that a function answered with.", "properties": {
                "uri": {"type": "string", "pattern": "^ctx://file/"},
                "name": {"type": "string"},
                "content_type": {"type": "string"},
            }, "required": ["uri"]},
        ],
    });
    if let (Some(description), Value::Object(fields)) = (description, &mut schema) {
        fields.insert("description".to_owned(), description.into());
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_their_names() {
        for (name, expected) in [
            ("application/json; charset=utf-8", Kind::Json),
            ("application/vnd.github.v3+json", Kind::Json),
            ("*/*", Kind::Json),
            ("application/x-www-form-urlencoded", Kind::Form),
            ("multipart/form-data", Kind::Multipart),
            ("Text/Plain", Kind::Text),
            ("application/soap+xml", Kind::Text),
            ("image/png", Kind::Binary),
            ("application/octet-stream", Kind::Binary),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
        assert_eq!(sendable("*/*"), "application/json");
        assert_eq!(sendable("image/*"), "application/octet-stream");
        assert_eq!(sendable("text/csv"), "text/csv");
        assert_eq!(sendable("a/b\r\nX: y"), "application/octet-stream");
    }
}
