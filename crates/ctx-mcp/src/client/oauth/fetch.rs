//! HTTP requests of the OAuth client: bounded in size and time, and over HTTPS except to this machine.

use super::LoginError;
use crate::client::server_client::ServerClient;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ctx_core::{NetworkScope, Secret, error_chain};
use ctx_net::{BodyError, NetError, Request, display_url, scope_of_host};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use url::Url;

/// Time limit of one request.
const REQUEST_MAX: Duration = Duration::from_secs(15);
/// Bytes of one response.
const RESPONSE_BYTES_MAX: usize = 256 << 10;
/// The media type of metadata documents and token responses.
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Sends requests to authorization servers.
pub(super) struct OAuthHttpClient {
    client: ServerClient,
    /// The configured MCP server that requires the login. It names all other hosts, directly or by its metadata.
    server: Url,
    /// The farthest network scope that the server has responded from.
    responded_from: Mutex<Option<NetworkScope>>,
    /// Whether the MCP server is on this machine; only then may authorization servers be on it, too.
    is_local: bool,
}

/// A response whose body has been read to its end.
pub(super) struct OAuthResponse {
    pub(super) status: u16,
    body: Vec<u8>,
}

impl OAuthResponse {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(super) fn json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }
}

impl OAuthHttpClient {
    pub(super) fn new(server: &Url) -> Self {
        let client = ServerClient::new(server.as_str());
        let responded_from = Mutex::default();
        Self { client, server: server.clone(), responded_from, is_local: is_loopback(server) }
    }

    /// Parses a URL that a server has named. It must be HTTPS or on this machine, and a server elsewhere must
    /// not send us to this machine (SSRF).
    pub(super) fn parse_url(&self, text: &str) -> Result<Url, LoginError> {
        let invalid = |why: &str| LoginError::new(format!("`{text}` {why}"));
        let url: Url = text.parse().map_err(|_| invalid("is not a valid URL"))?;
        let is_loopback_url = is_loopback(&url);
        match url.scheme() {
            "https" | "http" if is_loopback_url && !self.is_local => {
                Err(invalid("is a loopback address, which a remote server may not refer to"))
            }
            "https" => Ok(url),
            "http" if is_loopback_url => Ok(url),
            _ => Err(invalid("does not begin with https://")),
        }
    }

    /// Records the address that a response of the server came from: it limits the hosts that the server may
    /// refer to. DNS alone would not do, as it may give another address by the time a reference is followed
    /// (DNS rebinding).
    pub(super) fn record_peer(&self, peer: Option<SocketAddr>) {
        self.record_scope(peer.map_or(NetworkScope::Internet, |peer| NetworkScope::of(peer.ip())));
    }

    /// [`Self::record_peer`] for the network scope that is stored with an earlier login.
    pub(super) fn record_scope(&self, scope: NetworkScope) {
        let mut farthest = self.responded_from.lock().unwrap_or_else(PoisonError::into_inner);
        *farthest = Some(farthest.map_or(scope, |recorded| recorded.min(scope)));
    }

    /// The farthest network scope that the server has responded from, if it has.
    pub(super) fn responded_from(&self) -> Option<NetworkScope> {
        *self.responded_from.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network scope of the server as a referrer: a public server may refer to public hosts only. Behind
    /// a proxy, the peer is the proxy, so DNS counts as well.
    async fn referring_scope(&self) -> NetworkScope {
        let scope = scope_of_host(&self.server).await;
        self.responded_from().map_or(scope, |recorded| recorded.min(scope))
    }

    pub(super) async fn get(&self, url: &Url) -> Result<OAuthResponse, LoginError> {
        self.send(Request::new(Method::GET, url.clone())).await
    }

    pub(super) async fn post_json(&self, url: &Url, body: &Value) -> Result<OAuthResponse, LoginError> {
        let request = Request::new(Method::POST, url.clone()).header(CONTENT_TYPE, JSON);
        self.send(request.body(body.to_string())).await
    }

    /// Posts a form, with Basic authentication if there is a `basic_auth`.
    pub(super) async fn post_form(
        &self,
        url: &Url,
        fields: &[(&str, &str)],
        basic_auth: Option<(&str, &Secret)>,
    ) -> Result<OAuthResponse, LoginError> {
        let mut request = Request::new(Method::POST, url.clone());
        if let Some((name, password)) = basic_auth {
            // Both are form-encoded first (RFC 6749, section 2.3.1), so that neither contains a colon.
            let pair = format!("{}:{}", form_encode(url, name), form_encode(url, password.expose()));
            let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))
                .map_err(|_| LoginError::new("cannot send the client secret in a header"))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        self.send(request.header(CONTENT_TYPE, form_type).body(form(url, fields))).await
    }

