//! Failures as the client sees them.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use ctx_core::{ErrorKind, ToolError};
use serde_json::{Value, json};

/// Put into the extensions of a response with status 403, it makes the guard say which scopes are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NeededScopes(pub Vec<String>);

/// A failed request.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    error: Box<ToolError>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl ApiError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        ToolError::new(kind, message).into()
    }

    /// A status that is not the code's own: 405 and 415 are `bad_request` too.
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The whole answer as it goes over the wire, for where there is no axum; the last of its
    /// connection.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let body = self.body().to_string();
        let mut answer =
            format!("HTTP/1.1 {}\r\ncontent-type: application/json\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            answer.extend_from_slice(format!("{name}: ").as_bytes());
            answer.extend_from_slice(value.as_bytes());
            answer.extend_from_slice(b"\r\n");
        }
        let end = format!("connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        answer.extend_from_slice(end.as_bytes());
        answer
    }

    /// The answer's body, and what an `error` event tells.
    pub(crate) fn body(&self) -> Value {
        let mut body = json!({"error": {"code": self.error.kind().code(), "message": self.error.message()}});
        if !self.error.logs().is_empty() {
            body["logs"] = json!(self.error.logs());
        }
        if self.error.inside().calls > 0 {
            body["meta"] = json!(self.error.inside());
        }
        body
    }
}

impl From<ToolError> for ApiError {
    fn from(error: ToolError) -> Self {
        let status = StatusCode::from_u16(error.kind().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut headers = Vec::new();
        let comes_back = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
        let wait = error.wait_seconds().or(comes_back.then_some(1));
        if let Some(seconds) = wait {
            headers.push((header::RETRY_AFTER, HeaderValue::from(seconds)));
        }
        Self { status, error: Box::new(error), headers }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = self.body();
        let scopes = NeededScopes(self.error.scopes().to_vec());
        let mut response = (self.status, AppendHeaders(self.headers), axum::Json(body)).into_response();
        if !scopes.0.is_empty() {
            response.extensions_mut().insert(scopes);
        }
        response
    }
}
