//! Multipart bodies: parts with text, JSON and files.

use super::file::FileArgument;
use super::{RequestError, content_text, is_json, style};
use crate::operation::{Format, ParameterStyle, PartEncoding};
use ctx_core::Call;
use http::header::HeaderValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

const FILE_TYPE: &str = "application/octet-stream";
const JSON_TYPE: &str = "application/json";

/// One encoded part.
struct EncodedPart {
    headers: String,
    bytes: Vec<u8>,
}

/// The boundary and the bytes of a multipart body.
pub(super) fn encode_multipart(
    fields: &Map<String, Value>,
    parts: &BTreeMap<String, PartEncoding>,
    call: Option<&Call>,
) -> Result<(String, Vec<u8>), RequestError> {
    let mut encoded_parts = Vec::new();
    let default_part = PartEncoding::default();
    for (name, value) in fields {
        let part = parts.get(name).unwrap_or(&default_part);
        let is_one = part.content_type.as_deref().is_some_and(is_json) && !part.is_file;
        match value {
            Value::Null => {}
            // A declared style takes precedence over the media type.
            Value::Array(_) | Value::Object(_) if let Some((style, explode)) = declared_style(part) => {
                for (name, text) in style::part_pairs(name, value, style, explode) {
                    encoded_parts.push(encode_part(&name, &Value::String(text), &default_part, call)?);
                }
            }
            Value::Array(items) if !is_one => {
                for item in items.iter().filter(|item| !item.is_null()) {
                    encoded_parts.push(encode_part(name, item, part, call)?);
                }
            }
            value => encoded_parts.push(encode_part(name, value, part, call)?),
        }
    }
    let boundary = random_boundary();
    let mut bytes = Vec::with_capacity(encoded_parts.iter().map(|part| part.bytes.len() + 256).sum());
    for part in &encoded_parts {
        bytes.extend_from_slice(format!("--{boundary}\r\n{}\r\n", part.headers).as_bytes());
        bytes.extend_from_slice(&part.bytes);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((boundary, bytes))
}

/// The style of a part that is not a file, if declared.
fn declared_style(part: &PartEncoding) -> Option<(ParameterStyle, bool)> {
    match &part.format {
        Some(Format::Style { style, explode, .. }) if !part.is_file => Some((*style, *explode)),
        _ => None,
    }
}

fn encode_part(
    name: &str,
    value: &Value,
    part: &PartEncoding,
    call: Option<&Call>,
) -> Result<EncodedPart, RequestError> {
    let declared = part.content_type.as_deref().and_then(first_concrete_type);
    let (filename, content_type, bytes) = if part.is_file || FileArgument::is_unambiguous(value) {
        let file =
            FileArgument::parse(value, call).map_err(|why| RequestError::invalid_argument(name, why))?;
        let content_type = file.content_type.as_deref().or(declared).unwrap_or(FILE_TYPE).to_owned();
        // Many servers recognise a file part only by its file name.
        (Some(file.name.unwrap_or_else(|| name.to_owned())), Some(content_type), file.bytes)
    } else {
        let is_nested = value.is_object() || value.is_array();
        let content_type = declared.or_else(|| is_nested.then_some(JSON_TYPE));
        let bytes = content_text(value, content_type.unwrap_or_default()).into_bytes();
        (None, content_type.map(str::to_owned), bytes)
    };
    let mut headers = format!("Content-Disposition: form-data; name=\"{}\"", escape_quoted(name));
    if let Some(filename) = filename {
        headers.push_str(&format!("; filename=\"{}\"", escape_quoted(&filename)));
    }
    headers.push_str("\r\n");
    if let Some(content_type) = content_type {
        if HeaderValue::from_str(&content_type).is_err() {
            return Err(RequestError::invalid_argument(name, "has an invalid content type"));
        }
        headers.push_str(&format!("Content-Type: {content_type}\r\n"));
    }
    Ok(EncodedPart { headers, bytes })
}

/// The first media type of a list, unless it has a wildcard.
fn first_concrete_type(media_types: &str) -> Option<&str> {
    let first = media_types.split(',').next().unwrap_or_default().trim();
    (!first.is_empty() && !first.contains('*')).then_some(first)
}

/// A name for a quoted string, escaped as browsers do it.
fn escape_quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A").replace('\0', "%00")
}

/// A random boundary: nobody can have guessed it, so no part contains it.
fn random_boundary() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("ctx-part-{:016x}{:016x}", random(), random())
}
