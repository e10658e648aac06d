//! The Luau VM in a worker: it computes, and sends host requests.
//!
//! One VM serves many runs: the globals that it shares between scripts are frozen, and each run has an
//! environment of its own. Host functions block until their response arrives, so that they work everywhere,
//! also in metamethods and in callbacks of the standard library.

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
pub(crate) use run::{CurrentRun, RunState};
pub(crate) use undefined::{GlobalNames, LANGUAGE_GLOBALS};
pub use undefined::{describe_undefined, execute_globals};

use crate::engine::protocol::{HostRequest, HostResponse};

/// The channel for host requests and log lines. In a worker it is the pipe to the parent.
pub(crate) trait HostChannel {
    /// Sends a request without waiting; the number identifies its response.
    fn send_request(&self, request: HostRequest) -> Result<u32, ChannelClosed>;

    /// Waits for the next response to any request.
    fn next_response(&self) -> Result<(u32, HostResponse), ChannelClosed>;

    /// Sends a line that the script logged.
    fn log(&self, level: LogLevel, message: &str) -> Result<(), ChannelClosed>;
}

/// The channel is closed: the parent has exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelClosed;

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Details for the author of the script.
    Debug,
    /// A normal event.
    Info,
    /// A possible problem.
    Warn,
    /// A failure.
    Error,
}
