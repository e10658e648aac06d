//! HTTP client for embedding services: one POST request, bounded in time and size.
//!
//! Requests are not retried here. The fill retries, and can be cancelled while it waits; a search does not, since
//! another model takes over.

use super::{EmbedError, normalise};
use ctx_core::{AddressPolicy, Redactor, Secret};
use ctx_net::{BodyError, Client, ClientOptions, NetError, Request, block_on, retry_after};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::error::Error;
use std::time::Duration;
use url::Url;

/// Timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum timeout of a query, whatever the settings allow: a user waits, and another model can take over.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response: thousands of the largest vectors.
const RESPONSE_BYTES_MAX: usize = 64 << 20;
/// Maximum bytes that are read of an error response.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Maximum characters of an error response in a message.
const ERROR_CHARS_MAX: usize = 300;

/// The HTTP endpoint of an embedding service.
pub(super) struct EmbeddingService {
    /// The provider's name.
    name: &'static str,
    url: Url,
    authorization: Option<HeaderValue>,
    /// Masks the API key in messages of the service.
    redactor: Redactor,
    timeout: Duration,
    client: Client,
}

/// A response, with its body or the error of reading it.
struct ServiceResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Result<Vec<u8>, BodyError>,
}

/// A response with an error status.
pub(super) struct ErrorResponse {
    pub(super) status: StatusCode,
    /// The message of the service, shortened, with secrets masked.
    pub(super) message: String,
    retry_after: Option<Duration>,
}

/// Why a request to a service failed.
pub(super) enum ServiceError {
    /// A response with an error status; the provider's API says what it means.
    Status(ErrorResponse),
    /// Any other failure.
    Other(EmbedError),
}

impl From<EmbedError> for ServiceError {
    fn from(error: EmbedError) -> Self {
        Self::Other(error)
    }
}

/// What a request is for, which decides its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// At most [`QUERY_TIMEOUT`], since a search waits.
    Query,
    /// The timeout of the settings.
    Batch,
}

