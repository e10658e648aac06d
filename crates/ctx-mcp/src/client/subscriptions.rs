//! Resource subscriptions at a server, and its change notifications.
//!
//! Clients subscribe to URIs for as long as they hold a guard. [`SubscriptionSync`] subscribes a
//! connection to exactly those URIs at the server, each once, by the methods of its era, and again after a reconnect.

use super::calls::OpenCalls;
use super::namespace::Namespace;
use super::request;
use ctx_core::{ResourceChange, ResourceSubscription};
use rmcp::model::{
    ClientRequest, ServerCapabilities, ServerNotification, SubscribeRequest, SubscribeRequestParams,
    SubscriptionFilter, UnsubscribeRequest, UnsubscribeRequestParams,
};
use rmcp::service::{Peer, Subscription};
use rmcp::{RoleClient, ServiceError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, broadcast, watch};

/// URIs of one server with a subscription; further ones get none.
const SUBSCRIPTIONS_MAX: usize = 1_000;
/// Changes that wait for one receiver.
const CHANGES_MAX: usize = 1024;
/// How long a new subscription waits for the server.
const SUBSCRIBE_WAIT_MAX: Duration = Duration::from_secs(2);
/// How long a server may take to answer a subscription request.
const RESPONSE_WAIT_MAX: Duration = Duration::from_secs(10);
/// The pause before a `subscriptions/listen` stream that has ended is reopened.
const REOPEN_DELAY: Duration = Duration::from_secs(5);
/// The value of `synced_version` while no connection syncs: new subscriptions do not wait.
const NO_SYNC: u64 = u64::MAX;

/// The resource subscriptions of all clients at one server.
pub(super) struct ResourceSubscriptions {
    subscribed: watch::Sender<SubscribedUris>,
    /// The version of `subscribed` that the server has been asked for.
    synced_version: watch::Sender<u64>,
    changes: broadcast::Sender<ResourceChange>,
    /// Notified when the server's prompts or resources have changed.
    pub(super) lists_changed: Notify,
}

/// The URIs with subscriptions.
#[derive(Default)]
struct SubscribedUris {
    /// The server's own URIs, with the number of subscriptions to each.
    counts: BTreeMap<String, usize>,
    /// The version of the set of URIs, increased with each change.
    version: u64,
}

impl Default for ResourceSubscriptions {
    fn default() -> Self {
        Self {
            subscribed: watch::Sender::default(),
            synced_version: watch::Sender::new(NO_SYNC),
            changes: broadcast::Sender::new(CHANGES_MAX),
            lists_changed: Notify::new(),
        }
    }
}

/// One subscription to a URI, which ends when this is dropped.
struct SubscriptionGuard {
    subscriptions: Arc<ResourceSubscriptions>,
    uri: String,
}

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        self.subscriptions.update(|uris| {
            let Some(count) = uris.get_mut(&self.uri) else { return false };
            *count -= 1;
            *count == 0 && uris.remove(&self.uri).is_some()
        });
    }
}

impl ResourceSubscriptions {
    pub(super) fn changes(&self) -> broadcast::Receiver<ResourceChange> {
        self.changes.subscribe()
    }

    pub(super) fn publish(&self, change: ResourceChange) {
        // There may be no receiver.
        let _ = self.changes.send(change);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.subscribed.borrow().counts.is_empty()
    }

    /// Subscribes to a URI until the returned guard is dropped. Waits for the server, but at most
    /// `SUBSCRIBE_WAIT_MAX`.
    pub(super) async fn subscribe(self: &Arc<Self>, uri: &str) -> Option<ResourceSubscription> {
        let mut synced = self.synced_version.subscribe();
        let mut has_room = true;
        self.update(|uris| {
            if let Some(count) = uris.get_mut(uri) {
                *count += 1;
                return false;
            }
            has_room = uris.len() < SUBSCRIPTIONS_MAX;
            has_room && uris.insert(uri.to_owned(), 1).is_none()
        });
        if !has_room {
            tracing::debug!(
                "more than {SUBSCRIPTIONS_MAX} resource subscriptions at a server; further ones are ignored"
            );
            return None;
        }
        let guard = SubscriptionGuard { subscriptions: self.clone(), uri: uri.to_owned() };
        let version = self.subscribed.borrow().version;
        // A server that takes longer is subscribed to in the background.
        let _ = tokio::time::timeout(SUBSCRIBE_WAIT_MAX, synced.wait_for(|synced| *synced >= version)).await;
        Some(Box::new(guard))
    }

    /// Changes the URIs; the sync is notified if `change` returns true.
    fn update(&self, change: impl FnOnce(&mut BTreeMap<String, usize>) -> bool) {
        self.subscribed.send_if_modified(|subscribed| {
            let is_changed = change(&mut subscribed.counts);
            subscribed.version += u64::from(is_changed);
            is_changed
        });
    }
}

/// Keeps the subscriptions at the server of one connection equal to those of [`ResourceSubscriptions`].
pub(super) struct SubscriptionSync {
    pub(super) peer: Peer<RoleClient>,
    pub(super) calls: Arc<OpenCalls>,
    pub(super) subscriptions: Arc<ResourceSubscriptions>,
    pub(super) namespace: Arc<Namespace>,
    pub(super) is_stateless: bool,
}

impl Drop for SubscriptionSync {
    fn drop(&mut self) {
        self.subscriptions.synced_version.send_replace(NO_SYNC);
    }
}

