//! Errors of calls, the same for every interface.
//!
//! The kind determines the error code and the HTTP status, here and nowhere else. `message` is for the client; `detail`
//! is for the log.

use crate::{LogLine, NestedCallStats, QuestionError};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// An error and its causes, in one line.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut above = text.clone();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Transparent wrappers repeat what they wrap, and SQLite's error codes their message.
        if !text.contains(&cause_text) && !cause_text.contains(&above) {
            text = format!("{text}: {cause_text}");
        }
        above = cause_text;
        source = cause.source();
    }
    text
}

/// A time to wait in whole seconds, rounded up.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// The kind of a failure; each has one error code and one HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is malformed, or its arguments do not match the schema.
    BadRequest,
    /// Semantic search was requested, but there are no embeddings.
    EmbeddingsDisabled,
    /// The configuration lacks something that the call needs.
    NotConfigured,
    /// The token is missing or wrong.
    Unauthorized,
    /// The policy or the HTTP guard denies the call.
    Forbidden,
    /// No such tool, document or route.
    NotFound,
    /// The deadline passed.
    Timeout,
    /// A request or result exceeds its size limit.
    TooLarge,
    /// Too many calls; `retry_after` is the time to wait.
    RateLimited,
    /// The tool itself failed.
    Tool,
    /// A fault of this program.
    Internal,
    /// No capacity for more work at present.
    Overloaded,
    /// The caller disconnected, or the server is stopping.
    Cancelled,
}

impl ErrorKind {
    /// The code in `{"error":{"code":…}}`.
    pub fn code(self) -> &'static str {
        self.code_and_status().0
    }

    /// The HTTP status.
    pub fn status(self) -> u16 {
        self.code_and_status().1
    }

    fn code_and_status(self) -> (&'static str, u16) {
        match self {
            Self::BadRequest => ("bad_request", 400),
            Self::EmbeddingsDisabled => ("embeddings_disabled", 400),
            Self::NotConfigured => ("not_configured", 400),
            Self::Unauthorized => ("unauthorized", 401),
            Self::Forbidden => ("forbidden", 403),
            Self::NotFound => ("not_found", 404),
            Self::Timeout => ("timeout", 408),
            Self::TooLarge => ("too_large", 413),
            Self::RateLimited => ("rate_limited", 429),
            Self::Tool => ("tool_error", 500),
            Self::Internal => ("internal", 500),
            Self::Overloaded | Self::Cancelled => ("overloaded", 503),
        }
    }
}

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub struct ToolError {
    kind: ErrorKind,
    message: String,
    retry_after: Option<Duration>,
    logs: Vec<LogLine>,
    scopes: Vec<String>,
    /// Details that few errors have. Boxed, because every `Result` has the size of this error.
    extra: Option<Box<ExtraDetails>>,
    #[source]
    detail: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Details that few errors have.
#[derive(Debug, Default)]
struct ExtraDetails {
    data: Option<Value>,
    inside: NestedCallStats,
    unanswered: Option<QuestionError>,
}

impl ToolError {
    /// An error of this kind, with the message for the client.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after: None,
            logs: Vec::new(),
            scopes: Vec::new(),
            extra: None,
            detail: None,
        }
    }

    /// An error for invalid arguments.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::BadRequest, message)
    }

    /// An error for something that does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// A fault of this program: the client gets only the message, the log also gets the cause.
    pub fn internal(
        message: impl Into<String>,
        detail: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { detail: Some(detail.into()), ..Self::new(ErrorKind::Internal, message) }
    }

    /// Sets the time to wait before a retry.
    #[must_use]
    pub fn with_retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// Sets the scopes that the call requires.
    #[must_use]
    pub fn with_scopes(self, scopes: impl IntoIterator<Item = String>) -> Self {
        Self { scopes: scopes.into_iter().collect(), ..self }
    }

    /// All scopes that the call requires; empty if the error is not about scopes.
    pub fn scopes(&self) -> &[String] {
        &self.scopes
    }

    /// Adds machine-readable data, such as the status and body of an upstream's response.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.extra.get_or_insert_default().data = Some(data);
        self
    }

    /// Machine-readable data, if there is more than the message.
    pub fn data(&self) -> Option<&Value> {
        self.extra.as_ref()?.data.as_ref()
    }

    /// Marks the error as the consequence of a question without an answer.
    #[must_use]
    pub fn with_question_error(mut self, reason: QuestionError) -> Self {
        self.extra.get_or_insert_default().unanswered = Some(reason);
        self
    }

    /// Why a question had no answer, if that caused the error.
    pub fn question_error(&self) -> Option<QuestionError> {
        self.extra.as_ref()?.unanswered
    }

    /// Adds the log lines until the failure.
    #[must_use]
    pub fn with_logs(self, logs: Vec<LogLine>) -> Self {
        Self { logs, ..self }
    }

    /// The log lines until the failure.
    pub fn logs(&self) -> &[LogLine] {
        &self.logs
    }

    pub(crate) fn with_nested_calls(mut self, inside: NestedCallStats) -> Self {
        if inside.calls > 0 {
            self.extra.get_or_insert_default().inside = inside;
        }
        self
    }

    /// The nested calls until the failure; set for an outermost call only.
    pub fn nested_calls(&self) -> NestedCallStats {
        self.extra.as_ref().map(|extra| extra.inside).unwrap_or_default()
    }

    pub(crate) fn into_logs(self) -> Vec<LogLine> {
        self.logs
    }

    /// The kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message for the client.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Time to wait before a retry, if known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Time to wait before a retry in whole seconds, rounded up, as in the header `Retry-After`.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after.map(whole_seconds)
    }

    /// This error with `change` applied to all text that a client may read.
    #[must_use]
    pub(crate) fn map_text(mut self, change: impl Fn(String) -> String) -> Self {
        self.message = change(self.message);
        for line in &mut self.logs {
            line.message = change(std::mem::take(&mut line.message));
        }
        if let Some(extra) = &mut self.extra {
            extra.data = extra.data.take().map(|data| map_strings(data, &change));
        }
        self
    }
}

