//! MCP `completion/complete`: argument completion.

use ctx_core::{Completable, Completing, Completions};
use rmcp::ErrorData;
use rmcp::model::{CompleteRequestParams, CompleteResult, CompletionInfo, Reference};

/// A completion request in the catalog's terms; `None` if it refers to nothing that the catalog completes.
pub(super) fn parse_request(params: CompleteRequestParams) -> Option<Completing> {
    let of = match params.r#ref {
        Reference::Prompt(prompt) => Completable::Agent(prompt.name),
        Reference::Resource(template) => Completable::Template(template.uri),
        _ => return None,
    };
    let arguments = params.context.and_then(|context| context.arguments).unwrap_or_default();
    let (argument, typed) = (params.argument.name, params.argument.value);
    Some(Completing { of, argument, typed, given: arguments.into_iter().collect() })
}

pub(super) fn into_result(completions: Completions) -> Result<CompleteResult, ErrorData> {
    let Completions { values, total, has_more } = completions;
    let info = CompletionInfo::with_pagination(values, total, has_more);
    Ok(CompleteResult::new(info.map_err(|error| ErrorData::internal_error(error, None))?))
}
