//! `manifest.json`: a machine-readable description of all functions. Its format is public.

use ctx_core::Annotations;
use ctx_openapi::{ApiStatus, Interface, InterfaceFunction};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Version of the format. Incremented for incompatible changes; additional fields keep the number.
const FORMAT: u32 = 1;

#[derive(Serialize)]
pub(super) struct Manifest {
    format: u32,
    apis: Vec<ManifestApi>,
}

/// An API. References `#/$defs/…` in schemas resolve to its `$defs`.
#[derive(Serialize)]
struct ManifestApi {
    name: String,
    title: Option<String>,
    /// Path or URL of the description as typed, without parts that may be secret.
    spec: String,
    file: String,
    functions: Vec<ManifestFunction>,
    #[serde(rename = "$defs")]
    definitions: BTreeMap<String, Value>,
    skipped: Vec<ManifestSkippedOperation>,
}

#[derive(Serialize)]
struct ManifestFunction {
    /// The name by which scripts call it: `sdk.<api>.<function>`.
    name: String,
    title: Option<String>,
    description: String,
    method: String,
    path: String,
    tags: Vec<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deprecated: bool,
    annotations: Annotations,
    input_schema: Value,
    output_schema: Option<Value>,
}

#[derive(Serialize)]
struct ManifestSkippedOperation {
    operation: String,
    reason: String,
}

impl Default for Manifest {
    fn default() -> Self {
        Self { format: FORMAT, apis: Vec::new() }
    }
}

impl Manifest {
    pub(super) fn add(&mut self, status: ApiStatus, file: String, interface: Interface) {
        let ApiStatus { name, title, spec, skipped, .. } = status;
        let function = |function: InterfaceFunction| {
            let InterfaceFunction { spec, method, path, deprecated } = function;
            ManifestFunction {
                name: format!("sdk.{name}.{}", spec.name),
                title: spec.title,
                description: spec.description,
                method,
                path,
                tags: spec.tags,
                deprecated,
                annotations: spec.annotations,
                input_schema: Value::clone(&spec.input_schema.get()),
                output_schema: spec.output_schema.map(|schema| Value::clone(&schema.get())),
            }
        };
        self.apis.push(ManifestApi {
            title,
            spec,
            file,
            functions: interface.functions.into_iter().map(function).collect(),
            definitions: interface.definitions,
            skipped: skipped
                .into_iter()
                .map(|(operation, reason)| ManifestSkippedOperation { operation, reason })
                .collect(),
            name: name.to_string(),
        });
    }

    pub(super) fn text(&self) -> serde_json::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }
}
