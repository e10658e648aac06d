//! `_meta.auth`: credentials that a client sends with one request, keyed by the name of the API they are for.

use rmcp::ErrorData;
use rmcp::model::{JsonObject, RequestMetaObject};
use serde_json::Value;

/// The credentials of a request, uninterpreted; each API parses its own. An error never repeats their
/// content.
pub(super) fn request_credentials(meta: &RequestMetaObject) -> Result<Option<JsonObject>, ErrorData> {
    match meta.get("auth") {
        None => Ok(None),
        Some(Value::Object(auth)) => Ok(Some(auth.clone())),
        Some(_) => {
            let message = "`_meta.auth` must be an object: credentials by the name of the API";
            Err(ErrorData::invalid_params(message, None))
        }
    }
}
