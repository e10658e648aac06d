//! HTTP with SSRF checks: every request is checked on the address that is connected to. A redirect never
//! leads to a nearer network (internet, private, loopback) than the peer that sent it.

use crate::ApiError;
use crate::auth::RequestAuth;
use crate::response::{ERROR_BODY_BYTES_MAX, HttpResponse};
use crate::settings::ApiSettings;
use ctx_core::{AddressPolicy, ErrorKind, NetworkScope, Redactor, Secret, ToolError, error_chain};
use ctx_net::{
    BodyError, Client, ClientOptions, CrossOriginHeaders, NetError, Proxy, RedirectChain, Request, Response,
    is_downgrade,
};
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;
use url::Url;

/// Connect timeout.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Redirects that are followed.
const REDIRECTS_MAX: usize = 5;

/// Idle connections kept per host.
const IDLE_PER_HOST: usize = 8;

/// Lifetime of an idle connection. Many servers close theirs after five seconds, and a request on a
/// connection that is being closed is lost.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// Headers that are kept on a cross-origin redirect. All others are arguments or fixed values, and any of
/// them may be a secret: many descriptions declare their API key as a parameter.
const CROSS_ORIGIN_HEADERS: CrossOriginHeaders =
    CrossOriginHeaders::Keep(&[ACCEPT, CONTENT_TYPE, CONTENT_ENCODING]);

/// Words in names of headers and parameters that mark a secret, besides those of [`Redactor::is_secret_key`].
const SECRET_WORDS: [&str; 4] = ["auth", "cookie", "key", "session"];

/// Words that contain one of [`SECRET_WORDS`] but do not mark a secret.
const PUBLIC_WORDS: [&str; 2] = ["author", "keyword"];

/// The HTTP client of one API, with its configured headers.
#[derive(Debug)]
pub(crate) struct HttpClient {
    client: Client,
    /// Configured headers, sent with every request to the API's own origin.
    headers: HeaderMap,
    /// The configured headers that are not secret.
    public_headers: HeaderMap,
    /// Values of secret headers and of secret frozen parameters, to be masked.
    secrets: Vec<Secret>,
}

impl HttpClient {
    pub(crate) fn new(settings: &ApiSettings) -> Result<Self, ApiError> {
        let (mut headers, mut public_headers) = (HeaderMap::new(), HeaderMap::new());
        let frozen = settings.frozen.iter().filter(|(name, _)| is_secret(name));
        let mut secrets: Vec<Secret> =
            frozen.filter_map(|(_, value)| value.as_str()).map(Secret::new).collect();
        for (name, value) in &settings.headers {
            let invalid = || ApiError::Header(name.clone());
            if is_secret(name) {
                secrets.push(value.clone());
            }
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
            let mut value = HeaderValue::from_bytes(value.expose().as_bytes()).map_err(|_| invalid())?;
            value.set_sensitive(true);
            if !is_secret(name) {
                public_headers.insert(header.clone(), value.clone());
            }
            headers.insert(header, value);
        }
        let proxy = match &settings.proxy {
            Some(proxy) => Proxy::fixed(proxy).map_err(|_| ApiError::Proxy)?,
            // The proxy variables of the environment are not read here: configuration decides.
            None => Proxy::None,
        };
        let options = ClientOptions {
            user_agent: Some(concat!("ctx/", env!("CARGO_PKG_VERSION"))),
            proxy,
            connect_timeout: CONNECT_TIME,
            idle_timeout: IDLE_TIME,
            idle_per_host_max: IDLE_PER_HOST,
            ..ClientOptions::default()
        };
        Ok(Self { client: Client::new(options), headers, public_headers, secrets })
    }

    /// Treats every peer as an internet host, so that loopback servers stand in for public ones.
    #[cfg(test)]
    pub(crate) fn with_public_peers(self) -> Self {
        Self { client: self.client.with_public_peers(), ..self }
    }

    /// Configured secrets that requests carry.
    pub(super) fn secrets(&self) -> &[Secret] {
        &self.secrets
    }

    /// Sends a request with credentials, follows redirects, and reads the response. A cross-origin redirect
    /// drops credentials and configured headers. If the caller brought credentials (`is_from_caller`), secret
    /// headers of the configuration are not sent.
    pub(super) async fn send_authorized(
        &self,
        request: Request,
        auth: &RequestAuth,
        is_from_caller: bool,
        bytes_max: usize,
        reach: AddressPolicy,
    ) -> Result<HttpResponse, ToolError> {
        let mut chain = RedirectChain::new(request, reach);
        loop {
            let mut sent = chain.request().clone();
            if chain.is_same_origin() {
                let headers = if is_from_caller { &self.public_headers } else { &self.headers };
                sent.headers.extend(headers.clone());
                auth.apply(&mut sent)?;
            }
            let response = self.send(&sent, chain.reach()).await?;
            let Some(target) = redirect_target(&response) else {
                return read_response(&sent, response, bytes_max).await;
            };
            let shown = chain.request().describe();
            if is_downgrade(&sent.url, &target) {
                let message = format!("{shown}: it redirects from https to {}", target.scheme());
                return Err(ToolError::new(ErrorKind::Forbidden, message));
            }
            follow_redirect(&mut chain, response, target).await?;
        }
    }

