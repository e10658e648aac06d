//! Resource subscriptions at a server, and its change notifications.
//!
//! Clients subscribe to URIs for as long as they hold a guard. The follower of a connection subscribes to
//! exactly those URIs at the server, each once, by the methods of its era, and again after a reconnect.

use super::calls::Calls;
use super::exchange;
use super::namespace::Namespace;
use ctx_core::{Following, ResourceChange};
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
const FOLLOWED_MAX: usize = 1_000;
/// Changes that wait for one receiver.
const CHANGES_MAX: usize = 1024;
/// How long a new subscription waits for the server.
const BEGIN_MAX: Duration = Duration::from_secs(2);
/// How long a server may take to answer a subscription request.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The pause before a `subscriptions/listen` stream that has ended is reopened.
const PAUSE: Duration = Duration::from_secs(5);
/// The value of `settled` while there is no follower: new subscriptions do not wait.
const NO_WAIT: u64 = u64::MAX;

pub(super) struct Follows {
    wanted: watch::Sender<Wanted>,
    /// The version of `wanted` that the server has been asked for.
    settled: watch::Sender<u64>,
    told: broadcast::Sender<ResourceChange>,
    /// Notified when the server's prompts or resources have changed.
    pub(super) list_changed: Notify,
}

/// The URIs with subscriptions.
#[derive(Default)]
struct Wanted {
    /// The server's own URIs, with the number of subscriptions to each.
    uris: BTreeMap<String, usize>,
    /// The version of the set of URIs, increased with each change.
    number: u64,
}

impl Default for Follows {
    fn default() -> Self {
        Self {
            wanted: watch::Sender::default(),
            settled: watch::Sender::new(NO_WAIT),
            told: broadcast::Sender::new(CHANGES_MAX),
            list_changed: Notify::new(),
        }
    }
}

/// One subscription to a URI, which ends when this is dropped.
struct Follow {
    follows: Arc<Follows>,
    uri: String,
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.follows.change(|uris| {
            let Some(count) = uris.get_mut(&self.uri) else { return false };
            *count -= 1;
            *count == 0 && uris.remove(&self.uri).is_some()
        });
    }
}

impl Follows {
    pub(super) fn changes(&self) -> broadcast::Receiver<ResourceChange> {
        self.told.subscribe()
    }

    pub(super) fn tell(&self, change: ResourceChange) {
        // There may be no receiver.
        let _ = self.told.send(change);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanted.borrow().uris.is_empty()
    }

    /// Subscribes to a URI until the returned guard is dropped. Waits for the server, but at most
    /// `BEGIN_MAX`.
    pub(super) async fn follow(self: &Arc<Self>, uri: &str) -> Option<Following> {
        let mut settled = self.settled.subscribe();
        let mut has_room = true;
        self.change(|uris| {
            if let Some(count) = uris.get_mut(uri) {
                *count += 1;
                return false;
            }
            has_room = uris.len() < FOLLOWED_MAX;
            has_room && uris.insert(uri.to_owned(), 1).is_none()
        });
        if !has_room {
            tracing::debug!("more than {FOLLOWED_MAX} resources of a server are followed; the rest are not");
            return None;
        }
        let follow = Follow { follows: self.clone(), uri: uri.to_owned() };
        let number = self.wanted.borrow().number;
        // A server that takes longer is subscribed to in the background.
        let _ = tokio::time::timeout(BEGIN_MAX, settled.wait_for(|settled| *settled >= number)).await;
        Some(Box::new(follow))
    }

    /// Changes the URIs; the follower is notified if `work` returns true.
    fn change(&self, work: impl FnOnce(&mut BTreeMap<String, usize>) -> bool) {
        self.wanted.send_if_modified(|wanted| {
            let is_other = work(&mut wanted.uris);
            wanted.number += u64::from(is_other);
            is_other
        });
    }
}

/// Keeps the subscriptions at the server of one connection equal to those of [`Follows`].
pub(super) struct Follower {
    pub(super) peer: Peer<RoleClient>,
    pub(super) calls: Arc<Calls>,
    pub(super) follows: Arc<Follows>,
    pub(super) namespace: Arc<Namespace>,
    pub(super) is_stateless: bool,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.follows.settled.send_replace(NO_WAIT);
    }
}

impl Follower {
    /// Runs until the connection ends, or the server turns out not to support subscriptions.
    pub(super) async fn run(self) {
        let capabilities = self.peer.peer_info().map(|info| info.capabilities.clone()).unwrap_or_default();
        match self.is_stateless {
            true => self.listen(capabilities).await,
            false => self.subscribe(capabilities).await,
        }
    }

