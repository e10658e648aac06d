//! HTTP clients that check addresses (SSRF policy), and their connection pools.

use crate::resolve::{CheckedResolver, KnownHost};
use crate::{HostError, NetError, RedirectChain, Request, Response, tls};
use ctx_core::{AddressPolicy, NetworkScope, Secret};
use futures::future::BoxFuture;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use url::Url;

/// Methods whose requests usually have a body. Some servers require `Content-Length` for them.
const METHODS_WITH_BODY: [Method; 3] = [Method::POST, Method::PUT, Method::PATCH];

/// The proxy that requests are sent through.
#[derive(Clone, Debug, Default)]
pub enum Proxy {
    /// No proxy; proxy variables of the environment are ignored.
    #[default]
    None,
    /// The proxies of the environment (`HTTPS_PROXY`, `NO_PROXY`) and of the system.
    Environment,
    /// One proxy for all requests. The proxy resolves host names; only its own name is resolved and checked here.
    Fixed(FixedProxy),
}

/// A parsed proxy URL. Its `Debug` does not show the password.
#[derive(Clone)]
pub struct FixedProxy(Box<reqwest::Proxy>);

/// An invalid proxy URL. The error does not repeat the URL, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid proxy URL")]
pub struct InvalidProxy;

impl Proxy {
    /// One proxy for all requests, by its URL.
    pub fn fixed(url: &Secret) -> Result<Self, InvalidProxy> {
        let proxy = reqwest::Proxy::all(url.expose()).map_err(|_| InvalidProxy)?;
        Ok(Self::Fixed(FixedProxy(Box::new(proxy))))
    }
}

impl std::fmt::Debug for FixedProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FixedProxy")
    }
}

/// Default of [`ClientOptions::connect_timeout`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Default of [`ClientOptions::read_timeout`]: longer than any call that a caller waits for.
const READ_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Default of [`ClientOptions::idle_timeout`].
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Default of [`ClientOptions::idle_per_host_max`].
const IDLE_PER_HOST_MAX: usize = 32;

/// Options of a [`Client`]. Connecting and every pause of a response always have a time limit.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The `User-Agent`; none is sent by default.
    pub user_agent: Option<&'static str>,
    /// The proxy that requests are sent through.
    pub proxy: Proxy,
    /// Time limit for opening a connection.
    pub connect_timeout: Duration,
    /// Time limit for the start of a response and for each pause within it.
    pub read_timeout: Duration,
    /// Time limit for a whole exchange, unless the request has its own. None by default, because event streams have no
    /// fixed end.
    pub timeout: Option<Duration>,
    /// How long an idle connection stays in the pool.
    pub idle_timeout: Duration,
    /// Maximum number of idle connections per host.
    pub idle_per_host_max: usize,
    /// Whether plain HTTP is refused.
    pub is_https_only: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            user_agent: None,
            proxy: Proxy::default(),
            connect_timeout: CONNECT_TIMEOUT,
            read_timeout: READ_TIMEOUT,
            timeout: None,
            idle_timeout: IDLE_TIMEOUT,
            idle_per_host_max: IDLE_PER_HOST_MAX,
            is_https_only: false,
        }
    }
}

/// An HTTP client. It has a connection pool for each network scope that requests may reach, so that a request never
/// reuses a connection that its SSRF policy would have refused. Clones share the pools.
#[derive(Clone, Debug)]
pub struct Client(Arc<ClientInner>);

#[derive(Debug)]
struct ClientInner {
    options: ClientOptions,
    has_public_peers: bool,
    known_host: Option<KnownHost>,
    /// Pools by nearest allowed [`NetworkScope`], then by plain HTTP or TLS. Built on first use, because that loads the
    /// system's certificates: it takes time, and fails where there are none.
    pools: [[OnceLock<Pool>; 2]; 3],
}

#[derive(Debug)]
struct Pool {
    client: reqwest::Client,
    resolver: CheckedResolver,
}

impl Client {
    /// A client. Nothing is connected or loaded until the first request.
    pub fn new(options: ClientOptions) -> Self {
        Self(Arc::new(ClientInner {
            options,
            has_public_peers: false,
            known_host: None,
            pools: Default::default(),
        }))
    }

    /// For tests on loopback: a client with the same options that applies the rules for public servers, the least
    /// trusted network scope, to every peer.
    #[must_use]
    pub fn with_public_peers(&self) -> Self {
        let options = self.0.options.clone();
        Self(Arc::new(ClientInner {
            options,
            has_public_peers: true,
            known_host: None,
            pools: Default::default(),
        }))
    }

    /// For tests of names that resolve to forbidden addresses: a client with the same options for which `name` resolves
    /// to `address`.
    #[must_use]
    pub fn with_known_host(&self, name: &'static str, address: IpAddr) -> Self {
        let (options, known_host) = (self.0.options.clone(), Some(KnownHost { name, address }));
        Self(Arc::new(ClientInner {
            options,
            has_public_peers: false,
            known_host,
            pools: Default::default(),
        }))
    }

