//! Finding functions: what there is, which of it answers a need, and how it is called.
//!
//! However many functions a catalog has, an agent sees three tools and asks for the rest. What they answer
//! is text, short and bounded.

mod directory;
mod docs;
mod list;
mod resources;
mod search;
mod text;

pub(crate) use docs::GetFunctionDocs;
pub(crate) use list::ListFunctions;
pub(crate) use resources::FunctionDocs;
pub(crate) use search::SearchDocs;
pub(crate) use text::{cut, hint};

use ctx_core::{Annotations, Call, Catalog, Identifier, ToolError, ToolSpec};
use directory::Directory;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The directory of the catalog that was asked about last.
#[derive(Default)]
pub(crate) struct Directories {
    latest: Mutex<Option<(Weak<Catalog>, Arc<Directory>)>>,
}

impl Directories {
    /// The functions of a catalog. Made when it is first asked about; those who ask at once may make it twice.
    pub(crate) async fn of(&self, catalog: &Arc<Catalog>) -> Result<Arc<Directory>, ToolError> {
        if let Some(known) = self.known(catalog) {
            return Ok(known);
        }
        let read = catalog.clone();
        let made = tokio::task::spawn_blocking(move || Directory::of(&read)).await;
        let made = made.map_err(|error| ToolError::internal("functions cannot be listed", error))?;
        let made = Arc::new(made);
        let latest = (Arc::downgrade(catalog), made.clone());
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(latest);
        Ok(made)
    }

    fn known(&self, catalog: &Arc<Catalog>) -> Option<Arc<Directory>> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        // As long as there is a weak pointer, no other catalog can come to lie at the same place.
        latest.as_ref().filter(|(of, _)| of.as_ptr() == Arc::as_ptr(catalog)).map(|(_, made)| made.clone())
    }
}

/// How long whoever looks for functions waits for providers that are still being reached.
const SETTLING_MAX: Duration = Duration::from_secs(3);

/// The catalog of a call, with the functions of those providers (all, where none is named) that have answered since.
async fn settled(call: &Call, providers: &[Identifier]) -> Arc<Catalog> {
    let is_wanted = |name: &Identifier| providers.is_empty() || providers.contains(name);
    call.catalog().settled(is_wanted, SETTLING_MAX).await
}

/// Refuses what is asked of a provider whose functions are not known, or may not be used.
fn must_be_known(catalog: &Catalog, provider: &str) -> Result<(), ToolError> {
    let provider = Identifier::sanitize(provider);
    if let Some(reason) = catalog.left_out_reason(&provider)
        && !catalog.providers().any(|known| *known == provider)
    {
        return Err(ToolError::not_found(format!("{provider}: {reason}")));
    }
    match catalog.unknown().find(|(name, _)| **name == provider) {
        Some((name, Some(why))) => Err(ToolError::not_found(format!("{name} {}", told(&why)))),
        _ => Ok(()),
    }
}

/// Characters that are told of why functions are not known.
const WHY_CHARS_MAX: usize = 300;

/// Why functions are not known, as far as it is told.
fn told(why: &str) -> String {
    why.chars().take(WHY_CHARS_MAX).collect()
}

/// What a tool that finds functions says of itself.
fn spec(name: &str, title: &str, description: &str, input_schema: Value) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        title: Some(title.to_owned()),
        annotations: Annotations::READ_ONLY,
        ..ToolSpec::new(name, description, input_schema)
    })
}
