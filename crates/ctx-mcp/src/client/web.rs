//! HTTP as the transport to a server on the web uses it.

use http::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Redirects that are followed, within the server's own origin.
const REDIRECTS_MAX: usize = 10;

/// How long a connection is kept for the next request. Many servers close theirs after five seconds, and a
/// call on one that is being closed is lost.
const KEPT: Duration = Duration::from_secs(4);

pub(super) type WebError = StreamableHttpError<reqwest::Error>;

/// Sends requests. An error that comes back for one is that request's error, whatever number it has: many
/// servers refuse before they have read whose it is, and the call would wait for its whole time.
#[derive(Clone)]
pub(super) struct Web {
    client: reqwest::Client,
    event_bytes_max: usize,
}

impl Web {
    pub(super) fn new(event_bytes_max: usize) -> reqwest::Result<Self> {
        Ok(Self { client: client()?, event_bytes_max })
    }
}

/// What requests are sent with. Redirects stay where they began: headers are meant for nobody else.
pub(super) fn client() -> reqwest::Result<reqwest::Client> {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        // Somebody else was first, and theirs is as good.
    }
    let redirects = reqwest::redirect::Policy::custom(|attempt| {
        let keeps_body = matches!(attempt.status().as_u16(), 307 | 308);
        let first = attempt.previous().first();
        let stays = first.is_some_and(|first| first.origin() == attempt.url().origin());
        match keeps_body && stays && attempt.previous().len() <= REDIRECTS_MAX {
            true => attempt.follow(),
            false => attempt.stop(),
        }
    });
    reqwest::Client::builder().pool_idle_timeout(KEPT).redirect(redirects).build()
}

impl StreamableHttpClient for Web {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, WebError> {
        let id = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let posted = self.client.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            self.event_bytes_max,
        );
        Ok(match posted.await? {
            StreamableHttpPostResponse::Json(JsonRpcMessage::Error(mut error), session) => {
                error.id = id;
                StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), session)
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
    ) -> Result<(), WebError> {
        self.client.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxedSseResponse, WebError> {
        let stream = self.client.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            self.event_bytes_max,
        );
        stream.await
    }
}
