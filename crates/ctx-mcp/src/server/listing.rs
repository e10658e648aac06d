//! MCP lists of one catalog, cached until the catalog is replaced, and their pagination.

use crate::convert;
use arc_swap::ArcSwapOption;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ctx_core::Catalog;
use rmcp::ErrorData;
use rmcp::model::{PaginatedRequestParams, Prompt, Tool};
use std::collections::HashMap;
use std::sync::Arc;

/// Entries of one page.
pub(super) const PAGE_ENTRIES: usize = 200;

/// A cache of the most recently used listing.
#[derive(Default)]
pub(super) struct ListingCache(ArcSwapOption<CatalogListing>);

/// The tools and prompts of one catalog, in the order in which clients see them.
pub(super) struct CatalogListing {
    catalog: Arc<Catalog>,
    pub(super) tools: Vec<Tool>,
    pub(super) prompts: Vec<Prompt>,
    by_name: HashMap<String, usize>,
}

impl ListingCache {
    pub(super) fn get(&self, catalog: Arc<Catalog>) -> Arc<CatalogListing> {
        if let Some(listing) = self.0.load_full()
            && Arc::ptr_eq(&listing.catalog, &catalog)
        {
            return listing;
        }
        let listing = Arc::new(CatalogListing::new(catalog));
        self.0.store(Some(listing.clone()));
        listing
    }
}

impl CatalogListing {
    pub(super) fn new(catalog: Arc<Catalog>) -> Self {
        let tools: Vec<Tool> = catalog.client_tools().map(convert::tool).collect();
        let prompts = catalog.agents().map(convert::prompt).collect();
        let by_name =
            tools.iter().enumerate().map(|(position, tool)| (tool.name.to_string(), position)).collect();
        Self { catalog, tools, prompts, by_name }
    }

    pub(super) fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    pub(super) fn tool(&self, name: &str) -> Option<&Tool> {
        self.by_name.get(name).and_then(|position| self.tools.get(*position))
    }
}

/// One page of an in-memory list, and the cursor of the next. A cursor is the name of the last entry sent, so
/// that it stays valid while the list changes.
pub(super) fn paginate<T: Clone>(
    all: &[T],
    name: impl Fn(&T) -> &str,
    request: Option<PaginatedRequestParams>,
) -> Result<(Vec<T>, Option<String>), ErrorData> {
    let start = match decode_cursor(request)? {
        None => 0,
        Some(last) => {
            let position = all.iter().position(|entry| name(entry) == last);
            position.ok_or_else(invalid_cursor)? + 1
        }
    };
    let end = all.len().min(start + PAGE_ENTRIES);
    let entries = all.get(start..end).unwrap_or_default().to_vec();
    let next = (end < all.len()).then(|| entries.last().map(|entry| encode_cursor(name(entry)))).flatten();
    Ok((entries, next))
}

/// The decoded cursor of a request.
pub(super) fn decode_cursor(request: Option<PaginatedRequestParams>) -> Result<Option<String>, ErrorData> {
    let Some(cursor) = request.and_then(|request| request.cursor) else { return Ok(None) };
    let text = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.map(Some).ok_or_else(invalid_cursor)
}

pub(super) fn encode_cursor(cursor: &str) -> String {
    URL_SAFE_NO_PAD.encode(cursor)
}

pub(super) fn invalid_cursor() -> ErrorData {
    ErrorData::invalid_params("the cursor is not one of this list; list again from its beginning", None)
}
