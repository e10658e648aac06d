//! The resources of an upstream as a resource origin of the catalog: paginated lists, reading, subscriptions.

use super::connection::Connection;
use super::features::FeatureKind;
use super::request::UpstreamRequest;
use super::upstream::Upstream;
use async_trait::async_trait;
use ctx_core::{
    Call, Catalog, CompletionRequest, CompletionTarget, Completions, ErrorKind, Resource, ResourceChange,
    ResourceContent, ResourcePage, ResourceSubscription, ResourceTemplate, Resources, ToolError,
};
use rmcp::model::{ReadResourceRequestParams, Reference, ServerResult};
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::time::Instant;

/// Time limit of one page. The resources of a server that takes longer are left out.
const PAGE_TIME_MAX: Duration = Duration::from_secs(3);
/// How long a server is not asked again after it has exceeded that limit.
const UNRESPONSIVE_PAUSE: Duration = Duration::from_secs(60);
/// Pages of a server's list, and bytes of its cursors.
const PAGES_MAX: usize = 500;
const CURSOR_BYTES_MAX: usize = 4 << 10;
/// How long a page of a server is cached that is longer than one of ours.
const PAGE_CACHE_TTL: Duration = Duration::from_secs(30);

/// The last page that was listed, for the request for its rest; and whether the server is unresponsive.
#[derive(Default)]
pub(super) struct ResourcePageCache(Mutex<PageCacheState>);

#[derive(Default)]
struct PageCacheState {
    page: Option<CachedPage>,
    unresponsive_until: Option<Instant>,
}

#[derive(Clone)]
struct CachedPage {
    cursor: Option<String>,
    resources: Arc<Vec<Resource>>,
    next: Option<String>,
    until: Instant,
}

/// The cursor of one of our pages: a page of the server, and the number of its entries to skip.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PageCursor {
    page: usize,
    entry: usize,
    cursor: Option<String>,
}

impl fmt::Display for PageCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mark, cursor) = match &self.cursor {
            Some(cursor) => ('+', cursor.as_str()),
            None => ('-', ""),
        };
        write!(formatter, "{} {} {mark}{cursor}", self.page, self.entry)
    }
}

impl PageCursor {
    /// Parses a cursor. Clients may send any text, so it is checked.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let (page, entry) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let rest = parts.next()?;
        let cursor = match rest.strip_prefix('+') {
            Some(cursor) => Some(cursor.to_owned()),
            None => (rest == "-").then_some(None)?,
        };
        Some(Self { page, entry, cursor }).filter(|start| start.page < PAGES_MAX)
    }
}

/// The resources of an upstream.
pub(super) struct UpstreamResources(pub(super) Arc<Upstream>);

impl UpstreamResources {
    fn with_cache<T>(&self, change: impl FnOnce(&mut PageCacheState) -> T) -> T {
        change(&mut self.0.resource_pages.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The page of the server in which one of ours begins; `None` if it cannot be listed in time.
    async fn load_page(&self, start: &PageCursor) -> Option<CachedPage> {
        let now = Instant::now();
        let (cached, is_unresponsive) = self.with_cache(|cache| {
            let cached =
                cache.page.clone().filter(|cached| cached.cursor == start.cursor && cached.until > now);
            (cached, cache.unresponsive_until.is_some_and(|until| until > now))
        });
        // A page that is read from its beginning is listed anew; its rest comes from the cache, to match.
        if let Some(cached) = cached.filter(|_| start.entry > 0) {
            return Some(cached);
        }
        let connection = match is_unresponsive {
            true => return None,
            false => self.0.connection_within(PAGE_TIME_MAX).await?,
        };
        let result = tokio::time::timeout(PAGE_TIME_MAX, self.fetch_page(&connection, start)).await;
        match result {
            Ok(page) => page,
            Err(_) => {
                let name = &self.0.settings.name;
                tracing::warn!("{name}: listing its resources timed out; they are left out for a while");
                self.with_cache(|cache| cache.unresponsive_until = Some(Instant::now() + UNRESPONSIVE_PAUSE));
                None
            }
        }
    }

    async fn fetch_page(&self, connection: &Connection, start: &PageCursor) -> Option<CachedPage> {
        let has_resources =
            connection.peer.peer_info().is_some_and(|info| info.capabilities.resources.is_some());
        if !has_resources {
            return None;
        }
        let name = &self.0.settings.name;
        let (resources, next) = match connection.list_page(FeatureKind::Resources, start.cursor.clone()).await
        {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!("{name}: its resources cannot be listed: {error}");
                return None;
            }
        };
        let mut uris = HashSet::new();
        let resources = resources.into_iter().filter_map(|resource| self.0.namespace.resource(resource));
        let resources = resources.filter(|resource| uris.insert(resource.uri.clone())).collect();
        let is_end = |next: &String| {
            let ends = start.page + 1 == PAGES_MAX || next.len() > CURSOR_BYTES_MAX;
            if ends {
                tracing::warn!("{name}: its list of resources does not end; the rest is left out");
            }
            ends
        };
        let next = next.filter(|next| !is_end(next));
        let (cursor, until) = (start.cursor.clone(), Instant::now() + PAGE_CACHE_TTL);
        Some(CachedPage { cursor, resources: Arc::new(resources), next, until })
    }
}

#[async_trait]
impl Resources for UpstreamResources {
    fn prefix(&self) -> &str {
        self.0.namespace.prefix()
    }

