//! The methods that the server implements. rmcp reports a known method with unreadable parameters like an
//! unknown method; clients must be able to tell these apart.

use rmcp::ErrorData;
use rmcp::model::ErrorCode;

/// Methods of every revision.
const ALWAYS: &[&str] = &[
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
const IN_SESSIONS: &[&str] =
    &["initialize", "logging/setLevel", "ping", "resources/subscribe", "resources/unsubscribe"];
/// Methods of stateless revisions.
const WITHOUT_SESSIONS: &[&str] = &["server/discover", "subscriptions/listen"];

/// The error for a request that rmcp could not parse.
pub(super) fn not_understood(method: &str, is_stateless: bool) -> ErrorData {
    let of_the_era = if is_stateless { WITHOUT_SESSIONS } else { IN_SESSIONS };
    if ALWAYS.contains(&method) || of_the_era.contains(&method) {
        let message = format!("the parameters of `{method}` are missing something or of the wrong type");
        return ErrorData::invalid_params(message, None);
    }
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None)
}
