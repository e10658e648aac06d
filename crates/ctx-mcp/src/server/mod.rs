//! The MCP server: one catalog for clients of every protocol revision.
//!
//! rmcp implements the protocol. `handler` answers requests, `catalog_request` is a request as a call of the
//! catalog, `running_call` drives it, and `parked_calls` holds calls that wait for input from a later
//! request.

mod auth;
mod catalog_request;
mod change_notifier;
mod completion;
mod envelope;
mod handler;
mod http;
mod listing;
mod methods;
mod open_request_ids;
mod parked_calls;
mod running_call;
mod session;
mod session_manager;
mod stdio;

pub use stdio::StdioError;

use change_notifier::ChangeNotifier;
use ctx_core::LiveCatalog;
use listing::ListingCache;
use parked_calls::ParkedCalls;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The catalog as an MCP server.
#[derive(Clone)]
pub struct McpServer {
    shared: Arc<SharedState>,
    http: http::HttpEndpoint,
}

/// How the server presents itself, and its bounds.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The server's name.
    pub name: String,
    /// The server's version.
    pub version: String,
    /// Instructions for the model.
    pub instructions: String,
    /// Size limit of a request.
    pub request_bytes: usize,
}

/// State that all clients share.
pub(crate) struct SharedState {
    catalog: Arc<LiveCatalog>,
    settings: ServerSettings,
    /// True once the catalog holds everything it starts with.
    ready: watch::Receiver<bool>,
    listings: ListingCache,
    parked_calls: ParkedCalls,
    change_notifier: ChangeNotifier,
    /// Calls run in tasks of their own, not in those of their requests.
    calls: TaskTracker,
    /// Cancels all calls.
    cancel_calls: CancellationToken,
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
        let shared = Arc::new(SharedState {
            listings: ListingCache::default(),
            parked_calls: ParkedCalls::new(),
            change_notifier: ChangeNotifier::new(catalog.clone(), ready.clone(), stopping.clone()),
            catalog,
            settings,
            ready,
            calls: TaskTracker::new(),
            cancel_calls: CancellationToken::new(),
            stopping,
        });
        let http = http::HttpEndpoint::new(&shared);
        Self { shared, http }
    }

    /// Waits until every call has ended. Parked calls are cancelled at once, the others after `patience`: a
    /// call of an older revision continues after its client has disconnected.
    pub async fn drain(&self, patience: Duration) {
        self.shared.parked_calls.clear();
        self.shared.calls.close();
        if tokio::time::timeout(patience, self.shared.calls.wait()).await.is_err() {
            tracing::debug!("cancelling calls that still run after the grace period");
            self.shared.cancel_calls.cancel();
            self.shared.calls.wait().await;
        }
    }
}

impl SharedState {
    /// Waits until the catalog is complete.
    async fn wait_until_ready(&self) {
        // If the sender is dropped, the catalog will not change any more.
        let _ = self.ready.clone().wait_for(|ready| *ready).await;
    }
}