    /// Sends a request without credentials, and follows the redirects that `is_allowed` allows. Returns the
    /// response and its final URL.
    pub(crate) async fn fetch(
        &self,
        request: Request,
        bytes_max: usize,
        reach: AddressPolicy,
        is_allowed: impl Fn(&Url) -> bool,
    ) -> Result<(HttpResponse, Url), ToolError> {
        let mut chain = RedirectChain::new(request, reach);
        loop {
            let response = self.send(chain.request(), chain.reach()).await?;
            let Some(target) = redirect_target(&response) else {
                let response = read_response(chain.request(), response, bytes_max).await?;
                return Ok((response, chain.into_request().url));
            };
            if !is_allowed(&target) || is_downgrade(&chain.request().url, &target) {
                let message =
                    format!("{}: it redirects to a URL that is not allowed", chain.request().describe());
                return Err(ToolError::new(ErrorKind::Forbidden, message));
            }
            follow_redirect(&mut chain, response, target).await?;
        }
    }

    /// Sends one request, if `reach` allows its address, and reads the response. Follows no redirects.
    pub(crate) async fn send_once(
        &self,
        request: &Request,
        bytes_max: usize,
        reach: AddressPolicy,
    ) -> Result<HttpResponse, ToolError> {
        let response = self.send(request, reach).await?;
        read_response(request, response, bytes_max).await
    }

    async fn send(&self, request: &Request, reach: AddressPolicy) -> Result<Response, ToolError> {
        if !["http", "https"].contains(&request.url.scheme()) {
            let message = format!("{}: only http and https can be requested", request.describe());
            return Err(ToolError::new(ErrorKind::Forbidden, message));
        }
        self.client.send(request, reach).await.map_err(|error| tool_error(request, error))
    }
}

/// The target of a redirect; a target that cannot be parsed is not followed.
fn redirect_target(response: &Response) -> Option<Url> {
    response.redirect_target().ok().flatten()
}

/// Follows one more redirect, unless there were too many.
async fn follow_redirect(
    chain: &mut RedirectChain,
    mut response: Response,
    target: Url,
) -> Result<(), ToolError> {
    // Drained so that the connection can be reused.
    let drained = response.read_prefix(ERROR_BODY_BYTES_MAX).await;
    drained.map_err(|error| tool_error(chain.request(), error))?;
    chain.follow(&response, target, CROSS_ORIGIN_HEADERS);
    if chain.redirect_count() <= REDIRECTS_MAX {
        return Ok(());
    }
    let message = format!("{}: more than {REDIRECTS_MAX} redirects", chain.request().describe());
    Err(ToolError::new(ErrorKind::Tool, message))
}

/// SSRF policy for a host of trusted configuration: naming a literal address allows it. Only an address that
/// would be refused is exempted, because an exemption also holds after redirects.
pub(crate) fn configured_reach(host: &str) -> AddressPolicy {
    match AddressPolicy::TRUSTED.check_host(host) {
        Ok(()) => AddressPolicy::TRUSTED,
        Err(_) => AddressPolicy::for_configured_host(host),
    }
}

/// SSRF policy for the host that a description was fetched from, by a peer of this network scope. A host name
/// must not lead to a nearer network than it did then (DNS rebinding); a literal address or a `localhost`
/// name cannot change, and is treated as configured.
pub(crate) fn origin_reach(host: &str, scope: NetworkScope) -> AddressPolicy {
    match AddressPolicy::INTERNET.check_host(host) {
        Ok(()) => AddressPolicy::for_referrer(scope),
        Err(_) => configured_reach(host),
    }
}

/// Whether a header or parameter holds a secret, judged by its name. Other values are versions and dates,
/// which also occur in responses and must not be masked there.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let rest = PUBLIC_WORDS.iter().fold(name.clone(), |rest, word| rest.replace(word, ""));
    Redactor::is_secret_key(&name) || SECRET_WORDS.iter().any(|word| rest.contains(word))
}

/// Reads a response: the whole body of a success, the beginning of an error.
async fn read_response(
    request: &Request,
    mut response: Response,
    bytes_max: usize,
) -> Result<HttpResponse, ToolError> {
    let body = match response.status().is_success() {
        true => response.read(bytes_max).await,
        false => response.read_prefix(ERROR_BODY_BYTES_MAX).await.map_err(BodyError::Net),
    };
    let body = body.map_err(|error| match error {
        BodyError::TooLarge(bytes_max) => {
            let message = format!("{}: the response is larger than {bytes_max} bytes", request.describe());
            ToolError::new(ErrorKind::TooLarge, message)
        }
        BodyError::Net(error) => tool_error(request, error),
    })?;
    let (status, headers, scope) = (response.status(), response.headers().clone(), response.scope());
    Ok(HttpResponse { status, headers, body, scope })
}

fn tool_error(request: &Request, error: NetError) -> ToolError {
    if let Some(forbidden) = error.forbidden_target() {
        let message = format!("{}: not allowed to connect to {forbidden}", request.describe());
        return ToolError::new(ErrorKind::Forbidden, message);
    }
    let kind = if error.is_timeout() { ErrorKind::Timeout } else { ErrorKind::Tool };
    ToolError::new(kind, format!("{}: {}", request.describe(), error_chain(&error.without_url())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_whether_its_value_is_a_secret() {
        for name in ["api_key", "key", "X-Auth", "Authorization", "sessionId", "access_token", "author-key"] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["X-Version", "author", "keywords", "page", "max_tokens"] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
