//! The HTTP client of rmcp's Streamable HTTP transport: access tokens, pacing of streams, limits.

use super::events::read_events;
use super::guard::ConnectionGuard;
use super::oauth::{ForbiddenAction, LoginError, OAuthClient};
use super::post::{EVENTS, JSON, Post, SESSION_ID, has_content_type, parse_message};
use super::server_client::ServerClient;
use super::settings::Headers;
use ctx_core::{Redactor, Secret, error_chain};
use ctx_net::{NetError, Request, Response};
use futures::StreamExt;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, ServerResult};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// How long a new connection waits for the standalone stream before it is used for calls.
const STANDALONE_STREAM_WAIT_MAX: Duration = Duration::from_secs(1);

/// The standalone SSE stream of a session (the GET of Streamable HTTP). rmcp opens it in a task of its own, so the first
/// call could overtake it; the server's elicitations during that call would then have no stream to arrive on.
#[derive(Default)]
struct StandaloneStream {
    /// The server has opened a session, so rmcp asks for the stream.
    is_expected: AtomicBool,
    /// The server has answered, with a stream or with a refusal.
    is_answered: watch::Sender<bool>,
}

/// Streams that may be opened in one burst. When a stream ends, rmcp reconnects after the delay that the server chooses,
/// which may be none.
const STREAMS_AT_ONCE_MAX: u32 = 5;
/// The interval between streams beyond a burst.
const STREAM_PAUSE: Duration = Duration::from_secs(1);

/// A rate limiter for opening streams: the time at which the next one is due.
#[derive(Default)]
struct StreamPacer(Mutex<Option<Instant>>);

