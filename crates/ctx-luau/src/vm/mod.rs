//! A Luau VM that only computes and asks.
//!
//! One VM serves many runs: what it gives to scripts is frozen, and each run has an environment of its
//! own. Host calls block until their answer is there, so they work everywhere, in metamethods and in
//! callbacks of the standard library too.

mod entry;
mod explain;
mod globals;
mod machine;
mod run;
mod scan;
mod source;
#[cfg(test)]
mod tests;
mod undefined;

pub(crate) use machine::{NO_MEMORY, Vm};
pub(crate) use run::{Run, Slot};
pub(crate) use undefined::{GlobalNames, LANGUAGE};
pub use undefined::{describe_undefined, execute_globals};

use crate::engine::protocol::{Answer, Question};

/// Where questions go. In a worker that is its pipe.
pub(crate) trait Outside {
    /// Asks, and goes on; the number tells the answer.
    fn ask(&self, question: Question) -> Result<u32, Gone>;

    /// Waits for the next answer to any question.
    fn next_answer(&self) -> Result<(u32, Answer), Gone>;

    /// Passes on a line that the script logged.
    fn log(&self, level: LogLevel, message: &str) -> Result<(), Gone>;
}

/// There is no outside any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// How serious a logged line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Of use to whoever writes the script.
    Debug,
    /// What happened.
    Info,
    /// What may be wrong.
    Warn,
    /// What went wrong.
    Error,
}
