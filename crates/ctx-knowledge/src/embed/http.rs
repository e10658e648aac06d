//! Asking a model that is served over HTTP: one request, one answer, all of it bounded.
//!
//! Each request is tried once. Whoever fills vectors in tries again, and can be stopped while it
//! waits; whoever searches does not, since another model answers instead.

use super::{EmbedError, normalise};
use crate::reach::CheckedResolver;
use ctx_core::{Reach, Redactor, Secret};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::blocking::{Client, Response};
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::error::Error;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a query may take, however patient the settings are: somebody waits, and another model
/// can answer.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer: thousands of the largest vectors there are.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of a failure that are read for what it says.
const FAILURE_BYTES_MAX: usize = 64 << 10;
/// Characters of a failure that are told.
const FAILURE_CHARS_MAX: usize = 300;
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Where a model is served.
pub(super) struct Service {
    /// The provider's name.
    name: &'static str,
    url: Url,
    authorization: Option<HeaderValue>,
    /// Keeps the key out of what the service says.
    redactor: Redactor,
    timeout: Duration,
    /// Made with the first request: this one must not be made in an asynchronous task.
    ///
    /// It keeps its connections on a thread of its own, so that it can be used from any thread that
    /// may block, with or without a runtime around it, and a query need not wait for a batch.
    client: Mutex<Option<Client>>,
}

/// An answer other than success.
pub(super) struct Failure {
    pub(super) status: StatusCode,
    /// What the service says, shortened, without secrets.
    pub(super) words: String,
    retry_after: Option<Duration>,
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Somebody who searches.
    Query,
    /// Nobody: as long as the settings allow.
    Batch,
}

