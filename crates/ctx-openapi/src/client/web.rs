//! HTTP with SSRF checks: every request is checked on the address that is connected to. A redirect never leads to a
//! nearer network (internet, private, loopback) than the peer that sent it.

use super::redirect;
use crate::ApiError;
use crate::auth::Pass;
use crate::request::Request;
use crate::response::{FAILURE_BYTES_MAX, Received};
use crate::settings::ApiSettings;
use ctx_core::{ErrorKind, ForbiddenAddress, NetworkScope, Reach, Redactor, Secret, ToolError, chain};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long it may take until a connection stands.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Redirects that are followed.
const REDIRECTS_MAX: usize = 5;

/// Connections to one host that wait for the next request.
const IDLE_PER_HOST: usize = 8;

/// How long they wait. Many servers close theirs after five seconds, and a request on one that is being closed is
/// lost.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// Words in the names of headers and parameters that hold secrets, besides those that any key may have.
const SECRET_WORDS: [&str; 4] = ["auth", "cookie", "key", "session"];

/// Words that have one of those in them and mean something else.
const OPEN_WORDS: [&str; 2] = ["author", "keyword"];

/// What requests are sent with.
#[derive(Debug)]
pub(crate) struct Web {
    /// One client per [`NetworkScope`], so that pooled connections are shared only by requests of the same reach. Built
    /// on first use, because that loads the system's certificates.
    clients: [OnceLock<reqwest::Client>; 3],
    /// Network scope of the peer that sent a response.
    scope_of: fn(Option<SocketAddr>) -> NetworkScope,
    proxy: Option<reqwest::Proxy>,
    /// Added to every request for the API itself.
    headers: HeaderMap,
    /// Those of them that let nobody in.
    open_headers: HeaderMap,
    /// Those of their values, and of the parameters that are always sent, that are not for showing.
    secrets: Vec<Secret>,
}

impl Web {
    pub(crate) fn new(settings: &ApiSettings) -> Result<Self, ApiError> {
        let (mut headers, mut open_headers) = (HeaderMap::new(), HeaderMap::new());
        let frozen = settings.frozen.iter().filter(|(name, _)| is_secret(name));
        let mut secrets: Vec<Secret> =
            frozen.filter_map(|(_, value)| value.as_str()).map(Secret::new).collect();
        for (name, value) in &settings.headers {
            let wrong = || ApiError::Header(name.clone());
            if is_secret(name) {
                secrets.push(value.clone());
            }
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            let mut value = HeaderValue::from_bytes(value.expose().as_bytes()).map_err(|_| wrong())?;
            value.set_sensitive(true);
            if !is_secret(name) {
                open_headers.insert(header.clone(), value.clone());
            }
            headers.insert(header, value);
        }
        // The error would repeat the address, which may hold a password.
        let proxy = settings.proxy.as_ref().map(|proxy| reqwest::Proxy::all(proxy.expose()));
        let proxy = proxy.transpose().map_err(|_| ApiError::Proxy)?;
        // Behind a proxy the peer address is the proxy's; the real origin is unknown.
        let scope_of = if proxy.is_some() { |_| NetworkScope::Internet } else { scope_of_peer };
        Ok(Self { clients: Default::default(), scope_of, proxy, headers, open_headers, secrets })
    }

    /// Treats every peer as an internet host, so that loopback servers stand in for public ones.
    #[cfg(test)]
    pub(crate) fn with_public_peers(self) -> Self {
        Self { scope_of: |_| NetworkScope::Internet, ..self }
    }

    /// Secrets that are sent with every request.
    pub(super) fn secrets(&self) -> &[Secret] {
        &self.secrets
    }

    /// Sends a request with what lets it in, follows redirects, and reads what comes back. Where it is led to another
    /// origin, what is meant for this one does not go with it; where callers bring what lets them in, neither does
    /// what lets us in.
    pub(super) async fn receive(
        &self,
        mut request: Request,
        pass: &Pass,
        is_brought: bool,
        bytes_max: usize,
        mut reach: Reach,
    ) -> Result<Received, ToolError> {
        let mut is_home = true;
        for _ in 0..=REDIRECTS_MAX {
            let mut sent = request.clone();
            if is_home {
                let headers = if is_brought { &self.open_headers } else { &self.headers };
                sent.headers.extend(headers.clone());
                pass.apply(&mut sent)?;
            }
            let received = self.receive_once(&sent, bytes_max, reach).await?;
            let Some(to) = redirect::target(&sent, received.status, &received) else { return Ok(received) };
            if redirect::is_downgrade(&sent.url, &to) {
                let message = format!("{}: it leads from https to {}", request.shown(), to.scheme());
                return Err(ToolError::new(ErrorKind::Forbidden, message));
            }
            reach = self.redirect_reach(reach, &received, &sent.url, &to);
            is_home &= redirect::follow(&mut request, received.status, to);
        }
        let message = format!("{}: more than {REDIRECTS_MAX} redirects", request.shown());
        Err(ToolError::new(ErrorKind::Tool, message))
    }

