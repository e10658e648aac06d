//! Responses, whose bodies are read up to a limit.

use crate::NetError;
use bytes::Bytes;
use ctx_core::NetworkScope;
use futures::{Stream, stream};
use http::{HeaderMap, Method, StatusCode};
use std::net::SocketAddr;
use url::Url;

/// A response: its head, and a body that has not been read yet.
#[derive(Debug)]
pub struct Response {
    inner: reqwest::Response,
    is_head: bool,
    scope: NetworkScope,
    is_direct: bool,
}

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The body is larger than the limit.
    #[error("the body is larger than {0} bytes")]
    TooLarge(u64),
    /// The body could not be read to its end.
    #[error(transparent)]
    Net(#[from] NetError),
}

impl Response {
    pub(crate) fn new(
        inner: reqwest::Response,
        method: &Method,
        scope: NetworkScope,
        is_direct: bool,
    ) -> Self {
        Self { inner, is_head: *method == Method::HEAD, scope, is_direct }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.inner.status()
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        self.inner.headers()
    }

    /// The URL of the request.
    pub fn url(&self) -> &Url {
        self.inner.url()
    }

    /// The address of the peer, which may be a proxy.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.inner.remote_addr()
    }

    /// The network scope of the peer, or the internet (the least trusted scope) if it is unknown. URLs in the response
    /// must not lead to a nearer scope.
    pub fn scope(&self) -> NetworkScope {
        self.scope
    }

    /// Whether the peer is the host itself, not a proxy.
    pub(crate) fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// The response, or an error if its status is 4xx or 5xx.
    pub fn error_for_status(self) -> Result<Self, NetError> {
        Ok(Self { inner: self.inner.error_for_status()?, ..self })
    }

    /// The next part of the body.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, NetError> {
        Ok(self.inner.chunk().await?)
    }

    /// The body as a stream; it ends with an error after `bytes_max`.
    pub fn into_stream(
        self,
        bytes_max: u64,
    ) -> impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static {
        stream::try_unfold((self, bytes_max), move |(mut response, left)| async move {
            let Some(bytes) = response.chunk().await? else { return Ok(None) };
            match left.checked_sub(bytes.len() as u64) {
                Some(left) => Ok(Some((bytes, (response, left)))),
                None => Err(BodyError::TooLarge(bytes_max)),
            }
        })
    }

    /// The body of an event stream, without a limit on its length: the reader limits each event.
    pub fn into_event_stream(self) -> impl Stream<Item = Result<Bytes, NetError>> + Send + 'static {
        stream::try_unfold(self, |mut response| async move {
            Ok(response.chunk().await?.map(|bytes| (bytes, response)))
        })
    }

    /// The whole body, unless it is larger than `bytes_max`.
    pub async fn read(&mut self, bytes_max: usize) -> Result<Vec<u8>, BodyError> {
        // The response to a HEAD request has the `Content-Length` of a body that it does not have.
        let length = self.inner.content_length().filter(|_| !self.is_head);
        if length.is_some_and(|length| length > bytes_max as u64) {
            return Err(BodyError::TooLarge(bytes_max as u64));
        }
        let mut body = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            if bytes.len() > bytes_max - body.len() {
                return Err(BodyError::TooLarge(bytes_max as u64));
            }
            body.extend_from_slice(&bytes);
        }
        Ok(body)
    }

    /// The first `bytes_max` bytes of the body; the rest is not read.
    pub async fn read_prefix(&mut self, bytes_max: usize) -> Result<Vec<u8>, NetError> {
        let mut body = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            let room = bytes_max - body.len();
            body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            if bytes.len() > room {
                break;
            }
        }
        Ok(body)
    }
}
