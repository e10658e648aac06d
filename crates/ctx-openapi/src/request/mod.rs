//! Builds a request from an operation and its arguments.

mod base;
mod body;
mod encode;
mod file;
mod multipart;
mod path;
mod style;

pub(crate) use base::{ApiBase, base_url};
pub(crate) use encode::encode_component;

use crate::operation::{Format, Operation, Parameter, ParameterLocation, ParameterStyle};
use ctx_core::{Call, ErrorKind, ToolError};
use ctx_net::Request;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue};
use path::PathValue;
use serde_json::{Map, Value};
use url::Url;

/// Connection headers, which no parameter may set: a wrong length would allow request smuggling.
const RESERVED_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Maximum number of media types in `Accept`.
const ACCEPT_MAX: usize = 8;

/// `Accept` where the document names no media type.
const ACCEPT_ANYTHING: HeaderValue = HeaderValue::from_static("application/json, */*;q=0.5");

/// Why a request cannot be built.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    /// A required argument is missing.
    #[error("`{0}` is missing")]
    Missing(String),
    /// An argument cannot be sent.
    #[error("`{argument}` {why}")]
    InvalidArgument { argument: String, why: String },
    /// The document is invalid.
    #[error("the description is invalid: {0}")]
    Document(String),
    /// The base URL is unknown or unusable.
    #[error("{0}; set `base_url`")]
    Base(String),
}

impl RequestError {
    fn invalid_argument(argument: &str, why: impl Into<String>) -> Self {
        Self::InvalidArgument { argument: argument.to_owned(), why: why.into() }
    }
}

impl From<RequestError> for ToolError {
    fn from(error: RequestError) -> Self {
        let kind = match error {
            RequestError::Missing(_) | RequestError::InvalidArgument { .. } => ErrorKind::BadRequest,
            RequestError::Document(_) => ErrorKind::Tool,
            RequestError::Base(_) => ErrorKind::NotConfigured,
        };
        Self::new(kind, error.to_string())
    }
}

/// The request for an operation at this base URL, with these arguments. `call` gives access to the caller's
/// kept files.
pub(crate) fn operation_request(
    operation: &Operation,
    arguments: &Map<String, Value>,
    base: &Url,
    call: Option<&Call>,
) -> Result<Request, RequestError> {
    let method = Method::from_bytes(operation.method.as_bytes());
    let method =
        method.map_err(|_| RequestError::Document("an operation has an invalid HTTP method".to_owned()))?;
    let mut headers = HeaderMap::new();
    let (mut path, mut query, mut cookies) = (Vec::new(), Vec::new(), Vec::new());
    for parameter in &operation.parameters {
        let argument = &parameter.argument;
        let frozen_value = operation.frozen.get(argument);
        let argument_value = frozen_value.or_else(|| arguments.get(argument));
        let Some(value) = argument_value.filter(|value| !value.is_null()) else {
            if parameter.required {
                return Err(RequestError::Missing(argument.clone()));
            }
            continue;
        };
        let is_allowed =
            |pair: &String| frozen_value.is_some() || !sets_frozen(operation, parameter.location, pair);
        match parameter.location {
            ParameterLocation::Path => path.push(PathValue::new(parameter, value)?),
            ParameterLocation::Query => {
                let pairs = query_pairs(&parameter.name, value, &parameter.format);
                query.extend(pairs.into_iter().filter(is_allowed));
            }
            ParameterLocation::Header => add_header(&mut headers, parameter, value)?,
            ParameterLocation::Cookie => {
                cookies.extend(cookie_pairs(parameter, value).into_iter().filter(is_allowed))
            }
        }
    }
    if !cookies.is_empty() {
        let cookies = HeaderValue::from_str(&cookies.join("; "));
        headers.insert(
            COOKIE,
            cookies
                .map_err(|_| RequestError::Document("a cookie parameter has an invalid name".to_owned()))?,
        );
    }
    if !headers.contains_key(ACCEPT) {
        headers.insert(ACCEPT, accept_header(&operation.response.accept));
    }
    let url = path::operation_url(base, &operation.path, &path, &query)?;
    let body = body::encode_body(operation, arguments, call)?;
    if let Some(body) = &body {
        headers.insert(CONTENT_TYPE, body.content_type.clone());
    }
    let body = body.map(|body| body.bytes.into());
    Ok(Request { method, url, headers, body, timeout: None })
}

/// Whether a pair sets a frozen parameter. The fields of an exploded object may have any name, and must not
/// override frozen values.
fn sets_frozen(operation: &Operation, location: ParameterLocation, pair: &str) -> bool {
    let name = pair.split('=').next().unwrap_or_default();
    let mut frozen = operation.parameters.iter().filter(|one| operation.frozen.contains_key(&one.argument));
    frozen.any(|one| one.location == location && encode_component(&one.name) == name)
}

/// Serializes a value as pairs of a query or a form.
fn query_pairs(name: &str, value: &Value, format: &Format) -> Vec<String> {
    match format {
        Format::Style { style, explode, allow_reserved } => {
            style::query_pairs(name, value, *style, *explode, *allow_reserved)
        }
        Format::Content(content_type) => {
            let text = Value::String(content_text(value, content_type));
            style::query_pairs(name, &text, ParameterStyle::Form, false, false)
        }
    }
}

fn cookie_pairs(parameter: &Parameter, value: &Value) -> Vec<String> {
    match &parameter.format {
        Format::Style { explode, .. } => style::cookie_pairs(&parameter.name, value, *explode),
        Format::Content(content_type) => {
            style::cookie_pairs(&parameter.name, &Value::String(content_text(value, content_type)), false)
        }
    }
}

fn add_header(headers: &mut HeaderMap, parameter: &Parameter, value: &Value) -> Result<(), RequestError> {
    let name = HeaderName::from_bytes(parameter.name.as_bytes())
        .map_err(|_| RequestError::invalid_argument(&parameter.argument, "is not a valid header name"))?;
    if RESERVED_HEADERS.contains(&name.as_str()) {
        return Ok(());
    }
    let text = match &parameter.format {
        Format::Style { style, explode, .. } => style::header_text(value, *style, *explode),
        Format::Content(content_type) => Some(content_text(value, content_type)),
    };
    if let Some(text) = text {
        let value = HeaderValue::from_bytes(text.as_bytes()).map_err(|_| {
            RequestError::invalid_argument(
                &parameter.argument,
                "is sent in a header, which cannot hold line breaks or other control characters",
            )
        })?;
        headers.insert(name, value);
    }
    Ok(())
}

/// A value as content of a media type: as JSON if the type is JSON, else as text.
fn content_text(value: &Value, content_type: &str) -> String {
    if is_json(content_type) { value.to_string() } else { encode::value_text(value) }
}

/// Whether a media type is JSON.
pub(crate) fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type == "application/json" || media_type == "text/json" || media_type.ends_with("+json")
}

fn accept_header(media_types: &[String]) -> HeaderValue {
    // Weighted with `q`: servers ignore the order of media types.
    let weighted = media_types.iter().take(ACCEPT_MAX).enumerate().map(|(index, media_type)| match index {
        0 => media_type.clone(),
        _ => format!("{media_type};q=0.{}", 9_usize.saturating_sub(index)),
    });
    let text = weighted.collect::<Vec<_>>().join(", ");
    HeaderValue::from_str(&text).ok().filter(|value| !value.is_empty()).unwrap_or(ACCEPT_ANYTHING)
}

#[cfg(test)]
pub(crate) mod tests;
