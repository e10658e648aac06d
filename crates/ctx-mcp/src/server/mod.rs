//! The MCP server: one catalog for clients of both eras.
//!
//! rmcp speaks the protocol; `handler` answers it from the catalog, `work` is what a request makes the
//! catalog do, `attend` stays with it until it has ended or asks something, and `parked` keeps what waits
//! for an answer that comes with a later request.

mod attend;
mod auth;
mod completion;
mod handler;
mod http;
mod listing;
mod methods;
mod news;
mod parked;
mod session;
mod sessions;
mod stdio;
mod strict;
mod work;

pub use stdio::StdioError;

use ctx_core::LiveCatalog;
use listing::Listings;
use news::News;
use parked::Parked;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The catalog as an MCP server.
#[derive(Clone)]
pub struct McpServer {
    shared: Arc<Shared>,
    http: http::Service,
}

/// How the server presents itself, and its bounds.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// What it is called.
    pub name: String,
    /// Which version it is.
    pub version: String,
    /// What a model is told about using it.
    pub instructions: String,
    /// Size of a request.
    pub request_bytes: usize,
}

/// What all clients share.
pub(crate) struct Shared {
    catalog: Arc<LiveCatalog>,
    settings: ServerSettings,
    /// True once the catalog holds everything it will start with.
    ready: watch::Receiver<bool>,
    listings: Listings,
    parked: Parked,
    news: News,
    /// Calls run beside the requests that made them.
    calls: TaskTracker,
    /// Ends them all.
    abandoned: CancellationToken,
    stopping: CancellationToken,
}

impl McpServer {
    /// Serves `catalog` once `ready` is true, until `stopping` is cancelled.
    pub fn new(
        catalog: Arc<LiveCatalog>,
        settings: ServerSettings,
        ready: watch::Receiver<bool>,
        stopping: CancellationToken,
    ) -> Self {
        let shared = Arc::new(Shared {
            listings: Listings::default(),
            parked: Parked::new(),
            news: News::new(catalog.clone(), ready.clone(), stopping.clone()),
            catalog,
            settings,
            ready,
            calls: TaskTracker::new(),
            abandoned: CancellationToken::new(),
            stopping,
        });
        let http = http::Service::new(&shared);
        Self { shared, http }
    }

    /// Waits until every call has ended. Those that wait for an answer are given up, and after `patience` the
    /// others too: a call of the older era goes on when its client is gone.
    pub async fn drained(&self, patience: Duration) {
        self.shared.parked.clear();
        self.shared.calls.close();
        if tokio::time::timeout(patience, self.shared.calls.wait()).await.is_err() {
            tracing::debug!("calls that still run are given up");
            self.shared.abandoned.cancel();
            self.shared.calls.wait().await;
        }
    }
}

impl Shared {
    /// Waits until the catalog is whole.
    async fn ready(&self) {
        // Whoever would say so is gone: it will not become more whole.
        let _ = self.ready.clone().wait_for(|ready| *ready).await;
    }
}
