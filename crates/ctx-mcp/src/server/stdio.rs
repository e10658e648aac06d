//! The server on a pair of pipes: one client, one message a line.

use super::McpServer;
use super::handler::Handler;
use rmcp::service::{QuitReason, ServerInitializeError, serve_server_with_ct};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;
use tokio_util::sync::CancellationToken;

/// Why serving a client on pipes ended other than by the client's leaving.
#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    /// What came first is nothing that a client begins with.
    #[error("the client did not begin as MCP clients do: {0}")]
    Beginning(String),
    /// The server itself failed.
    #[error("the server failed: {0}")]
    Broken(String),
}

impl McpServer {
    /// Serves the client at the standard streams until it leaves or the server stops.
    pub async fn serve_stdio(&self) -> Result<(), StdioError> {
        let (input, output) = stdio_pipes();
        let transport =
            AsyncRwTransport::new(input, output).with_max_line_length(self.shared.settings.request_bytes);
        let ending = CancellationToken::new();
        // What is stopped lets calls in flight finish for as long as its caller waits.
        let serving = serve_server_with_ct(Handler::new(&self.shared), transport, ending.clone());
        let running = tokio::select! {
            running = serving => running,
            () = self.shared.stopping.cancelled() => return Ok(()),
        };
        let running = match running {
            Ok(running) => running,
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
                return Ok(());
            }
            Err(error) => return Err(StdioError::Beginning(error.to_string())),
        };
        tokio::select! {
            ended = running.waiting() => match ended {
                Ok(QuitReason::JoinError(error)) | Err(error) => Err(StdioError::Broken(error.to_string())),
                Ok(_) => Ok(()),
            },
            () = self.shared.stopping.cancelled() => {
                ending.cancel();
                Ok(())
            }
        }
    }
}
