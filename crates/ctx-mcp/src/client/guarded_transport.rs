//! A transport between a connection and rmcp: applies the limits of `guard`, and keeps progress and log
//! notifications in order.
//!
//! rmcp handles every notification in a task of its own: the last log line of a call could arrive after the
//! response, and two lines in either order. So progress and logs are taken out here, and never reach rmcp.

use super::calls::OpenCalls;
use super::guard::ConnectionGuard;
use ctx_core::json_size;
use rmcp::RoleClient;
use rmcp::model::{
    JsonRpcMessage, LoggingMessageNotification, LoggingMessageNotificationParam, ProgressNotification,
    ProgressNotificationParam, ProgressToken, RequestId, ServerNotification,
};
use rmcp::service::{InboundStreamOrigin, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

/// Notifications that wait to be passed on to calls; further ones are dropped.
const NOTIFICATIONS_QUEUED_MAX: usize = 1024;
/// Bytes of a progress message or log line that are passed on; the rest is truncated.
const NOTIFICATION_BYTES_MAX: usize = 16 << 10;
/// How long a response waits for the notifications that came before it.
const DELIVERY_WAIT_MAX: Duration = Duration::from_millis(250);
/// How long a transport may take to close. rmcp's HTTP transport waits until its received messages are consumed, which
/// does not happen any more; dropping it ends it.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// A progress or log notification.
pub(super) enum CallNotification {
    Progress(ProgressNotificationParam),
    /// With the stream that it came on.
    Log(LoggingMessageNotificationParam, Option<InboundStreamOrigin>),
}

impl CallNotification {
    /// Takes a progress or log notification, truncated and without `_meta`: `Ok(None)` drops it, `Err` returns one of
    /// another kind.
    fn from_server(notification: ServerNotification) -> Result<Option<Self>, Box<ServerNotification>> {
        match notification {
            ServerNotification::ProgressNotification(ProgressNotification { mut params, .. }) => {
                if let ProgressToken(RequestId::String(token)) = &params.progress_token
                    && token.len() > NOTIFICATION_BYTES_MAX
                {
                    return Ok(None);
                }
                if let Some(message) = &mut params.message {
                    message.truncate(message.floor_char_boundary(NOTIFICATION_BYTES_MAX));
                    message.shrink_to_fit();
                }
                params.meta = None;
                Ok(Some(Self::Progress(params)))
            }
            ServerNotification::LoggingMessageNotification(LoggingMessageNotification {
                mut params,
                extensions,
                ..
            }) => {
                if json_size(&params.data) > NOTIFICATION_BYTES_MAX {
                    let mut text = match params.data {
                        serde_json::Value::String(text) => text,
                        other => other.to_string(),
                    };
                    text.truncate(text.floor_char_boundary(NOTIFICATION_BYTES_MAX));
                    text.shrink_to_fit();
                    params.data = text.into();
                }
                params.meta = None;
                params.logger = params.logger.filter(|logger| logger.len() <= NOTIFICATION_BYTES_MAX);
                Ok(Some(Self::Log(params, extensions.get().cloned())))
            }
            other => Err(Box::new(other)),
        }
    }
}

/// The number of received notifications, and of those that were passed on to calls.
#[derive(Default)]
pub(super) struct DeliveryCount {
    received: AtomicU64,
    delivered: watch::Sender<u64>,
}

impl DeliveryCount {
    /// Waits until the notifications received so far are passed on, for at most `DELIVERY_WAIT_MAX`.
    pub(super) async fn wait_for_delivery(&self) {
        let received = self.received.load(Ordering::Acquire);
        if *self.delivered.borrow() >= received {
            return;
        }
        let mut delivered = self.delivered.subscribe();
        // After the time limit, the response goes ahead of its notifications.
        let _ = tokio::time::timeout(DELIVERY_WAIT_MAX, delivered.wait_for(|count| *count >= received)).await;
    }
}

/// A transport with the limits of `guard`, from which progress and log notifications are taken out.
pub(super) struct GuardedTransport<T> {
    transport: T,
    guard: Arc<ConnectionGuard>,
    calls: Arc<OpenCalls>,
    queue: mpsc::Sender<CallNotification>,
}

impl<T> GuardedTransport<T> {
    pub(super) fn new(
        transport: T,
        guard: Arc<ConnectionGuard>,
        calls: Arc<OpenCalls>,
        tasks: &TaskTracker,
    ) -> Self {
        let (queue, mut queued) = mpsc::channel(NOTIFICATIONS_QUEUED_MAX);
        let open_calls = calls.clone();
        tasks.spawn(async move {
            while let Some(notification) = queued.recv().await {
                open_calls.deliver(notification).await;
                open_calls.deliveries.delivered.send_modify(|count| *count += 1);
            }
        });
        Self { transport, guard, calls, queue }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for GuardedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let permit = self.guard.admit_outgoing(&message);
        let sending = permit.map(|permit| (permit, self.transport.send(message)));
        let guard = self.guard.clone();
        async move {
            // The connection is closed: its end fails all pending requests.
            let Some((_permit, sending)) = sending else { return Ok(()) };
            tokio::select! {
                biased;
                sent = sending => sent,
                () = guard.wait_until_closed() => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        while self.guard.wait_for_room().await {
            let message = tokio::select! {
                biased;
                () = self.guard.wait_until_closed() => return None,
                message = self.transport.receive() => message?,
            };
            if !self.guard.admits(&message) {
                continue;
            }
            let JsonRpcMessage::Notification(mut envelope) = message else { return Some(message) };
            match CallNotification::from_server(envelope.notification) {
                Ok(None) => {}
                Ok(Some(notification)) => match self.queue.try_send(notification) {
                    Ok(()) => drop(self.calls.deliveries.received.fetch_add(1, Ordering::Release)),
                    Err(_) => tracing::debug!("dropped a server's notification: the queue is full"),
                },
                Err(other) => {
                    envelope.notification = *other;
                    return Some(JsonRpcMessage::Notification(envelope));
                }
            }
        }
        None
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        tokio::time::timeout(CLOSE_MAX, self.transport.close()).await.unwrap_or(Ok(()))
    }
}
