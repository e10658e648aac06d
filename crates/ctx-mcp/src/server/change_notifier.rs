//! Notifications about changed tools, prompts and resources.

use super::listing::CatalogListing;
use super::session::ClientSession;
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
pub(super) enum CatalogChange {
    Tools,
    Prompts,
    ResourceList,
    Resource(String),
}

/// Watches the catalog and its resources, from the first subscriber on.
pub(super) struct ChangeNotifier {
    catalog: Arc<LiveCatalog>,
    ready: watch::Receiver<bool>,
    stopping: CancellationToken,
    changes: OnceLock<broadcast::Sender<CatalogChange>>,
}

impl ChangeNotifier {
    /// Watches `catalog` once `ready` is true: the initial loading is no change.
    pub(super) fn new(
        catalog: Arc<LiveCatalog>,
        ready: watch::Receiver<bool>,
        stopping: CancellationToken,
    ) -> Self {
        Self { catalog, ready, stopping, changes: OnceLock::new() }
    }

    /// Subscribes to all changes from now on.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<CatalogChange> {
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
    changes: broadcast::Sender<CatalogChange>,
) {
    // If the sender is dropped, the catalog will not change any more.
    let _ = ready.wait_for(|ready| *ready).await;
    let mut replacements = live.subscribe();
    let mut listing = CatalogListing::new(live.current());
    let mut _following = forward_resource_changes(listing.catalog(), &changes);
    loop {
        if replacements.changed().await.is_err() {
            return;
        }
        let newer = CatalogListing::new(live.current());
        // The new origins are subscribed before the old ones are dropped, so no change is lost in between.
        _following = forward_resource_changes(newer.catalog(), &changes);
        let send_if = |is_changed: bool, change: CatalogChange| {
            if is_changed {
                // There may be no subscriber.
                let _ = changes.send(change);
            }
        };
        send_if(newer.tools != listing.tools, CatalogChange::Tools);
        send_if(newer.prompts != listing.prompts, CatalogChange::Prompts);
        send_if(origins(&newer) != origins(&listing), CatalogChange::ResourceList);
        listing = newer;
    }
}

/// Identifies the set of resource origins. Some stand for providers, so the providers belong to it.
fn origins(listing: &CatalogListing) -> Vec<String> {
    let prefixes = listing.catalog().resources().iter().map(|origin| origin.prefix().to_owned());
    prefixes.chain(listing.catalog().providers().map(ToString::to_string)).collect()
}

/// Forwards the changes of each origin until the guard is dropped.
fn forward_resource_changes(catalog: &Catalog, changes: &broadcast::Sender<CatalogChange>) -> DropGuard {
    let stop = CancellationToken::new();
    for origin in catalog.resources() {
        let Some(mut origin_changes) = origin.changes() else { continue };
        let (changes, stop) = (changes.clone(), stop.clone());
        tokio::spawn(async move {
            loop {
                let change = tokio::select! {
                    biased;
                    change = origin_changes.recv() => change,
                    () = stop.cancelled() => return,
                };
                let change = match change {
                    Ok(ResourceChange::Content { uri }) => CatalogChange::Resource(uri),
                    Ok(ResourceChange::List) | Err(RecvError::Lagged(_)) => CatalogChange::ResourceList,
                    Err(RecvError::Closed) => return,
                };
                let _ = changes.send(change);
            }
        });
    }
    stop.drop_guard()
}

/// The notifications for a client that is subscribed to these resources; `None` at the end of the feed.
fn expand_change(
    change: Result<CatalogChange, RecvError>,
    subscribed_uris: impl FnOnce() -> Vec<String>,
) -> Option<Vec<CatalogChange>> {
    let with_all = |changes: &[CatalogChange]| {
        let all = subscribed_uris().into_iter().map(CatalogChange::Resource);
        changes.iter().cloned().chain(all).collect()
    };
    Some(match change {
        // A changed list may stand for more resources than the origin reports individually.
        Ok(CatalogChange::ResourceList) => with_all(&[CatalogChange::ResourceList]),
        Ok(change) => vec![change],
        // The client fell behind: anything may have changed.
        Err(RecvError::Lagged(_)) => {
            with_all(&[CatalogChange::Tools, CatalogChange::Prompts, CatalogChange::ResourceList])
        }
        Err(RecvError::Closed) => return None,
    })
}

/// Notifies a `subscriptions/listen` stream, as its filter selects.
pub(super) async fn notify_listener(
    sink: &SubscriptionSink,
    mut changes: broadcast::Receiver<CatalogChange>,
) {
    let filter = sink.accepted();
    let subscribed_uris = || filter.resource_subscriptions.clone().unwrap_or_default();
    let is_subscribed =
        |uri: &String| filter.resource_subscriptions.as_ref().is_some_and(|uris| uris.contains(uri));
    while let Some(expanded) = expand_change(changes.recv().await, subscribed_uris) {
        for change in expanded {
            let sent = match change {
                CatalogChange::Tools if filter.tools_list_changed == Some(true) => {
                    sink.notify_tool_list_changed().await
                }
                CatalogChange::Prompts if filter.prompts_list_changed == Some(true) => {
                    sink.notify_prompt_list_changed().await
                }
                CatalogChange::ResourceList if filter.resources_list_changed == Some(true) => {
                    sink.notify_resource_list_changed().await
                }
                CatalogChange::Resource(uri) if is_subscribed(&uri) => {
                    sink.notify_resource_updated(uri).await
                }
                _ => continue,
            };
            if sent.is_err() {
                return;
            }
        }
    }
}

/// Notifies a client with a session, until it disconnects.
pub(super) async fn notify_session(
    peer: Peer<RoleServer>,
    mut changes: broadcast::Receiver<CatalogChange>,
    session: Weak<ClientSession>,
) {
    loop {
        let change = changes.recv().await;
        let Some(session) = session.upgrade() else { return };
        let Some(expanded) = expand_change(change, || session.subscribed_uris()) else { return };
        for change in expanded {
            let sent = match change {
                CatalogChange::Tools => peer.notify_tool_list_changed().await,
                CatalogChange::Prompts => peer.notify_prompt_list_changed().await,
                CatalogChange::ResourceList => peer.notify_resource_list_changed().await,
                CatalogChange::Resource(uri) if session.is_subscribed(&uri) => {
                    peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await
                }
                CatalogChange::Resource(_) => continue,
            };
            if sent.is_err() {
                return;
            }
        }
    }
}
