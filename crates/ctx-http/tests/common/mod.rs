//! A server on a free port, with the tools of a test and a log of their runs.

#![allow(clippy::expect_used, clippy::panic, reason = "a helper fails the test it helps")]

mod client;
pub(crate) mod documents;
mod events;
mod tools;

pub(crate) use client::{HttpClient, HttpResponse, TestRequest, get, post};
pub(crate) use events::{Events, streaming_request};
pub(crate) use tools::{CallGate, TestTool, echo, provider, returning, standard_tools, tool};

use ctx_core::{AllowAll, Catalog, LiveCatalog, Policy, Provider, Run, RunLog, Secret};
use ctx_http::{Access, Api, HttpLimits, OAuth, OAuthOptions};
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Time limit for every wait: the test fails instead of hanging.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// A time limit that a test means to exceed.
pub(crate) const SHORT: Duration = Duration::from_millis(100);
/// A time limit that no test exceeds.
const LONG: Duration = Duration::from_secs(60);

/// Default limits of a test server.
pub(crate) const LIMITS: HttpLimits = HttpLimits {
    body_bytes: 64 << 10,
    header_bytes: 8 << 10,
    header_timeout: LONG,
    body_timeout: LONG,
    connections: 64,
    connections_per_peer: 64,
    drain: LONG,
};

/// Settings of a test server.
pub(crate) struct ServerBuilder {
    providers: Vec<Arc<dyn Provider>>,
    access: Access,
    limits: HttpLimits,
    call_limits: ctx_core::Limits,
    policy: Arc<dyn Policy>,
}

/// A running server, until the test ends or stops it.
pub(crate) struct ApiServer {
    pub(crate) address: SocketAddr,
    runs: UnboundedReceiver<Run>,
    shutdown: CancellationToken,
    serving: JoinHandle<io::Result<()>>,
}

struct RunSender(UnboundedSender<Run>);

impl RunLog for RunSender {
    fn record(&self, run: Run) {
        // Tests that do not read runs have dropped the receiver.
        let _ = self.0.send(run);
    }
}

impl ServerBuilder {
    /// A test server with these tools.
    pub(crate) fn with<const N: usize>(tools: [TestTool; N]) -> Self {
        Self::new().provider(provider("tools", tools))
    }

    /// A test server without tools.
    pub(crate) fn new() -> Self {
        Self {
            providers: Vec::new(),
            access: Access::default(),
            limits: LIMITS,
            call_limits: ctx_core::Limits::default(),
            policy: Arc::new(AllowAll),
        }
    }

    pub(crate) fn provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.providers.push(provider);
        self
    }

    pub(crate) fn token(mut self, token: &str) -> Self {
        self.access.token = Some(Secret::new(token));
        self
    }

    pub(crate) fn oauth(mut self, options: OAuthOptions) -> Self {
        self.access.oauth = Some(Arc::new(OAuth::new(options).expect("options that can be used")));
        self
    }

    pub(crate) fn policy(self, policy: impl Policy) -> Self {
        Self { policy: Arc::new(policy), ..self }
    }

    pub(crate) fn allowed_host(mut self, host: &str) -> Self {
        self.access.allowed_hosts.push(host.to_owned());
        self
    }

    pub(crate) fn allowed_origin(mut self, origin: &str) -> Self {
        self.access.allowed_origins.push(origin.to_owned());
        self
    }

    pub(crate) fn limits(self, limits: HttpLimits) -> Self {
        Self { limits, ..self }
    }

    pub(crate) fn result_bytes(mut self, bytes: usize) -> Self {
        self.call_limits.result_bytes = bytes;
        self
    }

    pub(crate) async fn start(self) -> ApiServer {
        let (sender, runs) = unbounded_channel();
        let builder =
            Catalog::builder().limits(self.call_limits).policy(self.policy).runs(Arc::new(RunSender(sender)));
        let catalog =
            self.providers.into_iter().fold(builder, |builder, each| builder.provider(each)).build();
        assert_eq!(catalog.warnings(), [""; 0], "the test's own tools are sound");

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let live = Arc::new(LiveCatalog::new(catalog));
        let api = Api::new(live, address, self.access, self.limits).expect("hosts that can match");
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(ctx_http::serve(listener, api, shutdown.clone()));
        ApiServer { address, runs, shutdown, serving }
    }
}

impl ApiServer {
    pub(crate) async fn connect(&self) -> HttpClient {
        HttpClient::connect(self.address).await
    }

    /// Connects from this local address.
    pub(crate) async fn connect_from(&self, own: [u8; 4]) -> HttpClient {
        HttpClient::connect_from(own.into(), self.address).await
    }

    /// The response to a request on a connection of its own.
    pub(crate) async fn send(&self, request: impl Into<Vec<u8>>) -> HttpResponse {
        let mut client = self.connect().await;
        client.send(request).await;
        client.read_response().await
    }

    /// The result of a tool call that must succeed.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Value {
        self.send(post(&format!("/tools/{name}")).json(&arguments)).await.success()
    }

    /// Status, code and message of a tool call that must fail.
    pub(crate) async fn refusal(&self, name: &str, arguments: Value) -> (u16, String, String) {
        self.send(post(&format!("/tools/{name}")).json(&arguments)).await.error()
    }

    /// The next run that is recorded.
    pub(crate) async fn next_run(&mut self) -> Run {
        within_deadline("a run", self.runs.recv()).await.expect("the catalog still stands")
    }

    /// Starts the shutdown without waiting for it.
    pub(crate) fn stop(&self) {
        self.shutdown.cancel();
    }

    /// Whether the server has stopped.
    pub(crate) fn has_stopped(&self) -> bool {
        self.serving.is_finished()
    }

    /// Waits until the server has stopped.
    pub(crate) async fn wait_until_stopped(self) {
        within_deadline("the end of the server", self.serving).await.expect("no panic").expect("no failure");
    }
}

/// Waits for an event that a correct server causes soon.
pub(crate) async fn within_deadline<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {DEADLINE:?} for {what}"),
    }
}
