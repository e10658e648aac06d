//! `/mcp`: MCP over HTTP. Access control and bounds are those of every route; `ctx-mcp` implements the
//! protocol.

use crate::Api;
use crate::error::ApiError;
use crate::json::read_body;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use ctx_core::{Caller, ErrorKind, Identity};
use ctx_mcp::McpServer;
use std::sync::Arc;

pub(crate) async fn handle(State(api): State<Api>, request: Request) -> Result<Response, ApiError> {
    let Some(mcp) = &api.mcp else {
        return Err(ApiError::new(ErrorKind::NotFound, "this server does not serve MCP"));
    };
    let (parts, body) = request.into_parts();
    let body = read_body(body, &api.limits).await?;
    if let Some(identity) = parts.extensions.get::<Arc<Identity>>() {
        check_scopes(&api, &body, identity).await?;
    }
    Ok(mcp.handle_http(Request::from_parts(parts, body)).await.map(Body::new))
}

/// Refuses a tool call that needs more scopes with an HTTP status, by which clients learn which scopes to
/// request. The catalog checks again when the tool is called.
async fn check_scopes(api: &Api, body: &[u8], identity: &Identity) -> Result<(), ApiError> {
    let Some(name) = McpServer::called_tool_name(body) else { return Ok(()) };
    let client = Caller::Mcp(String::new());
    match api.catalog.current().permit(&name, &client, Some(identity)).await {
        Err(error) if !error.scopes().is_empty() => Err(error.into()),
        _ => Ok(()),
    }
}
