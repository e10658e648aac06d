//! Errors of requests and their kinds.

use crate::resolve::HostError;
use ctx_core::ForbiddenAddress;
use std::error::Error;
use std::fmt;
use std::io;

/// A request that could not be sent, or a response that could not be read. The message may contain the URL of the
/// request.
#[derive(Debug)]
pub struct NetError(ErrorCause);

#[derive(Debug)]
enum ErrorCause {
    /// The request is invalid, or the client cannot be built.
    Unbuildable(Box<dyn Error + Send + Sync>),
    /// The URL already shows that the host is forbidden.
    Host(HostError),
    Transport(reqwest::Error),
}

/// The kind of a failure, by which callers decide whether to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetErrorKind {
    /// A time limit has passed.
    Timeout,
    /// No connection could be made.
    Connect,
    /// The connection was closed before a response arrived.
    Closed,
    /// The connection was lost during the response.
    Interrupted,
    /// The response is not valid HTTP.
    Decode,
    /// Anything else.
    Other,
}

/// An address that the SSRF policy refuses. Displayed as `a cloud metadata address`, with a note if a host name resolved
/// to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForbiddenTarget {
    /// The refused address.
    pub address: ForbiddenAddress,
    /// Whether a host name resolved to it; otherwise the URL contained it literally or as a `localhost` name.
    pub is_resolved: bool,
}

/// A host name whose addresses are all forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not allowed to connect to {0}")]
pub struct ForbiddenHost(pub ForbiddenAddress);

impl NetError {
    pub(crate) fn unbuildable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(ErrorCause::Unbuildable(error.into()))
    }

    /// Whether a time limit has passed.
    pub fn is_timeout(&self) -> bool {
        matches!(&self.0, ErrorCause::Transport(error) if error.is_timeout())
    }

    /// The refused address, if that is why the request failed.
    pub fn forbidden_target(&self) -> Option<ForbiddenTarget> {
        match &self.0 {
            ErrorCause::Host(HostError::Forbidden(address)) => {
                Some(ForbiddenTarget { address: *address, is_resolved: false })
            }
            ErrorCause::Transport(error) => causes(error)
                .find_map(|cause| cause.downcast_ref())
                .map(|ForbiddenHost(address)| ForbiddenTarget { address: *address, is_resolved: true }),
            ErrorCause::Host(HostError::TooMany) | ErrorCause::Unbuildable(_) => None,
        }
    }

    /// Why the host is refused, if its URL already shows it.
    pub fn host_error(&self) -> Option<HostError> {
        match &self.0 {
            ErrorCause::Host(error) => Some(*error),
            ErrorCause::Unbuildable(_) | ErrorCause::Transport(_) => None,
        }
    }

    /// The kind of failure.
    pub fn kind(&self) -> NetErrorKind {
        match &self.0 {
            ErrorCause::Unbuildable(_) => NetErrorKind::Other,
            ErrorCause::Host(_) => NetErrorKind::Connect,
            ErrorCause::Transport(error) if error.is_timeout() => NetErrorKind::Timeout,
            ErrorCause::Transport(error) if error.is_connect() => NetErrorKind::Connect,
            ErrorCause::Transport(error) if error.is_decode() => NetErrorKind::Decode,
            ErrorCause::Transport(error) => {
                causes(error).skip(1).find_map(kind_of_cause).unwrap_or(NetErrorKind::Other)
            }
        }
    }

    /// The error without the URL in its text, which may hold secrets.
    #[must_use]
    pub fn without_url(self) -> Self {
        match self.0 {
            ErrorCause::Transport(error) => Self(ErrorCause::Transport(error.without_url())),
            cause => Self(cause),
        }
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn kind_of_cause(cause: &(dyn Error + 'static)) -> Option<NetErrorKind> {
    if let Some(error) = cause.downcast_ref::<hyper::Error>() {
        if error.is_closed() || error.is_incomplete_message() || error.is_body_write_aborted() {
            return Some(NetErrorKind::Closed);
        }
        return error.is_timeout().then_some(NetErrorKind::Timeout);
    }
    match cause.downcast_ref::<io::Error>()?.kind() {
        io::ErrorKind::TimedOut => Some(NetErrorKind::Timeout),
        io::ErrorKind::ConnectionAborted
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Some(NetErrorKind::Interrupted),
        _ => None,
    }
}

impl From<reqwest::Error> for NetError {
    fn from(error: reqwest::Error) -> Self {
        Self(ErrorCause::Transport(error))
    }
}

impl From<HostError> for NetError {
    fn from(error: HostError) -> Self {
        Self(ErrorCause::Host(error))
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ErrorCause::Unbuildable(_) => f.write_str("builder error"),
            ErrorCause::Host(HostError::Forbidden(address)) => ForbiddenHost(*address).fmt(f),
            ErrorCause::Host(error) => error.fmt(f),
            ErrorCause::Transport(error) => error.fmt(f),
        }
    }
}

impl Error for NetError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            ErrorCause::Unbuildable(error) => Some(&**error),
            ErrorCause::Host(_) => None,
            ErrorCause::Transport(error) => error.source(),
        }
    }
}

impl fmt::Display for ForbiddenTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        if self.is_resolved { f.write_str(", which the host name resolves to") } else { Ok(()) }
    }
}
