//! Files, as arguments give them: a string, or `{ filename=, content_type=, base64= | text= }`.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

/// What a file must look like.
pub(super) const EXPECTED: &str =
    "must be a string, or a table with `base64` or `text`, and `filename` and `content_type` if they matter";

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// A file to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) filename: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) bytes: Vec<u8>,
}

impl File {
    /// The file that a value is; none where it is none, an error where it cannot be read.
    pub(super) fn of(value: &Value) -> Option<Result<Self, &'static str>> {
        let fields = match value {
            Value::String(text) => {
                let bytes = text.clone().into_bytes();
                return Some(Ok(Self { filename: None, content_type: None, bytes }));
            }
            Value::Object(fields) => fields,
            _ => return None,
        };
        let known = ["filename", "content_type", "base64", "text"];
        if !fields.iter().all(|(key, value)| known.contains(&key.as_str()) && value.is_string()) {
            return None;
        }
        let field = |name: &str| fields.get(name).and_then(Value::as_str);
        let bytes = match (field("base64"), field("text")) {
            (Some(base64), None) => match decoded(base64) {
                Some(bytes) => bytes,
                None => return Some(Err("has a `base64` that is none")),
            },
            (None, Some(text)) => text.as_bytes().to_vec(),
            _ => return None,
        };
        let owned = |name: &str| field(name).map(str::to_owned);
        Some(Ok(Self { filename: owned("filename"), content_type: owned("content_type"), bytes }))
    }

    /// Whether a value can be nothing but a file, even where the document does not speak of one.
    pub(super) fn is_evident(value: &Value) -> bool {
        let has = |name: &str| value.get(name).is_some();
        (has("base64") || has("filename")) && Self::of(value).is_some()
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
            json!({ "text": "hi?>" }),
            json!({ "base64": "aGk/Pg==" }),
            json!({ "base64": "aGk_Pg" }),
            json!({ "base64": "aGk/\nPg", "filename": "x" }),
        ] {
            assert_eq!(bytes(value.clone()), Some(Ok(b"hi?>".to_vec())), "{value}");
        }
        for value in
            [json!(1), json!({}), json!({ "text": "a", "base64": "" }), json!({ "text": "a", "b": 1 })]
        {
            assert_eq!(bytes(value.clone()), None, "{value}");
        }
        assert!(bytes(json!({ "base64": "a" })).unwrap().is_err());
    }
}
