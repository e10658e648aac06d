//! `http`: the HTTP client of all scripts, with protection against SSRF.
//!
//! An address is checked when the client connects to it. A redirect is checked like a new request, and may
//! not lead into a nearer network scope than that of the server that sent it.

use super::{AllowedHosts, BAD_REQUEST, FORBIDDEN, HostResult, text};
use crate::engine::HostError;
use crate::scripts::ScriptLimits;
use ctx_core::{AddressPolicy, error_chain};
use ctx_net::{
    BodyError, Client, ClientOptions, CrossOriginHeaders, NetError, Proxy, RedirectChain, Response,
    UnreadableLocation,
};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Map, Value, json};
use std::time::Duration;
use url::Url;

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
/// Time limit for establishing a connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Maximum number of idle connections to one host.
const IDLE_PER_HOST: usize = 8;
/// Error code of failures that have no code of their own.
const FAILED: &str = "http";
const TIMEOUT: &str = "timeout";
const TOO_LARGE: &str = "too_large";

/// The HTTP client of scripts.
pub(crate) struct ScriptHttp {
    client: Client,
}

impl Default for ScriptHttp {
    fn default() -> Self {
        let options = ClientOptions {
            user_agent: Some(concat!("ctx/", env!("CARGO_PKG_VERSION"))),
            // A proxy would connect in our place, to addresses that cannot be checked here. A library does
            // not read the environment variables that name a proxy.
            proxy: Proxy::None,
            connect_timeout: CONNECT_TIME,
            idle_per_host_max: IDLE_PER_HOST,
            ..ClientOptions::default()
        };
        Self { client: Client::new(options) }
    }
}

/// The validated request of a script.
pub(super) struct HttpRequest {
    request: ctx_net::Request,
    /// Time limit for the request and all its redirects together.
    timeout: Option<Duration>,
}

impl HttpRequest {
    pub(super) fn new(arguments: &Map<String, Value>, body: Vec<u8>) -> Result<Self, HostError> {
        let bad = |message: String| HostError::new(BAD_REQUEST, format!("http: {message}"));
        let method = text(arguments, "method")?.to_ascii_uppercase();
        let method =
            Method::from_bytes(method.as_bytes()).map_err(|_| bad("invalid HTTP method".to_owned()))?;
        // The error does not repeat the URL, which may contain secrets.
        let url = Url::parse(text(arguments, "url")?);
        let mut url = url.map_err(|error| bad(format!("invalid URL: {error}")))?;
        for (name, value) in table_field(arguments, "params")? {
            for value in value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice) {
                let value = scalar_text(value).ok_or_else(|| {
                    bad(format!("the parameter `{name}` must be text, a number or a boolean"))
                })?;
                url.query_pairs_mut().append_pair(name, &value);
            }
        }
        let mut headers = HeaderMap::new();
        for (name, value) in table_field(arguments, "headers")? {
            if RESERVED_HEADERS.iter().any(|reserved| reserved.eq_ignore_ascii_case(name.trim())) {
                let message = format!("the header `{name}` cannot be set: the HTTP client sets it");
                return Err(HostError::new(FORBIDDEN, format!("http: {message}")));
            }
            let invalid = || bad(format!("the header `{name}` has an invalid name or value"));
            let value = scalar_text(value).ok_or_else(invalid)?;
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
            headers.append(header, HeaderValue::from_str(&value).map_err(|_| invalid())?);
        }
        // The client sets the content length; another one would allow request smuggling.
        headers.remove(CONTENT_LENGTH);
        let timeout = match arguments.get("timeout") {
            None | Some(Value::Null) => None,
            Some(seconds) => {
                let seconds = seconds.as_f64().filter(|seconds| *seconds > 0.0);
                let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                Some(timeout.ok_or_else(|| bad("the timeout must be a number of seconds".to_owned()))?)
            }
        };
        let body = Some(body).filter(|body| !body.is_empty()).map(Into::into);
        Ok(Self { request: ctx_net::Request { method, url, headers, body, timeout: None }, timeout })
    }
}

impl ScriptHttp {
    /// Sends a request, follows its redirects and returns the response.
    pub(super) async fn send(
        &self,
        request: HttpRequest,
        allowed: &AllowedHosts,
        limits: &ScriptLimits,
    ) -> HostResult {
        let (timeout, display_url) = (request.timeout, request.request.describe());
        let sent = self.send_with_redirects(request.request, allowed, limits);
        match timeout {
            // The run's deadline cancels the request.
            None => sent.await,
            Some(timeout) => tokio::time::timeout(timeout, sent).await.unwrap_or_else(|_| {
                let seconds = timeout.as_secs_f64();
                Err(HostError::new(
                    TIMEOUT,
                    format!("http: {display_url}: no response within {seconds} seconds"),
                ))
            }),
        }
    }

