//! Redirects. Each hop is a request of its own: it cannot reach a network scope nearer than that of the redirecting
//! peer, and carries no credentials to another origin.

use crate::request::remove_credentials;
use crate::{Request, Response};
use ctx_core::{AddressPolicy, Redactor};
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, COOKIE, LOCATION, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use url::Url;

/// Headers with credentials whose names do not show it.
const CREDENTIAL_HEADERS: [HeaderName; 3] = [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION];

/// A redirect whose `Location` is not a valid URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the redirect's `Location` is not a valid URL")]
pub struct UnreadableLocation;

/// The headers that a redirect keeps when it leads to another origin.
#[derive(Clone, Copy, Debug)]
pub enum CrossOriginHeaders {
    /// All headers except those with credentials, recognised by name.
    DropSecrets,
    /// Only these headers.
    Keep(&'static [HeaderName]),
}

/// A request and the state of the redirects that it has followed.
#[derive(Debug)]
pub struct RedirectChain {
    request: Request,
    reach: AddressPolicy,
    followed: usize,
    is_home: bool,
}

impl RedirectChain {
    /// A chain without redirects yet.
    pub fn new(request: Request, reach: AddressPolicy) -> Self {
        Self { request, reach, followed: 0, is_home: true }
    }

    /// The request to send now.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The SSRF policy for the next request.
    pub fn reach(&self) -> AddressPolicy {
        self.reach
    }

    /// Number of redirects followed.
    pub fn redirect_count(&self) -> usize {
        self.followed
    }

    /// Whether all redirects stayed on the origin of the first request, so that its credentials may still be sent.
    pub fn is_same_origin(&self) -> bool {
        self.is_home
    }

    /// The current request, after all redirects.
    pub fn into_request(self) -> Request {
        self.request
    }

    /// Turns the request into the one that a response redirects to.
    pub fn follow(&mut self, response: &Response, to: Url, headers: CrossOriginHeaders) {
        // Behind a proxy the peer is unknown, so a redirect to the same host keeps the policy that allowed it.
        if response.is_direct() || self.request.url.host() != to.host() {
            self.reach = self.reach.within(response.scope());
        }
        self.is_home &= apply_redirect(&mut self.request, response.status(), to, headers);
        self.followed += 1;
    }
}

impl Response {
    /// The target of a redirect response, without credentials that are not those of the request; `None` if it is no
    /// redirect.
    pub fn redirect_target(&self) -> Result<Option<Url>, UnreadableLocation> {
        redirect_target(self.url(), self.status(), self.headers())
    }
}

/// Whether a redirect leads from TLS to plain text, where others could read what is sent.
pub fn is_downgrade(from: &Url, to: &Url) -> bool {
    from.scheme() == "https" && to.scheme() != "https"
}

fn redirect_target(
    from: &Url,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<Url>, UnreadableLocation> {
    let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = headers.get(LOCATION).filter(|_| is_redirect) else { return Ok(None) };
    let location = std::str::from_utf8(location.as_bytes()).map_err(|_| UnreadableLocation)?;
    let mut to = from.join(location).map_err(|_| UnreadableLocation)?;
    let credentials = |url: &Url| (url.username().to_owned(), url.password().map(str::to_owned));
    if to.origin() != from.origin() || credentials(&to) != credentials(from) {
        remove_credentials(&mut to);
    }
    to.set_fragment(None);
    Ok(Some(to))
}

/// Applies a redirect to the request; returns whether it stays on the same origin.
fn apply_redirect(request: &mut Request, status: StatusCode, to: Url, headers: CrossOriginHeaders) -> bool {
    let becomes_get = match status {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => request.method == Method::POST,
        StatusCode::SEE_OTHER => request.method != Method::HEAD,
        _ => false,
    };
    if becomes_get {
        request.method = Method::GET;
        request.body = None;
        request.headers.remove(CONTENT_TYPE);
        request.headers.remove(CONTENT_ENCODING);
    }
    let is_same_origin = to.origin() == request.url.origin();
    if !is_same_origin {
        let is_kept = |name: &HeaderName| match headers {
            CrossOriginHeaders::DropSecrets => {
                !CREDENTIAL_HEADERS.contains(name) && !Redactor::is_secret_key(name.as_str())
            }
            CrossOriginHeaders::Keep(allowed) => allowed.contains(name),
        };
        let dropped: Vec<HeaderName> =
            request.headers.keys().filter(|name| !is_kept(name)).cloned().collect();
        dropped.iter().for_each(|name| drop(request.headers.remove(name)));
    }
    request.url = to;
    is_same_origin
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use http::header::ACCEPT;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn request(method: Method) -> Request {
        let mut request = Request::new(method, url("https://a.example/x")).body("body");
        for name in ["accept", "content-type", "authorization", "cookie", "x-api-key", "x-version"] {
            let name: HeaderName = name.parse().unwrap();
            request.headers.append(&name, HeaderValue::from_static("1"));
            request.headers.append(&name, HeaderValue::from_static("2"));
        }
        request
    }

    fn names(request: &Request) -> Vec<&str> {
        let mut names: Vec<_> = request.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_redirect_is_read_from_its_location() {
        let to = |status: u16, from: &str, location: &str| {
            let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_str(location).unwrap())]);
            redirect_target(&url(from), StatusCode::from_u16(status).unwrap(), &headers)
                .map(|to| to.map(|to| to.to_string()))
        };
        let from = "https://me:secret@a.example/x/y?q=1#f";
        let found = |url: &str| Ok(Some(url.to_owned()));
        assert_eq!(to(302, from, "z?r=2#g"), found("https://me:secret@a.example/x/z?r=2"));
        assert_eq!(to(302, from, "https://a.example/z"), found("https://a.example/z"));
        assert_eq!(to(302, from, "https://you:other@a.example/z"), found("https://a.example/z"));
        assert_eq!(to(308, from, "//me:secret@b.example/"), found("https://b.example/"));
        assert_eq!(to(301, from, "http://[nonsense"), Err(UnreadableLocation));
        for status in [200, 201, 300, 304, 400] {
            assert_eq!(to(status, from, "/z"), Ok(None), "{status}");
        }
        assert_eq!(redirect_target(&url(from), StatusCode::FOUND, &HeaderMap::new()), Ok(None));
    }

