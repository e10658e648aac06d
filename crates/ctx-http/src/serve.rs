//! The accept loop, with bounds on connections, headers and shutdown that hyper and axum do not have.

use crate::error::ApiError;
use crate::peers::Peers;
use crate::socket::ClientSocket;
use crate::{Api, routes};
use axum::body::Body;
use ctx_core::ErrorKind;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tower::ServiceExt;

/// Delay after a failed accept, which usually means too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Time limit for sending a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of concurrent refusals.
const REFUSALS_MAX: usize = 64;
/// Reasons for refusing a connection.
const TOO_MANY_CONNECTIONS: &str = "too many connections";
const TOO_MANY_FROM_PEER: &str = "too many connections from this address";
/// hyper's own buffer must hold headers somewhat larger than the limit, so that the guard can refuse them
/// with a proper error response.
const BUFFER_SLACK: usize = 64 << 10;

/// Serves until `shutdown` is cancelled, then drains: requests in flight may finish within a time limit.
///
/// Boxed, so that axum and hyper are compiled here only (decision 0012).
pub fn serve(
    listener: TcpListener,
    api: Api,
    shutdown: CancellationToken,
) -> BoxFuture<'static, io::Result<()>> {
    Box::pin(serve_unboxed(listener, api, shutdown))
}

async fn serve_unboxed(listener: TcpListener, api: Api, shutdown: CancellationToken) -> io::Result<()> {
    let limits = api.limits;
    let (streamed_calls, mcp) = (api.streamed_calls.clone(), api.mcp.clone());
    let oauth = api.guard.oauth().cloned();
    let _fresh_keys =
        oauth.map(|oauth| AbortOnDropHandle::new(tokio::spawn(async move { oauth.keep_keys_fresh().await })));
    let service = TowerToHyperService::new(
        routes::router(api).map_request(|request: hyper::Request<Incoming>| request.map(Body::new)),
    );
    let mut http = http1::Builder::new();
    // Without a timer the header timeout does nothing.
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.header_bytes + BUFFER_SLACK);

    let slots = Arc::new(Semaphore::new(limits.connections));
    let peers = Peers::new(limits.connections_per_peer);
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    let connections = TaskTracker::new();
    // Cancelled when draining takes too long.
    let abort = CancellationToken::new();
    loop {
        let (stream, peer) = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => (stream, peer.ip()),
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            },
        };
        let slot = match (slots.clone().try_acquire_owned(), peers.acquire(peer)) {
            (Ok(slot), Some(peer_slot)) => (slot, peer_slot),
            (slot, _) => {
                let reason = if slot.is_err() { TOO_MANY_CONNECTIONS } else { TOO_MANY_FROM_PEER };
                // Beyond `REFUSALS_MAX` at once, the connection is closed without a response.
                if let Ok(slot) = refusals.clone().try_acquire_owned() {
                    let socket = ClientSocket::new(stream, REFUSAL_TIMEOUT, shutdown.clone());
                    connections.spawn(async move {
                        refuse(socket, reason).await;
                        drop(slot);
                    });
                }
                continue;
            }
        };
        // Small responses should be sent at once.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let socket = ClientSocket::new(stream, limits.body_timeout, shutdown.clone());
        let connection = http.serve_connection(TokioIo::new(socket), service.clone());
        let (shutdown, abort) = (shutdown.clone(), abort.clone());
        connections.spawn(async move {
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = shutdown.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    tokio::select! {
                        ended = connection.as_mut() => ended,
                        () = abort.cancelled() => Ok(()),
                    }
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "connection ended with an error");
            }
            drop(slot);
        });
    }

    drop(listener);
    connections.close();
    let deadline = Instant::now() + limits.drain;
    if tokio::time::timeout_at(deadline, connections.wait()).await.is_err() {
        tracing::warn!("requests still in flight after {} s are cut off", limits.drain.as_secs());
        abort.cancel();
        connections.wait().await;
    }
    // Their clients are disconnected, so they end at once; their runs are recorded before the server reports
    // its end.
    streamed_calls.close();
    streamed_calls.wait().await;
    if let Some(mcp) = mcp {
        mcp.drain(deadline.saturating_duration_since(Instant::now())).await;
    }
    Ok(())
}

/// Refuses a connection with 503, without hyper, which would need a connection slot.
async fn refuse(mut socket: ClientSocket, reason: &'static str) {
    let response = ApiError::new(ErrorKind::Overloaded, reason).to_bytes();
    let sent = async {
        socket.write_all(&response).await?;
        socket.shutdown().await
    };
    if let Err(error) = sent.await {
        tracing::debug!(%error, "cannot send the refusal of a connection");
    }
}
