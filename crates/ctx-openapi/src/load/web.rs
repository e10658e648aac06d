//! Description texts from the web: bounded, cached, and revalidated with conditional requests.

use super::files::text;
use super::kept::{Kept, touch};
use super::{Asking, WebAddress};
use crate::client::{Web, configured_reach, origin_reach};
use crate::document::{Fetch, TEXT_BYTES_MAX};
use ctx_core::{NetworkScope, Reach};
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
pub(super) const ALL_TIME_MAX: Duration = Duration::from_secs(120);

/// The `Accept` header for descriptions.
const WANTED: HeaderValue =
    HeaderValue::from_static("application/json, application/yaml, text/yaml, */*;q=0.8");

/// Fetches texts from the web, through a cache.
pub(crate) struct WebTexts {
    web: Web,
    kept: Option<Kept>,
    /// Runs the async requests of these blocking functions.
    runtime: Handle,
}

/// A text, and its address after redirects.
#[derive(Clone, Debug)]
pub(super) struct WebText {
    pub(super) text: String,
    pub(super) address: Url,
    /// Network scope of the peer that sent it.
    pub(super) scope: NetworkScope,
}

/// Metadata of a cached text, for its revalidation.
#[derive(Debug, Serialize, Deserialize)]
struct About {
    address: String,
    etag: Option<String>,
    last_modified: Option<String>,
    /// Network scope of the peer that sent it. Cache files of older versions lack it, and are fetched anew.
    scope: NetworkScope,
}

/// Fetches documents of one origin.
pub(super) struct Beside<'a> {
    texts: &'a WebTexts,
    home: &'a WebAddress,
    asking: Asking,
    /// Deadline for all of them together.
    until: Instant,
}

impl WebTexts {
    /// Requests are sent through `web`; `kept` is the cache.
    pub(crate) fn new(web: Web, kept: Option<Kept>, runtime: Handle) -> Self {
        Self { web, kept, runtime }
    }

    /// The root document of a description. Its origin after redirects is the one that all others must have.
    pub(super) fn first(&self, url: &Url, asking: Asking, until: Instant) -> Result<WebText, String> {
        self.get(url, None, configured_reach(url.host_str().unwrap_or_default()), asking, until)
    }

    /// A [`Fetch`] for the other documents, confined to the origin of `home`.
    pub(super) fn beside<'a>(&'a self, home: &'a WebAddress, asking: Asking, until: Instant) -> Beside<'a> {
        Beside { texts: self, home, asking, until }
    }

    fn get(
        &self,
        url: &Url,
        only: Option<&Url>,
        reach: Reach,
        asking: Asking,
        until: Instant,
    ) -> Result<WebText, String> {
        let known = self.known(url);
        match (asking, known) {
            (Asking::Kept, Some((_, known))) => Ok(known),
            (Asking::Kept, None) => Err("is not kept".to_owned()),
            (Asking::Web, known) => {
                let about = known.as_ref().map(|(about, _)| about);
                match self.ask_until(until, self.ask(url, only, reach, about)) {
                    Ok(Some((about, address, text))) => {
                        self.keep(url, &about, &text);
                        Ok(WebText { text, address, scope: about.scope })
                    }
                    // 304 Not Modified, which is only sent to a conditional request.
                    Ok(None) => known.map(|(_, known)| known).ok_or_else(|| "has not changed".to_owned()),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Runs a request within its own time limit and within the deadline. Past the deadline, nothing is sent.
    fn ask_until<T>(
        &self,
        until: Instant,
        asking: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        let left = until.saturating_duration_since(Instant::now());
        let late = if left > TIME_MAX {
            format!("no answer within {} seconds", TIME_MAX.as_secs())
        } else {
            format!("the texts of the description take more than {} seconds", ALL_TIME_MAX.as_secs())
        };
        if left.is_zero() {
            return Err(late);
        }
        let timed = async { tokio::time::timeout(left.min(TIME_MAX), asking).await };
        self.runtime.block_on(timed).unwrap_or(Err(late))
    }

    /// Requests a text; `None` if the known one is unchanged.
    async fn ask(
        &self,
        url: &Url,
        only: Option<&Url>,
        reach: Reach,
        known: Option<&About>,
    ) -> Result<Option<(About, Url, String)>, String> {
        let mut headers = HeaderMap::from_iter([(ACCEPT, WANTED)]);
        let mut add = |name: HeaderName, value: Option<&String>| {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(name, value);
            }
        };
        add(IF_NONE_MATCH, known.and_then(|known| known.etag.as_ref()));
        add(IF_MODIFIED_SINCE, known.and_then(|known| known.last_modified.as_ref()));
        let request = Request { headers, ..Request::new(Method::GET, url.clone()) };
        let may_go = |to: &Url| only.is_none_or(|only| to.origin() == only.origin());
        let (received, address) = self
            .web
            .follow(request, TEXT_BYTES_MAX, reach, may_go)
            .await
            .map_err(|error| error.message().to_owned())?;
        if received.status == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        if !received.status.is_success() {
            return Err(format!("GET {}: HTTP {}", shown(url), received.status));
        }
        let header = |name: HeaderName| {
            received.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let (etag, last_modified) = (header(ETAG), header(LAST_MODIFIED));
        let about = About { address: address.to_string(), etag, last_modified, scope: received.scope };
        Ok(Some((about, address, text(received.body)?)))
    }

    /// The cached text of an address.
    fn known(&self, url: &Url) -> Option<(About, WebText)> {
        let path = self.kept.as_ref()?.text_path(url.as_str());
        let mut text = String::from_utf8(fs::read(&path).ok()?).ok()?;
        let line = text.find('\n')?;
        let about: About = serde_json::from_str(text.get(..line)?).ok()?;
        text.drain(..=line);
        let address = Url::parse(&about.address).ok()?;
        touch(&path);
        let scope = about.scope;
        Some((about, WebText { text, address, scope }))
    }

    fn keep(&self, url: &Url, about: &About, text: &str) {
        let Some(kept) = &self.kept else { return };
        let path = kept.text_path(url.as_str());
        kept.write(&path, |file| {
            serde_json::to_writer(&mut *file, about)?;
            file.write_all(b"\n")?;
            file.write_all(text.as_bytes())
        });
    }
}

impl Fetch for Beside<'_> {
    fn fetch(&self, address: &str) -> Result<String, String> {
        let url = Url::parse(address).map_err(|error| error.to_string())?;
        let reach = origin_reach(url.host_str().unwrap_or_default(), self.home.scope);
        self.texts.get(&url, Some(&self.home.url), reach, self.asking, self.until).map(|got| got.text)
    }
}

/// A URL without its query, which may hold secrets.
fn shown(url: &Url) -> String {
    crate::Spec::Web(url.clone()).to_string()
}
