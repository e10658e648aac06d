//! The TCP connection under hyper, with proper errors, write timeouts and a lingering close.
//!
//! hyper answers a request that it cannot parse with a bare status, waits forever for a client that does not
//! read, and closes the connection on a client that still sends, which then never sees the response.

use crate::error::ApiError;
use ctx_core::ErrorKind;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

/// After the response, a client that has been silent for so long is taken to have sent everything.
const LINGER_IDLE_MAX: Duration = Duration::from_secs(1);
/// Upper bound of hyper's own error responses.
const BARE_RESPONSE_BYTES_MAX: usize = 256;

/// A connection with JSON error responses, a write timeout and a lingering close.
pub(crate) struct ClientSocket {
    stream: TcpStream,
    /// Write timeout, and time limit of the lingering close.
    timeout: Duration,
    /// Once the server stops, no client is waited for.
    shutdown: CancellationToken,
    /// The current timeout: of a write, or of the lingering close.
    timer: Option<Pin<Box<Sleep>>>,
    /// The unsent rest of the error response that replaces hyper's.
    error_response: Option<Vec<u8>>,
    /// Set once the write side is closed: until when data of the client is read and discarded.
    lingering_until: Option<Instant>,
}

impl ClientSocket {
    pub(crate) fn new(stream: TcpStream, timeout: Duration, shutdown: CancellationToken) -> Self {
        Self { stream, timeout, shutdown, timer: None, error_response: None, lingering_until: None }
    }

    /// Returns the outcome of a write; fails if the client has not read for too long.
    fn with_write_timeout<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        let timeout = self.timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_write_error(
        &mut self,
        cx: &mut Context<'_>,
        mut error_response: Vec<u8>,
    ) -> Poll<io::Result<()>> {
        while !error_response.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(cx, &error_response);
            match self.with_write_timeout(cx, written) {
                Poll::Ready(written) => drop(error_response.drain(..written?)),
                Poll::Pending => {
                    self.error_response = Some(error_response);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(error_response) = self.error_response.take().or_else(|| json_error_for(buf)) {
            ready!(self.poll_write_error(cx, error_response))?;
            return Poll::Ready(Ok(buf.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.with_write_timeout(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = bufs {
            return self.poll_write(cx, only);
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.with_write_timeout(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Closes the write side, and reads until the client closes its own (lingering close): closing a
    /// connection with unread bytes resets it, and the response can be lost.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let until = match self.lingering_until {
            Some(until) => until,
            None => {
                ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
                self.timer = Some(Box::pin(tokio::time::sleep(LINGER_IDLE_MAX.min(self.timeout))));
                let until = Instant::now() + self.timeout;
                *self.lingering_until.insert(until)
            }
        };
        let mut rest = [0; 8 << 10];
        while !self.shutdown.is_cancelled() && Instant::now() < until {
            let mut rest = ReadBuf::new(&mut rest);
            match Pin::new(&mut self.stream).poll_read(cx, &mut rest) {
                Poll::Ready(Ok(())) if !rest.filled().is_empty() => {
                    if let Some(timer) = &mut self.timer {
                        timer.as_mut().reset(until.min(Instant::now() + LINGER_IDLE_MAX));
                    }
                }
                Poll::Ready(_) => break,
                Poll::Pending => {
                    if let Some(timer) = &mut self.timer {
                        ready!(timer.as_mut().poll(cx));
                    }
                    break;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The JSON error response in place of one that hyper wrote by itself, which has a head only.
fn json_error_for(response: &[u8]) -> Option<Vec<u8>> {
    if response.len() > BARE_RESPONSE_BYTES_MAX || !response.ends_with(b"\r\n\r\n") {
        return None;
    }
    let head = str::from_utf8(response).ok()?;
    if !head.starts_with("HTTP/1.") || !head.contains("\r\ncontent-length: 0\r\n") {
        return None;
    }
    let error = match head.get("HTTP/1.1 ".len()..)?.get(..3)? {
        "400" => ApiError::new(ErrorKind::BadRequest, "the request is not valid HTTP"),
        "414" | "431" => {
            ApiError::new(ErrorKind::TooLarge, "the request's headers are too large or too many")
        }
        _ => return None,
    };
    Some(error.to_bytes())
}
