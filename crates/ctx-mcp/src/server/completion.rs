//! Completing what is typed for an agent's argument, where the agent declares its choices.

use ctx_core::Catalog;
use rmcp::ErrorData;
use rmcp::model::{CompleteRequestParams, CompleteResult, CompletionInfo, Reference};

pub(super) fn complete(
    catalog: &Catalog,
    asked: &CompleteRequestParams,
) -> Result<CompleteResult, ErrorData> {
    let choices = match &asked.r#ref {
        Reference::Prompt(prompt) => {
            let agent = catalog.agents().find(|agent| agent.name == prompt.name);
            let agent = agent.ok_or_else(|| {
                ErrorData::invalid_params(format!("no agent registered with name: {}", prompt.name), None)
            })?;
            let argument = agent.arguments.iter().find(|argument| argument.name == asked.argument.name);
            argument.map(|argument| argument.choices.as_slice()).unwrap_or_default()
        }
        // Ids of documents are nothing that anybody types.
        _ => &[],
    };
    let typed = asked.argument.value.to_lowercase();
    let fits = |choice: &&String| choice.to_lowercase().starts_with(&typed);
    let fitting: Vec<&String> = choices.iter().filter(fits).collect();
    let most = CompletionInfo::MAX_VALUES;
    let values = fitting.iter().take(most).map(|choice| (*choice).clone()).collect();
    let total = u32::try_from(fitting.len()).unwrap_or(u32::MAX);
    let info = CompletionInfo::with_pagination(values, Some(total), fitting.len() > most);
    Ok(CompleteResult::new(info.map_err(|error| ErrorData::internal_error(error, None))?))
}
