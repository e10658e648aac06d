//! MCP `completion/complete`: argument completion.

use ctx_core::{CompletionRequest, CompletionTarget, Completions};
use rmcp::ErrorData;
use rmcp::model::{CompleteRequestParams, CompleteResult, CompletionInfo, Reference};

/// A completion request in the catalog's terms; `None` if it refers to nothing that the catalog completes.
pub(super) fn parse_request(params: CompleteRequestParams) -> Option<CompletionRequest> {
    let of = match params.r#ref {
        Reference::Prompt(prompt) => CompletionTarget::Agent(prompt.name),
        Reference::Resource(template) => CompletionTarget::Template(template.uri),
        _ => return None,
    };
    let arguments = params.context.and_then(|context| context.arguments).unwrap_or_default();
    let (argument, typed) = (params.argument.name, params.argument.value);
    Some(CompletionRequest { target: of, argument, typed, context: arguments.into_iter().collect() })
}

pub(super) fn into_result(completions: Completions) -> Result<CompleteResult, ErrorData> {
    let Completions { values, total, has_more } = completions;
    let info = CompletionInfo::with_pagination(values, total, has_more);
    Ok(CompleteResult::new(info.map_err(|error| ErrorData::internal_error(error, None))?))
}