impl Service {
    /// The service whose requests go to `path` below `url`; the error says which setting is wrong.
    pub(super) fn new(
        name: &'static str,
        url: &str,
        path: &[&str],
        api_key: Option<&Secret>,
        timeout: Duration,
    ) -> Result<Self, String> {
        let wrong = |problem: &str| format!("url: {problem}; write it like http://127.0.0.1:8080/v1");
        // What was written is not repeated: it may have a password in it.
        let mut url = Url::parse(url.trim()).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong("it must begin with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("it must not have a password in it, use `api_key`"));
        }
        url.set_fragment(None);
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(path).pop_if_empty(),
            Err(()) => return Err(wrong("it has no path")),
        };
        let authorization = api_key.map(bearer).transpose()?;
        let redactor = Redactor::new(api_key.cloned());
        Ok(Self { name, url, authorization, redactor, timeout, client: Mutex::new(None) })
    }

    /// Sends a request. The outer error is about reaching the service, the inner one is its own.
    pub(super) fn ask<T: DeserializeOwned>(
        &self,
        request: &Value,
        patience: Patience,
    ) -> Result<Result<T, Failure>, EmbedError> {
        let timeout = match patience {
            Patience::Query => self.timeout.min(QUERY_TIMEOUT),
            Patience::Batch => self.timeout,
        };
        let deadline = Instant::now() + timeout;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(self.authorization.clone().map(|value| (header::AUTHORIZATION, value)));
        let sent = self.client()?.post(self.url.clone()).timeout(timeout).headers(headers);
        let response = sent.body(request.to_string()).send().map_err(|error| self.unreached(error))?;
        let status = response.status();
        if !status.is_success() {
            let retry_after = retry_after(response.headers());
            let location = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
            let words = match location.filter(|_| status.is_redirection()) {
                Some(location) => format!("it sends everybody to {location}"),
                // What a failure says is good to know, but it failed all the same.
                None => self
                    .read(response, FAILURE_BYTES_MAX, deadline)
                    .map(|body| words(&body))
                    .unwrap_or_default(),
            };
            let words = shortened(&self.redactor.text(words));
            return Ok(Err(Failure { status, words, retry_after }));
        }
        let body = self.read(response, ANSWER_BYTES_MAX, deadline)?;
        let answer = serde_json::from_slice(&body).map_err(|error| {
            let said = shortened(&self.redactor.text(words(&body)));
            EmbedError::Refused(format!("{self} answered with something else than vectors ({error}): {said}"))
        })?;
        Ok(Ok(answer))
    }

    /// What a failure means for whoever asked.
    pub(super) fn failed(&self, failure: &Failure) -> EmbedError {
        let Failure { status, words, retry_after } = failure;
        let said = if words.is_empty() { String::new() } else { format!(": {words}") };
        let reason = format!("{self} answered {status}{said}");
        let passes = status.is_server_error() && *status != StatusCode::NOT_IMPLEMENTED
            || matches!(*status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        // These are about who asks or what for, not about the texts.
        let about_us = matches!(
            *status,
            StatusCode::UNAUTHORIZED
                | StatusCode::PAYMENT_REQUIRED
                | StatusCode::FORBIDDEN
                | StatusCode::NOT_FOUND
                | StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::PROXY_AUTHENTICATION_REQUIRED
        );
        match retry_after {
            _ if !passes && status.is_client_error() && !about_us => EmbedError::Unreadable(reason),
            _ if !passes => EmbedError::Refused(reason),
            Some(after) => EmbedError::Later { reason, after: *after },
            None => EmbedError::Unavailable(reason),
        }
    }

    /// The vectors of an answer to `asked` texts, made unit vectors of the size that was wanted.
    pub(super) fn vectors(
        &self,
        mut vectors: Vec<Vec<f32>>,
        asked: usize,
        dimensions: Option<usize>,
    ) -> Result<Vec<Vec<f32>>, EmbedError> {
        let refused = |problem: String| Err(EmbedError::Refused(format!("{self} {problem}")));
        if vectors.len() != asked {
            return refused(format!("was asked for {asked} vectors and made {}", vectors.len()));
        }
        for vector in &mut vectors {
            let size = vector.len();
            match dimensions {
                _ if size == 0 => return refused("made a vector without numbers".to_owned()),
                Some(wanted) if wanted != size => {
                    return refused(format!(
                        "was asked for vectors of {wanted} numbers and made one of {size}; \
                         set `embedding.dims` to what the model makes, or leave it out"
                    ));
                }
                _ => normalise(vector),
            }
        }
        Ok(vectors)
    }

    fn client(&self) -> Result<Client, EmbedError> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        crate::tls::prepare();
        let mut builder = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(self.timeout)
            // Texts and keys go where the settings say, and nowhere else.
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(CheckedResolver(Reach::OWN)))
            .user_agent(concat!("ctx/", env!("CARGO_PKG_VERSION")));
        if self.url.scheme() == "http" {
            // Reading the system's certificates takes time, and fails where there are none.
            builder = builder.tls_certs_only([]);
        }
        let made = builder.build().map_err(|error| {
            EmbedError::Refused(format!("cannot make connections to {self}: {}", root_cause(&error)))
        })?;
        Ok(client.insert(made).clone())
    }

    /// Reads a body to its end, or until it is too long or too slow.
    fn read(
        &self,
        mut response: Response,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Vec<u8>, EmbedError> {
        let mut body = Vec::new();
        let mut part = vec![0; READ_BYTES];
        loop {
            match response.read(&mut part) {
                Ok(0) => return Ok(body),
                Ok(count) => body.extend_from_slice(&part[..count]),
                Err(error) => {
                    let cause = root_cause(&error);
                    return Err(EmbedError::Unavailable(format!("{self} broke its answer off: {cause}")));
                }
            }
            if body.len() > bytes_max {
                return Err(EmbedError::Refused(format!("{self} answered with more than {bytes_max} bytes")));
            }
            if Instant::now() > deadline {
                return Err(EmbedError::Unavailable(format!("{self} took too long to answer")));
            }
        }
    }

    fn unreached(&self, error: reqwest::Error) -> EmbedError {
        if error.is_timeout() {
            return EmbedError::Unavailable(format!("{self} took too long to answer"));
        }
        let cause = root_cause(&error.without_url());
        EmbedError::Unavailable(format!("cannot reach {self}: {}", shortened(&self.redactor.text(cause))))
    }
}

