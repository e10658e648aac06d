//! Description texts from the web: bounded, cached, and revalidated with conditional requests.

use super::cache::DescriptionCache;
use super::file_cache::touch;
use super::files::decode_text;
use super::{CachePolicy, WebAddress};
use crate::client::{HttpClient, configured_reach, origin_reach};
use crate::document::{Fetch, TEXT_BYTES_MAX};
use ctx_core::{AddressPolicy, NetworkScope};
use ctx_net::Request;
use http::header::{
    ACCEPT, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use std::fs;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use url::Url;

/// Time limit for one text.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Time limit for all texts of one description together.
pub(super) const TOTAL_TIME_MAX: Duration = Duration::from_secs(120);

/// The `Accept` header for descriptions.
const ACCEPT_DESCRIPTION: HeaderValue =
    HeaderValue::from_static("application/json, application/yaml, text/yaml, */*;q=0.8");

/// Fetches texts from the web, through a cache.
pub(crate) struct CachedFetcher {
    http_client: HttpClient,
    cache: Option<DescriptionCache>,
    /// Runs the async requests of these blocking functions.
    runtime: Handle,
}

/// A text, and its address after redirects.
#[derive(Clone, Debug)]
pub(super) struct FetchedText {
    pub(super) text: String,
    pub(super) address: Url,
    /// Network scope of the peer that sent it.
    pub(super) scope: NetworkScope,
}

/// Metadata of a cached text, for its revalidation.
#[derive(Debug, Serialize, Deserialize)]
struct TextMetadata {
    address: String,
    etag: Option<String>,
    last_modified: Option<String>,
    /// Network scope of the peer that sent it. Cache files of older versions lack it, and are fetched anew.
    scope: NetworkScope,
}

/// Fetches documents of one origin.
pub(super) struct SameOriginFetch<'a> {
    fetcher: &'a CachedFetcher,
    root: &'a WebAddress,
    policy: CachePolicy,
    /// Deadline for all of them together.
    deadline: Instant,
}

impl CachedFetcher {
    /// A fetcher that sends its requests through `http_client`.
    pub(crate) fn new(http_client: HttpClient, cache: Option<DescriptionCache>, runtime: Handle) -> Self {
        Self { http_client, cache, runtime }
    }

    /// The root document of a description. Its origin after redirects is the one that all others must have.
    pub(super) fn fetch_root(
        &self,
        url: &Url,
        policy: CachePolicy,
        deadline: Instant,
    ) -> Result<FetchedText, String> {
        self.fetch_text(url, None, configured_reach(url.host_str().unwrap_or_default()), policy, deadline)
    }

