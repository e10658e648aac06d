//! What a server tells during calls, in the order in which it was told.
//!
//! rmcp handles every notification by itself, beside the answers: the last line that a call logs could come
//! behind its answer, and two of them in either order. So they are taken on their way to rmcp.

use super::calls::Calls;
use rmcp::RoleClient;
use rmcp::model::{JsonRpcMessage, LoggingMessageNotification, ProgressNotification, ServerNotification};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

/// What may wait to be passed on to calls; more is lost.
const TOLD_MAX: usize = 1024;
/// How long an answer waits for what was told before it.
const CATCH_UP_MAX: Duration = Duration::from_millis(250);

/// What is told.
pub(super) enum Telling {
    Progress(ProgressNotification),
    Log(LoggingMessageNotification),
}

/// How much was told, and how much of it was passed on.
#[derive(Default)]
pub(super) struct Count {
    heard: AtomicU64,
    passed_on: watch::Sender<u64>,
}

impl Count {
    /// Waits until what has been told up to now is passed on.
    pub(super) async fn caught_up(&self) {
        let heard = self.heard.load(Ordering::Acquire);
        let mut passed_on = self.passed_on.subscribe();
        // Answers come, late or not.
        let _ = tokio::time::timeout(CATCH_UP_MAX, passed_on.wait_for(|count| *count >= heard)).await;
    }
}

/// A transport whose messages are looked at as they come.
pub(super) struct Heard<T> {
    transport: T,
    calls: Arc<Calls>,
    line: mpsc::Sender<Telling>,
}

impl<T> Heard<T> {
    pub(super) fn new(transport: T, calls: Arc<Calls>, tasks: &TaskTracker) -> Self {
        let (line, mut told) = mpsc::channel(TOLD_MAX);
        let teller = calls.clone();
        tasks.spawn(async move {
            while let Some(telling) = told.recv().await {
                teller.tell(telling).await;
                teller.count.passed_on.send_modify(|count| *count += 1);
            }
        });
        Self { transport, calls, line }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Heard<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.transport.receive().await?;
        if let JsonRpcMessage::Notification(told) = &message {
            let telling = match &told.notification {
                ServerNotification::ProgressNotification(told) => Some(Telling::Progress(told.clone())),
                ServerNotification::LoggingMessageNotification(told) => Some(Telling::Log(told.clone())),
                _ => None,
            };
            if let Some(telling) = telling {
                match self.line.try_send(telling) {
                    Ok(()) => drop(self.calls.count.heard.fetch_add(1, Ordering::Release)),
                    Err(_) => tracing::debug!("a server tells more than can be passed on; some is lost"),
                }
            }
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.transport.close().await
    }
}
