//! Messages on the pipe of a worker.
//!
//! A message is one frame: a few numbers, a JSON text, and raw bytes (the source of a script, the body of an
//! HTTP response). Values travel as JSON text, which a worker converts to and from Lua values directly.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A script to run. Its source is in the frame's bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The script's name in error messages: `tools/x.lua`.
    pub(crate) chunk_name: String,
    /// The function to call.
    pub(crate) entry: ScriptEntry,
    /// The arguments of that function, in order; empty if only the chunk runs.
    pub(crate) arguments: Vec<Box<RawValue>>,
    /// The script's section of the configuration: `context.config`.
    pub(crate) config: Option<Box<RawValue>>,
    /// Names of the host APIs that the script sees.
    pub(crate) apis: Vec<String>,
    /// Limits of the run, which the worker enforces and the parent enforces again.
    pub(crate) bounds: Bounds,
}

/// The function of a script that a run calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptEntry {
    /// No function: returns the definition in the table `tool`, `connector` or `agent`.
    Describe,
    /// `tool.execute(params, context)`.
    Tool,
    /// `connector.scan(config, cursor)`.
    Connector,
    /// `agent.resolve(args, config, context)`.
    Agent,
    /// Only the chunk itself, whose result comes from `result(v)` or `return v`.
    Chunk,
}

/// Limits of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bounds {
    pub(crate) time_ms: u64,
    pub(crate) memory_bytes: usize,
    pub(crate) result_bytes: usize,
    pub(crate) log_bytes: usize,
}

/// The kind of host request that waits for a person. Meanwhile the deadline is paused, in the worker and in
/// the parent.
pub(crate) const ASK_METHOD: &str = "ask";

/// A host request: what a script needs from the parent process.
#[derive(Debug)]
pub(crate) struct HostRequest {
    /// Kind of request: `http.request`, `fs.read`, `fs.list`, `env.get`, `sleep`, `call`, `emit`, `progress`,
    /// `ask`.
    pub(crate) method: String,
    /// Arguments, as JSON text.
    pub(crate) arguments: Vec<u8>,
    /// Raw bytes, such as the body of an HTTP request.
    pub(crate) bytes: Vec<u8>,
}

/// The response to a host request.
#[derive(Debug)]
pub(crate) enum HostResponse {
    /// A value as JSON text, and raw bytes.
    Value { json: Vec<u8>, bytes: Vec<u8> },
    /// The request failed; the script sees an error that it can catch.
    Failed {
        code: String,
        message: String,
        /// Further fields of the error, as JSON text; empty if there are none.
        data: Vec<u8>,
    },
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) enum JobOutcome {
    /// The result, as JSON text.
    Value(Vec<u8>),
    /// The run failed.
    Failed(JobFailure),
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobFailure {
    pub(crate) kind: JobFailureKind,
    /// The message for people. It names the script and the line, and no absolute paths of this machine.
    pub(crate) message: String,
    /// The code of a failed host request whose error the script did not catch.
    pub(crate) code: Option<String>,
}

/// Kinds of failed runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobFailureKind {
    /// The source is invalid: a syntax error, bytecode, or too large.
    Source,
    /// The script does not define what its kind requires, or has no result or several.
    Contract,
    /// The script raised an error.
    Raised,
    /// The time limit was exceeded.
    Time,
    /// The memory limit was exceeded.
    Memory,
    /// The result has no form in JSON, or is too large.
    Result,
}
