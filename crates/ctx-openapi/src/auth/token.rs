//! OAuth 2.0 client credentials grant: requests access tokens, and caches them until they expire.

use crate::client::{Web, configured_reach};
use crate::request::{ApiBase, component};
use crate::response::{FAILURE_BYTES_MAX, Received};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ctx_core::{ErrorKind, Reach, Redactor, Secret, ToolError};
use ctx_net::Request;
use http::Method;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::Value;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use url::Url;

/// Maximum number of cached access tokens.
const KEPT_MAX: usize = 64;

/// Safety margin before expiry: a token must still be valid when it arrives.
const MARGIN: Duration = Duration::from_secs(30);

/// A token request of the client credentials grant; also the key of the token cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) token_url: String,
    /// Whether the token endpoint comes from the description, not from the configuration.
    pub(crate) is_described: bool,
    pub(crate) id: String,
    pub(crate) secret: Secret,
    pub(crate) scopes: Vec<String>,
}

impl Wanted {
    /// The token endpoint; a relative URL is resolved against the API's base URL.
    fn url(&self, base: &Url) -> Result<Url, ToolError> {
        let url = base.join(&self.token_url).map_err(|_| {
            ToolError::new(ErrorKind::Tool, "the document's address for tokens cannot be read".to_owned())
        })?;
        // A wrong `http` address in the description would send the client secret in the clear.
        if self.is_described && base.scheme() == "https" && url.scheme() != "https" && !is_here(&url) {
            let message = "the document's address for tokens is not https, as the API's is; set `token_url`";
            return Err(ToolError::new(ErrorKind::Forbidden, message));
        }
        Ok(url)
    }
}

/// Whether a URL is on this machine (loopback).
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

#[derive(Debug)]
struct Token {
    value: Secret,
    /// When to request a new token; `None` if the server did not say how long this one lasts.
    until: Option<Instant>,
}

/// Locked during a token request, so that concurrent callers share one request.
type Slot = Arc<tokio::sync::Mutex<Option<Token>>>;

/// Cached access tokens, by resolved token endpoint and request: each server of a description may have its
/// own endpoint.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<Vec<(Url, Wanted, Slot)>>);

impl Tokens {
    /// Returns the cached token. Requests a new one if there is none, if it has expired, or if it is the
    /// `refused` one.
    pub(crate) async fn get(
        &self,
        wanted: &Wanted,
        refused: Option<&Secret>,
        web: &Web,
        base: &ApiBase,
    ) -> Result<Secret, ToolError> {
        let url = wanted.url(&base.url)?;
        let reach = match wanted.is_described {
            true => base.reach_of_described(&url),
            false => configured_reach(url.host_str().unwrap_or_default()),
        };
        let slot = self.slot(&url, wanted);
        let mut kept = slot.lock().await;
        let now = Instant::now();
        if let Some(token) = &*kept
            && token.until.is_none_or(|until| now < until)
            && refused != Some(&token.value)
        {
            return Ok(token.value.clone());
        }
        *kept = None;
        let token = fetched(wanted, web, &url, reach).await?;
        Ok(kept.insert(token).value.clone())
    }

    fn slot(&self, url: &Url, wanted: &Wanted) -> Slot {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |known: &&(Url, Wanted, Slot)| known.0 == *url && known.1 == *wanted;
        if let Some((_, _, slot)) = slots.iter().find(is_it) {
            return slot.clone();
        }
        if slots.len() == KEPT_MAX {
            slots.remove(0);
        }
        let slot = Slot::default();
        slots.push((url.clone(), wanted.clone(), slot.clone()));
        slot
    }
}

async fn fetched(wanted: &Wanted, web: &Web, url: &Url, reach: Reach) -> Result<Token, ToolError> {
    let asked = Instant::now();
    let mut received = web.receive_once(&request(wanted, url, true), FAILURE_BYTES_MAX, reach).await?;
    if matches!(received.status.as_u16(), 400 | 401) {
        // Some servers accept client credentials only in the body.
        received = web.receive_once(&request(wanted, url, false), FAILURE_BYTES_MAX, reach).await?;
    }
    read(received, wanted, url, asked)
}

fn request(wanted: &Wanted, url: &Url, in_header: bool) -> Request {
    let (id, secret) = (component(&wanted.id), component(wanted.secret.expose()));
    let mut body = "grant_type=client_credentials".to_owned();
    if !wanted.scopes.is_empty() {
        body = format!("{body}&scope={}", component(&wanted.scopes.join(" ")));
    }
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    if in_header {
        let both = BASE64_STANDARD.encode(format!("{id}:{secret}"));
        if let Ok(mut value) = HeaderValue::from_str(&format!("Basic {both}")) {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
    } else {
        body = format!("{body}&client_id={id}&client_secret={secret}");
    }
    Request { headers, ..Request::new(Method::POST, url.clone()).body(body) }
}

fn read(received: Received, wanted: &Wanted, url: &Url, asked: Instant) -> Result<Token, ToolError> {
    let redactor = Redactor::new([wanted.secret.clone()]);
    let host = url.host_str().unwrap_or_default();
    let answer = received.into_output(&format!("no token from {host}"), &redactor, None)?.value;
    let Some(token) = answer.get("access_token").and_then(Value::as_str).filter(|token| !token.is_empty())
    else {
        let message = format!("no token from {host}: its answer has no `access_token`");
        return Err(ToolError::new(ErrorKind::Tool, message));
    };
    let seconds = match answer.get("expires_in") {
        Some(Value::String(text)) => text.parse().ok(),
        Some(other) => other.as_f64(),
        None => None,
    };
    let lasts = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    // A token that lives shorter than the margin is used for half its lifetime.
    let used = lasts.map(|lasts| lasts.checked_sub(MARGIN).unwrap_or(lasts / 2));
    let until = used.and_then(|used| asked.checked_add(used));
    Ok(Token { value: Secret::new(token), until })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_cannot_have_a_secret_sent_in_the_open() {
        let url = |base: &str, token_url: &str, is_described: bool| {
            let (token_url, id, secret) = (token_url.to_owned(), "me".to_owned(), Secret::new("hunter2!"));
            let wanted = Wanted { token_url, is_described, id, secret, scopes: Vec::new() };
            wanted.url(&Url::parse(base).unwrap()).map(|url| url.to_string())
        };
        let safe = "https://api.example/v1";
        for open in ["http://api.example/token", "http://127.0.0.1.example/token"] {
            let error = url(safe, open, true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Forbidden);
            assert!(error.message().ends_with("set `token_url`"), "{error}");
            assert_eq!(url(safe, open, false).unwrap(), open, "whoever configures it knows");
            assert_eq!(url("http://api.example/v1", open, true).unwrap(), open);
        }
        for here in ["http://localhost:1/token", "http://127.0.0.1/token", "http://[::1]/token"] {
            assert_eq!(url(safe, here, true).unwrap(), here);
        }
        assert_eq!(url(safe, "/token", true).unwrap(), "https://api.example/token");
    }
}
