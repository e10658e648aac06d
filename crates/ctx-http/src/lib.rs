//! The HTTP server. The only crate that knows axum.
//!
//! Routes call the catalog. `guard` controls access (host, origin, token); `serve` accepts and bounds
//! connections. Every failure, those of the framework included, is sent as `{"error":{"code","message"}}`.

mod access;
mod error;
mod guard;
mod json;
mod oauth;
mod openapi;
mod peers;
mod routes;
mod serve;
mod socket;
mod stream;

pub use access::{Access, TOKEN_LENGTH_MIN, UnprotectedServer, generate_token};
pub use guard::InvalidHost;
pub use oauth::{InvalidOAuthOption, OAuth, OAuthLimits, OAuthOptions};
pub use serve::serve;

use ctx_core::LiveCatalog;
use ctx_mcp::McpServer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// The HTTP API of a catalog: routes, access control and bounds.
#[derive(Clone)]
pub struct Api {
    pub(crate) catalog: Arc<LiveCatalog>,
    pub(crate) guard: Arc<guard::AccessGuard>,
    pub(crate) limits: HttpLimits,
    /// The MCP server at `/mcp`, if there is one.
    pub(crate) mcp: Option<McpServer>,
    /// Calls whose events are streamed (SSE); they run in tasks of their own.
    pub(crate) streamed_calls: TaskTracker,
}

/// Bounds on requests and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Size of a request body.
    pub body_bytes: usize,
    /// Size of a request's headers.
    pub header_bytes: usize,
    /// How long headers may take to arrive.
    pub header_timeout: Duration,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// Open connections at once.
    pub connections: usize,
    /// Open connections per client address; a reverse proxy counts as one client.
    pub connections_per_peer: usize,
    /// How long requests in flight may take to finish when the server stops.
    pub drain: Duration,
}

impl Api {
    /// Serves `catalog` at `address` to callers that `access` admits.
    pub fn new(
        catalog: Arc<LiveCatalog>,
        address: SocketAddr,
        access: Access,
        limits: HttpLimits,
    ) -> Result<Self, InvalidHost> {
        let guard = Arc::new(guard::AccessGuard::new(address, access)?);
        Ok(Self { catalog, guard, limits, mcp: None, streamed_calls: TaskTracker::new() })
    }

    /// Serves MCP at `/mcp`, too.
    #[must_use]
    pub fn with_mcp(self, mcp: McpServer) -> Self {
        Self { mcp: Some(mcp), ..self }
    }

    /// The OpenAPI description, as `GET /openapi.json` returns it.
    pub fn openapi(&self) -> serde_json::Value {
        openapi::document(&self.catalog.current())
    }
}
