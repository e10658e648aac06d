//! Routes of agents: the list, and the prompt of one.

use super::{CallerIdentity, path_name};
use crate::Api;
use crate::error::ApiError;
use crate::json::read_object;
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use ctx_core::{AgentSpec, Catalog, Prompt};
use serde_json::{Value, json};

pub(crate) async fn list(State(api): State<Api>) -> Json<Value> {
    let catalog = api.catalog.current();
    let agents: Vec<&AgentSpec> = catalog.agents().collect();
    Json(json!({ "agents": agents }))
}

pub(crate) async fn prompt(
    State(api): State<Api>,
    name: Result<Path<String>, PathRejection>,
    caller: CallerIdentity,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Prompt>, ApiError> {
    let name = path_name(name)?;
    let arguments = read_object(&headers, body, &api.limits).await?;
    let call = caller.new_call(api.catalog.current());
    Ok(Json(Catalog::prompt(&name, arguments, call).await?))
}