impl EmbeddingService {
    /// A service with the endpoint `path` below the base URL `url`; the error names the wrong setting.
    pub(super) fn new(
        name: &'static str,
        url: &str,
        path: &[&str],
        api_key: Option<&Secret>,
        timeout: Duration,
    ) -> Result<Self, String> {
        let wrong = |problem: &str| format!("url: {problem}; write it like http://127.0.0.1:8080/v1");
        // The URL is not repeated: it may contain a password.
        let mut url = Url::parse(url.trim()).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong("it must begin with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("it must not contain a user name or password; use `api_key`"));
        }
        url.set_fragment(None);
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(path).pop_if_empty(),
            Err(()) => return Err(wrong("it has no path")),
        };
        let authorization = api_key.map(bearer_header).transpose()?;
        let redactor = Redactor::new(api_key.cloned());
        let client = Client::new(ClientOptions {
            user_agent: Some(concat!("ctx/", env!("CARGO_PKG_VERSION"))),
            connect_timeout: CONNECT_TIMEOUT,
            ..ClientOptions::default()
        });
        Ok(Self { name, url, authorization, redactor, timeout, client })
    }

    /// Sends a request.
    pub(super) fn post<T: DeserializeOwned>(
        &self,
        request: &Value,
        kind: RequestKind,
    ) -> Result<T, ServiceError> {
        let timeout = match kind {
            RequestKind::Query => self.timeout.min(QUERY_TIMEOUT),
            RequestKind::Batch => self.timeout,
        };
        let ServiceResponse { status, headers, body } = self.send(request, timeout)?;
        if !status.is_success() {
            let retry_after = retry_after(&headers);
            let location = headers.get(header::LOCATION).and_then(|to| to.to_str().ok());
            let message = match location.filter(|_| status.is_redirection()) {
                Some(location) => format!("it redirects to {location}"),
                // Optional: without a readable body, the status is still reported.
                None => body.map(|body| error_message(&body)).unwrap_or_default(),
            };
            let message = truncate_to_line(&self.redactor.text(message));
            return Err(ServiceError::Status(ErrorResponse { status, message, retry_after }));
        }
        let body = body.map_err(|error| self.body_error(error))?;
        serde_json::from_slice(&body).map_err(|error| {
            let detail = truncate_to_line(&self.redactor.text(error_message(&body)));
            EmbedError::Refused(format!("{self} returned an invalid response ({error}): {detail}")).into()
        })
    }

    /// Converts an error response: temporary, permanent, or caused by the texts.
    pub(super) fn classify_error(&self, response: &ErrorResponse) -> EmbedError {
        let ErrorResponse { status, message, retry_after } = response;
        let detail = if message.is_empty() { String::new() } else { format!(": {message}") };
        let reason = format!("{self} answered {status}{detail}");
        let is_temporary = status.is_server_error() && *status != StatusCode::NOT_IMPLEMENTED
            || matches!(*status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        // Caused by the credentials or the endpoint, and not by the texts.
        let is_caused_by_endpoint = matches!(
            *status,
            StatusCode::UNAUTHORIZED
                | StatusCode::PAYMENT_REQUIRED
                | StatusCode::FORBIDDEN
                | StatusCode::NOT_FOUND
                | StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::PROXY_AUTHENTICATION_REQUIRED
        );
        match retry_after {
            _ if !is_temporary && status.is_client_error() && !is_caused_by_endpoint => {
                EmbedError::Unreadable(reason)
            }
            _ if !is_temporary => EmbedError::Refused(reason),
            Some(after) => EmbedError::Later { reason, after: *after },
            None => EmbedError::Unavailable(reason),
        }
    }

    /// Checks the number and dimensions of the vectors for `expected_count` texts, and normalises them.
    pub(super) fn check_vectors(
        &self,
        mut vectors: Vec<Vec<f32>>,
        expected_count: usize,
        dimensions: Option<usize>,
    ) -> Result<Vec<Vec<f32>>, EmbedError> {
        let refused = |problem: String| Err(EmbedError::Refused(format!("{self} {problem}")));
        if vectors.len() != expected_count {
            return refused(format!(
                "was sent {expected_count} texts and returned {} vectors",
                vectors.len()
            ));
        }
        for vector in &mut vectors {
            let size = vector.len();
            match dimensions {
                _ if size == 0 => return refused("returned an empty vector".to_owned()),
                Some(expected) if expected != size => {
                    return refused(format!(
                        "was asked for {expected} dimensions and returned {size}; \
                         set `embedding.dims` to the model's dimensions, or remove it"
                    ));
                }
                _ => normalise(vector),
            }
        }
        Ok(vectors)
    }

    /// Sends a request and reads the response, bounded in size and time. Follows no redirects: texts and API keys are
    /// sent only to the configured URL.
    fn send(&self, request: &Value, timeout: Duration) -> Result<ServiceResponse, EmbedError> {
        let mut http_request = Request::new(Method::POST, self.url.clone())
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(request.to_string());
        http_request.headers.extend(self.authorization.clone().map(|value| (header::AUTHORIZATION, value)));
        http_request.timeout = Some(timeout);
        let (client, reach) = (
            self.client.clone(),
            AddressPolicy::for_configured_host(self.url.host_str().unwrap_or_default()),
        );
        let result = block_on(async move {
            let mut response = client.send(&http_request, reach).await?;
            let (status, headers) = (response.status(), response.headers().clone());
            let bytes_max = if status.is_success() { RESPONSE_BYTES_MAX } else { ERROR_BYTES_MAX };
            Ok(ServiceResponse { status, headers, body: response.read(bytes_max).await })
        });
        let result = result.map_err(|error| {
            EmbedError::Refused(format!("cannot create an HTTP client for {self}: {}", root_cause(&error)))
        })?;
        result.map_err(|error| self.transport_error(error))
    }

    /// The error for a body that was not read completely.
    fn body_error(&self, error: BodyError) -> EmbedError {
        match error {
            BodyError::TooLarge(bytes_max) => {
                EmbedError::Refused(format!("the response of {self} is larger than {bytes_max} bytes"))
            }
            BodyError::Net(error) if error.is_timeout() => {
                EmbedError::Unavailable(format!("the request to {self} timed out"))
            }
            BodyError::Net(error) => EmbedError::Unavailable(format!(
                "{self} closed the connection during its response: {}",
                root_cause(&error)
            )),
        }
    }

    fn transport_error(&self, error: NetError) -> EmbedError {
        if error.is_timeout() {
            return EmbedError::Unavailable(format!("the request to {self} timed out"));
        }
        let cause = root_cause(&error.without_url());
        EmbedError::Unavailable(format!(
            "cannot reach {self}: {}",
            truncate_to_line(&self.redactor.text(cause))
        ))
    }
}

impl std::fmt::Display for EmbeddingService {
    /// Provider and URL without its query, which may contain a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let origin = self.url.origin().ascii_serialization();
        write!(f, "{} at {origin}{}", self.name, self.url.path())
    }
}

