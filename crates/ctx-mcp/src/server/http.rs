//! The Streamable HTTP endpoint: checks that run before rmcp sees a request, JSON errors, and the end of
//! streams. Authentication and the size of requests are checked by the caller.

use super::envelope::{self, EnvelopeError};
use super::handler::McpHandler;
use super::session_manager::BoundedSessionManager;
use super::{McpServer, SharedState};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use rmcp::ErrorData;
use rmcp::model::JsonRpcError;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Characters of an error text from rmcp that are passed on.
const ERROR_CHARS_MAX: usize = 1024;
/// The `Accept` header for clients that send none, or `*/*`.
const DEFAULT_ACCEPT: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// rmcp's service with our handler.
#[derive(Clone)]
pub(super) struct HttpEndpoint {
    rmcp: StreamableHttpService<McpHandler, BoundedSessionManager>,
    stopping: CancellationToken,
}

impl HttpEndpoint {
    pub(super) fn new(shared: &Arc<SharedState>) -> Self {
        let config = StreamableHttpServerConfig::default()
            .with_json_response(true)
            .with_max_request_body_bytes(shared.settings.request_bytes)
            // The caller checks hosts and origins, for every route alike.
            .disable_allowed_hosts()
            .disable_allowed_origins();
        let handler_state = shared.clone();
        let rmcp = StreamableHttpService::new(
            move || Ok(McpHandler::new(&handler_state)),
            Arc::new(BoundedSessionManager::default()),
            config,
        );
        Self { rmcp, stopping: shared.stopping.clone() }
    }
}

impl McpServer {
    /// Handles a request to the MCP route.
    ///
    /// Boxed, so that rmcp's service is compiled here only (decision 0012).
    pub fn handle_http(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'_, Response<BoxBody<Bytes, Infallible>>> {
        Box::pin(self.answer_unboxed(request))
    }

    async fn answer_unboxed(&self, mut request: Request<Bytes>) -> Response<BoxBody<Bytes, Infallible>> {
        let method = request.method().clone();
        if method == Method::POST {
            if let Err(error) = envelope::check(request.body()) {
                return refusal_response(error);
            }
            normalize_accept(&mut request);
        }
        let mut response = self.http.rmcp.handle(request.map(Full::new)).await;
        if method == Method::DELETE && response.status() == StatusCode::ACCEPTED {
            // Some clients insist that a deleted session is reported as done, not as accepted.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        if response.status().is_client_error() || response.status().is_server_error() {
            return into_json_error(response).await;
        }
        // GET streams last as long as the client; the others end with their calls, which are drained.
        if method == Method::GET { end_on_stop(response, self.http.stopping.clone()) } else { response }
    }
}

impl McpServer {
    /// The tool name of a `tools/call` request.
    pub fn called_tool_name(body: &[u8]) -> Option<String> {
        #[derive(Deserialize)]
        struct MethodCall {
            method: String,
            params: Option<MethodParams>,
        }
        #[derive(Deserialize)]
        struct MethodParams {
            name: Option<String>,
        }
        let request: MethodCall = serde_json::from_slice(body).ok()?;
        request.params.filter(|_| request.method == "tools/call")?.name
    }
}

/// rmcp requires both media types by name; a client that accepts anything accepts both.
fn normalize_accept(request: &mut Request<Bytes>) {
    let mut accepted = request.headers().get_all(header::ACCEPT).iter();
    let (first, second) = (accepted.next(), accepted.next());
    if second.is_none() && first.is_none_or(|accepted| accepted == "*/*") {
        request.headers_mut().insert(header::ACCEPT, DEFAULT_ACCEPT);
    }
}

fn refusal_response(error: EnvelopeError) -> Response<BoxBody<Bytes, Infallible>> {
    let error = match error {
        EnvelopeError::Malformed(message) => ErrorData::parse_error(message, None),
        EnvelopeError::NotARequest(message) => ErrorData::invalid_request(message, None),
    };
    json_response(StatusCode::BAD_REQUEST, error)
}

fn json_response(status: StatusCode, error: ErrorData) -> Response<BoxBody<Bytes, Infallible>> {
    let body = serde_json::to_vec(&JsonRpcError::new(None, error)).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Converts an error response to JSON-RPC, whatever its content type.
async fn into_json_error(
    response: Response<BoxBody<Bytes, Infallible>>,
) -> Response<BoxBody<Bytes, Infallible>> {
    let is_json = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/json");
    if response.headers().get(header::CONTENT_TYPE).is_some_and(is_json) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = match body.collect().await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).chars().take(ERROR_CHARS_MAX).collect(),
        Err(never) => match never {},
    };
    let text: String = text;
    let error = match parts.status.is_client_error() {
        true => ErrorData::invalid_request(text, None),
        false => ErrorData::internal_error(text, None),
    };
    let mut answer = json_response(parts.status, error);
    if let Some(allowed) = parts.headers.get(header::ALLOW) {
        answer.headers_mut().insert(header::ALLOW, allowed.clone());
    }
    answer
}

/// Ends the response's stream when `stopping` is cancelled.
fn end_on_stop(
    response: Response<BoxBody<Bytes, Infallible>>,
    stopping: CancellationToken,
) -> Response<BoxBody<Bytes, Infallible>> {
    response.map(|body| {
        let data = body.into_data_stream().map(|data| data.map(Frame::data));
        BodyExt::boxed(StreamBody::new(data.take_until(stopping.cancelled_owned())))
    })
}
