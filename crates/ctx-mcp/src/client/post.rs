//! One POST of Streamable HTTP, and its response: JSON or an event stream, bounded in size.

use super::events::{EventTooLong, read_events};
use super::guard::ConnectionGuard;
use super::oauth::OAuthClient;
use super::server_client::ServerClient;
use super::streamable_http::HttpTransportError;
use ctx_core::Redactor;
use ctx_net::{BodyError, NetError, Request, Response};
use futures::StreamExt;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpPostResponse as PostResponse,
};
use sse_stream::{Error, Sse};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const EVENTS: &str = "text/event-stream";
pub(super) const JSON: &str = "application/json";
const HTML: &str = "text/html";
/// Characters of an error response that are shown.
const ERROR_BODY_CHARS_MAX: usize = 300;
/// Shown instead of the HTML of a web page.
const WEB_PAGE: &str = "it responded with a web page (text/html) instead of";
/// Events of one SSE response that are not messages, or that answer another request.
const STRAY_EVENTS_MAX: usize = 1_000;

/// A message to be posted, with its headers, credentials and limits.
pub(super) struct Post<'a> {
    pub(super) client: &'a ServerClient,
    pub(super) url: &'a str,
    pub(super) message: &'a ClientJsonRpcMessage,
    pub(super) session: Option<&'a str>,
    pub(super) token: Option<String>,
    pub(super) headers: HashMap<HeaderName, HeaderValue>,
    /// Bytes of a response body, or of one event.
    pub(super) bytes_max: usize,
    pub(super) redactor: &'a Redactor,
    pub(super) guard: &'a Arc<ConnectionGuard>,
    pub(super) oauth: Option<&'a OAuthClient>,
}

impl Post<'_> {
    pub(super) async fn send(self) -> Result<PostResponse, HttpTransportError> {
        let request = self.request().map_err(HttpTransportError::Client)?;
        let body = serde_json::to_vec(self.message).map_err(io::Error::other)?;
        let response = self.client.send(request.body(body)).await.map_err(HttpTransportError::Client)?;
        self.read_response(response).await
    }

    fn request(&self) -> Result<Request, NetError> {
        let mut request = Request::parse(Method::POST, self.url)?;
        request = request.try_header(ACCEPT, &format!("{EVENTS}, {JSON}"))?;
        if let Some(token) = &self.token {
            request = request.bearer(token)?;
        }
        if let Some(session) = self.session {
            request = request.try_header(SESSION_ID, session)?;
        }
        request.headers.extend(self.headers.clone());
        Ok(request.header(CONTENT_TYPE, HeaderValue::from_static(JSON)))
    }

    /// The ID of the message, if it is a request.
    fn request_id(&self) -> Option<RequestId> {
        match self.message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        }
    }

    async fn read_response(self, response: Response) -> Result<PostResponse, HttpTransportError> {
        if let Some(oauth) = self.oauth {
            oauth.record_peer(response.peer());
        }
        let status = response.status();
        let header = |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        let challenge = header(WWW_AUTHENTICATE).map(str::to_owned);
        match (status, challenge) {
            (StatusCode::UNAUTHORIZED, Some(challenge)) => {
                return Err(HttpTransportError::AuthRequired(AuthRequiredError::new(challenge)));
            }
            (StatusCode::FORBIDDEN, Some(challenge)) => {
                return Err(HttpTransportError::InsufficientScope(InsufficientScopeError::new(
                    challenge, None,
                )));
            }
            (StatusCode::ACCEPTED | StatusCode::NO_CONTENT, _) => return Ok(PostResponse::Accepted),
            (StatusCode::NOT_FOUND, _) if self.session.is_some() => {
                return Err(HttpTransportError::SessionExpired);
            }
            _ => {}
        }
        let has_type = |kind: &str| has_content_type(&response, kind);
        let (is_json, is_events) = (has_type(JSON), has_type(EVENTS));
        let session = response.headers().get(SESSION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if !status.is_success() {
            let retry_after = header(RETRY_AFTER).map(str::to_owned);
            return self.read_refusal(response, is_json, retry_after, session).await;
        }
        let Some(id) = self.request_id() else { return Ok(PostResponse::Accepted) };
        match (is_events, is_json) {
            (true, _) => Ok(PostResponse::Sse(
                message_events(response, id, self.bytes_max, self.guard.clone()),
                session,
            )),
            (_, true) => {
                let message = match read_body(response, self.bytes_max).await? {
                    None => too_long_response(id, self.bytes_max),
                    Some(body) => serde_json::from_slice(&body).unwrap_or_else(|error| {
                        error_response(id, format!("its answer cannot be read: {error}"))
                    }),
                };
                Ok(PostResponse::Json(message, session))
            }
            _ if has_content_type(&response, HTML) => {
                Err(HttpTransportError::UnexpectedServerResponse(web_page_reason(status, "MCP").into()))
            }
            _ => {
                let kind = header(CONTENT_TYPE).map(str::to_owned);
                Err(HttpTransportError::UnexpectedContentType(kind))
            }
        }
    }

    /// Handles an error response. Most of them contain a JSON-RPC error. A client error in response to
    /// `server/discover` (other than 401, 403 and 429) means a server of an older revision: it becomes the
    /// error of that request, whatever its body is.
    async fn read_refusal(
        self,
        response: Response,
        is_json: bool,
        retry_after: Option<String>,
        session: Option<String>,
    ) -> Result<PostResponse, HttpTransportError> {
        let status = response.status();
        let is_page = has_content_type(&response, HTML);
        let body = read_body(response, self.bytes_max).await?.unwrap_or_default();
        let rpc_error = match serde_json::from_slice::<ServerJsonRpcMessage>(&body) {
            Ok(JsonRpcMessage::Error(error)) if is_json => Some(error),
            _ => None,
        };
        // Redacted before it is shortened: part of a secret is not recognized as one.
        let text = shorten(&self.redactor.text(String::from_utf8_lossy(&body).into_owned()));
        let reason = if is_page { web_page_reason(status, "MCP") } else { format!("HTTP {status}: {text}") };
        let is_discover = matches!(self.message, ClientJsonRpcMessage::Request(request)
            if matches!(request.request, ClientRequest::DiscoverRequest(_)));
        let is_forbidden = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if let (true, Some(id)) =
            (is_discover && status.is_client_error() && !is_forbidden, self.request_id())
            && self.session.is_none()
            && status != StatusCode::TOO_MANY_REQUESTS
        {
            let error =
                rpc_error.map_or_else(|| ErrorData::invalid_request(reason, None), |error| error.error);
            return Ok(PostResponse::Json(JsonRpcMessage::error(error, Some(id)), None));
        }
        match rpc_error {
            Some(error) if !is_forbidden => Ok(PostResponse::Json(JsonRpcMessage::Error(error), session)),
            _ if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
                Err(HttpTransportError::HttpStatus(HttpStatusError::new(status.as_u16(), retry_after)))
            }
            _ => Err(HttpTransportError::UnexpectedServerResponse(reason.into())),
        }
    }
}