fn bearer_header(key: &Secret) -> Result<HeaderValue, String> {
    if key.expose().trim().is_empty() {
        return Err("api_key: must not be empty; leave it out where none is needed".to_owned());
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
        .map_err(|_| "api_key: contains characters that an HTTP header cannot contain".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// The message in a body: a field of JSON that the usual services use, or the whole text.
fn error_message(body: &[u8]) -> String {
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let places = ["/error/message", "/error", "/message", "/detail"];
    let message = places.iter().find_map(|place| parsed.pointer(place)?.as_str());
    message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned)
}

/// A text as one line of at most [`ERROR_CHARS_MAX`] characters.
fn truncate_to_line(text: &str) -> String {
    let line = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = line.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(ERROR_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The innermost cause: the outer ones only say that a request failed.
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
    use ctx_testkit::{MockWebServer, http_response, http_response_with};
    use serde_json::json;

    fn service(url: &str, api_key: Option<&str>) -> Result<EmbeddingService, String> {
        let api_key = api_key.map(Secret::new);
        EmbeddingService::new("openai", url, &["embeddings"], api_key.as_ref(), Duration::from_secs(1))
    }

    /// A server that embeds every text as the same vector.
    fn vector_server() -> MockWebServer {
        MockWebServer::serve(|_| http_response(200, r#"{"vectors": [[1.0, 0.0]]}"#))
    }

    fn post(service: &EmbeddingService) -> Result<Value, EmbedError> {
        service.post(&json!({"input": "harbour"}), RequestKind::Batch).map_err(|error| match error {
            ServiceError::Status(response) => service.classify_error(&response),
            ServiceError::Other(error) => error,
        })
    }

    #[test]
    fn a_server_whose_name_leads_to_a_forbidden_address_gets_no_text() {
        let web = vector_server();
        let at = |address: [u8; 4]| {
            let mut service = service(&web.url("/").replace("127.0.0.1", "models.test"), None).unwrap();
            service.client = service.client.with_known_host("models.test", address.into());
            post(&service)
        };
        assert!(at([127, 0, 0, 1]).is_ok());
        for address in [[169, 254, 169, 254], [0, 0, 0, 0], [100, 100, 100, 200]] {
            let Err(EmbedError::Unavailable(reason)) = at(address) else { panic!("{address:?} was asked") };
            assert!(reason.contains("not allowed to connect to"), "{reason}");
        }
        assert_eq!(web.requests().len(), 1);
    }

    #[test]
    fn redirects_are_not_followed() {
        let elsewhere = vector_server();
        for to in [
            elsewhere.url("/"),
            "http://169.254.169.254/latest".to_owned(),
            "http://[fd00:ec2::254]/".to_owned(),
        ] {
            for status in [302, 307, 308] {
                let location = to.clone();
                let web =
                    MockWebServer::serve(move |_| http_response_with(status, &[("Location", &location)], ""));
                let service = service(&web.url("/"), Some("hunter2hunter2")).unwrap();
                let Err(EmbedError::Refused(reason)) = post(&service) else { panic!("{to} was followed") };
                assert!(reason.ends_with(&format!("it redirects to {to}")), "{reason}");
                assert_eq!(web.requests().len(), 1);
            }
        }
        assert!(elsewhere.requests().is_empty());
    }

    #[test]
    fn a_literal_address_of_the_settings_is_the_only_forbidden_one_that_is_asked() {
        let web = vector_server();
        // Allowed only because the settings name it; connecting to it reaches this machine.
        let named = service(&web.url("/").replace("127.0.0.1", "0.0.0.0"), None).unwrap();
        assert!(post(&named).is_ok());
        assert!(AddressPolicy::TRUSTED.check_host("0.0.0.0").is_err());
        assert_eq!(web.requests().len(), 1);
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
    fn an_unusable_url_is_an_error_that_shows_no_secret() {
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
    fn an_unusable_key_is_an_error_that_does_not_show_it() {
        let problem = |key| service("https://a.example", Some(key)).err().unwrap();
        assert!(problem("").starts_with("api_key: must not be empty"));
        assert_eq!(
            problem("hunter2\nhunter2"),
            "api_key: contains characters that an HTTP header cannot contain"
        );
    }

    #[test]
    fn the_message_of_a_service_is_truncated_to_one_line() {
        let detail = |body: &str| truncate_to_line(&error_message(body.as_bytes()));
        assert_eq!(detail(r#"{"error": {"message": "no such\nmodel"}}"#), "no such model");
        assert_eq!(detail(r#"{"error": "no such model"}"#), "no such model");
        assert_eq!(detail("<h1>\u{1b}[31m502\u{7}</h1>"), "<h1> [31m502 </h1>");
        assert_eq!(detail(&"é".repeat(1000)).chars().count(), ERROR_CHARS_MAX + 1);
    }
}
