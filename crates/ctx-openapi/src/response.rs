//! Decodes a response into a value, by its media type.

use crate::file_response;
use crate::request::is_json;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ctx_core::{Call, ErrorKind, NetworkScope, Output, Redactor, ToolError};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};
use serde_json::{Value, json};
use std::borrow::Cow;

/// Bytes of an error response that are read.
pub(crate) const ERROR_BODY_BYTES_MAX: usize = 64 << 10;

/// Bytes of an error response that the error message quotes.
const QUOTE_BYTES_MAX: usize = 1 << 10;

/// Media types that are text although their names do not say so.
const TEXT_TYPES: [&str; 11] = [
    "application/graphql",
    "application/javascript",
    "application/json-seq",
    "application/jsonl",
    "application/sql",
    "application/toml",
    "application/x-ndjson",
    "application/x-www-form-urlencoded",
    "application/x-yaml",
    "application/xml",
    "application/yaml",
];

/// An HTTP response with its body.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The body; of an error, only the beginning.
    pub(crate) body: Vec<u8>,
    /// Network scope of the peer that sent it; a redirect must not lead to a nearer one.
    pub(crate) scope: NetworkScope,
}

impl HttpResponse {
    /// The decoded value, or an error for a failure status. Credentials are masked in both: some services
    /// echo them.
    ///
    /// Bytes become a kept file, if `call` is given and files can be kept for it.
    pub(crate) fn into_output(
        self,
        shown: &str,
        redactor: &Redactor,
        call: Option<&Call>,
    ) -> Result<Output, ToolError> {
        let decoded = self.decode_body(redactor);
        let stored = match &decoded {
            Err(media_type) if self.status.is_success() => {
                call.and_then(|call| file_response::store_as_file(&self, media_type, call))
            }
            _ => None,
        };
        let value = match (decoded, stored) {
            (_, Some(output)) => return Ok(output),
            (Ok(value), None) => value,
            (Err(media_type), None) => {
                let base64 = BASE64_STANDARD.encode(&self.body);
                json!({ "content_type": media_type, "bytes": self.body.len(), "base64": base64 })
            }
        };
        if self.status.is_success() {
            return Ok(Output::from(value));
        }
        let quote = match &value {
            Value::Null => String::new(),
            Value::String(text) => excerpt(text),
            // Base64 is of no use in an error message.
            Value::Object(fields) if fields.contains_key("base64") => String::new(),
            other => excerpt(&other.to_string()),
        };
        // The path may hold a secret, too.
        let shown = redactor.text(shown.to_owned());
        let reason = self.status.canonical_reason().unwrap_or_default();
        let mut message = format!("{shown}: HTTP {} {reason}", self.status.as_u16()).trim_end().to_owned();
        if !quote.is_empty() {
            message = format!("{message}: {quote}");
        }
        let data = json!({ "status": self.status.as_u16(), "body": value });
        Err(ToolError::new(ErrorKind::Tool, message).with_data(data))
    }

    /// Decodes the body; `Err` is the media type of a body that is bytes.
    fn decode_body(&self, redactor: &Redactor) -> Result<Value, String> {
        if self.body.is_empty() || matches!(self.status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) {
            return Ok(Value::Null);
        }
        let content_type =
            self.headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let content_type = content_type.unwrap_or_default();
        let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let may_be_json = media_type.is_empty() || is_json(&media_type);
        let is_text = may_be_json
            || media_type.starts_with("text/")
            || media_type.ends_with("+xml")
            || media_type.ends_with("+yaml");
        if is_text || TEXT_TYPES.contains(&media_type.as_str()) {
            // A body that is declared as JSON, or not declared, may still be binary.
            let must_be_text = !may_be_json || charset(&content_type).is_some();
            if let Some(text) = decode_text(&self.body, &content_type, must_be_text) {
                // Masked after parsing: in JSON text a secret may be escaped, or match part of a number.
                if may_be_json && let Ok(mut value) = serde_json::from_str(&text) {
                    mask(&mut value, redactor);
                    return Ok(value);
                }
                return Ok(Value::String(redactor.text(text.into_owned())));
            }
        }
        Err(if media_type.is_empty() { "application/octet-stream".to_owned() } else { media_type })
    }
}

/// Masks secrets in all strings and field names of a value.
fn mask(value: &mut Value, redactor: &Redactor) {
    match value {
        Value::String(text) => *text = redactor.text(std::mem::take(text)),
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, redactor)),
        Value::Object(fields) => {
            let masked = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                mask(&mut value, redactor);
                (redactor.text(name), value)
            });
            *fields = masked.collect();
        }
        _ => {}
    }
}

/// Bytes as text; `None` if they are not valid text, unless they must be.
fn decode_text<'a>(bytes: &'a [u8], content_type: &str, must_be_text: bool) -> Option<Cow<'a, str>> {
    let encoding = charset(content_type).and_then(|label| encoding_rs::Encoding::for_label(label.as_bytes()));
    let (text, _, has_errors) = encoding.unwrap_or(encoding_rs::UTF_8).decode(bytes);
    (must_be_text || !has_errors).then_some(text)
}

