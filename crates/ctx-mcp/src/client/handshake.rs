//! The handshake with a stdio server of unknown era: `server/discover`, then `initialize` if unanswered.
//!
//! A silent server is an older one that ignores unknown methods, or is still starting. rmcp alone takes both
//! for older ones, but servers of the Python SDK 2.x keep to the era of the first request that they read. So
//! both requests stay open, and the first usable response decides; rmcp receives it as the response to its
//! own first request.

use super::connection::ProtocolEra;
use super::guard::request_number;
use rmcp::RoleClient;
use rmcp::model::{
    ClientConfig, ClientRequest, ClientResult, DiscoverRequest, DiscoverRequestParams, ErrorCode,
    InitializeRequest, JsonRpcMessage, ProtocolVersion, RequestId, RequestMetaObject, ServerRequest,
    ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::time::Duration;
use tokio::time::Instant;

/// How long `server/discover` is the only open request, at most.
const PROBE_MAX: Duration = Duration::from_secs(5);
/// It is the only one for at most the start limit divided by this: `initialize` needs the rest.
const PROBE_PART: u32 = 4;
/// How long after `initialize` was refused a response to `server/discover` may still arrive.
const LATE_PROBE_MAX: Duration = Duration::from_secs(1);
/// The IDs of our two requests, apart from those of rmcp, which count up from zero.
const DISCOVER_ID: i64 = i32::MAX as i64 - 1;
const INITIALIZE_ID: i64 = i32::MAX as i64;
/// Errors to `server/discover` that only servers without sessions send.
const STATELESS_ERRORS: [ErrorCode; 3] = [
    ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
    ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY,
    ErrorCode::HEADER_MISMATCH,
];

/// How long `server/discover` is the only open request to a server with this start limit.
pub(super) fn probe_time(start_limit: Duration) -> Duration {
    PROBE_MAX.min(start_limit / PROBE_PART)
}

/// A transport whose handshake may have been made already.
pub(super) struct NegotiatedTransport<T> {
    transport: T,
    replay: HandshakeReplay,
}

/// The response of the handshake, on its way to rmcp.
enum HandshakeReplay {
    /// Given in response to the first request that rmcp sends.
    Held(RxJsonRpcMessage<RoleClient>),
    Due(RxJsonRpcMessage<RoleClient>),
    Nothing,
}

impl<T: Transport<RoleClient>> NegotiatedTransport<T> {
    /// A transport on which rmcp makes the handshake.
    pub(super) fn with_known_era(transport: T) -> Self {
        Self { transport, replay: HandshakeReplay::Nothing }
    }

    /// Finds out the era of a server; `None` if the connection is closed before that. rmcp
    /// (`ClientLifecycleMode::Auto`) would drop a late response to `server/discover`.
    pub(super) async fn negotiate(
        transport: T,
        client: &ClientConfig,
        probe_time: Duration,
    ) -> Option<(Self, ProtocolEra)> {
        let mut handshake = Handshake { transport, is_initialize_sent: false, refusal: None };
        handshake.send(discover_request(client), DISCOVER_ID).await?;
        let mut is_discover_open = true;
        let mut until = Some(Instant::now() + probe_time);
        let (response, era) = loop {
            let message = tokio::select! {
                biased;
                message = handshake.transport.receive() => message?,
                () = sleep_until(until) => {
                    until = None;
                    match handshake.refusal.take() {
                        Some(refusal) => break (refusal, ProtocolEra::Sessions),
                        None => handshake.initialize(client).await?,
                    }
                    continue;
                }
            };
            let answers = |id| response_id(&message).is_some_and(|to| to.is_none_or(|to| to == id));
            if is_discover_open && answers(DISCOVER_ID) {
                if is_stateless(&message) {
                    break (message, ProtocolEra::Stateless);
                }
                is_discover_open = false;
                until = None;
                if let Some(refusal) = handshake.refusal.take() {
                    break (refusal, ProtocolEra::Sessions);
                }
                handshake.initialize(client).await?;
            } else if handshake.is_initialize_sent && answers(INITIALIZE_ID) {
                if is_discover_open && matches!(message, JsonRpcMessage::Error(_)) {
                    handshake.refusal = Some(message);
                    until = Some(Instant::now() + LATE_PROBE_MAX);
                    continue;
                }
                break (message, ProtocolEra::Sessions);
            } else {
                handshake.answer_ping(message).await?;
            }
        };
        Some((Self { transport: handshake.transport, replay: HandshakeReplay::Held(response) }, era))
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for NegotiatedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let sending = match (std::mem::replace(&mut self.replay, HandshakeReplay::Nothing), message) {
            (HandshakeReplay::Held(mut response), JsonRpcMessage::Request(request)) => {
                match &mut response {
                    JsonRpcMessage::Response(response) => response.id = request.id,
                    JsonRpcMessage::Error(error) => error.id = Some(request.id),
                    JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
                }
                self.replay = HandshakeReplay::Due(response);
                None
            }
            (replay, message) => {
                self.replay = replay;
                Some(self.transport.send(message))
            }
        };
        async move {
            match sending {
                Some(sending) => sending.await,
                None => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        if let HandshakeReplay::Due(response) = std::mem::replace(&mut self.replay, HandshakeReplay::Nothing)
        {
            return Some(response);
        }
        loop {
            let message = self.transport.receive().await?;
            // The response to the request that did not decide comes late, or is a refusal.
            if !matches!(response_id(&message), Some(Some(DISCOVER_ID | INITIALIZE_ID))) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.transport.close().await
    }
}

/// A handshake that is being made.
struct Handshake<T> {
    transport: T,
    is_initialize_sent: bool,
    /// The error to `initialize`, while `server/discover` may still be answered.
    refusal: Option<RxJsonRpcMessage<RoleClient>>,
}

impl<T: Transport<RoleClient>> Handshake<T> {
    /// Sends a request; `None` if the connection is closed.
    async fn send(&mut self, request: ClientRequest, id: i64) -> Option<()> {
        self.transport.send(JsonRpcMessage::request(request, RequestId::Number(id))).await.ok()
    }

    async fn initialize(&mut self, client: &ClientConfig) -> Option<()> {
        if std::mem::replace(&mut self.is_initialize_sent, true) {
            return Some(());
        }
        let request = InitializeRequest::new(client.clone());
        self.send(ClientRequest::InitializeRequest(request), INITIALIZE_ID).await
    }

    /// Servers with sessions may ping before they answer; nothing else is expected before the handshake is over.
    async fn answer_ping(&mut self, message: RxJsonRpcMessage<RoleClient>) -> Option<()> {
        match message {
            JsonRpcMessage::Request(request)
                if self.is_initialize_sent && matches!(request.request, ServerRequest::PingRequest(_)) =>
            {
                let pong = JsonRpcMessage::response(ClientResult::empty(()), request.id);
                self.transport.send(pong).await.ok()
            }
            _ => Some(()),
        }
    }
}

fn discover_request(client: &ClientConfig) -> ClientRequest {
    let mut request = DiscoverRequest::new(DiscoverRequestParams {});
    request.extensions.insert(RequestMetaObject::with_client_context(
        ProtocolVersion::V_2026_07_28,
        client.client_info.clone(),
        client.capabilities.clone(),
    ));
    ClientRequest::DiscoverRequest(request)
}

/// Whether a response to `server/discover` is that of a server without sessions.
fn is_stateless(response: &RxJsonRpcMessage<RoleClient>) -> bool {
    match response {
        JsonRpcMessage::Response(response) => matches!(
            &response.result,
            ServerResult::DiscoverResult(result)
                if result.supported_versions.contains(&ProtocolVersion::V_2026_07_28)
        ),
        JsonRpcMessage::Error(error) => STATELESS_ERRORS.contains(&error.error.code),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => false,
    }
}

/// The number of the request that a message responds to; `Some(None)` for an error without one, as servers send that
/// could not parse a request.
fn response_id(message: &RxJsonRpcMessage<RoleClient>) -> Option<Option<i64>> {
    match message {
        JsonRpcMessage::Response(response) => Some(request_number(&response.id)),
        JsonRpcMessage::Error(error) => Some(error.id.as_ref().and_then(request_number)),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::super::guard::ConnectionGuard;
    use super::super::line_transport::LineTransport;
    use super::*;
    use rmcp::model::{ClientCapabilities, Implementation};
    use rmcp::service::serve_client_with_lifecycle_and_ct;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
    use tokio_util::sync::CancellationToken;

    const VERSION_STATELESS: &str = "2026-07-28";
    const VERSION_SESSIONS: &str = "2025-11-25";

    /// How a server responds to the two requests.
    #[derive(Clone, Copy, Debug)]
    enum DiscoverStyle {
        /// Ignores methods that it does not know.
        Silent,
        /// Refuses methods that it does not know.
        Refusing,
        /// Speaks the era of the first request that it reads, as servers of the Python SDK 2.x do.
        Committed,
        /// As `Committed`, with the refusal of `initialize` before the response to `server/discover`.
        Unordered,
        /// Ignores `server/discover` and refuses `initialize`.
        Unwilling,
    }

    /// A server that reads nothing for `delay`; returns the methods that it has read.
    async fn serve(server: DuplexStream, style: DiscoverStyle, delay: Duration) -> Vec<String> {
        tokio::time::sleep(delay).await;
        let (output, mut input) = tokio::io::split(server);
        let mut lines = BufReader::new(output).lines();
        let mut methods = Vec::new();
        let mut late = None;
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            let (id, method) = (&message["id"], message["method"].as_str().unwrap_or_default());
            methods.push(method.to_owned());
            let result = |result: Value| Some(json!({"jsonrpc": "2.0", "id": id, "result": result}));
            let error = |code: i32| {
                Some(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}}))
            };
            let is_first = methods.len() == 1;
            let info = json!({"name": "slow", "version": "1"});
            let response = match (method, style) {
                ("server/discover", DiscoverStyle::Silent | DiscoverStyle::Unwilling) => None,
                ("server/discover", DiscoverStyle::Refusing) => error(-32601),
                ("server/discover", DiscoverStyle::Committed | DiscoverStyle::Unordered) if is_first => {
                    let discovered = result(json!({
                        "resultType": "complete", "supportedVersions": [VERSION_STATELESS],
                        "capabilities": {"tools": {}}, "serverInfo": info, "ttlMs": 0, "cacheScope": "private",
                    }));
                    match style {
                        DiscoverStyle::Unordered => {
                            late = discovered;
                            None
                        }
                        _ => discovered,
                    }
                }
                ("initialize", DiscoverStyle::Unwilling) => error(-32600),
                ("initialize", DiscoverStyle::Committed | DiscoverStyle::Unordered) if !is_first => {
                    error(-32600)
                }
                ("initialize", _) => result(json!({
                    "protocolVersion": VERSION_SESSIONS, "capabilities": {"tools": {}}, "serverInfo": info,
                })),
                _ => None,
            };
            let late = late.take_if(|_| method == "initialize");
            for response in response.into_iter().chain(late) {
                input.write_all(format!("{response}\n").as_bytes()).await.unwrap();
            }
        }
        methods
    }

    /// Connects to a server of this style; returns the revision that both speak, or why they do not, and what the server
    /// has read.
    async fn connect(style: DiscoverStyle, delay: Duration) -> (Result<String, String>, Vec<String>) {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let server = tokio::spawn(serve(theirs, style, delay));
        let (output, input) = tokio::io::split(ours);
        let guard = Arc::new(ConnectionGuard::default());
        let lines = LineTransport::new(output, input, 1 << 20, guard);
        let client = ClientConfig::new(ClientCapabilities::default(), Implementation::new("us", "1"));
        let start_limit = Duration::from_secs(20);
        let connecting = async {
            let negotiated = NegotiatedTransport::negotiate(lines, &client, probe_time(start_limit)).await;
            let (transport, era) = negotiated.ok_or("closed")?;
            let stop = CancellationToken::new();
            let serving =
                serve_client_with_lifecycle_and_ct(client.clone(), transport, era.lifecycle_mode(), stop)
                    .await;
            let running = serving.map_err(|error| error.to_string())?;
            let version = running.peer().peer_info().unwrap().protocol_version.to_string();
            running.cancel().await.unwrap();
            Ok(version)
        };
        let connected = tokio::time::timeout(start_limit, connecting).await;
        (connected.unwrap_or(Err("too late".to_owned())), server.await.unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_starts_slowly_connects_whatever_it_makes_of_an_unknown_request() {
        for seconds in [0, 3, 9, 12, 15] {
            for (style, version) in [
                (DiscoverStyle::Silent, VERSION_SESSIONS),
                (DiscoverStyle::Refusing, VERSION_SESSIONS),
                (DiscoverStyle::Committed, VERSION_STATELESS),
                (DiscoverStyle::Unordered, VERSION_STATELESS),
            ] {
                let (connected, _) = connect(style, Duration::from_secs(seconds)).await;
                assert_eq!(connected.as_deref(), Ok(version), "{style:?} after {seconds} s");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn initialize_is_sent_only_to_a_server_that_does_not_answer_the_probe() {
        let read = async |style, seconds| connect(style, Duration::from_secs(seconds)).await.1;
        assert_eq!(read(DiscoverStyle::Committed, 0).await, ["server/discover"]);
        assert_eq!(read(DiscoverStyle::Committed, 12).await, ["server/discover", "initialize"]);
        let handshake = ["server/discover", "initialize", "notifications/initialized"];
        for seconds in [0, 12] {
            assert_eq!(read(DiscoverStyle::Silent, seconds).await, handshake);
            assert_eq!(read(DiscoverStyle::Refusing, seconds).await, handshake);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_refuses_initialize_fails_long_before_its_limit() {
        let begun = Instant::now();
        let (connected, _) = connect(DiscoverStyle::Unwilling, Duration::ZERO).await;
        assert!(connected.unwrap_err().contains("no"));
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}
