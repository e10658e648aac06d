//! Fetches the keys of the issuer, from the URL in the settings or else from that in its metadata. Responses are
//! bounded; redirects are not followed.

use super::keys::KeySet;
use super::{OAuthLimits, is_trusted};
use axum::http::header::ACCEPT;
use axum::http::{HeaderValue, Method, StatusCode};
use ctx_core::{AddressPolicy, NetworkScope, error_chain};
use ctx_net::{BodyError, Client, ClientOptions, NetError, Request};
use serde::Deserialize;
use url::Url;

/// Well-known names of metadata: that of OAuth (RFC 8414), then that of OpenID Connect.
const METADATA_NAMES: [&str; 2] = ["oauth-authorization-server", "openid-configuration"];

/// The authorization server that signs access tokens.
#[derive(Debug)]
pub(super) struct Issuer {
    /// The issuer identifier, exactly as configured: it is compared as a string.
    name: String,
    url: Url,
    jwks_url: Option<Url>,
    limits: OAuthLimits,
    client: Client,
}

#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: Option<String>,
}

impl Issuer {
    pub(super) fn new(name: &str, url: Url, jwks_url: Option<Url>, limits: OAuthLimits) -> Self {
        let client = Client::new(ClientOptions {
            user_agent: Some(concat!("ctx/", env!("CARGO_PKG_VERSION"))),
            connect_timeout: limits.fetch_timeout,
            ..ClientOptions::default()
        });
        Self { name: name.to_owned(), url, jwks_url, limits, client }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Fetches the published keys.
    pub(super) async fn fetch_keys(&self) -> Result<KeySet, String> {
        let fetched = tokio::time::timeout(self.limits.fetch_timeout, async {
            let (url, reach) = match &self.jwks_url {
                Some(url) => (url.clone(), reach_of_configured(url)),
                None => self.discover_jwks_url().await?,
            };
            let keys = self.get(&url, reach).await?;
            let (keys, _) = keys.ok_or_else(|| format!("{url}: not found"))?;
            KeySet::parse(&keys).map_err(|problem| format!("{url}: {problem}"))
        });
        let timed_out = |_| format!("no response within {} s", self.limits.fetch_timeout.as_secs_f64());
        fetched.await.map_err(timed_out)?
    }

    /// The JWKS URL from the issuer's metadata, and its SSRF policy: unless it is on the issuer's host,
    /// nothing nearer than the issuer.
    async fn discover_jwks_url(&self) -> Result<(Url, AddressPolicy), String> {
        for url in self.metadata_urls() {
            let Some((document, scope)) = self.get(&url, reach_of_configured(&self.url)).await? else {
                continue;
            };
            let metadata: Metadata = serde_json::from_slice(&document)
                .map_err(|error| format!("{url}: invalid authorization server metadata: {error}"))?;
            if metadata.issuer != self.name {
                // Metadata of another issuer must not name the keys (issuer mix-up).
                return Err(format!("{url}: the metadata has another issuer, `{}`", metadata.issuer));
            }
            let jwks_url = metadata.jwks_uri.and_then(|text| Url::parse(&text).ok()).filter(is_trusted);
            let jwks_url = jwks_url.ok_or_else(|| format!("{url}: `jwks_uri` is missing or not https"))?;
            let is_own = jwks_url.host() == self.url.host();
            let reach =
                if is_own { reach_of_configured(&self.url) } else { AddressPolicy::for_referrer(scope) };
            return Ok((jwks_url, reach));
        }
        Err("the issuer publishes no metadata; set `server.oauth.jwks_url`".to_owned())
    }

    /// Locations of metadata: the well-known name before the issuer's path, or after it as in OpenID Connect.
    fn metadata_urls(&self) -> Vec<Url> {
        let path = self.url.path().trim_end_matches('/');
        let before = METADATA_NAMES.map(|name| format!("/.well-known/{name}{path}"));
        let after = (!path.is_empty()).then(|| format!("{path}/.well-known/{}", METADATA_NAMES[1]));
        let at = |path: String| {
            let mut url = self.url.clone();
            url.set_path(&path);
            url
        };
        before.into_iter().chain(after).map(at).collect()
    }

    /// Fetches a document, with the network scope of the server that sent it; `None` if it is not found.
    /// Follows no redirects: keys come from where the settings say, and from nowhere else.
    async fn get(&self, url: &Url, reach: AddressPolicy) -> Result<Option<(Vec<u8>, NetworkScope)>, String> {
        let failed = |error: NetError| format!("{url}: {}", error_chain(&error.without_url()));
        let request = Request::new(Method::GET, url.clone());
        let request = request.header(ACCEPT, HeaderValue::from_static("application/json"));
        let mut response = self.client.send(&request, reach).await.map_err(failed)?;
        let (status, scope) = (response.status(), response.scope());
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Ok(None);
        }
        if status != StatusCode::OK {
            return Err(format!("{url}: HTTP {status}"));
        }
        let body = response.read(self.limits.response_bytes).await.map_err(|error| match error {
            BodyError::TooLarge(bytes_max) => format!("{url}: the response is larger than {bytes_max} bytes"),
            BodyError::Net(error) => failed(error),
        })?;
        Ok(Some((body, scope)))
    }
}

