//! How an API is configured.

use crate::auth::Credentials;
use crate::client::Client;
use crate::document::Selection;
use ctx_core::{Identifier, RateLimit, Secret};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// Where a description is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// In a file; others that it refers to lie beside it.
    File(PathBuf),
    /// On the web; others that it refers to have the same origin.
    Web(Url),
}

impl Spec {
    /// What is meant by an address, or by a path that may be relative to a folder.
    pub fn read(written: &str, folder: &Path) -> Result<Self, ApiError> {
        if !written.starts_with("http://") && !written.starts_with("https://") {
            return Ok(Self::File(folder.join(written)));
        }
        let url = Url::parse(written).map_err(|error| ApiError::Address(error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ApiError::Address("it may not hold a user's name or password".to_owned()));
        }
        Ok(Self::Web(url))
    }
}

/// As people write it; without what may be secret.
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

/// How an API is configured.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// What its functions are found under.
    pub name: Identifier,
    /// Where its description is.
    pub spec: Spec,
    /// Where it is, over what its description says.
    pub base_url: Option<String>,
    /// Which of its operations are there.
    pub operations: Selection,
    /// Values of parameters that are always sent, and that callers neither see nor give.
    pub frozen: BTreeMap<String, Value>,
    /// What lets us in.
    pub credentials: Credentials,
    /// Whether callers may bring their own, in the place of those.
    pub takes_credentials: bool,
    /// Added to every request.
    pub headers: Vec<(String, Secret)>,
    /// What to send requests through.
    pub proxy: Option<Secret>,
    /// How often it may be called, all operations together.
    pub rate_limit: Option<RateLimit>,
    /// Whether its functions are listed to clients one by one.
    pub exposed: bool,
    /// Bounds.
    pub limits: ApiLimits,
}

impl ApiSettings {
    /// An API of which no more is said than its name and where its description is.
    pub fn new(name: Identifier, spec: Spec) -> Self {
        Self {
            name,
            spec,
            base_url: None,
            operations: Selection::default(),
            frozen: BTreeMap::new(),
            credentials: Credentials::default(),
            takes_credentials: false,
            headers: Vec::new(),
            proxy: None,
            rate_limit: None,
            exposed: false,
            limits: ApiLimits::default(),
        }
    }
}

impl ApiSettings {
    /// Whether it can be had as it is configured, as far as that shows before its description is read.
    pub fn check(&self) -> Result<(), ApiError> {
        if let Some(Err(error)) = self.base_url.as_deref().map(Url::parse) {
            return Err(ApiError::Base(error.to_string()));
        }
        Client::new(self).map(|_| ())
    }
}

/// What calls to an API may use at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiLimits {
    /// How long one call may take.
    pub call: Duration,
    /// Bytes of an answer.
    pub response_bytes: usize,
    /// Requests at the same time; more wait.
    pub in_flight: usize,
}

impl Default for ApiLimits {
    fn default() -> Self {
        Self { call: Duration::from_secs(60), response_bytes: 8 << 20, in_flight: 32 }
    }
}

/// Why an API cannot be had as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// A header that cannot be sent.
    #[error("the header `{0}` cannot be sent")]
    Header(String),
    /// Where its description is said to be.
    #[error("the address of the description cannot be read: {0}")]
    Address(String),
    /// Where it is said to be itself.
    #[error("`base_url` cannot be read: {0}")]
    Base(String),
    /// A proxy that cannot be one.
    #[error("the address of the proxy cannot be read")]
    Proxy,
}
