//! How an API is configured.

use crate::auth::Credentials;
use ctx_core::{Identifier, RateLimit, Secret};
use std::time::Duration;

/// How an API is configured.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// What its functions are found under.
    pub name: Identifier,
    /// Where it is, over what its document says.
    pub base_url: Option<String>,
    /// Where its document came from, if that is on the web: relative servers begin there.
    pub document_url: Option<String>,
    /// What lets us in.
    pub credentials: Credentials,
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
    /// An API of which no more is said than its name.
    pub fn new(name: Identifier) -> Self {
        Self {
            name,
            base_url: None,
            document_url: None,
            credentials: Credentials::default(),
            headers: Vec::new(),
            proxy: None,
            rate_limit: None,
            exposed: false,
            limits: ApiLimits::default(),
        }
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
    /// A proxy that cannot be one.
    #[error("the address of the proxy cannot be read")]
    Proxy,
}
