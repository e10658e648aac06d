//! Who may knock: host, origin and token, on every route.
//!
//! A web page must not reach a local server by a name of its own (`Host`), nor from its own origin
//! (`Origin`). What may be called is not decided here but at the catalog's door.

use crate::error::ApiError;
use crate::{Access, Api};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ctx_core::{ErrorKind, Secret};
use std::net::{IpAddr, SocketAddr};
use subtle::ConstantTimeEq;

/// The one route that needs no token.
const OPEN_ROUTE: &str = "/health";
const PREFLIGHT_SECONDS: &str = "600";
/// What web pages may send, those that speak MCP too.
const ALLOWED_HEADERS: &str = "authorization, content-type, accept, last-event-id, mcp-session-id, \
     mcp-protocol-version, mcp-method, mcp-name";
/// What web pages may read of an answer, besides what every page may.
const EXPOSED_HEADERS: &str = "mcp-session-id, www-authenticate";

/// Decides who may knock.
pub(crate) struct Guard {
    token: Option<Secret>,
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// A host or origin that can never match.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not {1}")]
pub struct InvalidHost(String, &'static str);

impl Guard {
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
        Ok(Self { token: access.token, hosts, origins: access.allowed_origins })
    }

    fn check_host(&self, headers: &HeaderMap, uri_host: Option<&str>) -> Result<(), ApiError> {
        let mut given = headers.get_all(header::HOST).iter();
        let host = match (given.next(), given.next()) {
            (Some(host), None) => host.to_str().ok(),
            (None, _) => uri_host,
            _ => None,
        };
        let host =
            host.ok_or_else(|| ApiError::new(ErrorKind::BadRequest, "one `Host` header is required"))?;
        // A target may name a host beside the header's; both must be ours.
        let mut named = std::iter::once(host).chain(uri_host);
        if named.all(|host| self.hosts.contains(&host_name(host).to_ascii_lowercase())) {
            return Ok(());
        }
        let message = "this host name is not served here; add it to `server.allowed_hosts`";
        Err(ApiError::new(ErrorKind::Forbidden, message))
    }

    /// The origin to answer with CORS headers; `None` when the request names none, or our own.
    fn check_origin<'a>(&self, headers: &'a HeaderMap) -> Result<Option<&'a HeaderValue>, ApiError> {
        let mut given = headers.get_all(header::ORIGIN).iter();
        let origin = match (given.next(), given.next()) {
            (None, _) => return Ok(None),
            (Some(origin), None) => origin,
            _ => return Err(ApiError::new(ErrorKind::BadRequest, "there is more than one `Origin` header")),
        };
        let text = origin.to_str().unwrap_or_default();
        if self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(text)) {
            return Ok(Some(origin));
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        // Our own pages, behind a proxy that speaks TLS for us too.
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        if rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host)) {
            return Ok(None);
        }
        let message = "web pages of this origin may not call; add it to `server.allowed_origins`";
        Err(ApiError::new(ErrorKind::Forbidden, message))
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let Some(token) = &self.token else { return Ok(()) };
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.as_bytes().split_at_checked("Bearer ".len()))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "))
            .map(|(_, token)| token);
        // Compared in constant time, so that answers do not tell how much of a guess was right.
        if given.is_some_and(|given| bool::from(given.ct_eq(token.expose().as_bytes()))) {
            return Ok(());
        }
        let message = "a token is required; send `Authorization: Bearer <token>`";
        Err(ApiError::new(ErrorKind::Unauthorized, message)
            .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
    }
}

/// The middleware around every route.
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
        match authorize(&api, &request) {
            Ok(()) => next.run(request).await,
            Err(error) => error.into_response(),
        }
    };
    if let Some(origin) = origin {
        allow_origin(response.headers_mut(), origin, preflight);
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

fn authorize(api: &Api, request: &Request) -> Result<(), ApiError> {
    if request.uri().path() == OPEN_ROUTE { Ok(()) } else { api.guard.check_token(request.headers()) }
}

fn allow_origin(headers: &mut HeaderMap, origin: HeaderValue, preflight: bool) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
    if preflight {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED_HEADERS));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_SECONDS));
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
        assert!(Guard::new(address, hosts("*")).is_err());
        assert!(Guard::new(address, hosts("https://a.example")).is_err());
        assert!(Guard::new(address, hosts("a.example:8080")).is_ok());
        let origin = Access { allowed_origins: vec!["a.example".to_owned()], ..Access::default() };
        assert!(Guard::new(address, origin).is_err());
    }
}