impl From<QuestionError> for ToolError {
    fn from(reason: QuestionError) -> Self {
        Self::new(ErrorKind::Tool, reason.to_string()).with_question_error(reason)
    }
}

fn map_strings(value: Value, change: &impl Fn(String) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(items) => items.into_iter().map(|item| map_strings(item, change)).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(key, value)| (change(key), map_strings(value, change))).collect()
        }
        other => other,
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kinds_have_the_documented_codes_and_statuses() {
        let documented = [
            (ErrorKind::BadRequest, "bad_request", 400),
            (ErrorKind::EmbeddingsDisabled, "embeddings_disabled", 400),
            (ErrorKind::NotConfigured, "not_configured", 400),
            (ErrorKind::Unauthorized, "unauthorized", 401),
            (ErrorKind::Forbidden, "forbidden", 403),
            (ErrorKind::NotFound, "not_found", 404),
            (ErrorKind::Timeout, "timeout", 408),
            (ErrorKind::TooLarge, "too_large", 413),
            (ErrorKind::RateLimited, "rate_limited", 429),
            (ErrorKind::Tool, "tool_error", 500),
            (ErrorKind::Internal, "internal", 500),
            (ErrorKind::Overloaded, "overloaded", 503),
        ];
        for (kind, code, status) in documented {
            assert_eq!((kind.code(), kind.status()), (code, status));
        }
    }

    #[test]
    fn what_is_changed_in_the_message_is_changed_in_the_data() {
        let data = json!({ "status": 401, "body": { "tried": ["hunter2!"] } });
        let error = ToolError::new(ErrorKind::Tool, "not hunter2!").with_data(data);
        let masked = error.map_text(|text| text.replace("hunter2!", "***"));
        assert_eq!(masked.message(), "not ***");
        assert_eq!(masked.data(), Some(&json!({ "status": 401, "body": { "tried": ["***"] } })));
    }
}