impl StreamPacer {
    async fn wait(&self) {
        let now = Instant::now();
        let pause = {
            let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let at = next.map_or(now, |next| next.max(now));
            *next = Some(at + STREAM_PAUSE);
            at.saturating_duration_since(now).saturating_sub(STREAM_PAUSE * STREAMS_AT_ONCE_MAX)
        };
        // Otherwise no sleep at all: even one timer tick could let the first call overtake the standalone stream.
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

/// The beginning of reasons with which servers of the older HTTP+SSE transport refuse a POST.
const OLDER_REFUSALS: [&str; 3] = ["HTTP 400", "HTTP 404", "HTTP 405"];
/// How long a server of the older transport may take to open its event stream.
const OLDER_STREAM_WAIT_MAX: Duration = Duration::from_secs(3);
/// The usual end of URLs of servers of the older transport.
const OLDER_PATH: &str = "/sse";
/// The hint for a server of the older transport.
const OLDER_HINT: &str = "it seems to be a server of the older HTTP+SSE transport: set `transport = \"sse\"`";

/// The `Accept` header of a GET.
const GET_ACCEPT: &str = "text/event-stream, application/json";
/// The header with the ID of the last event, for a stream that is resumed.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(super) type HttpTransportError = StreamableHttpError<NetError>;

/// The beginning of the reason for a 401 response without a `WWW-Authenticate` header.
const UNAUTHORIZED: &str = "HTTP 401";

/// The reason for a 403 response although the login has all scopes that the server asks for.
const FORBIDDEN_DESPITE_SCOPES: &str =
    "HTTP 403: forbidden, although the login has all scopes that the server asks for";

/// Sends requests, with an access token if there is a login. A JSON-RPC error in the response belongs to the
/// request, whatever its ID is: many servers refuse a request before they have parsed its ID, and the call
/// would wait until its timeout.
#[derive(Clone)]
pub(super) struct StreamableHttp {
    client: ServerClient,
    event_bytes_max: usize,
    oauth: Option<Arc<OAuthClient>>,
    stream_pacer: Arc<StreamPacer>,
    standalone_stream: Arc<StandaloneStream>,
    redactor: Redactor,
    guard: Arc<ConnectionGuard>,
}

impl StreamableHttp {
    pub(super) fn new(
        url: &str,
        event_bytes_max: usize,
        oauth: Option<Arc<OAuthClient>>,
        redactor: &Redactor,
        guard: &Arc<ConnectionGuard>,
    ) -> Self {
        Self {
            client: ServerClient::new(url),
            event_bytes_max,
            oauth,
            stream_pacer: Arc::default(),
            standalone_stream: Arc::default(),
            redactor: redactor.clone(),
            guard: guard.clone(),
        }
    }

    /// Waits until the server has answered the request for its standalone stream, if there is one. Bounded: some servers
    /// send the headers of a stream only with its first event.
    pub(super) async fn wait_for_standalone_stream(&self) {
        if self.standalone_stream.is_expected.load(Ordering::Relaxed) {
            let mut is_answered = self.standalone_stream.is_answered.subscribe();
            let _ =
                timeout(STANDALONE_STREAM_WAIT_MAX, is_answered.wait_for(|is_answered| *is_answered)).await;
        }
    }

    /// The reason of a failed handshake, with a hint if the server seems to use the older HTTP+SSE transport:
    /// its URL looks so, or it answers a GET with an event stream.
    pub(super) async fn explain_refusal(&self, reason: String, url: &str, headers: &Headers) -> String {
        if !OLDER_REFUSALS.iter().any(|refusal| reason.starts_with(refusal)) {
            return reason;
        }
        let path = url::Url::parse(url).map(|url| url.path().trim_end_matches('/').to_owned());
        let looks_older = path.is_ok_and(|path| path.ends_with(OLDER_PATH));
        match looks_older || self.opens_event_stream(url, headers).await {
            true => format!("{reason}; {OLDER_HINT}"),
            false => reason,
        }
    }

    async fn opens_event_stream(&self, url: &str, headers: &Headers) -> bool {
        let open = self.send_authorized(|token| {
            let headers = headers.0.clone();
            async move {
                let request = build_request(Method::GET, url, token.as_deref(), headers)?;
                self.send(request.header(ACCEPT, HeaderValue::from_static(EVENTS))).await
            }
        });
        match timeout(OLDER_STREAM_WAIT_MAX, open).await {
            Ok(Ok(response)) => response.status().is_success() && has_content_type(&response, EVENTS),
            Ok(Err(_)) | Err(_) => false,
        }
    }

    async fn send(&self, request: Request) -> Result<Response, HttpTransportError> {
        self.client.send(request).await.map_err(HttpTransportError::Client)
    }

    /// The event stream of a response to a GET.
    fn event_stream(&self, response: Response) -> Result<BoxedSseResponse, HttpTransportError> {
        let status = response.status();
        let header = |name: HeaderName| response.headers().get(name).map(HeaderValue::as_bytes);
        let challenge = || match header(WWW_AUTHENTICATE).map(|value| String::from_utf8(value.to_owned())) {
            Some(Ok(challenge)) => Ok(Some(challenge)),
            Some(Err(_)) => Err(HttpTransportError::UnexpectedServerResponse(
                "invalid www-authenticate header value".into(),
            )),
            None => Ok(None),
        };
        match status {
            StatusCode::METHOD_NOT_ALLOWED => return Err(HttpTransportError::ServerDoesNotSupportSse),
            StatusCode::UNAUTHORIZED => {
                if let Some(challenge) = challenge()? {
                    return Err(HttpTransportError::AuthRequired(AuthRequiredError::new(challenge)));
                }
            }
            StatusCode::FORBIDDEN => {
                if let Some(challenge) = challenge()? {
                    return Err(HttpTransportError::InsufficientScope(InsufficientScopeError::new(
                        challenge, None,
                    )));
                }
            }
            status if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
                let retry_after = header(RETRY_AFTER).and_then(|value| std::str::from_utf8(value).ok());
                let retry_after = retry_after.map(str::to_owned);
                return Err(HttpTransportError::HttpStatus(HttpStatusError::new(
                    status.as_u16(),
                    retry_after,
                )));
            }
            _ => {}
        }
        let response = response.error_for_status().map_err(HttpTransportError::Client)?;
        match response.headers().get(CONTENT_TYPE) {
            Some(_) if has_content_type(&response, EVENTS) || has_content_type(&response, JSON) => {}
            kind => {
                let kind = kind.map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
                return Err(HttpTransportError::UnexpectedContentType(kind));
            }
        }
        Ok(read_events(response.into_event_stream(), self.event_bytes_max).boxed())
    }

    /// Sends a request with the access token. Repeats it with another token, if there is one: at most once
    /// after a 401 response and once after a 403 response.
    async fn send_authorized<T, F>(&self, send: impl Fn(Option<String>) -> F) -> Result<T, HttpTransportError>
    where
        F: Future<Output = Result<T, HttpTransportError>>,
    {
        let Some(oauth) = &self.oauth else { return send(None).await };
        let as_transport_error =
            |error: LoginError| HttpTransportError::UnexpectedServerResponse(error.to_string().into());
        let send_with = |token: &Option<Secret>| send(token.as_ref().map(|token| token.expose().to_owned()));
        let token = oauth.access_token().await.map_err(as_transport_error)?;
        let first = send_with(&token).await.map_err(normalize_unauthorized);
        let (token, answer) = match &first {
            Err(HttpTransportError::AuthRequired(refusal)) => {
                let header = &refusal.www_authenticate_header;
                match oauth
                    .token_after_unauthorized(token.as_ref(), header)
                    .await
                    .map_err(as_transport_error)?
                {
                    None => return first,
                    another => {
                        let answer = send_with(&another).await.map_err(normalize_unauthorized);
                        (another, answer)
                    }
                }
            }
            _ => (token, first),
        };
        match &answer {
            Err(HttpTransportError::AuthRequired(refusal)) => {
                oauth.require_login(token.as_ref(), &refusal.www_authenticate_header);
                answer
            }
            Err(HttpTransportError::InsufficientScope(refusal)) => {
                let header = &refusal.www_authenticate_header;
                match oauth.handle_forbidden(token.as_ref(), header).await.map_err(as_transport_error)? {
                    ForbiddenAction::RetryWith(another) => {
                        send_with(&Some(another)).await.map_err(normalize_unauthorized)
                    }
                    ForbiddenAction::ScopesNeeded => answer,
                    ForbiddenAction::GiveUp => {
                        Err(HttpTransportError::UnexpectedServerResponse(FORBIDDEN_DESPITE_SCOPES.into()))
                    }
                }
            }
            _ => answer,
        }
    }
}

/// Describes a transport error, with its causes.
pub(super) fn describe_error(error: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
    match error.downcast_ref::<HttpTransportError>() {
        // Its own message leaves out the cause.
        Some(HttpTransportError::Client(error)) => error_chain(error),
        // Its text is the whole reason.
        Some(HttpTransportError::UnexpectedServerResponse(text)) => text.to_string(),
        _ => error_chain(error),
    }
}

/// Makes a 401 response without a challenge one with an empty challenge.
fn normalize_unauthorized(error: HttpTransportError) -> HttpTransportError {
    match error {
        HttpTransportError::UnexpectedServerResponse(text) if text.starts_with(UNAUTHORIZED) => {
            HttpTransportError::AuthRequired(AuthRequiredError::new(String::new()))
        }
        other => other,
    }
}

/// A request to the server, with these headers.
fn build_request(
    method: Method,
    url: &str,
    token: Option<&str>,
    headers: HashMap<HeaderName, HeaderValue>,
) -> Result<Request, HttpTransportError> {
    let mut request = Request::parse(method, url).map_err(HttpTransportError::Client)?;
    if let Some(token) = token {
        request = request.bearer(token).map_err(HttpTransportError::Client)?;
    }
    request.headers.extend(headers);
    Ok(request)
}

impl StreamableHttpClient for StreamableHttp {
    type Error = NetError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpTransportError> {
        let (id, request) = match &message {
            ClientJsonRpcMessage::Request(request) => (Some(request.id.clone()), Some(&request.request)),
            _ => (None, None),
        };
        let is_discover = matches!(request, Some(ClientRequest::DiscoverRequest(_)));
        let opens_session = matches!(request, Some(ClientRequest::InitializeRequest(_)));
        let posting = self.send_authorized(|token| {
            let post = Post {
                client: &self.client,
                url: &uri,
                message: &message,
                session: session_id.as_deref(),
                token: token.or_else(|| auth_header.clone()),
                headers: custom_headers.clone(),
                bytes_max: self.event_bytes_max,
                redactor: &self.redactor,
                guard: &self.guard,
                oauth: self.oauth.as_deref(),
            };
            post.send()
        });
        let answer = posting.await?;
        // For `initialize` only: stateless servers may send a session ID too, but rmcp opens no stream for
        // that.
        if opens_session
            && let StreamableHttpPostResponse::Json(_, Some(_)) | StreamableHttpPostResponse::Sse(_, Some(_)) =
                &answer
        {
            self.standalone_stream.is_expected.store(true, Ordering::Relaxed);
        }
        Ok(match answer {
            StreamableHttpPostResponse::Json(JsonRpcMessage::Error(mut error), session) => {
                error.id = id;
                StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), session)
            }
            // An empty result to `server/discover` comes from a server that does not know the method.
            StreamableHttpPostResponse::Json(JsonRpcMessage::Response(answer), session)
                if is_discover && matches!(answer.result, ServerResult::EmptyResult(_)) =>
            {
                let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "empty result", None);
                StreamableHttpPostResponse::Json(JsonRpcMessage::error(error, Some(answer.id)), session)
            }
            other => other,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpTransportError> {
        let deleting = self.send_authorized(|token| {
            let token = token.or_else(|| auth_header.clone());
            let (uri, session_id, headers) = (uri.clone(), session_id.clone(), custom_headers.clone());
            async move {
                let request = build_request(Method::DELETE, &uri, token.as_deref(), headers)?;
                let request =
                    request.try_header(SESSION_ID, &session_id).map_err(HttpTransportError::Client)?;
                let response = self.send(request).await?;
                // Servers need not support the deletion of sessions.
                if response.status() != StatusCode::METHOD_NOT_ALLOWED {
                    response.error_for_status().map_err(HttpTransportError::Client)?;
                }
                Ok(())
            }
        });
        deleting.await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxedSseResponse, HttpTransportError> {
        // A resumed stream has a `Last-Event-ID`.
        let is_standalone = last_event_id.is_none();
        self.stream_pacer.wait().await;
        let stream = self.send_authorized(|token| {
            let token = token.or_else(|| auth_header.clone());
            let (uri, headers) = (uri.clone(), custom_headers.clone());
            let (session_id, last_event_id) = (session_id.clone(), last_event_id.clone());
            async move {
                let request = build_request(Method::GET, &uri, token.as_deref(), headers)?;
                let mut request = request.header(ACCEPT, const { HeaderValue::from_static(GET_ACCEPT) });
                for (name, value) in
                    [(SESSION_ID, session_id.as_deref()), (LAST_EVENT_ID, last_event_id.as_deref())]
                {
                    if let Some(value) = value {
                        request = request.try_header(name, value).map_err(HttpTransportError::Client)?;
                    }
                }
                self.event_stream(self.send(request).await?)
            }
        });
        let answer = stream.await;
        if is_standalone {
            self.standalone_stream.is_answered.send_replace(true);
        }
        Ok(count_noise(answer?, self.guard.clone()))
    }
}

/// Counts the events of a stream that rmcp passes over, since they are no messages; ends the stream if there are too many.
fn count_noise(stream: BoxedSseResponse, guard: Arc<ConnectionGuard>) -> BoxedSseResponse {
    let is_admitted = move |event: &sse_stream::Sse| {
        parse_message(event).is_some() || guard.admits_noise(event.data.as_ref().map_or(0, String::len))
    };
    stream.take_while(move |event| std::future::ready(event.as_ref().map_or(true, &is_admitted))).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_testkit::{http_response, http_response_with};
    use futures::FutureExt;
    use serde_json::json;

    #[tokio::test]
    async fn only_the_stream_of_a_session_is_waited_for() {
        let server = ctx_testkit::MockWebServer::serve(|asked| {
            if !asked.line.starts_with("POST") {
                return http_response(405, "");
            }
            let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", "1")];
            let body = json!({"jsonrpc": "2.0", "id": asked.json()["id"], "result": {}});
            http_response_with(200, &headers, &body.to_string())
        });
        let uri: Arc<str> = server.url("/mcp").into();
        let client = StreamableHttp::new(&uri, 1 << 20, None, &Redactor::default(), &Arc::default());
        let is_ready = || client.wait_for_standalone_stream().now_or_never().is_some();
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"}});
        for (method, opens_session) in
            [("server/discover", false), ("tools/list", false), ("initialize", true)]
        {
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            let message = serde_json::from_value(message).unwrap();
            client.post_message(uri.clone(), message, None, None, HashMap::new()).await.unwrap();
            assert_eq!(is_ready(), !opens_session, "{method}");
        }
        // A refusal is an answer too.
        client.get_stream(uri.clone(), Some("1".into()), None, None, HashMap::new()).await.err().unwrap();
        assert!(is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_end_at_once_are_not_opened_without_pause() {
        let (pacer, begun) = (StreamPacer::default(), Instant::now());
        for _ in 0..=STREAMS_AT_ONCE_MAX {
            pacer.wait().await;
        }
        assert!(begun.elapsed() < STREAM_PAUSE);
        for _ in 0..60 {
            pacer.wait().await;
        }
        assert!(begun.elapsed() >= STREAM_PAUSE * 60);
    }
}
