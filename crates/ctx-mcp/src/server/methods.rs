//! The methods that the server implements. rmcp reports a known method with unreadable parameters like an
//! unknown method; clients must be able to tell these apart.

use rmcp::ErrorData;
use rmcp::model::ErrorCode;

/// Methods of every revision.
const COMMON_METHODS: &[&str] = &[
    "completion/complete",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "tools/call",
    "tools/list",
];
/// Methods of revisions with sessions.
const SESSION_METHODS: &[&str] =
    &["initialize", "logging/setLevel", "ping", "resources/subscribe", "resources/unsubscribe"];
/// Methods of stateless revisions.
const STATELESS_METHODS: &[&str] = &["server/discover", "subscriptions/listen"];

/// The error for a request that rmcp could not parse.
pub(super) fn unparsed_request_error(method: &str, is_stateless: bool) -> ErrorData {
    let era_methods = if is_stateless { STATELESS_METHODS } else { SESSION_METHODS };
    if COMMON_METHODS.contains(&method) || era_methods.contains(&method) {
        let message = format!("the parameters of `{method}` are incomplete or of the wrong type");
        return ErrorData::invalid_params(message, None);
    }
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None)
}
