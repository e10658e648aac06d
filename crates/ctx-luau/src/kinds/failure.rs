//! Runs that failed, as those who called see them.

use super::tracing_level;
use crate::engine::{self, RunError, RunErrorKind};
use ctx_core::{Call, ErrorKind, LogLine, ToolError, Unanswered};
use std::time::Duration;

/// When it is worth trying again what found no worker.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl RunError {
    /// The failure of the call that the run was made for.
    pub fn into_tool_error(self, call: &Call) -> ToolError {
        let in_time = !call.time_left().is_zero();
        let kind = match self.kind {
            RunErrorKind::Time => ErrorKind::Timeout,
            // What it waited for ended with the deadline that both have.
            RunErrorKind::Raised if self.code.as_deref() == Some(ErrorKind::Timeout.code()) && !in_time => {
                ErrorKind::Timeout
            }
            RunErrorKind::Arguments => ErrorKind::TooLarge,
            RunErrorKind::Overloaded | RunErrorKind::Unavailable => ErrorKind::Overloaded,
            RunErrorKind::Stopped => ErrorKind::Cancelled,
            RunErrorKind::Source
            | RunErrorKind::Contract
            | RunErrorKind::Raised
            | RunErrorKind::Memory
            | RunErrorKind::Result
            | RunErrorKind::Crashed => ErrorKind::Tool,
        };
        let logs = self.logs.into_iter().map(LogLine::from).collect();
        let mut told = ToolError::new(kind, self.message).with_logs(logs);
        if let Some(why) = self.code.as_deref().and_then(Unanswered::from_code) {
            told = told.with_unanswered(why);
        }
        if kind == ErrorKind::Overloaded { told.retry_after(RETRY_AFTER) } else { told }
    }
}

impl From<engine::LogLine> for LogLine {
    fn from(line: engine::LogLine) -> Self {
        Self { level: tracing_level(line.level), message: line.message }
    }
}
