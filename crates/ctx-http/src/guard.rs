//! Access control of every route: `Host` (DNS rebinding), `Origin` (CORS) and bearer token.
//!
//! A web page must not reach a local server by a host name of its own, nor from an origin that is not
//! allowed. Which tools a caller may call is decided by the catalog: with OAuth, a request carries an
//! `Arc<Identity>` in its extensions.

use crate::error::{ApiError, RequiredScopes};
use crate::oauth::TokenError;
use crate::{Access, Api, OAuth};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ctx_core::{ErrorKind, Identity, Secret, ToolError};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// The route that never needs a token.
const PUBLIC_ROUTE: &str = "/health";
/// Subject of a caller with the static token, if OAuth gives callers an identity.
const TOKEN_SUBJECT: &str = "server.token";
const PREFLIGHT_SECONDS: &str = "600";
/// Request headers that web pages may send (CORS), those of MCP included.
const ALLOWED_HEADERS: &str = "authorization, content-type, accept, last-event-id, mcp-session-id, \
     mcp-protocol-version, mcp-method, mcp-name";
/// Response headers that web pages may read (CORS), besides the safelisted ones.
const EXPOSED_HEADERS: &str = "mcp-session-id, www-authenticate";

/// Checks host, origin and token of requests.
pub(crate) struct AccessGuard {
    token: Option<Secret>,
    oauth: Option<Arc<OAuth>>,
    /// Identity of callers with the static token; `None` without OAuth.
    token_identity: Option<Arc<Identity>>,
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// A host or origin that can never match.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not {1}")]
pub struct InvalidHost(String, &'static str);

impl AccessGuard {
    pub(crate) fn new(address: SocketAddr, access: Access) -> Result<Self, InvalidHost> {
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into();
        if !address.ip().is_unspecified() {
            hosts.push(match address.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            });
        }
        for host in access.allowed_hosts {
            if host.is_empty() || host.contains(['/', '*', ' ']) {
                return Err(InvalidHost(host, "a host name like `ctx.example.com`"));
            }
            hosts.push(host_name(&host).to_ascii_lowercase());
        }
        for origin in &access.allowed_origins {
            let rest = origin.split_once("://").map(|(_, rest)| rest);
            if rest.is_none_or(|rest| rest.is_empty() || rest.contains(['/', '*'])) {
                return Err(InvalidHost(origin.clone(), "an origin like `https://app.example.com`"));
            }
        }
        let token_identity =
            access.oauth.as_ref().map(|oauth| Arc::new(oauth.identity_with_all_scopes(TOKEN_SUBJECT)));
        let Access { token, oauth, allowed_origins: origins, .. } = access;
        Ok(Self { token, oauth, token_identity, hosts, origins })
    }

    /// The verifier of access tokens, if OAuth is configured.
    pub(crate) fn oauth(&self) -> Option<&Arc<OAuth>> {
        self.oauth.as_ref()
    }

    fn is_public_route(&self, path: &str) -> bool {
        path == PUBLIC_ROUTE || self.oauth.as_ref().is_some_and(|oauth| oauth.is_metadata_path(path))
    }

    fn check_host(&self, headers: &HeaderMap, uri_host: Option<&str>) -> Result<(), ApiError> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().ok(),
            (None, _) => uri_host,
            _ => None,
        };
        let host = host
            .ok_or_else(|| ApiError::new(ErrorKind::BadRequest, "exactly one `Host` header is required"))?;
        // An absolute request target names a host besides the `Host` header; both must be served here.
        let mut hosts = std::iter::once(host).chain(uri_host);
        if hosts.all(|host| self.hosts.contains(&host_name(host).to_ascii_lowercase())) {
            return Ok(());
        }
        let message = "this host name is not served here; add it to `server.allowed_hosts`";
        Err(ApiError::new(ErrorKind::Forbidden, message))
    }

    /// The origin to allow by CORS headers; `None` if the request has no origin, or the server's own.
    fn check_origin<'a>(&self, headers: &'a HeaderMap) -> Result<Option<&'a HeaderValue>, ApiError> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let origin = match (origins.next(), origins.next()) {
            (None, _) => return Ok(None),
            (Some(origin), None) => origin,
            _ => return Err(ApiError::new(ErrorKind::BadRequest, "there is more than one `Origin` header")),
        };
        let text = origin.to_str().unwrap_or_default();
        if self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(text)) {
            return Ok(Some(origin));
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        // Same origin, also behind a proxy that terminates TLS.
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        if rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host)) {
            return Ok(None);
        }
        let message = "requests from this origin are not allowed; add it to `server.allowed_origins`";
        Err(ApiError::new(ErrorKind::Forbidden, message))
    }

    /// The identity that a bearer token proves; `None` without authentication, or without OAuth.
    async fn identify(&self, presented: Option<&[u8]>) -> Result<Option<Arc<Identity>>, ApiError> {
        if self.token.is_none() && self.oauth.is_none() {
            return Ok(None);
        }
        // Compared in constant time, so that the response time does not reveal how much of a guess was right.
        if let (Some(token), Some(presented)) = (&self.token, presented)
            && bool::from(presented.ct_eq(token.expose().as_bytes()))
        {
            return Ok(self.token_identity.clone());
        }
        match (&self.oauth, presented) {
            (Some(oauth), Some(presented)) => verify_access_token(oauth, presented).await.map(Some),
            (Some(oauth), None) => Err(unauthorized(oauth.challenge())),
            (None, _) => Err(unauthorized(HeaderValue::from_static("Bearer"))),
        }
    }
}

