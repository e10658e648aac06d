//! `manifest.json`: what can be called, for programs that are no scripts. Its shape is public.

use ctx_core::Annotations;
use ctx_openapi::{ApiStatus, Interface, InterfaceFunction};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The number of its shape: another one is another shape, not one with more in it.
const FORMAT: u32 = 1;

#[derive(Serialize)]
pub(super) struct Manifest {
    format: u32,
    apis: Vec<Api>,
}

/// One API. What schemas refer to as `#/$defs/…` is in its `$defs`.
#[derive(Serialize)]
struct Api {
    name: String,
    title: Option<String>,
    /// As it was typed; without what may be secret.
    spec: String,
    file: String,
    functions: Vec<Function>,
    #[serde(rename = "$defs")]
    definitions: BTreeMap<String, Value>,
    skipped: Vec<Skipped>,
}

#[derive(Serialize)]
struct Function {
    /// As scripts call it.
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
struct Skipped {
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
            Function {
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
        self.apis.push(Api {
            title,
            spec,
            file,
            functions: interface.functions.into_iter().map(function).collect(),
            definitions: interface.definitions,
            skipped: skipped.into_iter().map(|(operation, reason)| Skipped { operation, reason }).collect(),
            name: name.to_string(),
        });
    }

    pub(super) fn text(&self) -> serde_json::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }
}
