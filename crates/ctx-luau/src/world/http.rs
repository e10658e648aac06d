//! `http`: one client for all scripts. Every address is checked where it is connected to, and every
//! redirect like a request of its own, in no nearer network scope than the server that sent it.

use super::{AllowedHosts, Answered, BAD_REQUEST, FORBIDDEN, text};
use crate::engine::Refusal;
use crate::scripts::ScriptLimits;
use ctx_core::{ForbiddenAddress, NetworkScope, Reach, Redactor, chain};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName,
    HeaderValue, LOCATION, PROXY_AUTHORIZATION,
};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Headers that scripts cannot set: routing and message framing. With its own `Host` a script could reach virtual hosts
/// outside of its `allow_hosts` behind the same address; framing headers would allow request smuggling.
const RESERVED_HEADERS: [&str; 11] = [
    ":authority",
    "connection",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// How long it may take until a connection stands.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Connections to one host that wait for the next request.
const IDLE_PER_HOST: usize = 8;
/// Where no code says more.
const FAILED: &str = "http";
const TIMEOUT: &str = "timeout";
const TOO_LARGE: &str = "too_large";

/// The HTTP clients of scripts: one per network scope, built on first use, so that a pooled connection is never reused
/// by a request with a stricter SSRF policy.
pub(crate) struct Http {
    clients: [OnceLock<Client>; 3],
    scope_of: fn(Option<SocketAddr>) -> NetworkScope,
}

impl Default for Http {
    fn default() -> Self {
        Self { clients: Default::default(), scope_of: scope_of_peer }
    }
}

/// Network scope of the server that sent a response; the most restricted one if its address is unknown.
fn scope_of_peer(peer: Option<SocketAddr>) -> NetworkScope {
    peer.map_or(NetworkScope::Internet, |peer| NetworkScope::of(peer.ip()))
}

/// A request as a script puts it.
pub(super) struct Request {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Vec<u8>,
    timeout: Option<Duration>,
}

impl Request {
    pub(super) fn new(arguments: &Map<String, Value>, body: Vec<u8>) -> Result<Self, Refusal> {
        let bad = |message: String| Refusal::new(BAD_REQUEST, format!("http: {message}"));
        let method = text(arguments, "method")?.to_ascii_uppercase();
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| bad("no such method".to_owned()))?;
        // The URL is not repeated: it may hold secrets.
        let url = Url::parse(text(arguments, "url")?);
        let mut url = url.map_err(|error| bad(format!("the URL cannot be read: {error}")))?;
        for (name, value) in fields(arguments, "params")? {
            for value in value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice) {
                let value = plain(value).ok_or_else(|| {
                    bad(format!("the parameter `{name}` must be text, a number or a boolean"))
                })?;
                url.query_pairs_mut().append_pair(name, &value);
            }
        }
        let mut headers = HeaderMap::new();
        for (name, value) in fields(arguments, "headers")? {
            if RESERVED_HEADERS.iter().any(|reserved| reserved.eq_ignore_ascii_case(name.trim())) {
                let message = format!("the header `{name}` cannot be set: the HTTP client sets it");
                return Err(Refusal::new(FORBIDDEN, format!("http: {message}")));
            }
            let wrong = || bad(format!("the header `{name}` cannot be sent"));
            let value = plain(value).ok_or_else(wrong)?;
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            headers.append(header, HeaderValue::from_str(&value).map_err(|_| wrong())?);
        }
        // The client counts by itself; another count would let a request hide in this one.
        headers.remove(CONTENT_LENGTH);
        let timeout = match arguments.get("timeout") {
            None | Some(Value::Null) => None,
            Some(seconds) => {
                let seconds = seconds.as_f64().filter(|seconds| *seconds > 0.0);
                let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                Some(timeout.ok_or_else(|| bad("the timeout must be a number of seconds".to_owned()))?)
            }
        };
        Ok(Self { method, url, headers, body, timeout })
    }

    /// The request that a redirect asks for.
    fn redirected(&mut self, status: StatusCode, to: Url) {
        let becomes_get = match status {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => self.method == Method::POST,
            StatusCode::SEE_OTHER => self.method != Method::HEAD,
            _ => false,
        };
        if becomes_get {
            self.method = Method::GET;
            self.body.clear();
            self.headers.remove(CONTENT_TYPE);
            self.headers.remove(CONTENT_ENCODING);
        }
        if to.origin() != self.url.origin() {
            let secret: Vec<HeaderName> = self
                .headers
                .keys()
                .filter(|name| {
                    [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION].contains(name)
                        || Redactor::is_secret_key(name.as_str())
                })
                .cloned()
                .collect();
            secret.iter().for_each(|name| drop(self.headers.remove(name)));
        }
        self.url = to;
    }

    /// The request for people: without what may be secret in its URL.
    fn shown(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        // Only URLs without a host refuse these, and those have neither.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        format!("{} {url}", self.method)
    }
}

