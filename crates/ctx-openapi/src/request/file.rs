//! File arguments: a string, `{ base64 = "…", name = "a.png"?, content_type = "image/png"? }`, or a reference
//! to a kept file as a response returned it, with a `uri` in place of the bytes.
//!
//! Further fields of such a table are ignored. The schema of a file in `document/media.rs` must match what is
//! accepted here.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ctx_core::{Call, FILE_PREFIX};
use serde_json::Value;

/// The error for a value that is not a file.
const EXPECTED_FILE: &str = "must be a string, or a table with `base64` or the `uri` of a file that a function \
    returned, and optionally `name` and `content_type`";

/// The only fields of a value that [`FileArgument::is_unambiguous`] takes for a file.
const FILE_FIELDS: [&str; 6] = ["base64", "uri", "name", "filename", "content_type", "bytes"];

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// A file to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileArgument {
    pub(super) name: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) bytes: Vec<u8>,
}

/// Source of the bytes of a file.
enum FileSource<'a> {
    Text(&'a str),
    Base64(&'a str),
    Kept(&'a str),
}

impl FileArgument {
    /// The file in a value, or why the value is not a file.
    pub(super) fn parse(value: &Value, call: Option<&Call>) -> Result<Self, String> {
        let field = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let (name, content_type) = (field("name").or_else(|| field("filename")), field("content_type"));
        let bytes = match file_source(value).ok_or(EXPECTED_FILE)? {
            FileSource::Text(text) => text.as_bytes().to_vec(),
            FileSource::Base64(text) => decode_base64(text).ok_or("has an invalid `base64`")?,
            FileSource::Kept(uri) => {
                let file = call.ok_or("is a kept file, but there is no file store")?.load_file(uri);
                let file = file.map_err(|error| format!("cannot be sent: {}", error.message()))?;
                let (name, content_type) = (name.or(file.name), content_type.or(Some(file.content_type)));
                return Ok(Self { name, content_type, bytes: file.bytes.to_vec() });
            }
        };
        Ok(Self { name, content_type, bytes })
    }

    /// Whether a value is a file.
    pub(super) fn is_file(value: &Value) -> bool {
        file_source(value).is_some()
    }

    /// Whether a value refers to a kept file.
    pub(super) fn is_kept(value: &Value) -> bool {
        matches!(file_source(value), Some(FileSource::Kept(_)))
    }

    /// Whether a value can only be a file, even where the document does not declare one.
    pub(super) fn is_unambiguous(value: &Value) -> bool {
        let fields = value.as_object();
        let is_plain =
            fields.is_some_and(|fields| fields.keys().all(|key| FILE_FIELDS.contains(&key.as_str())));
        is_plain && Self::is_file(value)
    }
}

/// Source of the bytes of a file; `None` if the value is not a file.
fn file_source(value: &Value) -> Option<FileSource<'_>> {
    let fields = match value {
        Value::String(text) => return Some(FileSource::Text(text)),
        Value::Object(fields) => fields,
        _ => return None,
    };
    let is_text = |name: &str| fields.get(name).is_none_or(Value::is_string);
    if !is_text("name") || !is_text("content_type") {
        return None;
    }
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    match (text("base64"), text("uri")) {
        (Some(base64), _) => Some(FileSource::Base64(base64)),
        (None, Some(uri)) if uri.starts_with(FILE_PREFIX) => Some(FileSource::Kept(uri)),
        _ => None,
    }
}

/// Decodes base64: either alphabet, with or without padding, line breaks allowed.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let text: String = text.split_ascii_whitespace().collect();
    let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    GeneralPurpose::new(alphabet, LENIENT).decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bytes(value: &Value) -> Result<Vec<u8>, String> {
        FileArgument::parse(value, None).map(|file| file.bytes)
    }

    #[test]
    fn a_file_is_text_or_base64() {
        for value in [
            json!("hi?>"),
            json!({ "base64": "aGk/Pg==" }),
            json!({ "base64": "aGk_Pg" }),
            json!({ "base64": "aGk/\nPg", "filename": "x" }),
            json!({ "base64": "aGk/Pg", "bytes": 4, "content_type": "text/plain", "kept": { "path": "x" } }),
        ] {
            assert_eq!(bytes(&value), Ok(b"hi?>".to_vec()), "{value}");
        }
        for value in [
            json!(1),
            json!({}),
            json!({ "name": "a" }),
            json!({ "base64": 1 }),
            json!({ "base64": "", "name": 1 }),
            json!({ "base64": "", "content_type": null }),
            json!({ "uri": "https://example.com/a.png" }),
        ] {
            assert!(!FileArgument::is_file(&value) && bytes(&value).unwrap_err() == EXPECTED_FILE, "{value}");
        }
        assert!(bytes(&json!({ "base64": "a" })).is_err());
        let kept = json!({ "uri": "ctx://file/a", "content_type": "x/y", "bytes": 3, "name": "a" });
        assert!(FileArgument::is_kept(&kept) && FileArgument::is_unambiguous(&kept));
        assert_eq!(bytes(&kept).unwrap_err(), "is a kept file, but there is no file store");
    }

    #[test]
    fn a_table_with_other_fields_is_not_unambiguously_a_file() {
        assert!(FileArgument::is_unambiguous(&json!({ "base64": "aGk=", "filename": "a", "bytes": 2 })));
        assert!(!FileArgument::is_unambiguous(&json!({ "base64": "aGk=", "width": 2 })));
        assert!(!FileArgument::is_unambiguous(&json!("text")));
    }
}
