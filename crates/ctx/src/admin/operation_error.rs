//! Errors of operations: a [`ToolError`] whose data holds hints, converted from and to a [`CommandError`].

use crate::error::{CommandError, Exit};
use ctx_core::{ErrorKind, ToolError, error_chain};
use ctx_store::StoreError;
use serde_json::json;
use std::error::Error;

/// The error of an operation. It converts back into the [`CommandError`] that it was before the call through
/// the catalog.
#[derive(Debug)]
pub(crate) struct OperationError(pub(super) ToolError);

impl OperationError {
    /// Whether the requested object does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.0.kind() == ErrorKind::NotFound
    }

    /// The kind of the error.
    #[cfg(test)]
    pub(crate) fn kind(&self) -> ErrorKind {
        self.0.kind()
    }
}

impl From<ToolError> for OperationError {
    fn from(error: ToolError) -> Self {
        Self(error)
    }
}

impl From<OperationError> for CommandError {
    fn from(OperationError(error): OperationError) -> Self {
        if let Some(error) = error.source().and_then(|cause| cause.downcast_ref::<StoreError>()) {
            return Self::from(error);
        }
        let exit = match error.kind() {
            ErrorKind::BadRequest => Exit::Usage,
            ErrorKind::Overloaded => Exit::Busy,
            ErrorKind::Cancelled => Exit::Interrupted,
            _ => Exit::Failure,
        };
        let hints = error.data().map(|data| &data["hints"]).and_then(|hints| hints.as_array());
        let hints = hints.into_iter().flatten().filter_map(|hint| hint.as_str().map(str::to_owned));
        Self { exit, hints: hints.collect(), ..Self::new(error_chain(&error)) }
    }
}

/// Converts the error of a command into that of an operation.
pub(super) fn to_tool_error(error: CommandError) -> ToolError {
    let kind = match error.exit {
        Exit::Usage => ErrorKind::BadRequest,
        Exit::Busy => ErrorKind::Overloaded,
        Exit::Interrupted | Exit::Terminated => ErrorKind::Cancelled,
        Exit::Failure => error.kind.unwrap_or(ErrorKind::Tool),
    };
    with_hints(ToolError::new(kind, error.messages.join("; ")), error.hints)
}

/// Adds hints on how to solve an error, as `{"hints": […]}` in its data.
pub(super) fn with_hints(error: ToolError, hints: impl IntoIterator<Item = String>) -> ToolError {
    let hints: Vec<String> = hints.into_iter().collect();
    if hints.is_empty() { error } else { error.with_data(json!({ "hints": hints })) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_error_survives_the_call_through_the_catalog() {
        for exit in [Exit::Failure, Exit::Usage, Exit::Busy, Exit::Interrupted] {
            let error = CommandError { exit, ..CommandError::new("no").hint("wait").hint("try again") };
            let after = CommandError::from(OperationError(to_tool_error(error)));
            assert_eq!((after.exit, after.messages), (exit, vec!["no".to_owned()]));
            assert_eq!(after.hints, ["wait", "try again"]);
        }
    }
}
