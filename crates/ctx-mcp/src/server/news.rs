//! Notifications about changed tools, prompts and resources.

use super::listing::Listing;
use super::session::Session;
use ctx_core::{Catalog, LiveCatalog, ResourceChange};
use rmcp::RoleServer;
use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::service::{Peer, SubscriptionSink};
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Changes queued for a client; a client that falls further behind is notified that everything may have
/// changed.
const CHANGES_MAX: usize = 1024;

/// A change that clients are notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Tools,
    Prompts,
    ResourceList,
    Resource(String),
}

/// Watches the catalog and its resources, from the first subscriber on.
pub(super) struct News {
    catalog: Arc<LiveCatalog>,
    ready: watch::Receiver<bool>,
    stopping: CancellationToken,
    changes: OnceLock<broadcast::Sender<Change>>,
}

impl News {
    /// Watches `catalog` once `ready` is true: the initial loading is no change.
    pub(super) fn new(
        catalog: Arc<LiveCatalog>,
        ready: watch::Receiver<bool>,
        stopping: CancellationToken,
    ) -> Self {
        Self { catalog, ready, stopping, changes: OnceLock::new() }
    }

    /// Subscribes to all changes from now on.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Change> {
        let sender = self.changes.get_or_init(|| {
            let sender = broadcast::Sender::new(CHANGES_MAX);
            let watching = watch_catalog(self.catalog.clone(), self.ready.clone(), sender.clone());
            let stopping = self.stopping.clone();
            tokio::spawn(async move { stopping.run_until_cancelled(watching).await });
            sender
        });
        sender.subscribe()
    }
}

/// Compares each new catalog with the previous one; never ends by itself.
async fn watch_catalog(
    live: Arc<LiveCatalog>,
    mut ready: watch::Receiver<bool>,
    changes: broadcast::Sender<Change>,
) {
    // If the sender is dropped, the catalog will not change any more.
    let _ = ready.wait_for(|ready| *ready).await;
    let mut replaced = live.replaced();
    let mut listing = Listing::new(live.current());
    let mut _following = follow_resources(listing.catalog(), &changes);
    loop {
        if replaced.changed().await.is_err() {
            return;
        }
        let newer = Listing::new(live.current());
        // The new origins are subscribed before the old ones are dropped, so no change is lost in between.
        _following = follow_resources(newer.catalog(), &changes);
        let tell = |is_other: bool, change: Change| {
            if is_other {
                // There may be no subscriber.
                let _ = changes.send(change);
            }
        };
        tell(newer.tools != listing.tools, Change::Tools);
        tell(newer.prompts != listing.prompts, Change::Prompts);
        tell(origins(&newer) != origins(&listing), Change::ResourceList);
        listing = newer;
    }
}

/// Identifies the set of resource origins. Some stand for providers, so the providers belong to it.
fn origins(listing: &Listing) -> Vec<String> {
    let prefixes = listing.catalog().resources().iter().map(|origin| origin.prefix().to_owned());
    prefixes.chain(listing.catalog().providers().map(ToString::to_string)).collect()
}

/// Forwards the changes of each origin until the guard is dropped.
fn follow_resources(catalog: &Catalog, changes: &broadcast::Sender<Change>) -> DropGuard {
    let enough = CancellationToken::new();
    for origin in catalog.resources() {
        let Some(mut told) = origin.changes() else { continue };
        let (changes, enough) = (changes.clone(), enough.clone());
        tokio::spawn(async move {
            loop {
                let told = tokio::select! {
                    biased;
                    told = told.recv() => told,
                    () = enough.cancelled() => return,
                };
                let change = match told {
                    Ok(ResourceChange::Content { uri }) => Change::Resource(uri),
                    Ok(ResourceChange::List) | Err(RecvError::Lagged(_)) => Change::ResourceList,
                    Err(RecvError::Closed) => return,
                };
                let _ = changes.send(change);
            }
        });
    }
    enough.drop_guard()
}

/// The notifications for a client that is subscribed to these resources; `None` at the end of the feed.
fn told(change: Result<Change, RecvError>, followed: impl FnOnce() -> Vec<String>) -> Option<Vec<Change>> {
    let with_all = |changes: &[Change]| {
        let all = followed().into_iter().map(Change::Resource);
        changes.iter().cloned().chain(all).collect()
    };
    Some(match change {
        // A changed list may stand for more resources than the origin reports individually.
        Ok(Change::ResourceList) => with_all(&[Change::ResourceList]),
        Ok(change) => vec![change],
        // The client fell behind: anything may have changed.
        Err(RecvError::Lagged(_)) => with_all(&[Change::Tools, Change::Prompts, Change::ResourceList]),
        Err(RecvError::Closed) => return None,
    })
}

/// Notifies a `subscriptions/listen` stream, as its filter selects.
pub(super) async fn tell_listener(sink: &SubscriptionSink, mut changes: broadcast::Receiver<Change>) {
    let filter = sink.accepted();
    let followed = || filter.resource_subscriptions.clone().unwrap_or_default();
    let follows =
        |uri: &String| filter.resource_subscriptions.as_ref().is_some_and(|uris| uris.contains(uri));
    while let Some(news) = told(changes.recv().await, followed) {
        for change in news {
            let told = match change {
                Change::Tools if filter.tools_list_changed == Some(true) => {
                    sink.notify_tool_list_changed().await
                }
                Change::Prompts if filter.prompts_list_changed == Some(true) => {
                    sink.notify_prompt_list_changed().await
                }
                Change::ResourceList if filter.resources_list_changed == Some(true) => {
                    sink.notify_resource_list_changed().await
                }
                Change::Resource(uri) if follows(&uri) => sink.notify_resource_updated(uri).await,
                _ => continue,
            };
            if told.is_err() {
                return;
            }
        }
    }
}

/// Notifies a client with a session, until it disconnects.
pub(super) async fn tell_session(
    peer: Peer<RoleServer>,
    mut changes: broadcast::Receiver<Change>,
    session: Weak<Session>,
) {
    loop {
        let change = changes.recv().await;
        let Some(session) = session.upgrade() else { return };
        let Some(news) = told(change, || session.followed()) else { return };
        for change in news {
            let told = match change {
                Change::Tools => peer.notify_tool_list_changed().await,
                Change::Prompts => peer.notify_prompt_list_changed().await,
                Change::ResourceList => peer.notify_resource_list_changed().await,
                Change::Resource(uri) if session.follows(&uri) => {
                    peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await
                }
                Change::Resource(_) => continue,
            };
            if told.is_err() {
                return;
            }
        }
    }
}