impl Http {
    /// Sends a request and brings back what it is answered with.
    pub(super) async fn send(
        &self,
        request: Request,
        allowed: &AllowedHosts,
        limits: &ScriptLimits,
    ) -> Answered {
        let (timeout, shown) = (request.timeout, request.shown());
        let sent = self.exchange(request, allowed, limits);
        match timeout {
            // The run's deadline ends it.
            None => sent.await,
            Some(timeout) => tokio::time::timeout(timeout, sent).await.unwrap_or_else(|_| {
                let seconds = timeout.as_secs_f64();
                Err(Refusal::new(TIMEOUT, format!("http: {shown}: no answer within {seconds} seconds")))
            }),
        }
    }

    fn client(&self, reach: Reach) -> Result<&Client, Refusal> {
        let slot = &self.clients[reach.nearest() as usize];
        if let Some(client) = slot.get() {
            return Ok(client);
        }
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            // Somebody else was first, and theirs is as good.
        }
        let client = Client::builder()
            .user_agent(concat!("ctx/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            // A proxy would connect in our place, and where to could not be checked; the variables that
            // name one are not ours to read.
            .no_proxy()
            .dns_resolver(Arc::new(CheckedNames(reach)))
            .connect_timeout(CONNECT_TIME)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .build()
            .map_err(|error| Refusal::new(FAILED, format!("http: {}", chain(&error))))?;
        Ok(slot.get_or_init(|| client))
    }

    async fn exchange(
        &self,
        mut request: Request,
        allowed: &AllowedHosts,
        limits: &ScriptLimits,
    ) -> Answered {
        let (mut redirects, mut reach) = (0, Reach::OWN);
        loop {
            check(&request, allowed, reach)?;
            let client = self.client(reach)?;
            let mut sent =
                client.request(request.method.clone(), request.url.clone()).headers(request.headers.clone());
            if !request.body.is_empty() {
                sent = sent.body(request.body.clone());
            } else if [Method::POST, Method::PUT, Method::PATCH].contains(&request.method) {
                // Explicit, because some servers require it.
                sent = sent.header(CONTENT_LENGTH, 0);
            }
            let response = sent.send().await.map_err(|error| failed(&request, error))?;
            let Some(to) = redirect(&request, &response)? else {
                return bring_back(&request, response, limits.http_response_bytes).await;
            };
            redirects += 1;
            if redirects > limits.http_redirects {
                let most = limits.http_redirects;
                return Err(Refusal::new(
                    FAILED,
                    format!("http: {}: more than {most} redirects", request.shown()),
                ));
            }
            reach = reach.within((self.scope_of)(response.remote_addr()));
            request.redirected(response.status(), to);
        }
    }
}

/// Whether a request may be sent, as far as its URL tells. Names are checked when they are resolved.
fn check(request: &Request, allowed: &AllowedHosts, reach: Reach) -> Result<(), Refusal> {
    let refuse = |why: &str| Err(Refusal::new(FORBIDDEN, format!("http: {}: {why}", request.shown())));
    let url = &request.url;
    if !["http", "https"].contains(&url.scheme()) {
        return refuse("only http and https can be requested");
    }
    if !allowed.allow(url) {
        return refuse("the host is not in the script's allow_hosts");
    }
    match reach.check_host(url.host_str().unwrap_or_default()) {
        Err(forbidden) => refuse(&format!("scripts may not reach {forbidden}")),
        Ok(()) => Ok(()),
    }
}

/// Where a response sends us on to.
fn redirect(request: &Request, response: &Response) -> Result<Option<Url>, Refusal> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = response.headers().get(LOCATION).filter(|_| is_redirect) else { return Ok(None) };
    let to = std::str::from_utf8(location.as_bytes()).ok().and_then(|to| request.url.join(to).ok());
    let wrong = || Refusal::new(FAILED, format!("http: {}: the redirect cannot be read", request.shown()));
    to.map(Some).ok_or_else(wrong)
}