    /// Sends a request that nobody has to be let in for, and follows where it is led, as far as it may go. What comes
    /// back, and where from.
    pub(crate) async fn follow(
        &self,
        mut request: Request,
        bytes_max: usize,
        mut reach: Reach,
        may_go: impl Fn(&Url) -> bool,
    ) -> Result<(Received, Url), ToolError> {
        for _ in 0..=REDIRECTS_MAX {
            let received = self.receive_once(&request, bytes_max, reach).await?;
            let Some(to) = redirect::target(&request, received.status, &received) else {
                return Ok((received, request.url));
            };
            if !may_go(&to) || redirect::is_downgrade(&request.url, &to) {
                let message = format!("{}: it leads to where it may not", request.shown());
                return Err(ToolError::new(ErrorKind::Forbidden, message));
            }
            reach = self.redirect_reach(reach, &received, &request.url, &to);
            redirect::follow(&mut request, received.status, to);
        }
        let message = format!("{}: more than {REDIRECTS_MAX} redirects", request.shown());
        Err(ToolError::new(ErrorKind::Tool, message))
    }

    /// SSRF policy for a redirect target. Behind a proxy the peer is unknown; a redirect to the same host is then still
    /// allowed, because that host was already permitted.
    fn redirect_reach(&self, reach: Reach, received: &Received, from: &Url, to: &Url) -> Reach {
        match self.proxy.is_some() && from.host() == to.host() {
            true => reach,
            false => reach.within(received.scope),
        }
    }

    /// Sends one request, if `reach` allows its address, and reads the response. Follows no redirects.
    pub(crate) async fn receive_once(
        &self,
        request: &Request,
        bytes_max: usize,
        reach: Reach,
    ) -> Result<Received, ToolError> {
        check(request, reach)?;
        let client = self.client(reach)?;
        let mut sent =
            client.request(request.method.clone(), request.url.clone()).headers(request.headers.clone());
        match &request.body {
            Some(body) => sent = sent.body(body.clone()),
            // Said, because some servers want to hear it.
            None if [Method::POST, Method::PUT, Method::PATCH].contains(&request.method) => {
                sent = sent.header(CONTENT_LENGTH, 0);
            }
            None => {}
        }
        let response = sent.send().await.map_err(|error| failed(request, error))?;
        let scope = (self.scope_of)(response.remote_addr());
        read(request, response, bytes_max, scope).await
    }

    fn client(&self, reach: Reach) -> Result<&reqwest::Client, ToolError> {
        let slot = &self.clients[reach.nearest() as usize];
        if let Some(client) = slot.get() {
            return Ok(client);
        }
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            // Somebody else was first, and theirs is as good.
        }
        // With a proxy, the proxy's name is the only one that is resolved locally.
        let resolver_reach = if self.proxy.is_some() { Reach::OWN } else { reach };
        let builder = reqwest::Client::builder()
            .user_agent(concat!("ctx/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            // The variables that name a proxy are not ours to read.
            .no_proxy()
            .dns_resolver(Arc::new(CheckedNames(resolver_reach)))
            .connect_timeout(CONNECT_TIME)
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(IDLE_PER_HOST);
        let builder = match &self.proxy {
            Some(proxy) => builder.proxy(proxy.clone()),
            None => builder,
        };
        let client = builder
            .build()
            .map_err(|error| ToolError::internal("requests cannot be sent", chain(&error.without_url())))?;
        Ok(slot.get_or_init(|| client))
    }
}

/// Policy for a host of trusted configuration: a literal address is allowed by naming it. Only an otherwise refused one
/// is exempt, because an exemption also holds after redirects.
pub(crate) fn configured_reach(host: &str) -> Reach {
    match Reach::OWN.check_host(host) {
        Ok(()) => Reach::OWN,
        Err(_) => Reach::configured(host),
    }
}

/// Policy for the host that a description was fetched from, by a peer of this network scope. A host name leads nowhere
/// nearer than it did then, which DNS rebinding would change; an address or a `localhost` name is what it says.
pub(crate) fn origin_reach(host: &str, scope: NetworkScope) -> Reach {
    match Reach::INTERNET.check_host(host) {
        Ok(()) => Reach::of_referrer(scope),
        Err(_) => configured_reach(host),
    }
}

/// Whether the value of a header or a parameter is a secret, by its name: others are versions and dates, which stand in
/// answers too.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let rest = OPEN_WORDS.iter().fold(name.clone(), |rest, word| rest.replace(word, ""));
    Redactor::is_secret_key(&name) || SECRET_WORDS.iter().any(|word| rest.contains(word))
}