    /// For servers with sessions: one `resources/subscribe` for each URI. They send `list_changed`
    /// notifications without being asked.
    async fn subscribe(&self, capabilities: ServerCapabilities) {
        if capabilities.resources.is_none_or(|resources| resources.subscribe != Some(true)) {
            return;
        }
        let mut wanted = self.follows.wanted.subscribe();
        let mut asked = BTreeSet::new();
        loop {
            let (uris, number) = look(&mut wanted);
            let gone = asked.difference(&uris).map(|uri: &String| {
                let params = UnsubscribeRequestParams::new(uri.clone());
                ClientRequest::UnsubscribeRequest(UnsubscribeRequest::new(params))
            });
            let new = uris.difference(&asked).map(|uri| {
                let params = SubscribeRequestParams::new(uri.clone());
                ClientRequest::SubscribeRequest(SubscribeRequest::new(params))
            });
            for request in gone.chain(new).collect::<Vec<_>>() {
                let asking = exchange::request(&self.peer, request);
                match tokio::time::timeout(ANSWER_MAX, asking).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "a server does not tell of changes"),
                    Err(_) => return tracing::debug!("a server does not say whether it tells of changes"),
                }
            }
            asked = uris;
            self.follows.settled.send_replace(number);
            if wanted.changed().await.is_err() {
                return;
            }
        }
    }

    /// For stateless servers: one `subscriptions/listen` stream for everything, replaced when the URIs
    /// change.
    async fn listen(&self, capabilities: ServerCapabilities) {
        let tells = |says: Option<bool>| says.filter(|says| *says);
        let resources = capabilities.resources.unwrap_or_default();
        let mut filter = SubscriptionFilter::new();
        filter.tools_list_changed = capabilities.tools.and_then(|tools| tells(tools.list_changed));
        filter.prompts_list_changed = capabilities.prompts.and_then(|prompts| tells(prompts.list_changed));
        filter.resources_list_changed = tells(resources.list_changed);
        let mut wanted = self.follows.wanted.subscribe();
        let mut open: Option<Subscription> = None;
        loop {
            let (uris, number) = look(&mut wanted);
            let uris: Vec<String> = uris.into_iter().filter(|_| resources.subscribe == Some(true)).collect();
            filter.resource_subscriptions = (!uris.is_empty()).then_some(uris);
            // The new stream is open before the old one is cancelled, so no change is lost in between.
            let newer = self.opened(&filter).await;
            if let Some(mut older) = std::mem::replace(&mut open, newer) {
                // If this fails, the stream ends with the connection.
                let _ = older.cancel().await;
            }
            self.follows.settled.send_replace(number);
            let is_over = tokio::select! {
                changed = wanted.changed() => match changed {
                    Ok(()) => false,
                    Err(_) => return,
                },
                () = self.hear(open.as_mut()) => true,
            };
            if is_over {
                open = None;
                tokio::time::sleep(PAUSE).await;
                // Changes during the pause were not notified, so everything is listed again.
                self.calls.list_changed.notify_one();
                self.follows.list_changed.notify_one();
            }
        }
    }

    async fn opened(&self, filter: &SubscriptionFilter) -> Option<Subscription> {
        if *filter == SubscriptionFilter::new() {
            return None;
        }
        let opening = tokio::time::timeout(ANSWER_MAX, self.peer.listen(filter.clone()));
        let opened = opening.await.unwrap_or(Err(ServiceError::UnexpectedResponse));
        opened.inspect_err(|error| tracing::debug!(%error, "a server does not tell of changes")).ok()
    }

    /// Handles the notifications of a stream until it ends.
    async fn hear(&self, open: Option<&mut Subscription>) {
        let Some(open) = open else { return std::future::pending().await };
        loop {
            match open.next().await {
                Ok(Some(ServerNotification::ToolListChangedNotification(_))) => {
                    self.calls.list_changed.notify_one();
                }
                Ok(Some(ServerNotification::ResourceUpdatedNotification(told))) => {
                    if let Some(uri) = self.namespace.checked_uri(&told.params.uri) {
                        self.follows.tell(ResourceChange::Content { uri });
                    }
                }
                Ok(Some(_)) => self.follows.list_changed.notify_one(),
                Ok(None) => return,
                Err(error) => return tracing::debug!(%error, "a server tells of changes no more"),
            }
        }
    }
}

/// The URIs with subscriptions, and the version of that set.
fn look(wanted: &mut watch::Receiver<Wanted>) -> (BTreeSet<String>, u64) {
    let wanted = wanted.borrow_and_update();
    (wanted.uris.keys().cloned().collect(), wanted.number)
}
