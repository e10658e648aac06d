//! The server on stdio: one client, one message per line.

use super::McpServer;
use super::handler::McpHandler;
use super::open_request_ids::OpenRequestIds;
use futures::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::{QuitReason, ServerInitializeError, serve_server_with_ct};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// How long responses may take after the client has closed stdin. A client that pipes a few requests in still
/// gets their responses; calls that take longer are cancelled.
const EOF_GRACE: Duration = Duration::from_millis(500);

/// Why serving a client on stdio failed.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    /// The handshake with the client failed.
    #[error("the MCP handshake failed: {0}")]
    Handshake(String),
    /// The server itself failed.
    #[error("the server failed: {0}")]
    Server(String),
}

/// rmcp's stdio transport, with detection of EOF, and without messages before the first request and requests with the ID
/// of an open one.
struct StdioTransport<R: AsyncRead, W: AsyncWrite> {
    lines: AsyncRwTransport<RoleServer, R, W>,
    /// Whether there was a request yet; messages before the first are ignored.
    has_begun: bool,
    open_ids: OpenRequestIds,
    /// Cancelled at EOF.
    eof: CancellationToken,
}

impl<R, W> Transport<RoleServer> for StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.open_ids.close_answered(&message);
        self.lines.send(message)
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            let Some(message) = self.lines.receive().await else {
                self.eof.cancel();
                return None;
            };
            self.has_begun |= matches!(message, ClientJsonRpcMessage::Request(_));
            self.open_ids.note_cancelled(&message);
            if let Some(refusal) = self.open_ids.open(&message) {
                // Not awaited here: this future may be dropped at any time.
                tokio::spawn(self.lines.send(refusal));
            } else if self.has_begun {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.lines.close().await
    }
}

impl McpServer {
    /// Serves the client on stdin and stdout until it disconnects or the server stops.
    ///
    /// Boxed, so that rmcp's service is compiled here only (decision 0012).
    pub fn serve_stdio(&self) -> BoxFuture<'_, Result<(), StdioError>> {
        Box::pin(self.serve_stdio_unboxed())
    }

    async fn serve_stdio_unboxed(&self) -> Result<(), StdioError> {
        let (input, output) = stdio_pipes();
        let lines =
            AsyncRwTransport::new(input, output).with_max_line_length(self.shared.settings.request_bytes);
        let eof = CancellationToken::new();
        let transport =
            StdioTransport { lines, has_begun: false, open_ids: OpenRequestIds::default(), eof: eof.clone() };
        let end = CancellationToken::new();
        // When the server stops, calls in flight run on for as long as the caller of `drain` waits.
        let serving = serve_server_with_ct(McpHandler::new(&self.shared), transport, end.clone());
        let running = tokio::select! {
            running = serving => running,
            () = self.shared.stopping.cancelled() => return Ok(()),
        };
        let running = match running {
            Ok(running) => running,
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
                return Ok(());
            }
            Err(error) => return Err(StdioError::Handshake(error.to_string())),
        };
        tokio::select! {
            ended = running.waiting() => match ended {
                Ok(QuitReason::JoinError(error)) | Err(error) => Err(StdioError::Server(error.to_string())),
                Ok(_) => Ok(()),
            },
            () = self.shared.stopping.cancelled() => {
                end.cancel();
                Ok(())
            }
            () = self.wait_for_eof_grace(&eof) => {
                end.cancel();
                Ok(())
            }
        }
    }

    /// Waits until EOF, then for [`EOF_GRACE`].
    async fn wait_for_eof_grace(&self, eof: &CancellationToken) {
        eof.cancelled().await;
        self.shared.wait_until_ready().await;
        tokio::time::sleep(EOF_GRACE).await;
    }
}