/// Whether a request may be sent, as far as its URL tells. Names are checked when they are resolved; where there
/// is a proxy, that is its business.
fn check(request: &Request, reach: Reach) -> Result<(), ToolError> {
    let refuse = |why: &str| Err(ToolError::new(ErrorKind::Forbidden, format!("{}: {why}", request.shown())));
    if !["http", "https"].contains(&request.url.scheme()) {
        return refuse("only http and https can be requested");
    }
    match reach.check_host(request.url.host_str().unwrap_or_default()) {
        Err(forbidden) => refuse(&format!("APIs may not be at {forbidden}")),
        Ok(()) => Ok(()),
    }
}

/// Reads an answer: all of it where all went well, else its beginning.
async fn read(
    request: &Request,
    mut response: reqwest::Response,
    bytes_max: usize,
    scope: NetworkScope,
) -> Result<Received, ToolError> {
    let is_success = response.status().is_success();
    let bytes_max = if is_success { bytes_max } else { FAILURE_BYTES_MAX };
    let too_large = || {
        let message = format!("{}: the answer is larger than {bytes_max} bytes", request.shown());
        Err(ToolError::new(ErrorKind::TooLarge, message))
    };
    let length = response.content_length().filter(|_| request.method != Method::HEAD);
    if is_success && length.is_some_and(|length| length > bytes_max as u64) {
        return too_large();
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| failed(request, error))? {
        let room = bytes_max - body.len();
        if piece.len() > room {
            if is_success {
                return too_large();
            }
            body.extend_from_slice(&piece[..room]);
            break;
        }
        body.extend_from_slice(&piece);
    }
    Ok(Received { status: response.status(), headers: std::mem::take(response.headers_mut()), body, scope })
}

fn failed(request: &Request, error: reqwest::Error) -> ToolError {
    let error = error.without_url();
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(part) = cause {
        if let Some(refused) = part.downcast_ref::<Refused>() {
            return ToolError::new(ErrorKind::Forbidden, format!("{}: {refused}", request.shown()));
        }
        cause = part.source();
    }
    let kind = if error.is_timeout() { ErrorKind::Timeout } else { ErrorKind::Tool };
    ToolError::new(kind, format!("{}: {}", request.shown(), chain(&error)))
}

/// A name that leads to where nothing may be requested.
#[derive(Debug, thiserror::Error)]
#[error("APIs may not be at {0}, which is where this name leads")]
struct Refused(ForbiddenAddress);

/// Resolves names to addresses that may be reached: what is connected to is what was checked.
#[derive(Debug)]
struct CheckedNames(Reach);

/// Network scope of a peer; an unknown peer counts as internet, the least trusted scope.
fn scope_of_peer(peer: Option<SocketAddr>) -> NetworkScope {
    peer.map_or(NetworkScope::Internet, |peer| NetworkScope::of(peer.ip()))
}

impl Resolve for CheckedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let reachable = reach.reachable(addresses).map_err(Refused)?;
            Ok(Box::new(reachable.into_iter()) as Addrs)
        })
    }
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

    #[tokio::test]
    async fn a_name_that_leads_to_a_forbidden_address_is_refused() {
        // What is an address already resolves to itself.
        for name in ["169.254.169.254", "0.0.0.0", "fe80::1", "2002:a9fe:a9fe::1", "fd00:ec2::254"] {
            let error = CheckedNames(Reach::OWN).resolve(name.parse().unwrap()).await.err().unwrap();
            assert!(error.is::<Refused>(), "{name}: {error}");
        }
        assert!(CheckedNames(Reach::OWN).resolve("127.0.0.1".parse().unwrap()).await.is_ok());
        assert!(CheckedNames(Reach::INTERNET).resolve("localhost".parse().unwrap()).await.is_err());
    }
}
