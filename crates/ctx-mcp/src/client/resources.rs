//! The resources of an upstream as a resource origin of the catalog: paginated lists, reading, subscriptions.

use super::connection::Connection;
use super::exchange::Asked;
use super::offers::List;
use super::upstream::Upstream;
use async_trait::async_trait;
use ctx_core::{
    Call, Catalog, Completable, Completing, Completions, ErrorKind, Following, Resource, ResourceChange,
    ResourceContent, ResourcePage, ResourceTemplate, Resources, ToolError,
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
const SILENT: Duration = Duration::from_secs(60);
/// Pages of a server's list, and bytes of its cursors.
const PAGES_MAX: usize = 500;
const CURSOR_BYTES_MAX: usize = 4 << 10;
/// How long a page of a server is cached that is longer than one of ours.
const KEPT: Duration = Duration::from_secs(30);

/// State that is kept between two requests for pages.
#[derive(Default)]
pub(super) struct Pages(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    kept: Option<Kept>,
    silent_until: Option<Instant>,
}

#[derive(Clone)]
struct Kept {
    cursor: Option<String>,
    resources: Arc<Vec<Resource>>,
    next: Option<String>,
    until: Instant,
}

/// The beginning of one of our pages: a page of the server, and the number of its entries to skip.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    page: usize,
    entry: usize,
    cursor: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mark, cursor) = match &self.cursor {
            Some(cursor) => ('+', cursor.as_str()),
            None => ('-', ""),
        };
        write!(formatter, "{} {} {mark}{cursor}", self.page, self.entry)
    }
}

impl Place {
    /// Parses a cursor. Clients may send any text, so it is checked.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let (page, entry) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let rest = parts.next()?;
        let cursor = match rest.strip_prefix('+') {
            Some(cursor) => Some(cursor.to_owned()),
            None => (rest == "-").then_some(None)?,
        };
        Some(Self { page, entry, cursor }).filter(|place| place.page < PAGES_MAX)
    }
}

/// The resources of an upstream.
pub(super) struct UpstreamResources(pub(super) Arc<Upstream>);

impl UpstreamResources {
    fn memory<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> T {
        work(&mut self.0.pages.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The page of the server in which one of ours begins; `None` if it cannot be listed in time.
    async fn page(&self, place: &Place) -> Option<Kept> {
        let now = Instant::now();
        let (kept, is_silent) = self.memory(|memory| {
            let kept = memory.kept.clone().filter(|kept| kept.cursor == place.cursor && kept.until > now);
            (kept, memory.silent_until.is_some_and(|until| until > now))
        });
        // A page that is read from its beginning is listed anew; its rest comes from the cache, to match.
        if let Some(kept) = kept.filter(|_| place.entry > 0) {
            return Some(kept);
        }
        let connection = match is_silent {
            true => return None,
            false => self.0.connected_soon(PAGE_TIME_MAX).await?,
        };
        let listed = tokio::time::timeout(PAGE_TIME_MAX, self.fetch(&connection, place)).await;
        match listed {
            Ok(page) => page,
            Err(_) => {
                let name = &self.0.settings.name;
                tracing::warn!("{name}: it does not list its resources; they are left out for a while");
                self.memory(|memory| memory.silent_until = Some(Instant::now() + SILENT));
                None
            }
        }
    }

    async fn fetch(&self, connection: &Connection, place: &Place) -> Option<Kept> {
        let has_resources =
            connection.peer.peer_info().is_some_and(|info| info.capabilities.resources.is_some());
        if !has_resources {
            return None;
        }
        let name = &self.0.settings.name;
        let (listed, next) = match connection.page(List::Resources, place.cursor.clone()).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!("{name}: its resources cannot be listed: {error}");
                return None;
            }
        };
        let mut uris = HashSet::new();
        let resources = listed.into_iter().filter_map(|resource| self.0.namespace.resource(resource));
        let resources = resources.filter(|resource| uris.insert(resource.uri.clone())).collect();
        let is_end = |next: &String| {
            let ends = place.page + 1 == PAGES_MAX || next.len() > CURSOR_BYTES_MAX;
            if ends {
                tracing::warn!("{name}: its list of resources does not end; the rest is left out");
            }
            ends
        };
        let next = next.filter(|next| !is_end(next));
        let (cursor, until) = (place.cursor.clone(), Instant::now() + KEPT);
        Some(Kept { cursor, resources: Arc::new(resources), next, until })
    }
}

#[async_trait]
impl Resources for UpstreamResources {
    fn prefix(&self) -> &str {
        self.0.namespace.prefix()
    }

    async fn list(&self, from: Option<&str>, most: usize, _: &Catalog) -> Result<ResourcePage, ToolError> {
        let place = match from {
            None => Place::default(),
            Some(from) => Place::parse(from)
                .ok_or_else(|| ToolError::bad_request("this is no cursor of a list of resources"))?,
        };
        // An unreachable server must not fail the list of all resources.
        let Some(page) = self.page(&place).await else { return Ok(ResourcePage::default()) };
        let end = page.resources.len().min(place.entry.saturating_add(most));
        let resources = page.resources.get(place.entry..end).unwrap_or_default().to_vec();
        let next = match end < page.resources.len() {
            true => Some(Place { entry: end, ..place }),
            false => {
                page.next.clone().map(|next| Place { page: place.page + 1, entry: 0, cursor: Some(next) })
            }
        };
        let kept = next.as_ref().is_some_and(|next| next.entry > 0).then_some(page);
        self.memory(|memory| memory.kept = kept);
        Ok(ResourcePage { resources, next: next.map(|next| next.to_string()) })
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        self.0.offers.templates().to_vec()
    }

    async fn read(&self, uri: &str, call: &Call) -> Result<Vec<ResourceContent>, ToolError> {
        let Some(original) = self.0.namespace.original(uri) else {
            return Err(ToolError::not_found(format!("{} has no such resource", self.0.settings.name)));
        };
        let asked = Asked::Resource(ReadResourceRequestParams::new(original));
        match self.0.ask(asked, true, call).await {
            Ok(ServerResult::ReadResourceResult(result)) => {
                let contents = result.contents.into_iter();
                Ok(contents.filter_map(|content| self.0.namespace.content(content)).collect())
            }
            Ok(_) => Err(self.0.failed("its answer is not that of a resource")),
            // Only the URI can be invalid. Newer servers send this code for an unknown resource, too.
            Err(error) if error.kind() == ErrorKind::BadRequest => {
                Err(ToolError::not_found(error.message().to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    fn changes(&self) -> Option<broadcast::Receiver<ResourceChange>> {
        Some(self.0.follows.changes())
    }

    async fn follow(&self, uri: &str) -> Option<Following> {
        let original = self.0.namespace.original(uri)?;
        self.0.wake();
        self.0.follows.follow(original).await
    }

    async fn complete(&self, asked: &Completing) -> Result<Completions, ToolError> {
        let Completable::Template(form) = &asked.of else { return Ok(Completions::default()) };
        let Some(original) = self.0.namespace.original(form) else { return Ok(Completions::default()) };
        self.0.complete(Reference::for_resource(original), asked).await
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
        fn a_place_is_what_it_was(page in 0..PAGES_MAX, entry: usize, cursor: Option<String>) {
            let place = Place { page, entry, cursor };
            prop_assert_eq!(Place::parse(&place.to_string()), Some(place));
        }

        #[test]
        fn any_text_is_a_place_or_none(text: String) {
            if let Some(place) = Place::parse(&text) {
                prop_assert!(place.page < PAGES_MAX);
            }
        }
    }
}
