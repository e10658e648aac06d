//! MCP: the guard and the bounds of every route are ours, the protocol is `ctx-mcp`'s.

use crate::Api;
use crate::error::ApiError;
use crate::json::read;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use ctx_core::ErrorKind;

pub(crate) async fn answer(State(api): State<Api>, request: Request) -> Result<Response, ApiError> {
    let Some(mcp) = &api.mcp else {
        return Err(ApiError::new(ErrorKind::NotFound, "MCP is not served here"));
    };
    let (parts, body) = request.into_parts();
    let body = read(body, &api.limits).await?;
    Ok(mcp.answer(Request::from_parts(parts, body)).await.map(Body::new))
}