    /// A [`Fetch`] for the other documents, confined to the origin of `root`.
    pub(super) fn same_origin<'a>(
        &'a self,
        root: &'a WebAddress,
        policy: CachePolicy,
        deadline: Instant,
    ) -> SameOriginFetch<'a> {
        SameOriginFetch { fetcher: self, root, policy, deadline }
    }

    /// A text from the cache or the web, as `policy` says. With `origin`, redirects to another origin are refused.
    fn fetch_text(
        &self,
        url: &Url,
        origin: Option<&Url>,
        reach: AddressPolicy,
        policy: CachePolicy,
        deadline: Instant,
    ) -> Result<FetchedText, String> {
        let cached = self.read_cache(url);
        match (policy, cached) {
            (CachePolicy::CacheOnly, Some((_, cached))) => Ok(cached),
            (CachePolicy::CacheOnly, None) => Err("is not in the cache".to_owned()),
            (CachePolicy::Revalidate, cached) => {
                let metadata = cached.as_ref().map(|(metadata, _)| metadata);
                match self.block_on_until(deadline, self.request_text(url, origin, reach, metadata)) {
                    Ok(Some((metadata, address, text))) => {
                        self.write_cache(url, &metadata, &text);
                        Ok(FetchedText { text, address, scope: metadata.scope })
                    }
                    // 304 Not Modified, which is only sent to a conditional request.
                    Ok(None) => cached
                        .map(|(_, cached)| cached)
                        .ok_or_else(|| "sent an unexpected HTTP 304".to_owned()),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Runs a request within its own time limit and within the deadline. Past the deadline, nothing is sent.
    fn block_on_until<T>(
        &self,
        deadline: Instant,
        request: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout_error = if left > TIME_MAX {
            format!("no answer within {} seconds", TIME_MAX.as_secs())
        } else {
            format!(
                "loading the documents of the description takes more than {} seconds",
                TOTAL_TIME_MAX.as_secs()
            )
        };
        if left.is_zero() {
            return Err(timeout_error);
        }
        let timed = async { tokio::time::timeout(left.min(TIME_MAX), request).await };
        self.runtime.block_on(timed).unwrap_or(Err(timeout_error))
    }

    /// Requests a text; `None` if the known one is unchanged.
    async fn request_text(
        &self,
        url: &Url,
        origin: Option<&Url>,
        reach: AddressPolicy,
        cached: Option<&TextMetadata>,
    ) -> Result<Option<(TextMetadata, Url, String)>, String> {
        let mut headers = HeaderMap::from_iter([(ACCEPT, ACCEPT_DESCRIPTION)]);
        let mut add = |name: HeaderName, value: Option<&String>| {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(name, value);
            }
        };
        add(IF_NONE_MATCH, cached.and_then(|cached| cached.etag.as_ref()));
        add(IF_MODIFIED_SINCE, cached.and_then(|cached| cached.last_modified.as_ref()));
        let request = Request { headers, ..Request::new(Method::GET, url.clone()) };
        let is_allowed = |target: &Url| origin.is_none_or(|origin| target.origin() == origin.origin());
        let (response, address) = self
            .http_client
            .fetch(request, TEXT_BYTES_MAX, reach, is_allowed)
            .await
            .map_err(|error| error.message().to_owned())?;
        if response.status == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        if !response.status.is_success() {
            return Err(format!("GET {}: HTTP {}", without_query(url), response.status));
        }
        let header = |name: HeaderName| {
            response.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let (etag, last_modified) = (header(ETAG), header(LAST_MODIFIED));
        let metadata =
            TextMetadata { address: address.to_string(), etag, last_modified, scope: response.scope };
        Ok(Some((metadata, address, decode_text(response.body)?)))
    }

    /// The cached text of an address.
    fn read_cache(&self, url: &Url) -> Option<(TextMetadata, FetchedText)> {
        let path = self.cache.as_ref()?.text_path(url.as_str());
        let mut text = String::from_utf8(fs::read(&path).ok()?).ok()?;
        let line = text.find('\n')?;
        let metadata: TextMetadata = serde_json::from_str(text.get(..line)?).ok()?;
        text.drain(..=line);
        let address = Url::parse(&metadata.address).ok()?;
        touch(&path);
        let scope = metadata.scope;
        Some((metadata, FetchedText { text, address, scope }))
    }

    fn write_cache(&self, url: &Url, metadata: &TextMetadata, text: &str) {
        let Some(cache) = &self.cache else { return };
        let path = cache.text_path(url.as_str());
        cache.write(&path, |file| {
            serde_json::to_writer(&mut *file, metadata)?;
            file.write_all(b"\n")?;
            file.write_all(text.as_bytes())
        });
    }
}

impl Fetch for SameOriginFetch<'_> {
    fn fetch(&self, address: &str) -> Result<String, String> {
        let url = Url::parse(address).map_err(|error| error.to_string())?;
        let reach = origin_reach(url.host_str().unwrap_or_default(), self.root.scope);
        self.fetcher
            .fetch_text(&url, Some(&self.root.url), reach, self.policy, self.deadline)
            .map(|fetched| fetched.text)
    }
}

/// A URL without its query, which may hold secrets.
fn without_query(url: &Url) -> String {
    crate::Spec::Web(url.clone()).to_string()
}
