//! Media types: how each is encoded, and which is preferred.

use super::documents::Documents;
use super::reference::DocumentNode;
use serde_json::Value;

/// Kinds of media types, the preferred first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MediaKind {
    Json,
    Form,
    Multipart,
    Text,
    Binary,
}

/// The kind of a media type.
pub(super) fn media_kind(content_type: &str) -> MediaKind {
    let name = essence(content_type);
    let (family, subtype) = name.split_once('/').unwrap_or((name.as_str(), ""));
    match (family, subtype) {
        (_, "json" | "x-json" | "hal+json") | ("*" | "application", "*") => MediaKind::Json,
        (_, subtype) if subtype.ends_with("+json") => MediaKind::Json,
        ("json" | "*", "") => MediaKind::Json,
        ("application", "x-www-form-urlencoded") => MediaKind::Form,
        ("multipart", _) => MediaKind::Multipart,
        ("text", _) => MediaKind::Text,
        ("application", "xml" | "yaml" | "x-yaml" | "graphql" | "javascript" | "sql" | "toml") => {
            MediaKind::Text
        }
        ("application", "x-ndjson" | "ndjson" | "jsonl" | "json-seq" | "x-jsonlines" | "jwt" | "sdp") => {
            MediaKind::Text
        }
        (_, subtype) if subtype.ends_with("+xml") || subtype.ends_with("+yaml") => MediaKind::Text,
        _ => MediaKind::Binary,
    }
}

/// A media type in lower case, without its parameters.
pub(super) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// A media type that can be sent: a default for a range such as `image/*`.
pub(super) fn sendable_type(content_type: &str) -> String {
    let is_range = content_type.contains('*') || !content_type.contains('/');
    let name = match media_kind(content_type) {
        _ if !is_range => content_type.trim(),
        MediaKind::Json => "application/json",
        MediaKind::Form => "application/x-www-form-urlencoded",
        MediaKind::Multipart => "multipart/form-data",
        MediaKind::Text => "text/plain",
        MediaKind::Binary => "application/octet-stream",
    };
    let is_plain = |c: char| c.is_ascii() && !c.is_ascii_control();
    if name.chars().all(is_plain) { name.to_owned() } else { "application/octet-stream".to_owned() }
}

/// Whether a schema is that of bytes.
pub(super) fn is_file(documents: &Documents, schema: DocumentNode<'_>) -> bool {
    let Ok(schema) = documents.follow(schema) else { return false };
    let is_text = matches!(schema.text("type"), None | Some("string"));
    let is_encoded = schema.value.get("contentEncoding").is_some();
    let is_bytes = schema.text("format") == Some("binary")
        || (schema.text("contentMediaType").is_some_and(|name| media_kind(name) == MediaKind::Binary)
            && !is_encoded);
    (is_text && is_bytes) || schema.text("type") == Some("file")
}

/// Whether a field of a body is a file, or a list of files. Since OpenAPI 3.1 the schema may leave that to
/// `contentType` in the field's `encoding`.
pub(super) fn file_field(
    documents: &Documents,
    schema: DocumentNode<'_>,
    content_type: Option<&str>,
) -> Option<FileField> {
    let is_declared_binary = content_type.is_some_and(|names| {
        let first = names.split(',').next().unwrap_or_default();
        media_kind(first) == MediaKind::Binary
    });
    let is_file_schema =
        |schema| is_file(documents, schema) || (is_declared_binary && allows_any_string(documents, schema));
    if is_file_schema(schema) {
        return Some(FileField::One);
    }
    let items = documents.follow(schema).ok().and_then(|schema| schema.get("items"));
    items.is_some_and(is_file_schema).then_some(FileField::List)
}

/// Whether a field is one file or a list of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileField {
    One,
    List,
}

impl FileField {
    /// The schema of such a field.
    pub(super) fn schema(self, description: Option<&str>) -> Value {
        match self {
            Self::One => file_schema(description),
            Self::List => serde_json::json!({"type": "array", "items": file_schema(description)}),
        }
    }
}

/// Whether a schema allows any string, and says nothing more.
fn allows_any_string(documents: &Documents, schema: DocumentNode<'_>) -> bool {
    let Ok(schema) = documents.follow(schema) else { return false };
    let has = |keyword: &str| schema.value.get(keyword).is_some();
    let is_text = match schema.text("type") {
        Some(kind) => kind == "string",
        None => !has("type"),
    };
    let others =
        ["enum", "const", "properties", "items", "allOf", "anyOf", "oneOf", "contentEncoding", "format"];
    is_text && !others.into_iter().any(has)
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
            {"type": "object", "description": "A file that a function returned.", "properties": {
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
    fn a_media_kind_follows_from_the_name() {
        for (name, expected) in [
            ("application/json; charset=utf-8", MediaKind::Json),
            ("application/vnd.github.v3+json", MediaKind::Json),
            ("*/*", MediaKind::Json),
            ("application/x-www-form-urlencoded", MediaKind::Form),
            ("multipart/form-data", MediaKind::Multipart),
            ("Text/Plain", MediaKind::Text),
            ("application/soap+xml", MediaKind::Text),
            ("image/png", MediaKind::Binary),
            ("application/octet-stream", MediaKind::Binary),
        ] {
            assert_eq!(media_kind(name), expected, "{name}");
        }
        assert_eq!(sendable_type("*/*"), "application/json");
        assert_eq!(sendable_type("image/*"), "application/octet-stream");
        assert_eq!(sendable_type("text/csv"), "text/csv");
        assert_eq!(sendable_type("a/b\r\nX: y"), "application/octet-stream");
    }
}
