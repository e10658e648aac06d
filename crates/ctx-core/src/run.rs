//! The run log: a record of every call, with its tool, caller, arguments and outcome.

use crate::RunId;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// One recorded call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// The run of the enclosing call.
    pub parent: Option<RunId>,
    /// The tool's full name.
    pub tool: String,
    /// Who called: `cli`, `http`, …
    pub caller: String,
    /// Start time.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
    /// Duration.
    #[serde(
        rename = "duration_us",
        serialize_with = "serialize_micros",
        deserialize_with = "deserialize_micros"
    )]
    #[schemars(with = "u64")]
    pub duration: Duration,
    /// The arguments, masked, and cut where they are long.
    pub arguments: Value,
    /// Size of the arguments as they came.
    pub argument_bytes: usize,
    /// Size of the result.
    pub result_bytes: usize,
    /// How it ended.
    pub outcome: RunOutcome,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum RunOutcome {
    /// With a result.
    Ok,
    /// With an error.
    Failed {
        /// The error's code.
        code: String,
        /// The error's message, masked and cut.
        message: String,
    },
}

/// Statistics of the calls nested in a call, which its caller neither had to make nor to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NestedCallStats {
    /// Number of nested calls, at any depth.
    pub calls: u64,
    /// Bytes of their results that the call's own result leaves out: those beyond its size.
    pub bytes_kept: u64,
}

impl NestedCallStats {
    /// Statistics of calls whose results have `bytes` bytes in total, nested in a call with a result of `result_bytes`.
    pub fn new(calls: u64, bytes: u64, result_bytes: usize) -> Self {
        Self { calls, bytes_kept: bytes.saturating_sub(result_bytes as u64) }
    }
}

/// Stores runs. Recording must not block and must not fail the call.
pub trait RunLog: Send + Sync + 'static {
    /// Stores one run.
    fn record(&self, run: Run);
}

/// Stores nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRunLog;

impl RunLog for NoRunLog {
    fn record(&self, _: Run) {}
}

fn serialize_micros<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

fn deserialize_micros<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_micros)
}

/// Shortens a value to about `bytes_max`: first cuts long strings, then replaces the whole value by a text preview.
pub(crate) fn shorten_value(value: Value, size: usize, bytes_max: usize) -> Value {
    if size <= bytes_max {
        return value;
    }
    let cut = cut_strings(value, bytes_max / 16);
    let text = cut.to_string();
    if text.len() <= bytes_max {
        return cut;
    }
    Value::String(cut_text(&text, bytes_max))
}

/// The start of a long text, with its full size.
pub(crate) fn cut_text(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes_max);
    format!("{}… ({} bytes)", &text[..end], text.len())
}

fn cut_strings(value: Value, bytes_max: usize) -> Value {
    match value {
        Value::String(text) => Value::String(cut_text(&text, bytes_max)),
        Value::Array(items) => items.into_iter().map(|item| cut_strings(item, bytes_max)).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(key, value)| (key, cut_strings(value, bytes_max))).collect()
        }
        other => other,
    }
}