/// The identity of an access token, if it is valid and has the scopes that every request needs.
async fn verify_access_token(oauth: &OAuth, token: &[u8]) -> Result<Arc<Identity>, ApiError> {
    let identity = oauth.verify(token).await.map_err(|refusal| match refusal {
        TokenError::Invalid(reason) => ApiError::new(ErrorKind::Unauthorized, reason)
            .with_header(header::WWW_AUTHENTICATE, oauth.invalid_token_challenge(reason)),
        TokenError::KeysUnavailable => {
            let message = "the token cannot be checked: the issuer's signing keys are currently unavailable";
            ApiError::new(ErrorKind::Overloaded, message)
        }
    })?;
    match oauth.missing_scopes(&identity) {
        None => Ok(Arc::new(identity)),
        Some(required) => {
            let names: Vec<String> = required.iter().map(|scope| format!("`{scope}`")).collect();
            let message = format!("a token with these scopes is required: {}", names.join(", "));
            Err(ToolError::new(ErrorKind::Forbidden, message).with_scopes(required.clone()).into())
        }
    }
}

fn unauthorized(challenge: HeaderValue) -> ApiError {
    let message = "a token is required; send `Authorization: Bearer <token>`";
    ApiError::new(ErrorKind::Unauthorized, message).with_header(header::WWW_AUTHENTICATE, challenge)
}

/// The token in the `Authorization` header; tokens elsewhere are ignored.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().split_at_checked("Bearer ".len()))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "))
        .map(|(_, token)| token)
}

/// The middleware around every route: checks requests, and adds CORS headers to responses.
pub(crate) async fn admit(State(api): State<Api>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let origin = match check(&api, &request) {
        Ok(origin) => origin.cloned(),
        Err(error) => return error.into_response(),
    };
    let preflight = request.method() == Method::OPTIONS
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        && origin.is_some();
    let mut response = if preflight {
        StatusCode::NO_CONTENT.into_response()
    } else {
        run_authenticated(&api.guard, request, next).await
    };
    if let Some(origin) = origin {
        allow_origin(response.headers_mut(), origin, preflight);
    }
    response
}

/// Runs a request if its caller is authenticated; names the missing scopes in a 403 response.
async fn run_authenticated(guard: &AccessGuard, mut request: Request, next: Next) -> Response {
    let identity = if guard.is_public_route(request.uri().path()) {
        Ok(None)
    } else {
        let token = bearer_token(request.headers()).map(<[u8]>::to_vec);
        guard.identify(token.as_deref()).await
    };
    let mut response = match identity {
        Ok(identity) => {
            if let Some(identity) = identity {
                request.extensions_mut().insert(identity);
            }
            next.run(request).await
        }
        Err(error) => error.into_response(),
    };
    if let Some(oauth) = guard.oauth()
        && response.status() == StatusCode::FORBIDDEN
        && let Some(RequiredScopes(required)) = response.extensions_mut().remove()
    {
        let challenge = oauth.insufficient_scope_challenge(&required);
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

fn check<'a>(api: &Api, request: &'a Request) -> Result<Option<&'a HeaderValue>, ApiError> {
    let headers = request.headers();
    let header_bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let bytes = header_bytes + request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if bytes > api.limits.header_bytes {
        let message = format!("the request's headers are larger than {} bytes", api.limits.header_bytes);
        return Err(ApiError::new(ErrorKind::TooLarge, message));
    }
    api.guard.check_host(headers, request.uri().authority().map(|authority| authority.as_str()))?;
    api.guard.check_origin(headers)
}

fn allow_origin(headers: &mut HeaderMap, origin: HeaderValue, preflight: bool) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    if preflight {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED_HEADERS));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_SECONDS));
    } else {
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
    }
}

/// The host without its port.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_not_part_of_the_host() {
        for (host, name) in [
            ("localhost:7331", "localhost"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("a.example", "a.example"),
        ] {
            assert_eq!(host_name(host), name);
        }
    }

    #[test]
    fn patterns_and_urls_are_not_hosts() {
        let address = "127.0.0.1:0".parse().unwrap();
        let hosts = |host: &str| Access { allowed_hosts: vec![host.to_owned()], ..Access::default() };
        assert!(AccessGuard::new(address, hosts("*")).is_err());
        assert!(AccessGuard::new(address, hosts("https://a.example")).is_err());
        assert!(AccessGuard::new(address, hosts("a.example:8080")).is_ok());
        let origin = Access { allowed_origins: vec!["a.example".to_owned()], ..Access::default() };
        assert!(AccessGuard::new(address, origin).is_err());
    }
}
