//! The routes, one file for each group.

mod agents;
mod health;
mod mcp;
mod metadata;
mod tools;

use crate::error::ApiError;
use crate::{Api, guard, oauth, openapi};
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router, middleware};
use ctx_core::{Call, Caller, Catalog, ErrorKind, Identity};
use std::any::Any;
use std::convert::Infallible;
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;

/// The router with every route, behind the guard.
pub(crate) fn router(api: Api) -> Router {
    let metadata_routes = match api.guard.oauth() {
        None => Router::new(),
        Some(_) => Router::new()
            .route(oauth::METADATA_PATH, get(metadata::metadata))
            .route(&format!("{}/{{*path}}", oauth::METADATA_PATH), get(metadata::metadata)),
    };
    metadata_routes
        .route("/health", get(health::health))
        .route("/tools/list", get(tools::list).post(tools::call_list))
        .route("/tools/sources", get(tools::get_sources).post(tools::sources))
        .route("/tools/{name}", post(tools::call))
        .route("/agents/list", get(agents::list))
        .route("/agents/{name}/prompt", post(agents::prompt))
        .route("/openapi.json", get(openapi_document))
        .route("/mcp", any(mcp::handle))
        .fallback(async || no_such_route())
        .method_not_allowed_fallback(async || {
            ApiError::new(ErrorKind::BadRequest, "this method is not allowed here; see /openapi.json")
                .with_status(StatusCode::METHOD_NOT_ALLOWED)
        })
        .layer(middleware::from_fn_with_state(api.clone(), guard::admit))
        .layer(CatchPanicLayer::custom(panic_response))
        .with_state(api)
}

/// The authenticated identity of the caller, if OAuth is configured.
pub(crate) struct CallerIdentity(Option<Arc<Identity>>);

impl CallerIdentity {
    /// A call on behalf of this identity.
    fn new_call(self, catalog: Arc<Catalog>) -> Call {
        let call = Call::new(catalog, Caller::Http);
        match self.0 {
            Some(identity) => call.with_identity(identity),
            None => call,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for CallerIdentity {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get().cloned()))
    }
}

fn no_such_route() -> ApiError {
    ApiError::new(ErrorKind::NotFound, "no such route; see /openapi.json")
}

/// The name in the path of a route.
fn path_name(name: Result<Path<String>, PathRejection>) -> Result<String, ApiError> {
    name.map(|Path(name)| name)
        .map_err(|rejection| ApiError::new(ErrorKind::BadRequest, rejection.body_text()))
}

async fn openapi_document(State(api): State<Api>) -> Result<Json<serde_json::Value>, ApiError> {
    let catalog = api.catalog.current();
    // On the blocking pool: there may be thousands of tools, with schemas of any size.
    let document = tokio::task::spawn_blocking(move || openapi::document(&catalog)).await;
    document
        .map(Json)
        .map_err(|_| ApiError::new(ErrorKind::Internal, "cannot generate the OpenAPI description"))
}

fn panic_response(_: Box<dyn Any + Send + 'static>) -> Response {
    ApiError::new(ErrorKind::Internal, "the request failed").into_response()
}
