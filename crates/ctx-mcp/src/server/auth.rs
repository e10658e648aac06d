//! `_meta.auth`: credentials that a client brings for one request, by the name of whom they are for.

use rmcp::ErrorData;
use rmcp::model::{JsonObject, RequestMetaObject};
use serde_json::Value;

/// What is brought, to be understood by those whom it is for. What is wrong is told without repeating it.
pub(super) fn brought(meta: &RequestMetaObject) -> Result<Option<JsonObject>, ErrorData> {
    match meta.get("auth") {
        None => Ok(None),
        Some(Value::Object(auth)) => Ok(Some(auth.clone())),
        Some(_) => {
            let message = "`_meta.auth` must be an object: credentials by the name of the API";
            Err(ErrorData::invalid_params(message, None))
        }
    }
}
