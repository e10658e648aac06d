//! A tool in Rust: estimates how long a delivery takes.

use async_trait::async_trait;
use ctx::{Annotations, Call, Output, Tool, ToolError, ToolSpec};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Time to hand over a parcel, regardless of the distance.
const HANDOVER_MINUTES: f64 = 4.0;

/// `POST /tools/estimate`, `sdk.tools.estimate{...}` in scripts.
pub(crate) struct Estimate;

#[async_trait]
impl Tool for Estimate {
    fn spec(&self) -> Arc<ToolSpec> {
        let schema = json!({
            "type": "object",
            "properties": {
                "distance_km": {"type": "number", "minimum": 0, "description": "How far it is."},
                "bike": {
                    "type": "string", "enum": ["city", "cargo"], "default": "city",
                    "description": "What the courier rides.",
                },
            },
            "required": ["distance_km"],
            "additionalProperties": false,
        });
        let spec = ToolSpec::new("estimate", "Estimates how many minutes a delivery takes.", schema);
        Arc::new(ToolSpec { annotations: Annotations::READ_ONLY, ..spec })
    }

    /// The arguments are validated against the schema, and its defaults are filled in, before this runs.
    async fn run(&self, arguments: Map<String, Value>, _: &Call) -> Result<Output, ToolError> {
        let Some(distance) = arguments.get("distance_km").and_then(Value::as_f64) else {
            return Err(ToolError::bad_request("there is no distance"));
        };
        let is_cargo = arguments.get("bike").is_some_and(|bike| bike == "cargo");
        let kilometres_an_hour = if is_cargo { 12.0 } else { 18.0 };
        let minutes = HANDOVER_MINUTES + distance / kilometres_an_hour * 60.0;
        Ok(json!({ "minutes": minutes.ceil() as u64 }).into())
    }
}
