//! A server without a socket: requests are values, and responses are read message by message.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper fails the test it helps"
)]

mod reply;
mod session_client;
mod stateless_client;
mod tools;

pub(crate) use reply::{TestReply, result_text};
pub(crate) use session_client::{SESSION_VERSION, TestSession, initialize, post};
pub(crate) use stateless_client::{STATELESS_VERSION, TestRequest, call, request};
pub(crate) use tools::{
    CallGate, elicitation, notifying_tool, question_tool, resources, sampling, tool_with_body,
};

use bytes::Bytes;
use ctx_core::{Catalog, CatalogBuilder, LiveCatalog, Run, RunLog, RunOutcome};
use ctx_mcp::{McpServer, ServerSettings};
use ctx_testkit::{TestTool, provider};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

/// How long anything may take before the test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(30);
/// The size limit of a request.
pub(crate) const REQUEST_BYTES: usize = 1 << 20;

/// A server, its catalog, and the runs that it records.
pub(crate) struct ServerFixture {
    pub(crate) server: McpServer,
    pub(crate) live: Arc<LiveCatalog>,
    pub(crate) stopping: CancellationToken,
    _ready: watch::Sender<bool>,
    runs: Mutex<UnboundedReceiver<Run>>,
    run_log: Arc<RunSender>,
}

struct RunSender(UnboundedSender<Run>);

impl RunLog for RunSender {
    fn record(&self, run: Run) {
        // A test that reads no runs has dropped the receiver.
        let _ = self.0.send(run);
    }
}

impl ServerFixture {
    /// A server of these tools, which go by their bare names.
    pub(crate) fn with<const N: usize>(tools: [TestTool; N]) -> Self {
        Self::of(Catalog::builder().provider(provider("tools", tools)))
    }

    pub(crate) fn of(builder: CatalogBuilder) -> Self {
        let (sender, runs) = unbounded_channel();
        let run_log = Arc::new(RunSender(sender));
        let live = Arc::new(LiveCatalog::new(builder.runs(run_log.clone()).build()));
        let (ready, is_ready) = watch::channel(true);
        let stopping = CancellationToken::new();
        let settings = ServerSettings {
            name: "test".to_owned(),
            version: "1.2.3".to_owned(),
            instructions: "Be kind.".to_owned(),
            request_bytes: REQUEST_BYTES,
        };
        let server = McpServer::new(live.clone(), settings, is_ready, stopping.clone());
        Self { server, live, stopping, _ready: ready, runs: Mutex::new(runs), run_log }
    }

    /// Replaces the catalog.
    pub(crate) fn swap(&self, builder: CatalogBuilder) {
        self.live.swap(builder.runs(self.run_log.clone()).build());
    }

    /// Sends a request as it is.
    pub(crate) async fn answer(&self, request: http::Request<Bytes>) -> TestReply {
        TestReply::new(with_timeout("an answer", self.server.handle_http(request)).await)
    }

    /// Sends a request of the newest revision.
    pub(crate) async fn send(&self, request: TestRequest) -> TestReply {
        self.answer(request.into_http()).await
    }

    /// Checks that the server still answers.
    pub(crate) async fn assert_responsive(&self) {
        let answer = self.send(request("server/discover")).await.result().await;
        assert_eq!(answer["resultType"], "complete");
    }

    /// Name and outcome of the next run that ends.
    pub(crate) async fn next_run(&self) -> (String, String) {
        let run = with_timeout("a run", async { self.runs.lock().await.recv().await }).await;
        let run = run.expect("the catalog still stands");
        let outcome = match run.outcome {
            RunOutcome::Failed { code, .. } => code,
            RunOutcome::Ok => "ok".to_owned(),
        };
        (run.tool, outcome)
    }

    /// The record of the next run that ends, as text.
    pub(crate) async fn next_record(&self) -> String {
        let run = with_timeout("a run", async { self.runs.lock().await.recv().await }).await;
        format!("{:?}", run.expect("the catalog still stands"))
    }

    /// Checks that the next run that ends is a cancelled call of this tool.
    pub(crate) async fn assert_next_run_cancelled(&self, tool: &str) {
        assert_eq!(self.next_run().await, (format!("tools.{tool}"), "cancelled".to_owned()));
    }

    /// Checks that no run has ended.
    pub(crate) async fn assert_no_run(&self) {
        assert!(self.runs.lock().await.try_recv().is_err());
    }
}

/// Waits for something that a correct server does soon; fails the test instead of hanging.
pub(crate) async fn with_timeout<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} for {what}"),
    }
}
