//! Discovery of functions: lists, search and documentation.
//!
//! `directories` keeps the directory of the current catalog, which has a part for each provider (`directory_part`) that
//! outlives the catalog and, if it is large, the process (`directory_store`).
//!
//! However many functions a catalog has, an agent sees only three tools, whose answers are short text of
//! bounded length.

mod directories;
mod directory;
mod directory_part;
mod directory_store;
mod docs;
mod list;
mod resources;
mod search;
mod text;

pub(crate) use directories::Directories;
pub use directory_store::DirectoryStore;
pub(crate) use docs::GetFunctionDocsTool;
pub(crate) use list::ListFunctionsTool;
pub(crate) use resources::FunctionResources;
pub(crate) use search::SearchDocsTool;
pub(crate) use text::{hint, truncate};

use ctx_core::{Annotations, Call, Catalog, Identifier, ToolError, ToolSpec};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time that discovery waits for providers that are still connecting.
const SETTLING_MAX: Duration = Duration::from_secs(3);

/// The catalog of a call, with the functions of providers that have answered since. Waits for the named
/// providers, or for all if none is named.
async fn refreshed_catalog(call: &Call, providers: &[Identifier]) -> Arc<Catalog> {
    let is_requested = |name: &Identifier| providers.is_empty() || providers.contains(name);
    call.catalog().wait_for_providers(is_requested, SETTLING_MAX).await
}

/// Fails for a provider whose functions are not known, or may not be used.
fn require_known_provider(catalog: &Catalog, provider: &str) -> Result<(), ToolError> {
    let provider = Identifier::sanitize(provider);
    if let Some(reason) = catalog.unusable_reason(&provider)
        && !catalog.providers().any(|known| *known == provider)
    {
        return Err(ToolError::not_found(format!("{provider}: {reason}")));
    }
    match catalog.pending_providers().find(|(name, _)| **name == provider) {
        Some((name, Some(why))) => Err(ToolError::not_found(format!("{name} {}", truncate_reason(&why)))),
        _ => Ok(()),
    }
}

/// Maximum length of the shown reason why functions are not known.
const WHY_CHARS_MAX: usize = 300;

/// Truncates the reason why functions are not known.
fn truncate_reason(why: &str) -> String {
    why.chars().take(WHY_CHARS_MAX).collect()
}

/// The specification of a discovery tool; all of them are read-only.
fn spec(name: &str, title: &str, description: &str, input_schema: Value) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        title: Some(title.to_owned()),
        annotations: Annotations::READ_ONLY,
        ..ToolSpec::new(name, description, input_schema)
    })
}
