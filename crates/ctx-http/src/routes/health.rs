//! `GET /health`: whether the server is up.

use axum::Json;
use serde_json::{Value, json};

pub(crate) async fn health() -> Json<Value> {
    Json(json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")}))
}
