//! Files, as arguments give them: a string, or `{ base64 = "…", name = "a.png"?, content_type = "image/png"? }`.
//!
//! An answer that is bytes is such a table, and can be sent on as it is: what else stands in it does no harm. What
//! is taken here is what the schema of a file admits, which `document/media.rs` has.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

/// What a file must look like.
pub(super) const EXPECTED: &str =
    "must be a string, or a table with `base64`, and `name` and `content_type` if they matter";

/// The fields of a file that stands where the document does not speak of one.
const FIELDS: [&str; 5] = ["base64", "name", "filename", "content_type", "bytes"];

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// A file to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) name: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) bytes: Vec<u8>,
}

impl File {
    /// The file that a value is; none where it is none, an error where it cannot be read.
    pub(super) fn of(value: &Value) -> Option<Result<Self, &'static str>> {
        let fields = match value {
            Value::String(text) => {
                let bytes = text.clone().into_bytes();
                return Some(Ok(Self { name: None, content_type: None, bytes }));
            }
            Value::Object(fields) => fields,
            _ => return None,
        };
        let is_text = |name: &str| fields.get(name).is_none_or(Value::is_string);
        if !is_text("name") || !is_text("content_type") {
            return None;
        }
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        let Some(bytes) = decoded(text("base64")?) else {
            return Some(Err("has a `base64` that is none"));
        };
        let name = text("name").or_else(|| text("filename")).map(str::to_owned);
        Some(Ok(Self { name, content_type: text("content_type").map(str::to_owned), bytes }))
    }

    /// Whether a value can be nothing but a file, even where the document does not speak of one.
    pub(super) fn is_evident(value: &Value) -> bool {
        let fields = value.as_object();
        let is_plain = fields.is_some_and(|fields| fields.keys().all(|key| FIELDS.contains(&key.as_str())));
        is_plain && Self::of(value).is_some()
    }
}

/// Either alphabet, with padding or without, in lines or not.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let text: String = text.split_ascii_whitespace().collect();
    let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    GeneralPurpose::new(alphabet, LENIENT).decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bytes(value: Value) -> Option<Result<Vec<u8>, &'static str>> {
        File::of(&value).map(|file| file.map(|file| file.bytes))
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
            assert_eq!(bytes(value.clone()), Some(Ok(b"hi?>".to_vec())), "{value}");
        }
        for value in [
            json!(1),
            json!({}),
            json!({ "name": "a" }),
            json!({ "base64": 1 }),
            json!({ "base64": "", "name": 1 }),
            json!({ "base64": "", "content_type": null }),
        ] {
            assert_eq!(bytes(value.clone()), None, "{value}");
        }
        assert!(bytes(json!({ "base64": "a" })).unwrap().is_err());
    }

    #[test]
    fn what_may_be_something_else_is_no_evident_file() {
        assert!(File::is_evident(&json!({ "base64": "aGk=", "filename": "a", "bytes": 2 })));
        assert!(!File::is_evident(&json!({ "base64": "aGk=", "width": 2 })));
        assert!(!File::is_evident(&json!("text")));
    }
}