async fn bring_back(request: &Request, mut response: Response, bytes_max: usize) -> Answered {
    let too_large = || {
        let most = bytes_max as f64 / f64::from(1 << 20);
        Refusal::new(TOO_LARGE, format!("http: {}: the response is larger than {most} MiB", request.shown()))
    };
    if request.method != Method::HEAD
        && response.content_length().is_some_and(|length| length > bytes_max as u64)
    {
        return Err(too_large());
    }
    let mut headers: Map<String, Value> = Map::new();
    for name in response.headers().keys() {
        let values = response.headers().get_all(name).iter();
        let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        headers.insert(name.as_str().to_owned(), Value::String(values.join(", ")));
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| failed(request, error))? {
        if body.len() + piece.len() > bytes_max {
            return Err(too_large());
        }
        body.extend_from_slice(&piece);
    }
    Ok((json!({ "status": response.status().as_u16(), "headers": headers }), body))
}

fn failed(request: &Request, error: reqwest::Error) -> Refusal {
    let error = error.without_url();
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(part) = cause {
        if let Some(refused) = part.downcast_ref::<Refused>() {
            return Refusal::new(FORBIDDEN, format!("http: {}: {refused}", request.shown()));
        }
        cause = part.source();
    }
    let code = if error.is_timeout() { TIMEOUT } else { FAILED };
    Refusal::new(code, format!("http: {}: {}", request.shown(), chain(&error)))
}

/// A name that leads to where scripts may not go.
#[derive(Debug, thiserror::Error)]
#[error("scripts may not reach {0}, which is where this name leads")]
struct Refused(ForbiddenAddress);

/// Resolves names to addresses that may be reached: what is connected to is what was checked.
struct CheckedNames(Reach);

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

fn fields<'a>(
    arguments: &'a Map<String, Value>,
    field: &str,
) -> Result<impl Iterator<Item = (&'a String, &'a Value)>, Refusal> {
    let fields = match arguments.get(field) {
        None | Some(Value::Null) => None,
        Some(Value::Object(fields)) => Some(fields),
        Some(_) => {
            return Err(Refusal::new(BAD_REQUEST, format!("http: `{field}` must be a table of names")));
        }
    };
    Ok(fields.into_iter().flatten())
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_testkit::{Web, reply, reply_with};

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

    /// Requests `/` from a server that redirects to another loopback server; returns the outcome and the number of
    /// requests that the second server received.
    async fn follow_redirect(http: Http, host: &str) -> (Answered, usize) {
        let inner = Web::serve(|_| reply(200, "inside"));
        let to = inner.url("/").replace("127.0.0.1", host);
        let outer = Web::serve(move |_| reply_with(302, &[("Location", &to)], ""));
        let arguments = json!({ "method": "GET", "url": outer.url("/") });
        let request = Request::new(arguments.as_object().unwrap(), Vec::new()).unwrap_or_else(|_| panic!());
        let answered = http.send(request, &AllowedHosts::default(), &ScriptLimits::default()).await;
        (answered, inner.asked().len())
    }

    #[tokio::test]
    async fn a_public_host_cannot_redirect_to_this_machine_by_address_or_by_name() {
        for host in ["127.0.0.1", "localhost"] {
            let public = Http { scope_of: |_| NetworkScope::Internet, ..Http::default() };
            let (answered, asked) = follow_redirect(public, host).await;
            let refusal = answered.err().unwrap();
            assert_eq!((refusal.code.as_str(), asked), (FORBIDDEN, 0), "{host}");
            assert!(refusal.message.contains("an address of this machine"), "{}", refusal.message);
            // A loopback server may redirect to loopback.
            let (answered, asked) = follow_redirect(Http::default(), host).await;
            assert_eq!((answered.is_ok(), asked), (true, 1), "{host}");
        }
    }
}