    /// Sends one request, if `reach` allows its address. Does not follow redirects.
    ///
    /// Boxed, so that reqwest's futures are compiled here only (decision 0012).
    pub fn send<'a>(
        &'a self,
        request: &'a Request,
        reach: AddressPolicy,
    ) -> BoxFuture<'a, Result<Response, NetError>> {
        Box::pin(self.send_unboxed(request, reach))
    }

    async fn send_unboxed(&self, request: &Request, reach: AddressPolicy) -> Result<Response, NetError> {
        let pool = self.pool_for(&request.url, reach)?;
        let mut builder =
            pool.client.request(request.method.clone(), request.url.clone()).headers(request.headers.clone());
        match &request.body {
            Some(body) => builder = builder.body(body.clone()),
            None if METHODS_WITH_BODY.contains(&request.method) => {
                builder = builder.header(CONTENT_LENGTH, HeaderValue::from_static("0"));
            }
            None => {}
        }
        if let Some(timeout) = request.timeout {
            builder = builder.timeout(timeout);
        }
        let response = builder.send().await?;
        let has_fixed_proxy = matches!(self.0.options.proxy, Proxy::Fixed(_));
        let scope = match response.remote_addr() {
            Some(peer) if !has_fixed_proxy && !self.0.has_public_peers => NetworkScope::of(peer.ip()),
            _ => NetworkScope::Internet,
        };
        // With a proxy, the peer's address is that of the proxy.
        let is_direct = matches!(self.0.options.proxy, Proxy::None);
        Ok(Response::new(response, &request.method, scope, is_direct))
    }

    /// Sends a request and follows the redirects that `may_follow` accepts, at most `redirects_max`. Returns the first
    /// response that is not followed.
    pub async fn send_following(
        &self,
        request: Request,
        reach: AddressPolicy,
        redirects_max: usize,
        may_follow: impl Fn(&Response, &Url) -> bool + Send,
    ) -> Result<Response, NetError> {
        let mut chain = RedirectChain::new(request, reach);
        loop {
            let response = self.send(chain.request(), chain.reach()).await?;
            match response.redirect_target() {
                Ok(Some(to)) if chain.redirect_count() < redirects_max && may_follow(&response, &to) => {
                    chain.follow(&response, to, crate::CrossOriginHeaders::DropSecrets);
                }
                _ => return Ok(response),
            }
        }
    }

    fn pool_for(&self, url: &Url, reach: AddressPolicy) -> Result<&Pool, NetError> {
        let host = url.host_str().unwrap_or_default();
        reach.check_host(host).map_err(HostError::Forbidden)?;
        let pool = self.pool(url.scheme() == "https", reach.nearest())?;
        pool.resolver.add(host)?;
        Ok(pool)
    }

    fn pool(&self, is_secure: bool, scope: NetworkScope) -> Result<&Pool, NetError> {
        let options = &self.0.options;
        // A connection to a proxy may use TLS, whatever the scheme of the request.
        let needs_certificates = is_secure || !matches!(options.proxy, Proxy::None);
        let slot = &self.0.pools[scope as usize][usize::from(needs_certificates)];
        if let Some(pool) = slot.get() {
            return Ok(pool);
        }
        let reach = AddressPolicy::for_referrer(scope);
        let pool = Pool::new(options, needs_certificates, reach, self.0.known_host)?;
        Ok(slot.get_or_init(|| pool))
    }
}

impl Pool {
    fn new(
        options: &ClientOptions,
        needs_certificates: bool,
        reach: AddressPolicy,
        known_host: Option<KnownHost>,
    ) -> Result<Self, NetError> {
        tls::install_provider();
        let resolver = match &options.proxy {
            Proxy::None => CheckedResolver::new(reach),
            Proxy::Environment => CheckedResolver::for_added_hosts(reach),
            Proxy::Fixed(_) => CheckedResolver::new(AddressPolicy::TRUSTED),
        };
        let resolver = resolver.with_known_host(known_host);
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .dns_resolver(Arc::new(resolver.clone()))
            .https_only(options.is_https_only)
            .connect_timeout(options.connect_timeout)
            .read_timeout(options.read_timeout)
            .pool_idle_timeout(options.idle_timeout)
            .pool_max_idle_per_host(options.idle_per_host_max);
        builder = match &options.proxy {
            Proxy::None => builder.no_proxy(),
            Proxy::Environment => builder,
            Proxy::Fixed(FixedProxy(proxy)) => builder.no_proxy().proxy((**proxy).clone()),
        };
        if !needs_certificates {
            builder = builder.tls_certs_only([]);
        }
        if let Some(user_agent) = options.user_agent {
            builder = builder.user_agent(user_agent);
        }
        if let Some(timeout) = options.timeout {
            builder = builder.timeout(timeout);
        }
        let client = builder.build().map_err(|error| NetError::from(error.without_url()))?;
        Ok(Self { client, resolver })
    }
}