    async fn send(&self, request: Request) -> Result<OAuthResponse, LoginError> {
        let url = request.url.clone();
        let is_server = url.host() == self.server.host();
        let request = request.header(ACCEPT, JSON);
        let failed = |why: String| LoginError::new(format!("{} {why}", display_url(&url)));
        let broken = |error: NetError| match error.host_error() {
            Some(why) => LoginError::new(format!("`{}` {why}", display_url(&url))),
            None => failed(format!("cannot be reached: {}", error_chain(&error.without_url()))),
        };
        let scope = if is_server { None } else { Some(self.referring_scope().await) };
        let reading = async {
            let sent = match scope {
                None => self.client.send(request).await,
                Some(scope) => self.client.send_to_referred(request, scope).await,
            };
            let mut response = sent.map_err(broken)?;
            if is_server {
                self.record_peer(response.peer());
            }
            let status = response.status().as_u16();
            let body = response.read(RESPONSE_BYTES_MAX).await.map_err(|error| match error {
                BodyError::TooLarge(bytes_max) => failed(format!("answers with more than {bytes_max} bytes")),
                BodyError::Net(error) => broken(error),
            })?;
            Ok(OAuthResponse { status, body })
        };
        let late = || failed(format!("did not answer within {} s", REQUEST_MAX.as_secs()));
        tokio::time::timeout(REQUEST_MAX, reading).await.unwrap_or_else(|_| Err(late()))
    }
}

/// The fields as an `application/x-www-form-urlencoded` body.
fn form(base: &Url, fields: &[(&str, &str)]) -> String {
    let mut url = base.clone();
    url.set_query(None);
    url.query_pairs_mut().extend_pairs(fields);
    url.query().unwrap_or_default().to_owned()
}

fn form_encode(base: &Url, text: &str) -> String {
    form(base, &[("", text)]).trim_start_matches('=').to_owned()
}

/// Whether the host of a URL is this machine (loopback).
pub(super) fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_testkit::{MockWebServer, http_response};

    fn addresses(server: &str) -> [bool; 6] {
        let http_client = OAuthHttpClient::new(&server.parse().unwrap());
        let tried = [
            "https://a.example/x",
            "http://a.example/x",
            "http://127.0.0.1:1/x",
            "https://localhost/x",
            "http://[::1]/x",
            "file:///etc/passwd",
        ];
        tried.map(|address| http_client.parse_url(address).is_ok())
    }

    #[test]
    fn plain_http_is_allowed_to_loopback_only() {
        assert_eq!(addresses("http://localhost:3000/mcp"), [true, false, true, true, true, false]);
        assert_eq!(addresses("https://s.example/mcp"), [true, false, false, false, false, false]);
    }

    #[tokio::test]
    async fn a_public_server_cannot_have_a_request_sent_to_a_private_network() {
        // Refused before any connection is made.
        let http_client = OAuthHttpClient::new(&"https://8.8.8.8/mcp".parse().unwrap());
        for url in [
            "https://10.0.0.1/x",
            "https://[fd12::1]/x",
            "https://169.254.169.254/x",
            "https://[2002:7f00:1::]/x",
        ] {
            let url = http_client.parse_url(url).unwrap();
            let refused = [
                http_client.get(&url).await.err().unwrap(),
                http_client.post_json(&url, &Value::Null).await.err().unwrap(),
                http_client.post_form(&url, &[], None).await.err().unwrap(),
            ];
            for error in refused {
                assert!(error.to_string().ends_with("which the server may not refer to"), "{error}");
            }
        }
    }

    #[tokio::test]
    async fn dns_rebinding_does_not_bring_a_public_server_nearer() {
        let web = MockWebServer::serve(|_| http_response(200, "{}"));
        // `localhost` stands for a name that is rebound to loopback.
        let server: Url = web.url("/mcp").replace("127.0.0.1", "localhost").parse().unwrap();
        let http_client = OAuthHttpClient::new(&server);
        let other: Url = web.url("/other").parse().unwrap();
        http_client.get(&server).await.unwrap();
        assert_eq!(http_client.responded_from(), Some(NetworkScope::Loopback));
        http_client.get(&other).await.unwrap();
        http_client.record_peer(Some("8.8.8.8:443".parse().unwrap()));
        http_client.get(&server).await.unwrap();
        assert_eq!(http_client.responded_from(), Some(NetworkScope::Internet));
        let refused = http_client.get(&other).await.err().unwrap();
        assert!(refused.to_string().ends_with("which the server may not refer to"), "{refused}");
    }

    #[test]
    fn form_fields_are_percent_encoded() {
        let base: Url = "https://a.example/token?x=1".parse().unwrap();
        assert_eq!(form(&base, &[("a", "b c&d"), ("e", "ü")]), "a=b+c%26d&e=%C3%BC");
        assert_eq!(form_encode(&base, "a:b"), "a%3Ab");
    }
}
