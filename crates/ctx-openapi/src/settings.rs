//! Configuration of an API.

use crate::auth::Credentials;
use crate::client::ApiClient;
use crate::document::Selection;
use ctx_core::{Identifier, RateLimit, Secret};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// Location of a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// In a file; documents that it refers to lie in the same folder or below it.
    File(PathBuf),
    /// On the web; documents that it refers to have the same origin.
    Web(Url),
}

impl Spec {
    /// Parses a URL, or a path that may be relative to `folder`.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ApiError> {
        if !text.starts_with("http://") && !text.starts_with("https://") {
            return Ok(Self::File(folder.join(text)));
        }
        let url = Url::parse(text).map_err(|error| ApiError::Address(error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ApiError::Address("it may not contain a user name or password".to_owned()));
        }
        Ok(Self::Web(url))
    }
}

/// Without the query of a URL, which may hold secrets.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Web(url) => {
                let mut shown = url.clone();
                shown.set_query(None);
                shown.fmt(f)
            }
        }
    }
}

/// Configuration of an API.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// The namespace of its functions.
    pub name: Identifier,
    /// Location of its description.
    pub spec: Spec,
    /// Base URL, overriding the servers of the description.
    pub base_url: Option<String>,
    /// Selects which operations are offered.
    pub operations: Selection,
    /// Frozen parameters: values that are always sent, and that callers neither see nor set.
    pub frozen: BTreeMap<String, Value>,
    /// Credentials for the API.
    pub credentials: Credentials,
    /// Whether callers may send their own credentials in place of these (`request_auth`).
    pub accepts_caller_credentials: bool,
    /// Headers added to every request.
    pub headers: Vec<(String, Secret)>,
    /// URL of the proxy for all requests.
    pub proxy: Option<Secret>,
    /// Rate limit of all operations together.
    pub rate_limit: Option<RateLimit>,
    /// Whether clients see its functions one by one (`expose`).
    pub exposed: bool,
    /// Bounds on its calls.
    pub limits: ApiLimits,
}

impl ApiSettings {
    /// Defaults for everything but the name and the location of the description.
    pub fn new(name: Identifier, spec: Spec) -> Self {
        Self {
            name,
            spec,
            base_url: None,
            operations: Selection::default(),
            frozen: BTreeMap::new(),
            credentials: Credentials::default(),
            accepts_caller_credentials: false,
            headers: Vec::new(),
            proxy: None,
            rate_limit: None,
            exposed: false,
            limits: ApiLimits::default(),
        }
    }
}

impl ApiSettings {
    /// Checks the settings, as far as that is possible before the description is loaded.
    pub fn check(&self) -> Result<(), ApiError> {
        if let Some(Err(error)) = self.base_url.as_deref().map(Url::parse) {
            return Err(ApiError::Base(error.to_string()));
        }
        ApiClient::new(self).map(|_| ())
    }
}

/// Bounds on the calls to an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiLimits {
    /// Time limit of one call.
    pub call: Duration,
    /// Maximum size of a response, in bytes.
    pub response_bytes: usize,
    /// Maximum number of concurrent requests; further ones wait.
    pub in_flight: usize,
}

impl Default for ApiLimits {
    fn default() -> Self {
        Self { call: Duration::from_secs(60), response_bytes: 8 << 20, in_flight: 32 }
    }
}

/// Why the settings of an API cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// A header that cannot be sent.
    #[error("the header `{0}` is invalid")]
    Header(String),
    /// The URL of the description is invalid.
    #[error("the URL of the description is invalid: {0}")]
    Address(String),
    /// The base URL is invalid.
    #[error("`base_url` is not a valid URL: {0}")]
    Base(String),
    /// The URL of the proxy is invalid.
    #[error("the proxy URL is invalid")]
    Proxy,
}