impl std::fmt::Display for Service {
    /// Name and place; what stands behind a `?` may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let origin = self.url.origin().ascii_serialization();
        write!(f, "{} at {origin}{}", self.name, self.url.path())
    }
}

fn bearer(key: &Secret) -> Result<HeaderValue, String> {
    if key.expose().trim().is_empty() {
        return Err("api_key: must not be empty; leave it out where none is needed".to_owned());
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
        .map_err(|_| "api_key: has characters that cannot be sent".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// `Retry-After`, as seconds or as a time.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default())
}

/// What a body says: the message in it where it is JSON, as the usual services write it.
fn words(body: &[u8]) -> String {
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let places = ["/error/message", "/error", "/message", "/detail"];
    let message = places.iter().find_map(|place| parsed.pointer(place)?.as_str());
    message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned)
}

/// One line, not too long.
fn shortened(text: &str) -> String {
    let line = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = line.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(FAILURE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The innermost cause: those around it only say that a request failed.
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(url: &str, api_key: Option<&str>) -> Result<Service, String> {
        let api_key = api_key.map(Secret::new);
        Service::new("openai", url, &["embeddings"], api_key.as_ref(), Duration::from_secs(1))
    }

    #[test]
    fn the_path_is_added_to_whatever_the_url_has() {
        let url = |url| service(url, None).unwrap().url.to_string();
        assert_eq!(url("https://a.example/v1"), "https://a.example/v1/embeddings");
        assert_eq!(url(" https://a.example/v1/ "), "https://a.example/v1/embeddings");
        assert_eq!(url("http://[::1]:8080"), "http://[::1]:8080/embeddings");
        assert_eq!(url("https://a.example/v1?version=2#top"), "https://a.example/v1/embeddings?version=2");
    }

    #[test]
    fn a_url_that_cannot_be_used_is_told_without_what_is_secret_in_it() {
        let problem = |url| service(url, None).err().unwrap();
        for wrong in ["", "127.0.0.1:11434", "localhost:11434", "ftp://a.example", "http://", "/v1"] {
            assert!(problem(wrong).starts_with("url: "), "{wrong}: {}", problem(wrong));
        }
        let with_password = problem("https://me:hunter2@a.example/v1");
        assert!(with_password.contains("api_key") && !with_password.contains("hunter2"), "{with_password}");
        let shown = service("https://a.example/v1?key=hunter2", None).unwrap().to_string();
        assert_eq!(shown, "openai at https://a.example/v1/embeddings");
    }

    #[test]
    fn a_key_that_cannot_be_sent_is_told_and_not_shown() {
        let problem = |key| service("https://a.example", Some(key)).err().unwrap();
        assert!(problem("").starts_with("api_key: must not be empty"));
        assert_eq!(problem("hunter2\nhunter2"), "api_key: has characters that cannot be sent");
    }

    #[test]
    fn a_time_to_wait_is_read_as_seconds_or_as_a_time() {
        let after = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(text));
            retry_after(&headers)
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert!(after("Tue, 31 Dec 2999 23:59:59 GMT").unwrap() > Duration::from_secs(1 << 20));
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn what_a_service_says_is_one_short_line() {
        let said = |body: &str| shortened(&words(body.as_bytes()));
        assert_eq!(said(r#"{"error": {"message": "no such\nmodel"}}"#), "no such model");
        assert_eq!(said(r#"{"error": "no such model"}"#), "no such model");
        assert_eq!(said("<h1>\u{1b}[31m502\u{7}</h1>"), "<h1> [31m502 </h1>");
        assert_eq!(said(&"é".repeat(1000)).chars().count(), FAILURE_CHARS_MAX + 1);
    }
}