    async fn send_with_redirects(
        &self,
        request: ctx_net::Request,
        allowed: &AllowedHosts,
        limits: &ScriptLimits,
    ) -> HostResult {
        let mut chain = RedirectChain::new(request, AddressPolicy::TRUSTED);
        loop {
            let request = chain.request();
            check(request, allowed)?;
            let response = self
                .client
                .send(request, chain.reach())
                .await
                .map_err(|error| net_refusal(request, error))?;
            let location = response.redirect_target().map_err(|error: UnreadableLocation| {
                HostError::new(FAILED, format!("http: {}: {error}", request.describe()))
            })?;
            let Some(location) = location else {
                return read_response(request, response, limits.http_response_bytes).await;
            };
            if chain.redirect_count() >= limits.http_redirects {
                let limit = limits.http_redirects;
                return Err(HostError::new(
                    FAILED,
                    format!("http: {}: more than {limit} redirects", request.describe()),
                ));
            }
            chain.follow(&response, location, CrossOriginHeaders::DropSecrets);
        }
    }
}

/// Checks the scheme and `allow_hosts`; the client checks addresses.
fn check(request: &ctx_net::Request, allowed: &AllowedHosts) -> Result<(), HostError> {
    let refuse = |why: &str| Err(HostError::new(FORBIDDEN, format!("http: {}: {why}", request.describe())));
    let url = &request.url;
    if !["http", "https"].contains(&url.scheme()) {
        return refuse("only http and https URLs are allowed");
    }
    if !allowed.allows(url) {
        return refuse("the host is not in the script's allow_hosts");
    }
    Ok(())
}

async fn read_response(request: &ctx_net::Request, mut response: Response, bytes_max: usize) -> HostResult {
    let body = response.read(bytes_max).await.map_err(|error| match error {
        BodyError::TooLarge(bytes_max) => {
            let limit = bytes_max as f64 / f64::from(1 << 20);
            let message = format!("http: {}: the response is larger than {limit} MiB", request.describe());
            HostError::new(TOO_LARGE, message)
        }
        BodyError::Net(error) => net_refusal(request, error),
    })?;
    let mut headers: Map<String, Value> = Map::new();
    for name in response.headers().keys() {
        let values = response.headers().get_all(name).iter();
        let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        headers.insert(name.as_str().to_owned(), Value::String(values.join(", ")));
    }
    Ok((json!({ "status": response.status().as_u16(), "headers": headers }), body))
}

fn net_refusal(request: &ctx_net::Request, error: NetError) -> HostError {
    if let Some(forbidden) = error.forbidden_target() {
        let message = format!("http: {}: scripts may not connect to {forbidden}", request.describe());
        return HostError::new(FORBIDDEN, message);
    }
    let code = if error.is_timeout() { TIMEOUT } else { FAILED };
    HostError::new(code, format!("http: {}: {}", request.describe(), error_chain(&error.without_url())))
}

fn table_field<'a>(
    arguments: &'a Map<String, Value>,
    field: &str,
) -> Result<impl Iterator<Item = (&'a String, &'a Value)>, HostError> {
    let fields = match arguments.get(field) {
        None | Some(Value::Null) => None,
        Some(Value::Object(fields)) => Some(fields),
        Some(_) => {
            return Err(HostError::new(
                BAD_REQUEST,
                format!("http: `{field}` must be a table with string keys"),
            ));
        }
    };
    Ok(fields.into_iter().flatten())
}

fn scalar_text(value: &Value) -> Option<String> {
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
    use ctx_testkit::{MockWebServer, http_response, http_response_with};

    /// Requests `/` from a server that redirects to another loopback server; returns the outcome and the number of
    /// requests that the second server received.
    async fn follow_redirect(http: ScriptHttp, host: &str) -> (HostResult, usize) {
        let inner = MockWebServer::serve(|_| http_response(200, "inside"));
        let location = inner.url("/").replace("127.0.0.1", host);
        let outer = MockWebServer::serve(move |_| http_response_with(302, &[("Location", &location)], ""));
        let arguments = json!({ "method": "GET", "url": outer.url("/") });
        let request =
            HttpRequest::new(arguments.as_object().unwrap(), Vec::new()).unwrap_or_else(|_| panic!());
        let result = http.send(request, &AllowedHosts::default(), &ScriptLimits::default()).await;
        (result, inner.requests().len())
    }

    #[tokio::test]
    async fn a_public_host_cannot_redirect_to_this_machine_by_address_or_by_name() {
        for host in ["127.0.0.1", "localhost"] {
            let public = ScriptHttp { client: ScriptHttp::default().client.with_public_peers() };
            let (result, request_count) = follow_redirect(public, host).await;
            let refusal = result.err().unwrap();
            assert_eq!((refusal.code.as_str(), request_count), (FORBIDDEN, 0), "{host}");
            assert!(refusal.message.contains("a loopback address"), "{}", refusal.message);
            // A loopback server may redirect to loopback.
            let (result, request_count) = follow_redirect(ScriptHttp::default(), host).await;
            assert_eq!((result.is_ok(), request_count), (true, 1), "{host}");
        }
    }
}
