//! One file for each group of routes.

mod agents;
mod health;
mod mcp;
mod tools;

pub(crate) use tools::Form;

use crate::error::ApiError;
use crate::{Api, guard, openapi};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router, middleware};
use ctx_core::ErrorKind;
use std::any::Any;
use tower_http::catch_panic::CatchPanicLayer;

/// Every route, behind the guard.
pub(crate) fn router(api: Api) -> Router {
    Router::new()
        .route("/health", get(health::health))
        .route("/tools/list", get(tools::list).post(tools::call_list))
        .route("/tools/sources", get(tools::get_sources).post(tools::sources))
        .route("/tools/{name}", post(tools::call))
        .route("/agents/list", get(agents::list))
        .route("/agents/{name}/prompt", post(agents::prompt))
        .route("/openapi.json", get(describe))
        .route("/mcp", any(mcp::answer))
        .fallback(async || ApiError::new(ErrorKind::NotFound, "no such route; see /openapi.json"))
        .method_not_allowed_fallback(async || {
            ApiError::new(ErrorKind::BadRequest, "this method is not allowed here; see /openapi.json")
                .with_status(StatusCode::METHOD_NOT_ALLOWED)
        })
        .layer(middleware::from_fn_with_state(api.clone(), guard::admit))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(api)
}

/// The name in a route's path.
fn named(name: Result<Path<String>, PathRejection>) -> Result<String, ApiError> {
    name.map(|Path(name)| name)
        .map_err(|rejection| ApiError::new(ErrorKind::BadRequest, rejection.body_text()))
}

async fn describe(State(api): State<Api>) -> Json<serde_json::Value> {
    Json(openapi::document(&api.catalog.current()))
}

fn panicked(_: Box<dyn Any + Send + 'static>) -> Response {
    ApiError::new(ErrorKind::Internal, "the request failed").into_response()
}
