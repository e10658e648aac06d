//! The accept loop: ours, so that connections, headers and the end are bounded.

use crate::{Api, routes};
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// Wait after a failed accept, which usually means too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// How long a refused connection may take to read its refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(500);
/// hyper's own buffer must hold headers somewhat larger than the limit, so that the guard can
/// refuse them in our words.
const BUFFER_SLACK: usize = 64 << 10;

/// Serves until `shutdown` is cancelled, then lets requests in flight finish for a while.
pub async fn serve(listener: TcpListener, api: Api, shutdown: CancellationToken) -> io::Result<()> {
    let limits = api.limits;
    let service = TowerToHyperService::new(
        routes::router(api).map_request(|request: hyper::Request<Incoming>| request.map(Body::new)),
    );
    let mut http = http1::Builder::new();
    // Without a timer the header timeout does nothing.
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.header_bytes + BUFFER_SLACK);

    let places = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();
    // Cancelled when draining takes too long.
    let abort = CancellationToken::new();
    loop {
        let stream = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            },
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            connections.spawn(refuse(stream));
            continue;
        };
        // Small answers should leave at once.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "set_nodelay failed");
        }
        let connection = http.serve_connection(TokioIo::new(stream), service.clone());
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
                tracing::debug!(%error, "connection ended");
            }
            drop(place);
        });
    }

    drop(listener);
    connections.close();
    if tokio::time::timeout(limits.drain, connections.wait()).await.is_err() {
        tracing::warn!("requests still in flight after {} s are cut off", limits.drain.as_secs());
        abort.cancel();
        connections.wait().await;
    }
    Ok(())
}

/// Tells a client that there is no room, without hyper, which would need a place.
async fn refuse(mut stream: TcpStream) {
    const BODY: &str = r#"{"error":{"code":"overloaded","message":"too many connections"}}"#;
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let told = tokio::time::timeout(REFUSAL_TIMEOUT, async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    });
    if !matches!(told.await, Ok(Ok(()))) {
        tracing::debug!("a refused connection did not listen");
    }
}
