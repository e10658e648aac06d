//! Multipart bodies: parts with text, JSON and files.

use super::file::File;
use super::{RequestError, content, is_json, style};
use crate::operation::{Format, Part, Style};
use ctx_core::Call;
use http::header::HeaderValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

const FILE_TYPE: &str = "application/octet-stream";
const JSON_TYPE: &str = "application/json";

/// One encoded part.
struct Piece {
    head: String,
    bytes: Vec<u8>,
}

/// The boundary and the bytes of a multipart body.
pub(super) fn encoded(
    fields: &Map<String, Value>,
    parts: &BTreeMap<String, Part>,
    call: Option<&Call>,
) -> Result<(String, Vec<u8>), RequestError> {
    let mut pieces = Vec::new();
    let usual = Part::default();
    for (name, value) in fields {
        let part = parts.get(name).unwrap_or(&usual);
        let is_one = part.content_type.as_deref().is_some_and(is_json) && !part.is_file;
        match value {
            Value::Null => {}
            // A declared style takes precedence over the media type.
            Value::Array(_) | Value::Object(_) if let Some((style, explode)) = styled(part) => {
                for (name, text) in style::in_parts(name, value, style, explode) {
                    pieces.push(piece(&name, &Value::String(text), &usual, call)?);
                }
            }
            Value::Array(items) if !is_one => {
                for item in items.iter().filter(|item| !item.is_null()) {
                    pieces.push(piece(name, item, part, call)?);
                }
            }
            value => pieces.push(piece(name, value, part, call)?),
        }
    }
    let boundary = boundary();
    let mut bytes = Vec::with_capacity(pieces.iter().map(|piece| piece.bytes.len() + 256).sum());
    for piece in &pieces {
        bytes.extend_from_slice(format!("--{boundary}\r\n{}\r\n", piece.head).as_bytes());
        bytes.extend_from_slice(&piece.bytes);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((boundary, bytes))
}

/// The style of a part that is not a file, if declared.
fn styled(part: &Part) -> Option<(Style, bool)> {
    match &part.format {
        Some(Format::Style { style, explode, .. }) if !part.is_file => Some((*style, *explode)),
        _ => None,
    }
}

fn piece(name: &str, value: &Value, part: &Part, call: Option<&Call>) -> Result<Piece, RequestError> {
    let declared = part.content_type.as_deref().and_then(concrete);
    let (filename, content_type, bytes) = if part.is_file || File::is_evident(value) {
        let file = File::of(value, call).map_err(|why| RequestError::unfit(name, why))?;
        let content_type = file.content_type.as_deref().or(declared).unwrap_or(FILE_TYPE).to_owned();
        // Many servers recognise a file part only by its file name.
        (Some(file.name.unwrap_or_else(|| name.to_owned())), Some(content_type), file.bytes)
    } else {
        let is_nested = value.is_object() || value.is_array();
        let content_type = declared.or_else(|| is_nested.then_some(JSON_TYPE));
        let bytes = content(value, content_type.unwrap_or_default()).into_bytes();
        (None, content_type.map(str::to_owned), bytes)
    };
    let mut head = format!("Content-Disposition: form-data; name=\"{}\"", quoted(name));
    if let Some(filename) = filename {
        head.push_str(&format!("; filename=\"{}\"", quoted(&filename)));
    }
    head.push_str("\r\n");
    if let Some(content_type) = content_type {
        if HeaderValue::from_str(&content_type).is_err() {
            return Err(RequestError::unfit(name, "has a kind of content that cannot be sent"));
        }
        head.push_str(&format!("Content-Type: {content_type}\r\n"));
    }
    Ok(Piece { head, bytes })
}

/// The first media type of a list, unless it has a wildcard.
fn concrete(kinds: &str) -> Option<&str> {
    let first = kinds.split(',').next().unwrap_or_default().trim();
    (!first.is_empty() && !first.contains('*')).then_some(first)
}

/// A name for a quoted string, escaped as browsers do it.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A").replace('\0', "%00")
}

/// A random boundary: nobody can have guessed it, so no part contains it.
fn boundary() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("ctx-part-{:016x}{:016x}", random(), random())
}
