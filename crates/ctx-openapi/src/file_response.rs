//! Binary responses: the bytes are stored as a kept file, and the caller gets its URI.

use crate::header::parse_parameters;
use crate::response::HttpResponse;
use ctx_core::{Call, ContentBlock, Output, StoredFile};
use http::header::CONTENT_DISPOSITION;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

/// Maximum length of a file name, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The output that stands for a binary response; `None` if no file is kept for this call.
pub(crate) fn store_as_file(response: &HttpResponse, content_type: &str, call: &Call) -> Option<Output> {
    let disposition = response.headers.get(CONTENT_DISPOSITION);
    let name = disposition.and_then(|text| file_name(&String::from_utf8_lossy(text.as_bytes())));
    let (content_type, size) = (content_type.to_owned(), response.body.len());
    let file = StoredFile { name, content_type, bytes: response.body.as_slice().into() };
    let uri = call.store_file(&file)?;
    let mut value = Map::new();
    value.insert("uri".to_owned(), uri.as_str().into());
    value.insert("content_type".to_owned(), file.content_type.as_str().into());
    value.insert("bytes".to_owned(), size.into());
    value.extend(file.name.iter().map(|name| ("name".to_owned(), name.as_str().into())));
    let value = Value::Object(value);
    let link = json!({
        "type": "resource_link",
        "uri": uri,
        "name": file.name.unwrap_or_else(|| "file".to_owned()),
        "mimeType": file.content_type,
        "size": size,
    });
    let text = ContentBlock::Text(value.to_string());
    let content = [Some(text), ContentBlock::from_json(link)].into_iter().flatten().collect();
    Some(Output { value, content, ..Output::default() })
}

/// The file name in `Content-Disposition`, without any path. `filename*`, which states its encoding, wins
/// over `filename`.
fn file_name(disposition: &str) -> Option<String> {
    let (_, rest) = disposition.split_at(disposition.find(';')?);
    let (parameters, _) = parse_parameters(rest);
    let find = |key: &str| parameters.iter().find(|(name, _)| name == key).map(|(_, value)| value);
    let name = find("filename*")
        .and_then(|value| decode_extended_value(value))
        .or_else(|| find("filename").cloned())?;
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = name.chars().filter(|letter| !letter.is_control()).collect();
    let name = name.trim();
    let name = name.get(..name.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or_default();
    (!["", ".", ".."].contains(&name)).then(|| name.to_owned())
}

/// Decodes an extended parameter value such as `UTF-8'en'na%C3%AFve.png` (RFC 8187).
fn decode_extended_value(value: &str) -> Option<String> {
    let mut parts = value.splitn(3, '\'');
    let (label, _, text) = (parts.next()?, parts.next()?, parts.next()?);
    let encoding = encoding_rs::Encoding::for_label(label.as_bytes())?;
    let bytes: Vec<u8> = percent_decode_str(text).collect();
    let (text, _, has_errors) = encoding.decode(&bytes);
    (!has_errors).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_name_has_no_path() {
        for (disposition, expected) in [
            ("attachment; filename=a.png", Some("a.png")),
            ("attachment; filename=\"a; b.png\"", Some("a; b.png")),
            ("inline;FileName=\"a \\\"b\\\".png\"", Some("a \"b\".png")),
            ("attachment; filename=\"x\"; filename*=UTF-8''na%C3%AFve.png", Some("naïve.png")),
            ("attachment; filename*=iso-8859-1'en'%A3.txt", Some("£.txt")),
            ("attachment; filename*=unknown''x; filename=plain", Some("plain")),
            ("attachment; filename=\"../../etc/passwd\"", Some("passwd")),
            ("attachment; filename*=UTF-8''..%2F..%5Cx", Some("x")),
            ("attachment; filename=\"..\"", None),
            ("attachment; filename=\"\"", None),
            ("attachment", None),
            ("", None),
        ] {
            assert_eq!(file_name(disposition).as_deref(), expected, "{disposition}");
        }
    }

    proptest! {
        #[test]
        fn a_file_name_is_never_a_path(disposition in "[a-z;=\"*'%./\\\\ ]{0,40}|.*") {
            if let Some(name) = file_name(&format!("attachment; filename={disposition}")) {
                prop_assert!(!name.is_empty() && name.len() <= NAME_BYTES_MAX);
                prop_assert!(!name.contains(['/', '\\', '\0', '\n', '\r']) && name != "..");
            }
        }
    }
}
