//! Request bodies: JSON objects, bounded in size and time.

use crate::HttpLimits;
use crate::error::ApiError;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, StatusCode, header};
use ctx_core::{ErrorKind, check_unique_keys};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

/// The body as a JSON object; an empty body is an empty object.
pub(crate) async fn read_object(
    headers: &HeaderMap,
    body: Body,
    limits: &HttpLimits,
) -> Result<Value, ApiError> {
    let bytes = read_body(body, limits).await?;
    if bytes.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    if !is_json(headers) {
        let message = "the request body must be JSON; send `Content-Type: application/json`";
        return Err(
            ApiError::new(ErrorKind::BadRequest, message).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
        );
    }
    match check_unique_keys(&bytes).and_then(|()| serde_json::from_slice(&bytes)) {
        Ok(object @ Value::Object(_)) => Ok(object),
        Ok(_) => Err(ApiError::new(ErrorKind::BadRequest, "the request body must be a JSON object")),
        Err(error) => Err(ApiError::new(ErrorKind::BadRequest, format!("malformed JSON: {error}"))),
    }
}

/// The body, within its bounds of size and time.
pub(crate) async fn read_body(body: Body, limits: &HttpLimits) -> Result<Bytes, ApiError> {
    tokio::time::timeout(limits.body_timeout, collect(body, limits.body_bytes))
        .await
        .map_err(|_| ApiError::new(ErrorKind::Timeout, "the request body took too long to arrive"))?
}

async fn collect(body: Body, bytes_max: usize) -> Result<Bytes, ApiError> {
    let too_large = || {
        let message = format!("the request body is larger than {bytes_max} bytes");
        ApiError::new(ErrorKind::TooLarge, message)
    };
    // A declared length is checked before the body arrives.
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => Err(ApiError::new(ErrorKind::BadRequest, "the request body is incomplete")),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(content_type) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type == "application/json"
        || (media_type.starts_with("application/") && media_type.ends_with("+json"))
}
