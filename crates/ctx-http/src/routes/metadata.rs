//! Protected resource metadata (RFC 9728), for clients without a token.

use super::no_such_route;
use crate::Api;
use crate::error::ApiError;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde_json::Value;

pub(crate) async fn metadata(State(api): State<Api>, uri: Uri) -> Result<Json<Value>, ApiError> {
    let oauth = api.guard.oauth().filter(|oauth| oauth.is_metadata_path(uri.path()));
    oauth.map(|oauth| Json(oauth.metadata())).ok_or_else(no_such_route)
}
