//! Bounds on a call. Nothing is unbounded, so nothing here is an `Option`.

use std::time::Duration;

/// What one call, and every call inside it, may use at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a call may take when its tool names no other bound.
    pub call_timeout: Duration,
    /// How many calls one call may make inside it, at any depth.
    pub nested_calls: u32,
    /// How deep calls may nest.
    pub depth: u32,
    /// Size of the arguments as JSON.
    pub argument_bytes: usize,
    /// Size of the result as JSON.
    pub result_bytes: usize,
    /// Size of an answer that is to be read whole, where a tool can keep a larger one to be read in parts.
    pub answer_bytes: usize,
    /// How much of arguments and error text a run keeps.
    pub run_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            call_timeout: Duration::from_secs(30),
            nested_calls: 100,
            depth: 8,
            argument_bytes: 4 << 20,
            result_bytes: 64 << 20,
            answer_bytes: 64 << 10,
            run_bytes: 4 << 10,
        }
    }
}
