//! Error responses: status, headers and the JSON body `{"error":{"code","message"}}`.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use ctx_core::{ErrorKind, ToolError};
use serde_json::{Value, json};

/// Response extension of a 403: tells the guard which scopes to name in `WWW-Authenticate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequiredScopes(pub Vec<String>);

/// The error response to a request.
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

    /// Overrides the status of the error code: 405 and 415 have the code `bad_request`, too.
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The whole response as bytes, to be written without axum. Closes the connection.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let body = self.body().to_string();
        let mut response =
            format!("HTTP/1.1 {}\r\ncontent-type: application/json\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            response.extend_from_slice(format!("{name}: ").as_bytes());
            response.extend_from_slice(value.as_bytes());
            response.extend_from_slice(b"\r\n");
        }
        let end = format!("connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        response.extend_from_slice(end.as_bytes());
        response
    }

    /// The JSON body; also the data of an `error` event.
    pub(crate) fn body(&self) -> Value {
        let mut body = json!({"error": {"code": self.error.kind().code(), "message": self.error.message()}});
        if !self.error.logs().is_empty() {
            body["logs"] = json!(self.error.logs());
        }
        if self.error.nested_calls().calls > 0 {
            body["meta"] = json!(self.error.nested_calls());
        }
        body
    }
}

impl From<ToolError> for ApiError {
    fn from(error: ToolError) -> Self {
        let status = StatusCode::from_u16(error.kind().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut headers = Vec::new();
        let is_temporary = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
        let wait_seconds = error.retry_after_seconds().or(is_temporary.then_some(1));
        if let Some(seconds) = wait_seconds {
            headers.push((header::RETRY_AFTER, HeaderValue::from(seconds)));
        }
        Self { status, error: Box::new(error), headers }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = self.body();
        let scopes = RequiredScopes(self.error.scopes().to_vec());
        let mut response = (self.status, AppendHeaders(self.headers), axum::Json(body)).into_response();
        if !scopes.0.is_empty() {
            response.extensions_mut().insert(scopes);
        }
        response
    }
}
