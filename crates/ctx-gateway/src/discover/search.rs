//! The tool `search_docs`: ranked search for functions.

use super::text::{ANSWER_CHARS_MAX, BoundedLines};
use super::{Directories, refreshed_catalog, require_known_provider, spec};
use async_trait::async_trait;
use ctx_core::{Call, Catalog, Identifier, Output, Tool, ToolError, ToolSpec};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Default and maximum number of functions in an answer.
const LIMIT: usize = 10;
const LIMIT_MAX: usize = 50;

/// Maximum size of a query; the rest is ignored.
const QUERY_BYTES_MAX: usize = 2_000;

/// Maximum number of providers that are listed as not searched, for each reason.
const UNKNOWN_MAX: usize = 10;

/// The tool `search_docs`.
pub(crate) struct SearchDocsTool {
    directories: Arc<Directories>,
    spec: Arc<ToolSpec>,
}

impl SearchDocsTool {
    pub(crate) fn new(directories: Arc<Directories>) -> Self {
        let input_schema = json!({
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What it should do, or a name, parameter or type."},
                "provider": {"type": "string", "description": "Only its functions."},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": LIMIT_MAX,
                    "default": LIMIT,
                    "description": "Maximum results.",
                },
            },
            "required": ["query"],
            "additionalProperties": false,
        });
        let description =
            "Finds functions for scripts, best first: `sdk.provider.name(parameters) – what it does`.";
        Self { directories, spec: spec("search_docs", "Find functions", description, input_schema) }
    }
}

#[async_trait]
impl Tool for SearchDocsTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError> {
        let query = arguments.get("query").and_then(Value::as_str).unwrap_or_default();
        if query.trim().is_empty() {
            return Err(ToolError::bad_request("the query is empty"));
        }
        let provider = arguments.get("provider").and_then(Value::as_str);
        let limit = arguments.get("limit").and_then(Value::as_f64).map_or(LIMIT, |limit| limit as usize);
        let catalog = refreshed_catalog(call, provider.map(Identifier::sanitize).as_slice()).await;
        if let Some(provider) = provider {
            require_known_provider(&catalog, provider)?;
        }
        let directory = self.directories.get_or_build(&catalog).await?;
        let query = &query[..query.floor_char_boundary(QUERY_BYTES_MAX)];
        let found = directory.search(query, provider, limit)?;
        let unknown = catalog.pending_providers().filter(|(_, why)| why.is_some() && provider.is_none());
        let unknown: Vec<&str> = unknown.map(|(name, _)| name.as_str()).take(UNKNOWN_MAX).collect();
        let mut lines = BoundedLines::with_limit(ANSWER_CHARS_MAX);
        if found.is_empty() {
            lines.add("no function matches; `list_functions` lists all");
        }
        if !unknown.is_empty() {
            lines.add(&format!(
                "not searched, since their functions are not known yet: {}",
                unknown.join(", ")
            ));
        }
        if provider.is_none() {
            add_excluded_providers(call.catalog(), &mut lines);
        }
        found.iter().for_each(|function| lines.add(&function.marked_line(&catalog)));
        Ok(Value::String(lines.finish(|more| format!("{more} more do not fit; set a smaller `limit`")))
            .into())
    }
}

/// Lists the providers that may not be used, on one line for each reason.
fn add_excluded_providers(catalog: &Catalog, lines: &mut BoundedLines) {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, reason) in catalog.unusable_providers() {
        by_reason.entry(reason).or_default().push(name.as_str());
    }
    for (reason, names) in by_reason {
        let more = if names.len() > UNKNOWN_MAX { ", …" } else { "" };
        let names = names[..names.len().min(UNKNOWN_MAX)].join(", ");
        lines.add(&format!("not searched: {names}{more} – {reason}"));
    }
}