impl SubscriptionSync {
    /// Runs until the connection ends, or the server turns out not to support subscriptions.
    pub(super) async fn run(self) {
        let capabilities = self.peer.peer_info().map(|info| info.capabilities.clone()).unwrap_or_default();
        match self.is_stateless {
            true => self.sync_by_listening(capabilities).await,
            false => self.sync_in_session(capabilities).await,
        }
    }

    /// For servers with sessions: one `resources/subscribe` for each URI. They send `list_changed`
    /// notifications without being asked.
    async fn sync_in_session(&self, capabilities: ServerCapabilities) {
        if capabilities.resources.is_none_or(|resources| resources.subscribe != Some(true)) {
            return;
        }
        let mut subscribed = self.subscriptions.subscribed.subscribe();
        let mut at_server = BTreeSet::new();
        loop {
            let (uris, version) = snapshot(&mut subscribed);
            let unsubscribe = at_server.difference(&uris).map(|uri: &String| {
                let params = UnsubscribeRequestParams::new(uri.clone());
                ClientRequest::UnsubscribeRequest(UnsubscribeRequest::new(params))
            });
            let subscribe = uris.difference(&at_server).map(|uri| {
                let params = SubscribeRequestParams::new(uri.clone());
                ClientRequest::SubscribeRequest(SubscribeRequest::new(params))
            });
            for request in unsubscribe.chain(subscribe).collect::<Vec<_>>() {
                let sending = request::send(&self.peer, request);
                match tokio::time::timeout(RESPONSE_WAIT_MAX, sending).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "cannot update a resource subscription"),
                    Err(_) => return tracing::debug!("updating a resource subscription timed out"),
                }
            }
            at_server = uris;
            self.subscriptions.synced_version.send_replace(version);
            if subscribed.changed().await.is_err() {
                return;
            }
        }
    }

    /// For stateless servers: one `subscriptions/listen` stream for everything, replaced when the URIs
    /// change.
    async fn sync_by_listening(&self, capabilities: ServerCapabilities) {
        let if_supported = |flag: Option<bool>| flag.filter(|flag| *flag);
        let resources = capabilities.resources.unwrap_or_default();
        let mut filter = SubscriptionFilter::new();
        filter.tools_list_changed = capabilities.tools.and_then(|tools| if_supported(tools.list_changed));
        filter.prompts_list_changed =
            capabilities.prompts.and_then(|prompts| if_supported(prompts.list_changed));
        filter.resources_list_changed = if_supported(resources.list_changed);
        let mut subscribed = self.subscriptions.subscribed.subscribe();
        let mut open: Option<Subscription> = None;
        loop {
            let (uris, version) = snapshot(&mut subscribed);
            let uris: Vec<String> = uris.into_iter().filter(|_| resources.subscribe == Some(true)).collect();
            filter.resource_subscriptions = (!uris.is_empty()).then_some(uris);
            // The new stream is open before the old one is cancelled, so no change is lost in between.
            let newer = self.open_stream(&filter).await;
            if let Some(mut older) = std::mem::replace(&mut open, newer) {
                // If this fails, the stream ends with the connection.
                let _ = older.cancel().await;
            }
            self.subscriptions.synced_version.send_replace(version);
            let is_over = tokio::select! {
                changed = subscribed.changed() => match changed {
                    Ok(()) => false,
                    Err(_) => return,
                },
                () = self.handle_notifications(open.as_mut()) => true,
            };
            if is_over {
                open = None;
                tokio::time::sleep(REOPEN_DELAY).await;
                // Changes during the pause were not notified, so everything is listed again.
                self.calls.tools_changed.notify_one();
                self.subscriptions.lists_changed.notify_one();
            }
        }
    }

    async fn open_stream(&self, filter: &SubscriptionFilter) -> Option<Subscription> {
        if *filter == SubscriptionFilter::new() {
            return None;
        }
        let opening = tokio::time::timeout(RESPONSE_WAIT_MAX, self.peer.listen(filter.clone()));
        let opened = opening.await.unwrap_or(Err(ServiceError::UnexpectedResponse));
        opened.inspect_err(|error| tracing::debug!(%error, "cannot open a subscription stream")).ok()
    }

    /// Handles the notifications of a stream until it ends.
    async fn handle_notifications(&self, open: Option<&mut Subscription>) {
        let Some(open) = open else { return std::future::pending().await };
        loop {
            match open.next().await {
                Ok(Some(ServerNotification::ToolListChangedNotification(_))) => {
                    self.calls.tools_changed.notify_one();
                }
                Ok(Some(ServerNotification::ResourceUpdatedNotification(notification))) => {
                    if let Some(uri) = self.namespace.checked_uri(&notification.params.uri) {
                        self.subscriptions.publish(ResourceChange::Content { uri });
                    }
                }
                Ok(Some(_)) => self.subscriptions.lists_changed.notify_one(),
                Ok(None) => return,
                Err(error) => return tracing::debug!(%error, "a subscription stream failed"),
            }
        }
    }
}

/// The URIs with subscriptions, and the version of that set.
fn snapshot(subscribed: &mut watch::Receiver<SubscribedUris>) -> (BTreeSet<String>, u64) {
    let subscribed = subscribed.borrow_and_update();
    (subscribed.counts.keys().cloned().collect(), subscribed.version)
}
