//! Tools over HTTP: listed, and called one at a time.

use crate::Api;
use crate::error::ApiError;
use crate::json::read_object;
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use ctx_core::{Call, Caller, Catalog, Entry, ErrorKind};
use serde_json::{Value, json};

/// The provider whose answers are not wrapped in `{"result": …}`.
const UNWRAPPED_PROVIDER: &str = "context";

pub(crate) async fn list(State(api): State<Api>) -> Json<Value> {
    let catalog = api.catalog.current();
    let tools: Vec<Value> = listed(&catalog)
        .map(|entry| {
            json!({
                "name": entry.name.outward(),
                "description": entry.spec.description,
                "builtin": entry.builtin,
                "parameters": entry.spec.input_schema,
            })
        })
        .collect();
    Json(json!({ "tools": tools }))
}

/// The tools that clients see, what is built in first.
pub(crate) fn listed(catalog: &Catalog) -> impl Iterator<Item = &Entry> {
    let exposed =
        |builtin: bool| catalog.entries().filter(move |entry| entry.exposed && entry.builtin == builtin);
    exposed(true).chain(exposed(false))
}

pub(crate) fn is_unwrapped(entry: &Entry) -> bool {
    entry.name.provider().as_str() == UNWRAPPED_PROVIDER
}

pub(crate) async fn call(
    State(api): State<Api>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let Path(name) = name.map_err(|rejection| ApiError::new(ErrorKind::BadRequest, rejection.body_text()))?;
    let arguments = read_object(&headers, body, &api.limits).await?;
    run(&api, &name, arguments).await
}

/// A tool may be named like the listing's route.
pub(crate) async fn call_list(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let arguments = read_object(&headers, body, &api.limits).await?;
    run(&api, "list", arguments).await
}

pub(crate) async fn sources(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let arguments = read_object(&headers, body, &api.limits).await?;
    run(&api, "sources", arguments).await
}

async fn run(api: &Api, name: &str, arguments: Value) -> Result<Json<Value>, ApiError> {
    let catalog = api.catalog.current();
    let entry = catalog.entry(name).filter(|entry| entry.exposed && entry.name.outward() == name);
    let Some(entry) = entry else {
        return Err(ApiError::new(ErrorKind::NotFound, format!("no tool registered with name: {name}")));
    };
    let unwrapped = is_unwrapped(entry);
    let call = Call::new(catalog.clone(), Caller::Http);
    let value = Catalog::call(name, arguments, call).await?.value;
    Ok(Json(if unwrapped { value } else { json!({ "result": value }) }))
}
