//! MCP: the guard and the bounds of every route are ours, the protocol is `ctx-mcp`'s.

use crate::Api;
use crate::error::ApiError;
use crate::json::read;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use ctx_core::{Caller, ErrorKind, Identity};
use ctx_mcp::McpServer;
use std::sync::Arc;

pub(crate) async fn answer(State(api): State<Api>, request: Request) -> Result<Response, ApiError> {
    let Some(mcp) = &api.mcp else {
        return Err(ApiError::new(ErrorKind::NotFound, "MCP is not served here"));
    };
    let (parts, body) = request.into_parts();
    let body = read(body, &api.limits).await?;
    if let Some(identity) = parts.extensions.get::<Arc<Identity>>() {
        permit(&api, &body, identity).await?;
    }
    Ok(mcp.answer(Request::from_parts(parts, body)).await.map(Body::new))
}

/// Refuses a tool that needs more scopes while there is a status to refuse it with, which is how clients
/// learn to ask for more. The door asks again.
async fn permit(api: &Api, body: &[u8], identity: &Identity) -> Result<(), ApiError> {
    let Some(name) = McpServer::tool_called(body) else { return Ok(()) };
    let client = Caller::Mcp(String::new());
    match api.catalog.current().permit(&name, &client, Some(identity)).await {
        Err(error) if !error.scopes().is_empty() => Err(error.into()),
        _ => Ok(()),
    }
}