/// Whether a response has this content type.
pub(super) fn has_content_type(response: &Response, kind: &str) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|content_type| {
        content_type.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind))
    })
}

/// The reason for a failure whose response is a web page, and not what was `expected`.
fn web_page_reason(status: StatusCode, expected: &str) -> String {
    format!("HTTP {status}: {WEB_PAGE} {expected}")
}

/// Why a response is not the event stream that was asked for; `None` if it is one.
pub(super) fn event_stream_error(response: &Response) -> Option<String> {
    let status = response.status();
    match () {
        () if has_content_type(response, HTML) => Some(web_page_reason(status, "an event stream")),
        () if !status.is_success() => Some(format!("it answered with HTTP {status}")),
        () => None,
    }
}

/// A text of any length as one short line.
fn shorten(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(ERROR_BODY_CHARS_MAX) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line,
    }
}

/// The whole body; `None` if it is longer than `bytes_max`.
async fn read_body(mut response: Response, bytes_max: usize) -> Result<Option<Vec<u8>>, HttpTransportError> {
    match response.read(bytes_max).await {
        Ok(body) => Ok(Some(body)),
        Err(BodyError::TooLarge(_)) => Ok(None),
        Err(BodyError::Net(error)) => Err(HttpTransportError::Client(error)),
    }
}

/// The events of an SSE response. An event that is too long, or too many stray events, fail the request.
fn message_events(
    response: Response,
    id: RequestId,
    bytes_max: usize,
    guard: Arc<ConnectionGuard>,
) -> BoxedSseResponse {
    let mut stray_events = 0;
    let stream = read_events(response.into_event_stream(), bytes_max).map(move |event| {
        let as_event = |failure: ServerJsonRpcMessage| {
            let data = serde_json::to_string(&failure).unwrap_or_default();
            Ok(Sse { data: Some(data), ..Sse::default() })
        };
        match event {
            Err(Error::Body(error)) if error.is::<EventTooLong>() => {
                as_event(too_long_response(id.clone(), bytes_max))
            }
            Ok(event) if is_keep_alive(&event) => {
                // Too many disconnect the server.
                guard.admits_noise(event.data.as_ref().map_or(0, String::len));
                Ok(event)
            }
            Ok(mut event) if is_stray(&event, &id) => {
                stray_events += 1;
                let is_admitted = guard.admits_noise(event.data.as_ref().map_or(0, String::len));
                if stray_events > STRAY_EVENTS_MAX || !is_admitted {
                    let message =
                        format!("it sent more than {STRAY_EVENTS_MAX} events that are not the response");
                    return as_event(error_response(id.clone(), message));
                }
                // rmcp takes the first response on a stream for the response to the request, whatever its id.
                event.data = None;
                Ok(event)
            }
            event => event,
        }
    });
    stream.boxed()
}

/// The message of an event, if it is one.
pub(super) fn parse_message(event: &Sse) -> Option<ServerJsonRpcMessage> {
    if is_keep_alive(event) {
        return None;
    }
    serde_json::from_str(event.data.as_deref()?).ok()
}

/// Whether an event is not meant as a message: it has no data, or a type other than `message`.
fn is_keep_alive(event: &Sse) -> bool {
    let is_empty = event.data.as_ref().is_none_or(String::is_empty);
    is_empty || !matches!(event.event.as_deref(), None | Some("" | "message"))
}

/// Whether an event is not a message although its type says so, or answers another request.
fn is_stray(event: &Sse, id: &RequestId) -> bool {
    let request_id = match parse_message(event) {
        None => return true,
        Some(JsonRpcMessage::Response(response)) => Some(response.id),
        Some(JsonRpcMessage::Error(error)) => error.id,
        Some(_) => None,
    };
    request_id.is_some_and(|other| other != *id && other.to_string() != id.to_string())
}

fn too_long_response(id: RequestId, bytes_max: usize) -> ServerJsonRpcMessage {
    error_response(id, format!("its answer is longer than {bytes_max} bytes"))
}

fn error_response(id: RequestId, message: String) -> ServerJsonRpcMessage {
    JsonRpcMessage::error(ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None), Some(id))
}