fn charset(content_type: &str) -> Option<&str> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    })
}

/// The beginning of a text, on one line.
fn excerpt(text: &str) -> String {
    let cut = text.get(..text.floor_char_boundary(QUOTE_BYTES_MAX)).unwrap_or_default();
    let line = cut.split_whitespace().collect::<Vec<_>>().join(" ");
    if cut.len() < text.len() { format!("{line}…") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_core::Secret;

    fn response(status: u16, content_type: &str, body: &[u8]) -> HttpResponse {
        let mut headers = HeaderMap::new();
        if !content_type.is_empty() {
            headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        HttpResponse { status, headers, body: body.to_vec(), scope: NetworkScope::Internet }
    }

    fn output(response: HttpResponse) -> Result<Output, ToolError> {
        response.into_output("GET https://api.example/pets", &Redactor::default(), None)
    }

    #[test]
    fn a_body_is_decoded_by_its_media_type() {
        for (content_type, body, expected) in [
            ("application/json", &b"{\"a\": 1}"[..], json!({ "a": 1 })),
            ("application/json; charset=utf-8", b"[1]", json!([1])),
            ("application/problem+json", b"null", json!(null)),
            ("APPLICATION/JSON", b"\xef\xbb\xbf{}", json!({})),
            ("application/json", b"<html>", json!("<html>")),
            ("application/json", b"{\"a\":", json!("{\"a\":")),
            ("text/plain", b"{}", json!("{}")),
            ("text/html; charset=iso-8859-1", b"caf\xe9", json!("caf\u{e9}")),
            ("text/csv", b"a\xff", json!("a\u{fffd}")),
            ("application/xml", b"<a/>", json!("<a/>")),
            ("application/atom+xml", b"<a/>", json!("<a/>")),
            ("", b"{\"a\": 1}", json!({ "a": 1 })),
            ("", b"plain", json!("plain")),
            ("application/json", b"", json!(null)),
            (
                "application/json",
                b"\x89PNG",
                json!({ "content_type": "application/json", "bytes": 4, "base64": "iVBORw==" }),
            ),
            (
                "image/png",
                b"\x89PNG",
                json!({ "content_type": "image/png", "bytes": 4, "base64": "iVBORw==" }),
            ),
        ] {
            let value = output(response(200, content_type, body)).unwrap().value;
            assert_eq!(value, expected, "{content_type}");
        }
        assert_eq!(output(response(204, "application/json", b"x")).unwrap().value, Value::Null);
        let deep = "[".repeat(10_000);
        assert_eq!(output(response(200, "application/json", deep.as_bytes())).unwrap().value, json!(deep));
    }

    #[test]
    fn an_error_message_has_status_reason_and_an_excerpt_of_the_body() {
        let error =
            output(response(404, "application/json", b"{\"message\": \"no\\nsuch pet\"}")).unwrap_err();
        assert_eq!(
            error.message(),
            "GET https://api.example/pets: HTTP 404 Not Found: {\"message\":\"no\\nsuch pet\"}"
        );
        assert_eq!(error.data(), Some(&json!({ "status": 404, "body": { "message": "no\nsuch pet" } })));
        let long = output(response(500, "text/html", "<p>é\n".repeat(4_000).as_bytes())).unwrap_err();
        assert!(long.message().len() < 2 * QUOTE_BYTES_MAX && long.message().ends_with('…'), "{long}");
        let bytes = output(response(502, "image/png", b"\x89PNG")).unwrap_err();
        assert_eq!(bytes.message(), "GET https://api.example/pets: HTTP 502 Bad Gateway");
    }

    #[test]
    fn echoed_credentials_are_masked() {
        let redactor = Redactor::new([Secret::new("hunter2!")]);
        let echo = response(200, "application/json", b"{\"Authorization\": \"Bearer hunter2!\"}");
        let value = echo.into_output("GET x", &redactor, None).unwrap().value;
        assert_eq!(value, json!({ "Authorization": "Bearer ***" }));
        let escaped = response(200, "application/json", br#"{"hunter2!": ["\u0068unter2!", 1], "a": "b"}"#);
        let value = escaped.into_output("GET x", &redactor, None).unwrap().value;
        assert_eq!(value, json!({ "***": ["***", 1], "a": "b" }));
        let refusal =
            response(401, "text/plain", b"not hunter2!").into_output("GET x", &redactor, None).unwrap_err();
        assert_eq!(refusal.message(), "GET x: HTTP 401 Unauthorized: not ***");
    }

    #[test]
    fn a_number_that_is_a_secret_elsewhere_stays_a_number() {
        let redactor = Redactor::new([Secret::new("12345678")]);
        let echo = response(200, "application/json", b"{\"id\": 123456789, \"key\": \"12345678\"}");
        let value = echo.into_output("GET x", &redactor, None).unwrap().value;
        assert_eq!(value, json!({ "id": 123_456_789, "key": "***" }));
    }
}
