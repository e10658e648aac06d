//! The tool `list_functions`: lists the providers, or the functions of one provider.

use super::directory_part::FunctionEntry;
use super::text::{ANSWER_CHARS_MAX, BoundedLines, hint, truncate};
use super::{Directories, refreshed_catalog, require_known_provider, spec, truncate_reason};
use async_trait::async_trait;
use ctx_core::{Call, Identifier, Output, Tool, ToolError, ToolSpec, nearest};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Number of functions or providers on one page: as many as fit into an answer at their usual length.
const PAGE: usize = 50;

/// Maximum number of function names for each provider in the overview.
const NAMES_MAX: usize = 5;

/// Maximum number of tags that a message lists.
const TAGS_MAX: usize = 30;

/// The tool `list_functions`.
pub(crate) struct ListFunctionsTool {
    directories: Arc<Directories>,
    spec: Arc<ToolSpec>,
}

impl ListFunctionsTool {
    pub(crate) fn new(directories: Arc<Directories>) -> Self {
        let input_schema = json!({
            "type": "object",
            "properties": {
                "provider": {"type": "string", "description": "List its functions, not all providers."},
                "tag": {"type": "string", "description": "Only functions with this tag."},
                "page": {"type": "integer", "minimum": 1, "description": "Page of a long list."},
            },
            "additionalProperties": false,
        });
        let description = "Lists the providers of functions, or one provider's functions.";
        Self { directories, spec: spec("list_functions", "List functions", description, input_schema) }
    }
}

#[async_trait]
impl Tool for ListFunctionsTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError> {
        let provider = arguments.get("provider").and_then(Value::as_str);
        let catalog = refreshed_catalog(call, provider.map(Identifier::sanitize).as_slice()).await;
        let directory = self.directories.get_or_build(&catalog).await?;
        let page = arguments.get("page").and_then(Value::as_f64).map_or(1, |page| page as usize);
        let tag = arguments.get("tag").and_then(Value::as_str);
        let tag_suffix = tag.map_or_else(String::new, |tag| format!(" with the tag `{}`", truncate(tag)));
        let text = match provider {
            Some(provider) => {
                require_known_provider(&catalog, provider)?;
                let functions = filter_by_tag(directory.provider(provider)?, tag)?;
                let heading = format!("{provider}: {}{tag_suffix}", pluralize(functions.len(), "function"));
                let lines: Vec<_> = functions.iter().map(|function| function.marked_line(&catalog)).collect();
                let lines: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
                render_page(&heading, &lines, page)?
            }
            None => {
                let functions = filter_by_tag(directory.all(), tag)?;
                let known = functions
                    .chunk_by(|one, next| one.name.provider() == next.name.provider())
                    .map(|functions| provider_line(functions[0].name.provider().as_str(), functions));
                // Functions that are not known have no known tags.
                let unknown = catalog.pending_providers().filter(|_| tag.is_none());
                let unknown = unknown.map(|(name, why)| {
                    // The functions may have become known since.
                    let why = why.as_deref().unwrap_or("its functions are known by now; list them again");
                    format!("{name} – {}", truncate_reason(why))
                });
                let mut providers: Vec<String> = known.chain(unknown).collect();
                let counts = (pluralize(functions.len(), "function"), pluralize(providers.len(), "provider"));
                let excluded = call.catalog().unusable_providers().filter(|_| tag.is_none());
                providers.extend(excluded.map(|(name, reason)| format!("{name} – {reason}")));
                let providers: Vec<&str> = providers.iter().map(String::as_str).collect();
                render_page(&format!("{} of {}{tag_suffix}", counts.0, counts.1), &providers, page)?
            }
        };
        Ok(Value::String(text).into())
    }
}

/// The functions with a tag, or all without one. An error suggests the most similar tag and lists the tags
/// that exist.
fn filter_by_tag<'a>(
    functions: Vec<&'a FunctionEntry>,
    tag: Option<&str>,
) -> Result<Vec<&'a FunctionEntry>, ToolError> {
    let Some(tag) = tag else { return Ok(functions) };
    let has_tag = |function: &&FunctionEntry| function.tags().iter().any(|known| known == tag);
    let found: Vec<&FunctionEntry> = functions.iter().copied().filter(has_tag).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let known: BTreeSet<&str> =
        functions.iter().flat_map(|function| function.tags()).map(String::as_str).collect();
    let shown_tags: Vec<&str> = known.iter().copied().take(TAGS_MAX).collect();
    let tags_hint = match known.len() {
        0 => "; none of them has tags".to_owned(),
        count if count > TAGS_MAX => format!("; there are {count}: {}, …", shown_tags.join(", ")),
        _ => format!("; there are: {}", shown_tags.join(", ")),
    };
    let tag = truncate(tag);
    let similar = hint(nearest(&tag, known));
    Err(ToolError::not_found(format!("no function here has the tag `{tag}`{similar}{tags_hint}")))
}

/// A provider on one line: `github – 42 functions: create_issue, get_issue, …`
pub(super) fn provider_line(provider: &str, functions: &[&FunctionEntry]) -> String {
    let mut names: Vec<&str> =
        functions.iter().take(NAMES_MAX).map(|function| function.name.tool().as_str()).collect();
    if functions.len() > NAMES_MAX {
        names.push("…");
    }
    format!("{provider} – {}: {}", pluralize(functions.len(), "function"), names.join(", "))
}

/// A count with its noun: `1 function`, `2 functions`.
pub(super) fn pluralize(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// One page of lines, under a heading with the number of the page.
fn render_page(heading: &str, all: &[&str], page: usize) -> Result<String, ToolError> {
    let pages = all.len().div_ceil(PAGE).max(1);
    if page > pages {
        return Err(ToolError::not_found(format!("there is no page {page}; the last page is {pages}")));
    }
    let mut lines = BoundedLines::with_limit(ANSWER_CHARS_MAX);
    let page_suffix = match page {
        1 if pages == 1 => String::new(),
        page if page == pages => format!(", page {page} of {pages}"),
        page => format!(", page {page} of {pages}; page={} is next", page + 1),
    };
    lines.add(&format!("{heading}{page_suffix}"));
    all.iter().skip((page - 1) * PAGE).take(PAGE).for_each(|line| lines.add(line));
    Ok(lines
        .finish(|more| format!("{more} more on this page are too long to list; `search_docs` finds them")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_say_where_they_are_and_end() {
        let lines: Vec<String> = (0..120).map(|number| format!("line {number}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let first = render_page("120", &lines, 1).unwrap();
        assert!(first.starts_with("120, page 1 of 3; page=2 is next\nline 0\n"), "{first}");
        let last = render_page("120", &lines, 3).unwrap();
        assert!(last.starts_with("120, page 3 of 3\nline 100\n") && last.ends_with("\nline 119"), "{last}");
        assert_eq!(
            render_page("120", &lines, 4).unwrap_err().message(),
            "there is no page 4; the last page is 3"
        );
        assert_eq!(render_page("none", &[], 1).unwrap(), "none");
    }
}
