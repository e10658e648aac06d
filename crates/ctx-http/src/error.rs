//! Failures as the client sees them.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use ctx_core::{ErrorKind, ToolError};
use serde_json::json;

/// A failed request.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    error: ToolError,
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
}

impl From<ToolError> for ApiError {
    fn from(error: ToolError) -> Self {
        let status = StatusCode::from_u16(error.kind().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut headers = Vec::new();
        let wait = error.wait().map(|wait| wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
        let wait = wait.or((status == StatusCode::SERVICE_UNAVAILABLE).then_some(1));
        if let Some(seconds) = wait {
            headers.push((header::RETRY_AFTER, HeaderValue::from(seconds)));
        }
        Self { status, error, headers }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({"error": {"code": self.error.kind().code(), "message": self.error.message()}});
        (self.status, AppendHeaders(self.headers), axum::Json(body)).into_response()
    }
}
