//! Request bodies: a value is encoded as the first media type that it fits.

use super::encode::text;
use super::file::File;
use super::{RequestError, in_query, multipart};
use crate::operation::{Body, Format, Media, MediaKind, Operation, Part, Style};
use ctx_core::Call;
use http::header::HeaderValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The media type of bytes of unknown type.
const BYTES: &str = "application/octet-stream";

/// An encoded body.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) content_type: HeaderValue,
    pub(super) bytes: Vec<u8>,
}

/// The body of a request, if there is one to send.
pub(super) fn of(
    operation: &Operation,
    arguments: &Map<String, Value>,
    call: Option<&Call>,
) -> Result<Option<Encoded>, RequestError> {
    let Some(body) = &operation.body else { return Ok(None) };
    match arguments.get(&body.argument).filter(|value| !value.is_null()) {
        Some(value) => encoded(body, value, call).map(Some),
        // The arguments passed schema validation, so no field is required: an empty object is sent.
        None if body.required && body.has_fields => encoded(body, &Value::Object(Map::new()), call).map(Some),
        None if body.required => Err(RequestError::Missing(body.argument.clone())),
        None => Ok(None),
    }
}

fn encoded(body: &Body, value: &Value, call: Option<&Call>) -> Result<Encoded, RequestError> {
    let unfit = |why: String| RequestError::unfit(&body.argument, why);
    // A kept file stands for its bytes wherever a binary media type is accepted.
    let is_kept = File::is_kept(value);
    let as_bytes = body.media.iter().find(|media| is_kept && media.kind == MediaKind::Binary);
    let Some(media) = as_bytes.or_else(|| body.media.iter().find(|media| fits(&media.kind, value))) else {
        let kinds: Vec<_> = body.media.iter().map(|media| media.content_type.as_str()).collect();
        return Err(unfit(format!("cannot be sent as {}", kinds.join(" or "))));
    };
    let mut content_type = concrete(media).to_owned();
    let bytes = match &media.kind {
        MediaKind::Json => value.to_string().into_bytes(),
        MediaKind::Form(parts) => form(object(value), parts).into_bytes(),
        MediaKind::Multipart(parts) => {
            let (boundary, bytes) = multipart::encoded(object(value), parts, call)?;
            content_type = format!("{content_type}; boundary={boundary}");
            bytes
        }
        MediaKind::Text => text(value).into_bytes(),
        MediaKind::Binary => {
            let file = File::of(value, call).map_err(unfit)?;
            // If the document leaves the type open, the file's own type is more precise.
            if let Some(own) = file.content_type.filter(|_| content_type == BYTES) {
                content_type = own;
            }
            file.bytes
        }
    };
    let content_type = HeaderValue::from_str(&content_type)
        .map_err(|_| unfit("has a kind of content that cannot be sent".to_owned()))?;
    Ok(Encoded { content_type, bytes })
}

fn fits(kind: &MediaKind, value: &Value) -> bool {
    match kind {
        MediaKind::Json => true,
        MediaKind::Form(_) | MediaKind::Multipart(_) => value.is_object(),
        MediaKind::Text => !value.is_object() && !value.is_array(),
        MediaKind::Binary => File::is_one(value),
    }
}

fn object(value: &Value) -> &Map<String, Value> {
    static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    value.as_object().unwrap_or(&EMPTY)
}

/// The media type, or a default for one with wildcards.
fn concrete(media: &Media) -> &str {
    if !media.content_type.contains('*') && !media.content_type.is_empty() {
        return &media.content_type;
    }
    match media.kind {
        MediaKind::Json => "application/json",
        MediaKind::Form(_) => "application/x-www-form-urlencoded",
        MediaKind::Multipart(_) => "multipart/form-data",
        MediaKind::Text => "text/plain",
        MediaKind::Binary => BYTES,
    }
}

/// A URL-encoded form. Without a declared style, a list becomes one field per item, and an object becomes
/// JSON.
fn form(fields: &Map<String, Value>, parts: &BTreeMap<String, Part>) -> String {
    let usual = Format::Style { style: Style::Form, explode: true, allow_reserved: false };
    let mut pairs = Vec::new();
    for (name, value) in fields {
        let part = parts.get(name);
        let content_type = part.and_then(|part| part.content_type.as_ref());
        match (part.and_then(|part| part.format.as_ref()), content_type, value) {
            (Some(format), ..) => pairs.extend(in_query(name, value, format)),
            (None, Some(content_type), Value::Object(_) | Value::Array(_)) => {
                pairs.extend(in_query(name, value, &Format::Content(content_type.clone())));
            }
            (None, _, Value::Object(_)) => {
                pairs.extend(in_query(name, value, &Format::Content("application/json".to_owned())));
            }
            (None, ..) => pairs.extend(in_query(name, value, &usual)),
        }
    }
    pairs.join("&")
}
