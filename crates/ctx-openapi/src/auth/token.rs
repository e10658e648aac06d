//! OAuth 2.0 client credentials grant: requests access tokens, and caches them until they expire.

use crate::client::{HttpClient, configured_reach};
use crate::request::{ApiBase, encode_component};
use crate::response::{ERROR_BODY_BYTES_MAX, HttpResponse};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ctx_core::{AddressPolicy, ErrorKind, Redactor, Secret, ToolError};
use ctx_net::Request;
use http::Method;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::Value;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use url::Url;

/// Maximum number of cached access tokens.
const TOKENS_MAX: usize = 64;

/// Safety margin before expiry: a token must still be valid when it arrives.
const EXPIRY_MARGIN: Duration = Duration::from_secs(30);

/// A token request of the client credentials grant; also the key of the token cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenRequest {
    pub(crate) token_url: String,
    /// Whether the token endpoint comes from the description, not from the configuration.
    pub(crate) is_from_description: bool,
    pub(crate) id: String,
    pub(crate) secret: Secret,
    pub(crate) scopes: Vec<String>,
}

impl TokenRequest {
    /// The token endpoint; a relative URL is resolved against the API's base URL.
    fn url(&self, base: &Url) -> Result<Url, ToolError> {
        let url = base.join(&self.token_url).map_err(|_| {
            ToolError::new(ErrorKind::Tool, "the description's token URL is invalid".to_owned())
        })?;
        // A wrong `http` address in the description would send the client secret in the clear.
        if self.is_from_description
            && base.scheme() == "https"
            && url.scheme() != "https"
            && !is_loopback(&url)
        {
            let message = "the description's token URL is not https, but the API's URL is; set `token_url`";
            return Err(ToolError::new(ErrorKind::Forbidden, message));
        }
        Ok(url)
    }
}

/// Whether a URL is on this machine (loopback).
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

#[derive(Debug)]
struct AccessToken {
    value: Secret,
    /// When to request a new token; `None` if the server did not say how long this one lasts.
    refresh_at: Option<Instant>,
}

/// Locked during a token request, so that concurrent callers share one request.
type TokenSlot = Arc<tokio::sync::Mutex<Option<AccessToken>>>;

/// Cached access tokens, by resolved token endpoint and request: each server of a description may have its
/// own endpoint.
#[derive(Debug, Default)]
pub(crate) struct TokenCache(Mutex<Vec<(Url, TokenRequest, TokenSlot)>>);

impl TokenCache {
    /// Returns the cached token. Requests a new one if there is none, if it has expired, or if it is the
    /// `refused` one.
    pub(crate) async fn get(
        &self,
        request: &TokenRequest,
        refused: Option<&Secret>,
        http_client: &HttpClient,
        base: &ApiBase,
    ) -> Result<Secret, ToolError> {
        let url = request.url(&base.url)?;
        let reach = match request.is_from_description {
            true => base.reach_of(&url),
            false => configured_reach(url.host_str().unwrap_or_default()),
        };
        let slot = self.slot(&url, request);
        let mut cached = slot.lock().await;
        let now = Instant::now();
        if let Some(token) = &*cached
            && token.refresh_at.is_none_or(|refresh_at| now < refresh_at)
            && refused != Some(&token.value)
        {
            return Ok(token.value.clone());
        }
        *cached = None;
        let token = fetch_token(request, http_client, &url, reach).await?;
        Ok(cached.insert(token).value.clone())
    }

    fn slot(&self, url: &Url, request: &TokenRequest) -> TokenSlot {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |known: &&(Url, TokenRequest, TokenSlot)| known.0 == *url && known.1 == *request;
        if let Some((_, _, slot)) = slots.iter().find(is_same) {
            return slot.clone();
        }
        if slots.len() == TOKENS_MAX {
            slots.remove(0);
        }
        let slot = TokenSlot::default();
        slots.push((url.clone(), request.clone(), slot.clone()));
        slot
    }
}

async fn fetch_token(
    request: &TokenRequest,
    http_client: &HttpClient,
    url: &Url,
    reach: AddressPolicy,
) -> Result<AccessToken, ToolError> {
    let requested_at = Instant::now();
    let mut response =
        http_client.send_once(&build_request(request, url, true), ERROR_BODY_BYTES_MAX, reach).await?;
    if matches!(response.status.as_u16(), 400 | 401) {
        // Some servers accept client credentials only in the body.
        response =
            http_client.send_once(&build_request(request, url, false), ERROR_BODY_BYTES_MAX, reach).await?;
    }
    parse_token_response(response, request, url, requested_at)
}

fn build_request(request: &TokenRequest, url: &Url, in_header: bool) -> Request {
    let (id, secret) = (encode_component(&request.id), encode_component(request.secret.expose()));
    let mut body = "grant_type=client_credentials".to_owned();
    if !request.scopes.is_empty() {
        body = format!("{body}&scope={}", encode_component(&request.scopes.join(" ")));
    }
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    if in_header {
        let encoded = BASE64_STANDARD.encode(format!("{id}:{secret}"));
        if let Ok(mut value) = HeaderValue::from_str(&format!("Basic {encoded}")) {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
    } else {
        body = format!("{body}&client_id={id}&client_secret={secret}");
    }
    Request { headers, ..Request::new(Method::POST, url.clone()).body(body) }
}

fn parse_token_response(
    response: HttpResponse,
    request: &TokenRequest,
    url: &Url,
    requested_at: Instant,
) -> Result<AccessToken, ToolError> {
    let redactor = Redactor::new([request.secret.clone()]);
    let host = url.host_str().unwrap_or_default();
    let body = response.into_output(&format!("no token from {host}"), &redactor, None)?.value;
    let Some(token) = body.get("access_token").and_then(Value::as_str).filter(|token| !token.is_empty())
    else {
        let message = format!("no token from {host}: its answer has no `access_token`");
        return Err(ToolError::new(ErrorKind::Tool, message));
    };
    let seconds = match body.get("expires_in") {
        Some(Value::String(text)) => text.parse().ok(),
        Some(other) => other.as_f64(),
        None => None,
    };
    let lifetime = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    // A token that lives shorter than the margin is used for half its lifetime.
    let usable = lifetime.map(|lifetime| lifetime.checked_sub(EXPIRY_MARGIN).unwrap_or(lifetime / 2));
    let refresh_at = usable.and_then(|usable| requested_at.checked_add(usable));
    Ok(AccessToken { value: Secret::new(token), refresh_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_cannot_downgrade_the_token_endpoint_to_http() {
        let url = |base: &str, token_url: &str, is_from_description: bool| {
            let (token_url, id, secret) = (token_url.to_owned(), "me".to_owned(), Secret::new("hunter2!"));
            let request = TokenRequest { token_url, is_from_description, id, secret, scopes: Vec::new() };
            request.url(&Url::parse(base).unwrap()).map(|url| url.to_string())
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
