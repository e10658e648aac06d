//! Request bodies: a value is encoded as the first media type that it fits.

use super::encode::value_text;
use super::file::FileArgument;
use super::{RequestError, multipart, query_pairs};
use crate::operation::{Body, BodyEncoding, Format, MediaType, Operation, ParameterStyle, PartEncoding};
use ctx_core::Call;
use http::header::HeaderValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The media type of bytes of unknown type.
const OCTET_STREAM: &str = "application/octet-stream";

/// An encoded body.
#[derive(Debug)]
pub(super) struct EncodedBody {
    pub(super) content_type: HeaderValue,
    pub(super) bytes: Vec<u8>,
}

/// The body of a request, if there is one to send.
pub(super) fn encode_body(
    operation: &Operation,
    arguments: &Map<String, Value>,
    call: Option<&Call>,
) -> Result<Option<EncodedBody>, RequestError> {
    let Some(body) = &operation.body else { return Ok(None) };
    match arguments.get(&body.argument).filter(|value| !value.is_null()) {
        Some(value) => encode_value(body, value, call).map(Some),
        // The arguments passed schema validation, so no field is required: an empty object is sent.
        None if body.required && body.has_fields => {
            encode_value(body, &Value::Object(Map::new()), call).map(Some)
        }
        None if body.required => Err(RequestError::Missing(body.argument.clone())),
        None => Ok(None),
    }
}

fn encode_value(body: &Body, value: &Value, call: Option<&Call>) -> Result<EncodedBody, RequestError> {
    let invalid = |why: String| RequestError::invalid_argument(&body.argument, why);
    // A kept file stands for its bytes wherever a binary media type is accepted.
    let is_kept = FileArgument::is_kept(value);
    let binary = body.media.iter().find(|media| is_kept && media.encoding == BodyEncoding::Binary);
    let Some(media) = binary.or_else(|| body.media.iter().find(|media| accepts(&media.encoding, value)))
    else {
        let names: Vec<_> = body.media.iter().map(|media| media.content_type.as_str()).collect();
        return Err(invalid(format!("cannot be sent as {}", names.join(" or "))));
    };
    let mut content_type = concrete_type(media).to_owned();
    let bytes = match &media.encoding {
        BodyEncoding::Json => value.to_string().into_bytes(),
        BodyEncoding::Form(parts) => encode_form(object_fields(value), parts).into_bytes(),
        BodyEncoding::Multipart(parts) => {
            let (boundary, bytes) = multipart::encode_multipart(object_fields(value), parts, call)?;
            content_type = format!("{content_type}; boundary={boundary}");
            bytes
        }
        BodyEncoding::Text => value_text(value).into_bytes(),
        BodyEncoding::Binary => {
            let file = FileArgument::parse(value, call).map_err(invalid)?;
            // If the document leaves the type open, the file's own type is more precise.
            if let Some(own) = file.content_type.filter(|_| content_type == OCTET_STREAM) {
                content_type = own;
            }
            file.bytes
        }
    };
    let content_type = HeaderValue::from_str(&content_type)
        .map_err(|_| invalid("has an invalid content type".to_owned()))?;
    Ok(EncodedBody { content_type, bytes })
}

fn accepts(encoding: &BodyEncoding, value: &Value) -> bool {
    match encoding {
        BodyEncoding::Json => true,
        BodyEncoding::Form(_) | BodyEncoding::Multipart(_) => value.is_object(),
        BodyEncoding::Text => !value.is_object() && !value.is_array(),
        BodyEncoding::Binary => FileArgument::is_file(value),
    }
}

fn object_fields(value: &Value) -> &Map<String, Value> {
    static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    value.as_object().unwrap_or(&EMPTY)
}

/// The media type, or a default for one with wildcards.
fn concrete_type(media: &MediaType) -> &str {
    if !media.content_type.contains('*') && !media.content_type.is_empty() {
        return &media.content_type;
    }
    match media.encoding {
        BodyEncoding::Json => "application/json",
        BodyEncoding::Form(_) => "application/x-www-form-urlencoded",
        BodyEncoding::Multipart(_) => "multipart/form-data",
        BodyEncoding::Text => "text/plain",
        BodyEncoding::Binary => OCTET_STREAM,
    }
}

/// A URL-encoded form. Without a declared style, a list becomes one field per item, and an object becomes
/// JSON.
fn encode_form(fields: &Map<String, Value>, parts: &BTreeMap<String, PartEncoding>) -> String {
    let default_format = Format::Style { style: ParameterStyle::Form, explode: true, allow_reserved: false };
    let mut pairs = Vec::new();
    for (name, value) in fields {
        let part = parts.get(name);
        let content_type = part.and_then(|part| part.content_type.as_ref());
        match (part.and_then(|part| part.format.as_ref()), content_type, value) {
            (Some(format), ..) => pairs.extend(query_pairs(name, value, format)),
            (None, Some(content_type), Value::Object(_) | Value::Array(_)) => {
                pairs.extend(query_pairs(name, value, &Format::Content(content_type.clone())));
            }
            (None, _, Value::Object(_)) => {
                pairs.extend(query_pairs(name, value, &Format::Content("application/json".to_owned())));
            }
            (None, ..) => pairs.extend(query_pairs(name, value, &default_format)),
        }
    }
    pairs.join("&")
}
