//! The kinds of script, each as the rest of the product knows it.

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
pub(crate) use script::{Kind, Script, Told, deadline, servers};
pub(crate) use tool::ScriptTool;

use crate::vm::LogLevel;
use serde_json::Value;
use std::time::Duration;

/// How much longer than its deadline a run may last, when it must be ended by force: the grace of tools that
/// run scripts.
pub const GRACE: Duration = Duration::from_secs(2);

/// How many parameters or arguments a script declares.
pub(crate) fn declared(told: &Told) -> usize {
    parameters::count(&told.table)
}

/// How serious a line is, in the words of the rest.
pub(crate) fn tracing_level(level: LogLevel) -> tracing::Level {
    match level {
        LogLevel::Debug => tracing::Level::DEBUG,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Error => tracing::Level::ERROR,
    }
}

/// How errors call what a value is.
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
