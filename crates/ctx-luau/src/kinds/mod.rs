//! The kinds of script, as implementations of `Tool`, `Agent` and `Connector`.

mod agent;
mod connector;
mod empty;
mod failure;
mod inline;
mod item;
mod parameters;
mod script;
mod tool;

pub(crate) use agent::ScriptAgent;
pub(crate) use connector::{Emitter, ScriptConnector};
pub(crate) use empty::{fit_body, fit_empty};
pub use inline::InlineAgent;
pub(crate) use script::{Script, ScriptDefinition, ScriptKind, call_deadline, provider_globals};
pub(crate) use tool::ScriptTool;

use crate::vm::LogLevel;
use serde_json::Value;
use std::time::Duration;

/// Grace period of tools and agents that run scripts: a worker that does not stop at the deadline is killed
/// within it.
pub const GRACE: Duration = Duration::from_secs(2);

/// Number of parameters or arguments that a script declares.
pub(crate) fn declared_parameters(definition: &ScriptDefinition) -> usize {
    parameters::count(&definition.table)
}

/// Converts a log level to that of `tracing`.
pub(crate) fn tracing_level(level: LogLevel) -> tracing::Level {
    match level {
        LogLevel::Debug => tracing::Level::DEBUG,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Error => tracing::Level::ERROR,
    }
}

/// The type of a value, as error messages name it.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}