    #[test]
    fn credentials_stay_with_their_origin() {
        let mut same = request(Method::GET);
        assert!(apply_redirect(
            &mut same,
            StatusCode::FOUND,
            url("https://a.example/z"),
            CrossOriginHeaders::DropSecrets
        ));
        assert_eq!(names(&same), names(&request(Method::GET)));
        for to in ["https://b.example/", "https://a.example:8443/", "http://a.example/"] {
            let mut other = request(Method::GET);
            assert!(!apply_redirect(&mut other, StatusCode::FOUND, url(to), CrossOriginHeaders::DropSecrets));
            assert_eq!(names(&other), ["accept", "content-type", "x-version"], "{to}");
            let mut other = request(Method::GET);
            let allowed = CrossOriginHeaders::Keep(const { &[ACCEPT] });
            assert!(!apply_redirect(&mut other, StatusCode::FOUND, url(to), allowed));
            assert_eq!(names(&other), ["accept"], "{to}");
        }
    }

    #[test]
    fn a_post_becomes_a_get_where_http_says_so() {
        for (status, method, becomes) in [
            (301, Method::POST, Method::GET),
            (302, Method::POST, Method::GET),
            (302, Method::PUT, Method::PUT),
            (303, Method::PUT, Method::GET),
            (303, Method::HEAD, Method::HEAD),
            (307, Method::POST, Method::POST),
            (308, Method::POST, Method::POST),
        ] {
            let mut sent = request(method.clone());
            let status = StatusCode::from_u16(status).unwrap();
            apply_redirect(&mut sent, status, url("https://a.example/z"), CrossOriginHeaders::DropSecrets);
            assert_eq!(sent.method, becomes, "{status} {method}");
            assert_eq!(sent.body.is_none(), becomes != method, "{status} {method}");
            assert_eq!(sent.headers.contains_key(CONTENT_TYPE), becomes == method, "{status} {method}");
        }
    }

    #[test]
    fn what_is_sent_in_secret_is_not_sent_again_in_the_open() {
        let is_downgrade = |from: &str, to: &str| is_downgrade(&url(from), &url(to));
        assert!(is_downgrade("https://api.example/a", "http://api.example/a"));
        assert!(is_downgrade("https://api.example/a", "ftp://api.example/a"));
        assert!(!is_downgrade("https://api.example/a", "https://other.example/a"));
        assert!(!is_downgrade("http://api.example/a", "https://api.example/a"));
        assert!(!is_downgrade("http://api.example/a", "http://other.example/a"));
    }
}