/// SSRF policy for a URL from the settings.
fn reach_of_configured(url: &Url) -> AddressPolicy {
    AddressPolicy::for_configured_host(url.host_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_testkit::{MockWebServer, http_response};
    use serde_json::json;

    /// Fetches keys through metadata whose JWKS URL is at another loopback host; returns the outcome and the
    /// number of requests that the JWKS host received.
    async fn fetch_from_other_host(host: &str, has_public_peers: bool) -> (Result<(), String>, usize) {
        let keys = MockWebServer::serve(|_| http_response(200, r#"{"keys": []}"#));
        let jwks_uri = keys.url("/keys").replace("127.0.0.1", host);
        let issuer_name = std::sync::Arc::new(std::sync::OnceLock::<String>::new());
        let own = issuer_name.clone();
        let issuer = MockWebServer::serve(move |_| {
            let issuer = own.get().cloned().unwrap_or_default();
            http_response(200, &json!({ "issuer": issuer, "jwks_uri": jwks_uri }).to_string())
        });
        // Another loopback name for the issuer, so that the JWKS URL is at a different host.
        let name =
            issuer.url("").replace("127.0.0.1", if host == "localhost" { "127.0.0.1" } else { "localhost" });
        issuer_name.set(name.clone()).unwrap();
        let mut fetcher = Issuer::new(&name, Url::parse(&name).unwrap(), None, OAuthLimits::default());
        if has_public_peers {
            fetcher.client = fetcher.client.with_public_peers();
        }
        let fetched = fetcher.fetch_keys().await.map(|_| ());
        (fetched, keys.requests().len())
    }

    #[tokio::test]
    async fn a_public_issuer_cannot_name_keys_on_this_machine() {
        for host in ["127.0.0.1", "localhost"] {
            let (result, key_requests) = fetch_from_other_host(host, true).await;
            let error = result.unwrap_err();
            assert!(error.contains("not allowed to connect to a loopback address"), "{error}");
            assert_eq!(key_requests, 0);
            assert_eq!(fetch_from_other_host(host, false).await, (Ok(()), 1));
        }
    }

    #[test]
    fn metadata_is_looked_for_in_every_usual_place() {
        let urls = |issuer: &str| {
            let issuer = Issuer::new(issuer, Url::parse(issuer).unwrap(), None, OAuthLimits::default());
            issuer.metadata_urls().into_iter().map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(
            urls("https://login.example/"),
            [
                "https://login.example/.well-known/oauth-authorization-server",
                "https://login.example/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            urls("https://login.example/realms/team"),
            [
                "https://login.example/.well-known/oauth-authorization-server/realms/team",
                "https://login.example/.well-known/openid-configuration/realms/team",
                "https://login.example/realms/team/.well-known/openid-configuration",
            ]
        );
    }
}
