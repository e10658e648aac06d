//! The HTTP+SSE transport of revision 2024-11-05: an event stream from the server, whose first event names
//! the URL to post messages to.

use super::events::{EventTooLong, read_events};
use super::guard::ConnectionGuard;
use super::oauth::OAuthClient;
use super::post::event_stream_error;
use super::server_client::ServerClient;
use super::settings::Headers;
use ctx_core::Secret;
use ctx_net::{Request, Response};
use futures::StreamExt;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method};
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use sse_stream::Error;
use std::io;
use std::sync::Arc;
use url::Url;

/// The open event stream, and the URL to post to.
pub(super) struct SseTransport {
    client: ServerClient,
    headers: Headers,
    oauth: Option<Arc<OAuthClient>>,
    endpoint: Url,
    events: BoxedSseResponse,
    guard: Arc<ConnectionGuard>,
}

impl SseTransport {
    /// Opens the stream and waits for the URL (the `endpoint` event); the error says why there is none.
    pub(super) async fn open(
        url: &str,
        headers: &Headers,
        oauth: Option<&Arc<OAuthClient>>,
        event_bytes_max: usize,
        guard: &Arc<ConnectionGuard>,
    ) -> Result<Self, String> {
        let client = ServerClient::new(url);
        let mut open = Request::parse(Method::GET, url).map_err(|error| ctx_core::error_chain(&error))?;
        open.headers.extend(headers.0.clone());
        let open = open.header(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let response = send_authorized(&client, oauth, &open).await;
        let stream = response.map_err(|error| ctx_core::error_chain(&error))?;
        if let Some(reason) = event_stream_error(&stream) {
            return Err(reason);
        }
        let url = stream.url().clone();
        let mut events = read_events(stream.into_event_stream(), event_bytes_max).boxed();
        let endpoint_path = loop {
            match events.next().await {
                Some(Ok(event)) if event.event.as_deref() == Some("endpoint") => match event.data {
                    Some(path) if !path.is_empty() => break path,
                    _ => {}
                },
                Some(Ok(_)) => {}
                Some(Err(Error::Body(error))) if error.is::<EventTooLong>() => {
                    return Err("its first event is too long".to_owned());
                }
                Some(Err(Error::Body(error))) => return Err(ctx_core::error_chain(&*error)),
                Some(Err(error)) => return Err(ctx_core::error_chain(&error)),
                None => return Err("it closed the connection".to_owned()),
            }
        };
        let endpoint = url
            .join(endpoint_path.trim())
            .map_err(|_| "its message endpoint is not a valid URL".to_owned())?;
        // Posts contain credentials, which are meant for this origin only.
        if endpoint.origin() != url.origin() {
            return Err("its message endpoint has another origin".to_owned());
        }
        let (headers, oauth) = (headers.clone(), oauth.cloned());
        Ok(Self { client, headers, oauth, endpoint, events, guard: guard.clone() })
    }
}

impl Transport<RoleClient> for SseTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let (client, endpoint) = (self.client.clone(), self.endpoint.clone());
        let (headers, oauth) = (self.headers.clone(), self.oauth.clone());
        async move {
            let mut post = Request::new(Method::POST, endpoint).body(serde_json::to_vec(&message)?);
            post.headers.extend(headers.0.clone());
            let post = post.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let response = send_authorized(&client, oauth.as_ref(), &post).await?;
            match response.status() {
                status if status.is_success() => Ok(()),
                status => Err(io::Error::other(format!("it answered with HTTP {status}"))),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // Cancel safe: the stream keeps the bytes that it has read.
        loop {
            // An event that is too long ends the connection: the request that it answers is not known.
            let event = self.events.next().await?.ok()?;
            let data = event.data.unwrap_or_default();
            match event.event.as_deref() {
                _ if data.is_empty() => {}
                None | Some("" | "message") => match serde_json::from_str(&data) {
                    Ok(message) => return Some(message),
                    Err(error) => {
                        tracing::debug!(%error, "a server's message cannot be read");
                        self.guard.admits_noise(data.len()).then_some(())?;
                    }
                },
                Some(_) => self.guard.admits_noise(data.len()).then_some(())?,
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        Ok(())
    }
}

/// Sends a request with the access token; after a 401 response once more, if there is another token.
async fn send_authorized(
    client: &ServerClient,
    oauth: Option<&Arc<OAuthClient>>,
    request: &Request,
) -> io::Result<Response> {
    let send = async |token: &Option<Secret>| {
        let request = match token {
            Some(token) => request.clone().bearer(token.expose())?,
            None => request.clone(),
        };
        client.send(request).await
    };
    let Some(oauth) = oauth else { return send(&None).await.map_err(io::Error::other) };
    let token = oauth.access_token().await.map_err(io::Error::other)?;
    let response = send(&token).await.map_err(io::Error::other)?;
    oauth.record_peer(response.peer());
    let Some(header) = unauthorized_challenge(&response) else { return Ok(response) };
    let another = oauth.token_after_unauthorized(token.as_ref(), &header).await.map_err(io::Error::other)?;
    if another.is_none() {
        return Ok(response);
    }
    let response = send(&another).await.map_err(io::Error::other)?;
    oauth.record_peer(response.peer());
    if let Some(header) = unauthorized_challenge(&response) {
        oauth.require_login(another.as_ref(), &header);
    }
    Ok(response)
}

/// The challenge of a 401 response; empty if it has none.
fn unauthorized_challenge(response: &Response) -> Option<String> {
    let header = response.headers().get(http::header::WWW_AUTHENTICATE);
    let header = header.and_then(|header| header.to_str().ok()).unwrap_or_default();
    (response.status() == http::StatusCode::UNAUTHORIZED).then(|| header.to_owned())
}
