//! Converts failed runs to tool errors.

use super::tracing_level;
use crate::engine::{self, RunError, RunErrorKind};
use ctx_core::{Call, ErrorKind, LogLine, QuestionError, ToolError};
use std::time::Duration;

/// Suggested retry delay of a call that found no free worker.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl RunError {
    /// Converts the error to that of `call`, for which the script ran.
    pub fn into_tool_error(self, call: &Call) -> ToolError {
        let in_time = !call.time_left().is_zero();
        let kind = match self.kind {
            RunErrorKind::Time => ErrorKind::Timeout,
            // The nested call timed out because it shares this call's deadline.
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
        let mut error = ToolError::new(kind, self.message).with_logs(logs);
        if let Some(why) = self.code.as_deref().and_then(QuestionError::from_code) {
            error = error.with_question_error(why);
        }
        if kind == ErrorKind::Overloaded { error.with_retry_after(RETRY_AFTER) } else { error }
    }
}

impl From<engine::LogLine> for LogLine {
    fn from(line: engine::LogLine) -> Self {
        Self { level: tracing_level(line.level), message: line.message }
    }
}
