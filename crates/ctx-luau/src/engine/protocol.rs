//! What is said on a worker's pipe, and within which bounds.
//!
//! One message is one frame: a few numbers, a JSON text, and bytes that need not be text (a source,
//! the body of an HTTP answer). Values cross as JSON text, so that a worker turns them into Lua
//! values, and back, without anything in between.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A script to run, and how. Its source travels as the frame's bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// How errors call the script: `tools/x.lua`.
    pub(crate) chunk_name: String,
    /// What to do with it.
    pub(crate) entry: Entry,
    /// The arguments of its function, in order; empty where only the chunk runs.
    pub(crate) arguments: Vec<Box<RawValue>>,
    /// What its section of the configuration says: `context.config`.
    pub(crate) config: Option<Box<RawValue>>,
    /// The host APIs it sees, by name.
    pub(crate) apis: Vec<String>,
    /// Bounds that the worker keeps by itself; the parent keeps them once more.
    pub(crate) bounds: Bounds,
}

/// Which function of a script is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// None: answers with what the table `tool`, `connector` or `agent` says of itself.
    Describe,
    /// `tool.execute(params, context)`.
    Tool,
    /// `connector.scan(config, cursor)`.
    Connector,
    /// `agent.resolve(args, config, context)`.
    Agent,
    /// The chunk itself; it answers by `result(v)` or `return v`.
    Chunk,
}

/// Bounds of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bounds {
    pub(crate) time_ms: u64,
    pub(crate) memory_bytes: usize,
    pub(crate) result_bytes: usize,
    pub(crate) log_bytes: usize,
}

/// The question whose time does not count, because a person is being asked: both clocks stand still.
pub(crate) const ABOUT_PERSON: &str = "ask";

/// Something a script wants from the world.
#[derive(Debug)]
pub(crate) struct Question {
    /// `http.request`, `fs.read`, `fs.list`, `env.get`, `sleep`, `call`, `emit`, `progress`, `ask`.
    pub(crate) about: String,
    /// Its arguments, as JSON text.
    pub(crate) arguments: Vec<u8>,
    /// What need not be text.
    pub(crate) bytes: Vec<u8>,
}

/// What the world says.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A value as JSON text, and what need not be text.
    Value { json: Vec<u8>, bytes: Vec<u8> },
    /// It failed; the script sees an error that it may catch.
    Failed {
        code: String,
        message: String,
        /// What else the error holds, as JSON text; none where that is nothing.
        data: Vec<u8>,
    },
}

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// With this value, as JSON text.
    Value(Vec<u8>),
    /// Not well.
    Failed(Failure),
}

/// Why a run did not end well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// For people: with the script's name and line, without paths of this machine.
    pub(crate) message: String,
    /// The code of the failed question, where the script let such an error through.
    pub(crate) code: Option<String>,
}

/// How runs fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    /// The script is not one: syntax, bytecode, too large.
    Source,
    /// The script does not define what its kind must.
    Contract,
    /// It raised an error.
    Raised,
    /// Its time is over.
    Time,
    /// Its memory is used up.
    Memory,
    /// Its result cannot be told as JSON, or is too large.
    Result,
}
