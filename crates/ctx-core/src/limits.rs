//! Limits of a call. Every limit is mandatory, so none is an `Option`.

use std::time::Duration;

/// Limits of one call, including all calls nested in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Timeout of a call whose tool sets none.
    pub call_timeout: Duration,
    /// Number of calls nested in an outermost one, at any depth.
    pub nested_calls: u32,
    /// Nesting depth of calls.
    pub depth: u32,
    /// Size of the arguments as JSON.
    pub argument_bytes: usize,
    /// Size of the result as JSON.
    pub result_bytes: usize,
    /// Size of a result that is returned whole, if the tool can keep a larger one to be read in parts.
    pub answer_bytes: usize,
    /// Size of the arguments, and of the error text, that a run records.
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
