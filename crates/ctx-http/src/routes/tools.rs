//! Routes of tools: the list, and calls.

use super::{CallerIdentity, path_name};
use crate::error::ApiError;
use crate::json::read_object;
use crate::{Api, stream};
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use ctx_core::{Call, Catalog, ErrorKind, ResultFormat};
use serde_json::{Value, json};

pub(crate) async fn list(State(api): State<Api>) -> Json<Value> {
    let catalog = api.catalog.current();
    let tools: Vec<Value> = catalog
        .client_tools()
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

pub(crate) async fn call(
    State(api): State<Api>,
    name: Result<Path<String>, PathRejection>,
    caller: CallerIdentity,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    call_tool(&api, &path_name(name)?, caller, &headers, body).await
}

/// `POST /tools/list` calls a tool named `list`; `GET` is the listing.
pub(crate) async fn call_list(
    State(api): State<Api>,
    caller: CallerIdentity,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    call_tool(&api, "list", caller, &headers, body).await
}

pub(crate) async fn sources(
    State(api): State<Api>,
    caller: CallerIdentity,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    call_tool(&api, "sources", caller, &headers, body).await
}

/// `GET` responses are never streamed; only `POST` calls can be.
pub(crate) async fn get_sources(
    State(api): State<Api>,
    caller: CallerIdentity,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let arguments = read_object(&headers, body, &api.limits).await?;
    let (form, call) = prepare_call(&api, "sources", caller)?;
    call_for_json("sources", arguments, call, form).await
}

/// Calls a tool; streams its events if the client accepts an event stream.
async fn call_tool(
    api: &Api,
    name: &str,
    caller: CallerIdentity,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let arguments = read_object(headers, body, &api.limits).await?;
    let (form, call) = prepare_call(api, name, caller)?;
    if stream::accepts_event_stream(headers) {
        return stream::stream_call(name.to_owned(), arguments, call, form, &api.streamed_calls).await;
    }
    call_for_json(name, arguments, call, form).await
}

async fn call_for_json(
    name: &str,
    arguments: Value,
    call: Call,
    form: ResultFormat,
) -> Result<Response, ApiError> {
    let output = Catalog::call(name, arguments, call).await?;
    Ok(Json(form.body(output)).into_response())
}

/// A call of the tool with this outward name, and the form of its response.
fn prepare_call(api: &Api, name: &str, caller: CallerIdentity) -> Result<(ResultFormat, Call), ApiError> {
    let catalog = api.catalog.current();
    let entry = catalog.entry(name).filter(|entry| entry.exposed && entry.name.outward() == name);
    let Some(entry) = entry else {
        return Err(ApiError::new(ErrorKind::NotFound, format!("no tool registered with name: {name}")));
    };
    let form = ResultFormat::of(&entry.name);
    Ok((form, caller.new_call(catalog)))
}
