//! Settings of an upstream server: transport, tool filter, limits.

use super::oauth::OAuthSettings;
use ctx_core::Identifier;
use globset::{Glob, GlobSet, GlobSetBuilder};
use http::{HeaderName, HeaderValue};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of one upstream server.
pub struct UpstreamSettings {
    /// Its name, which is the namespace of its tools: `name.tool`.
    pub name: Identifier,
    /// How it is reached.
    pub transport: Transport,
    /// When its process or connection runs.
    pub start: StartMode,
    /// Whether its tools are listed to clients one by one.
    pub exposed: bool,
    /// Which of its tools are provided.
    pub tools: ToolFilter,
    /// How changed definitions are treated.
    pub changes: DefinitionChangePolicy,
    /// Its limits.
    pub limits: UpstreamLimits,
}

/// How a server is reached.
#[derive(Clone)]
pub enum Transport {
    /// A process with MCP over stdin and stdout.
    Stdio(ServerCommand),
    /// An HTTP server.
    Http {
        /// The URL of its endpoint.
        url: String,
        /// Headers of every request.
        headers: Headers,
        /// Which HTTP transport it uses.
        kind: HttpTransportKind,
        /// The OAuth client for a login, if the server requires one. Not used if `headers` contain an
        /// `Authorization`.
        oauth: OAuthSettings,
    },
}

/// The HTTP transport of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpTransportKind {
    /// Streamable HTTP, since revision 2025-03-26.
    #[default]
    Streamable,
    /// HTTP+SSE, of revision 2024-11-05: an event stream, and a URL to post to.
    Sse,
}

/// Headers of every request to an HTTP server.
#[derive(Clone, Default)]
pub struct Headers(pub(super) HashMap<HeaderName, HeaderValue>);

/// A header that cannot be sent. Its value may be a secret, so the error does not contain it.
#[derive(Debug, thiserror::Error)]
#[error("the header `{0}` {1}")]
pub struct InvalidHeader(String, &'static str);

/// Headers that the transport sets.
const OWN_HEADERS: [&str; 5] =
    ["accept", "content-type", "last-event-id", "mcp-protocol-version", "mcp-session-id"];

impl Headers {
    /// Whether they contain an `Authorization`.
    pub(super) fn has_authorization(&self) -> bool {
        self.0.contains_key(&http::header::AUTHORIZATION)
    }

    /// Parses names and values.
    pub fn new<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, InvalidHeader> {
        let header = |(name, value): (&str, &str)| {
            let invalid = |why| InvalidHeader(name.to_owned(), why);
            let key: HeaderName = name.parse().map_err(|_| invalid("has an invalid name"))?;
            if OWN_HEADERS.contains(&key.as_str()) {
                return Err(invalid("is set by the protocol itself"));
            }
            let mut value: HeaderValue = value.parse().map_err(|_| invalid("has an invalid value"))?;
            value.set_sensitive(true);
            Ok((key, value))
        };
        Ok(Self(headers.into_iter().map(header).collect::<Result<_, _>>()?))
    }
}

/// A program to start.
#[derive(Clone)]
pub struct ServerCommand {
    /// The program, looked up in `PATH` where it is a bare name.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its whole environment: it inherits nothing.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub directory: PathBuf,
}

/// When the process or connection of a server runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartMode {
    /// All the time.
    #[default]
    Eager,
    /// While calls need it. It is also started once to list its tools, if no definition is stored.
    Lazy,
}

/// How definitions are treated that differ from the accepted ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefinitionChangePolicy {
    /// The change is reported. A tool that is read-only by both definitions can be called, any other only after it is
    /// accepted.
    #[default]
    RequireAcceptanceUnlessReadOnly,
    /// The change is reported, and the tools can be called.
    Report,
    /// The change is reported. Tools and prompts cannot be used before they are accepted.
    RequireAcceptance,
}

/// Limits of one upstream.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamLimits {
    /// Time from the start of the server to the list of its tools.
    pub start: Duration,
    /// Time of one call.
    pub call: Duration,
    /// Bytes of one message of the server.
    pub message_bytes: usize,
    /// Concurrent calls.
    pub in_flight: usize,
    /// Calls that wait for others to end; further ones are refused.
    pub waiting: usize,
    /// Tools that are provided; a server with more fails.
    pub tools: usize,
    /// How long a lazy server runs without a call.
    pub idle: Duration,
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(20),
            call: Duration::from_secs(60),
            message_bytes: 8 << 20,
            in_flight: 32,
            waiting: 256,
            tools: 5_000,
            idle: Duration::from_secs(300),
        }
    }
}

/// Which tools of a server are provided: those that match an allowed pattern, or all if there is none; but
/// none that matches a denied pattern.
#[derive(Clone, Debug, Default)]
pub struct ToolFilter {
    allowed: Option<GlobSet>,
    denied: GlobSet,
}

/// A pattern that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a pattern of tool names like `read_*`")]
pub struct InvalidPattern(String);

impl ToolFilter {
    /// Parses glob patterns for the names that the server gives its tools.
    pub fn new(allowed: &[String], denied: &[String]) -> Result<Self, InvalidPattern> {
        let allowed = if allowed.is_empty() { None } else { Some(parse_globs(allowed)?) };
        Ok(Self { allowed, denied: parse_globs(denied)? })
    }

    /// Whether a tool of this name is provided.
    pub fn allows(&self, name: &str) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.is_match(name)) && !self.denied.is_match(name)
    }
}

fn parse_globs(patterns: &[String]) -> Result<GlobSet, InvalidPattern> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|_| InvalidPattern(pattern.clone()))?);
    }
    set.build().map_err(|_| InvalidPattern(patterns.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(allowed: &[&str], denied: &[&str]) -> ToolFilter {
        let owned =
            |patterns: &[&str]| patterns.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>();
        ToolFilter::new(&owned(allowed), &owned(denied)).unwrap()
    }

    #[test]
    fn what_is_denied_is_not_taken_even_if_it_is_allowed() {
        let provided =
            |filter: &ToolFilter| ["read_file", "write_file", "list"].map(|name| filter.allows(name));
        assert_eq!(provided(&filter(&[], &[])), [true, true, true]);
        assert_eq!(provided(&filter(&["*_file"], &[])), [true, true, false]);
        assert_eq!(provided(&filter(&["*_file"], &["write_*"])), [true, false, false]);
        assert_eq!(provided(&filter(&[], &["{list,read_file}"])), [false, true, false]);
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_refused_without_its_value() {
        for (name, value) in [("a b", "x"), ("X", "secret\n"), ("Mcp-Session-Id", "secret")] {
            let error = Headers::new([(name, value)]).err().unwrap().to_string();
            assert!(error.contains(name) && !error.contains("secret"), "{error}");
        }
        assert_eq!(Headers::new([("Authorization", "Bearer x")]).unwrap().0.len(), 1);
    }

    #[test]
    fn an_invalid_pattern_is_refused() {
        assert!(ToolFilter::new(&["read_[".to_owned()], &[]).is_err());
        assert!(ToolFilter::new(&[], &["{a".to_owned()]).is_err());
    }
}
