//! Routes of tools: the list, and calls.

use super::{Bearer, named};
use crate::error::ApiError;
use crate::json::read_object;
use crate::{Api, stream};
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use ctx_core::{AnswerForm, Call, Catalog, ErrorKind};
use serde_json::{Value, json};

pub(crate) async fn list(State(api): State<Api>) -> Json<Value> {
    let catalog = api.catalog.current();
    let tools: Vec<Value> = catalog
        .listed()
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
    bearer: Bearer,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    answer(&api, &named(name)?, bearer, &headers, body).await
}

/// `POST /tools/list` calls a tool named `list`; `GET` is the listing.
pub(crate) async fn call_list(
    State(api): State<Api>,
    bearer: Bearer,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    answer(&api, "list", bearer, &headers, body).await
}

pub(crate) async fn sources(
    State(api): State<Api>,
    bearer: Bearer,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    answer(&api, "sources", bearer, &headers, body).await
}

/// `GET` responses are never streamed; only `POST` calls can be.
pub(crate) async fn get_sources(
    State(api): State<Api>,
    bearer: Bearer,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let arguments = read_object(&headers, body, &api.limits).await?;
    let (form, call) = find(&api, "sources", bearer)?;
    whole("sources", arguments, call, form).await
}

/// Calls a tool; streams its events if the client accepts an event stream.
async fn answer(
    api: &Api,
    name: &str,
    bearer: Bearer,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let arguments = read_object(headers, body, &api.limits).await?;
    let (form, call) = find(api, name, bearer)?;
    if stream::is_wanted(headers) {
        return stream::stream(name.to_owned(), arguments, call, form, &api.streamed).await;
    }
    whole(name, arguments, call, form).await
}

async fn whole(name: &str, arguments: Value, call: Call, form: AnswerForm) -> Result<Response, ApiError> {
    let output = Catalog::call(name, arguments, call).await?;
    Ok(Json(form.body(output)).into_response())
}

/// A call of the tool with this outward name, and the form of its response.
fn find(api: &Api, name: &str, bearer: Bearer) -> Result<(AnswerForm, Call), ApiError> {
    let catalog = api.catalog.current();
    let entry = catalog.entry(name).filter(|entry| entry.exposed && entry.name.outward() == name);
    let Some(entry) = entry else {
        return Err(ApiError::new(ErrorKind::NotFound, format!("no tool registered with name: {name}")));
    };
    let form = AnswerForm::of(&entry.name);
    Ok((form, bearer.call(catalog)))
}
