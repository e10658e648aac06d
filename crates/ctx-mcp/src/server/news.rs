//! What changes while clients are connected: tools, prompts, resources.

use super::listing::Listing;
use ctx_core::{Catalog, LiveCatalog, ResourceChange};
use std::sync::{Arc, OnceLock};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Changes that wait for a client; one that is further behind is told that everything may have changed.
const CHANGES_MAX: usize = 1024;

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Tools,
    Prompts,
    ResourceList,
    Resource(String),
}

/// Watches the catalog and its resources from the first client on.
pub(super) struct News {
    catalog: Arc<LiveCatalog>,
    stopping: CancellationToken,
    changes: OnceLock<broadcast::Sender<Change>>,
}

impl News {
    pub(super) fn new(catalog: Arc<LiveCatalog>, stopping: CancellationToken) -> Self {
        Self { catalog, stopping, changes: OnceLock::new() }
    }

    /// Everything that changes from now on.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Change> {
        let sender = self.changes.get_or_init(|| {
            let sender = broadcast::Sender::new(CHANGES_MAX);
            let watching = watch(self.catalog.clone(), sender.clone());
            let stopping = self.stopping.clone();
            tokio::spawn(async move { stopping.run_until_cancelled(watching).await });
            sender
        });
        sender.subscribe()
    }
}

/// Never ends by itself.
async fn watch(live: Arc<LiveCatalog>, changes: broadcast::Sender<Change>) {
    let mut replaced = live.replaced();
    let mut listing = Listing::new(live.current());
    loop {
        let _resources = follow_resources(listing.catalog(), &changes);
        if replaced.changed().await.is_err() {
            return;
        }
        let newer = Listing::new(live.current());
        let tell = |is_other: bool, change: Change| {
            if is_other {
                // Nobody may be listening.
                let _ = changes.send(change);
            }
        };
        tell(newer.tools != listing.tools, Change::Tools);
        tell(newer.prompts != listing.prompts, Change::Prompts);
        tell(prefixes(&newer) != prefixes(&listing), Change::ResourceList);
        listing = newer;
    }
}

fn prefixes(listing: &Listing) -> Vec<String> {
    listing.catalog().resources().iter().map(|origin| origin.prefix().to_owned()).collect()
}

/// Passes on what each origin tells, until it is dropped.
fn follow_resources(catalog: &Catalog, changes: &broadcast::Sender<Change>) -> JoinSet<()> {
    let mut following = JoinSet::new();
    for origin in catalog.resources() {
        let Some(mut told) = origin.changes() else { continue };
        let changes = changes.clone();
        following.spawn(async move {
            loop {
                let change = match told.recv().await {
                    Ok(ResourceChange::Content { uri }) => Change::Resource(uri),
                    Ok(ResourceChange::List) | Err(RecvError::Lagged(_)) => Change::ResourceList,
                    Err(RecvError::Closed) => return,
                };
                let _ = changes.send(change);
            }
        });
    }
    following
}
