//! Requests, and URLs in messages.

use crate::NetError;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use std::fmt;
use std::time::Duration;
use url::Url;

/// A request. User name and password in the URL are sent as basic authentication.
#[derive(Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// An absolute `http` or `https` URL.
    pub url: Url,
    /// Headers, except those that the connection sets.
    pub headers: HeaderMap,
    /// The body. A request without one sends `Content-Length: 0` if its method usually has a body.
    pub body: Option<Bytes>,
    /// Time limit for the whole exchange, including the body of the response.
    pub timeout: Option<Duration>,
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: Method, url: Url) -> Self {
        Self { method, url, headers: HeaderMap::new(), body: None, timeout: None }
    }

    /// A request for a URL given as text.
    pub fn parse(method: Method, url: &str) -> Result<Self, NetError> {
        Ok(Self::new(method, Url::parse(url).map_err(NetError::unbuildable)?))
    }

    /// Sets a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets a header from text; fails if the value contains characters that are not allowed.
    pub fn try_header(self, name: HeaderName, value: &str) -> Result<Self, NetError> {
        Ok(self.header(name, HeaderValue::from_str(value).map_err(NetError::unbuildable)?))
    }

    /// Sets `Authorization: Bearer`.
    pub fn bearer(self, token: &str) -> Result<Self, NetError> {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(NetError::unbuildable)?;
        value.set_sensitive(true);
        Ok(self.header(AUTHORIZATION, value))
    }

    /// Sets the body.
    #[must_use]
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: Some(body.into()), ..self }
    }

    /// Method and URL for messages, without parts that may hold secrets: `GET https://api.example/pets`.
    pub fn describe(&self) -> String {
        format!("{} {}", self.method, display_url(&self.url))
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

/// A URL for messages, without the parts that may hold secrets: user name, password, query and fragment.
pub fn display_url(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    remove_credentials(&mut url);
    url.to_string()
}

/// Removes user name and password.
pub(crate) fn remove_credentials(url: &mut Url) {
    if url.set_username("").and_then(|()| url.set_password(None)).is_err() {
        // Only a URL without a host fails, and it has no credentials.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_shown_without_what_may_be_secret() {
        let request = Request::parse(Method::GET, "https://me:hunter2@a.example/b?key=hunter2#c").unwrap();
        assert_eq!(request.describe(), "GET https://a.example/b");
        assert_eq!(format!("{request:?}"), "GET https://a.example/b");
        assert_eq!(display_url(&Url::parse("data:text/plain,x?y").unwrap()), "data:text/plain,x");
    }

    #[test]
    fn what_cannot_be_sent_is_an_error() {
        let error = Request::parse(Method::GET, "/relative").unwrap_err();
        assert_eq!(ctx_core::error_chain(&error), "builder error: relative URL without a base");
        let request = Request::parse(Method::GET, "https://a.example").unwrap();
        assert!(request.clone().bearer("a\nb").is_err());
        assert!(request.bearer("token").unwrap().headers[AUTHORIZATION].is_sensitive());
    }
}