    async fn list(&self, from: Option<&str>, most: usize, _: &Catalog) -> Result<ResourcePage, ToolError> {
        let start = match from {
            None => PageCursor::default(),
            Some(from) => PageCursor::parse(from)
                .ok_or_else(|| ToolError::bad_request("not a valid cursor of a list of resources"))?,
        };
        // An unreachable server must not fail the list of all resources.
        let Some(page) = self.load_page(&start).await else { return Ok(ResourcePage::default()) };
        let end = page.resources.len().min(start.entry.saturating_add(most));
        let resources = page.resources.get(start.entry..end).unwrap_or_default().to_vec();
        let next = match end < page.resources.len() {
            true => Some(PageCursor { entry: end, ..start }),
            false => page.next.clone().map(|next| PageCursor {
                page: start.page + 1,
                entry: 0,
                cursor: Some(next),
            }),
        };
        let cached = next.as_ref().is_some_and(|next| next.entry > 0).then_some(page);
        self.with_cache(|cache| cache.page = cached);
        Ok(ResourcePage { resources, next: next.map(|next| next.to_string()) })
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        self.0.features.templates().to_vec()
    }

    async fn read(&self, uri: &str, call: &Call) -> Result<Vec<ResourceContent>, ToolError> {
        let Some(original) = self.0.namespace.original_uri(uri) else {
            return Err(ToolError::not_found(format!("{} has no such resource", self.0.settings.name)));
        };
        let request = UpstreamRequest::Resource(ReadResourceRequestParams::new(original));
        match self.0.request(request, true, call).await {
            Ok(ServerResult::ReadResourceResult(result)) => {
                let contents = result.contents.into_iter();
                Ok(contents.filter_map(|content| self.0.namespace.content(content)).collect())
            }
            Ok(_) => Err(self.0.error("its response is not a `resources/read` result")),
            // Only the URI can be invalid. Newer servers send this code for an unknown resource, too.
            Err(error) if error.kind() == ErrorKind::BadRequest => {
                Err(ToolError::not_found(error.message().to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    fn changes(&self) -> Option<broadcast::Receiver<ResourceChange>> {
        Some(self.0.subscriptions.changes())
    }

    async fn subscribe(&self, uri: &str) -> Option<ResourceSubscription> {
        let original = self.0.namespace.original_uri(uri)?;
        self.0.wake();
        self.0.subscriptions.subscribe(original).await
    }

    async fn complete(&self, completing: &CompletionRequest) -> Result<Completions, ToolError> {
        let CompletionTarget::Template(uri_template) = &completing.target else {
            return Ok(Completions::default());
        };
        let Some(original) = self.0.namespace.original_uri(uri_template) else {
            return Ok(Completions::default());
        };
        self.0.complete(Reference::for_resource(original), completing).await
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.0.settings.limits.call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cursor_survives_a_round_trip(page in 0..PAGES_MAX, entry: usize, cursor: Option<String>) {
            let start = PageCursor { page, entry, cursor };
            prop_assert_eq!(PageCursor::parse(&start.to_string()), Some(start));
        }

        #[test]
        fn any_text_is_a_bounded_cursor_or_none(text: String) {
            if let Some(start) = PageCursor::parse(&text) {
                prop_assert!(start.page < PAGES_MAX);
            }
        }
    }
}
