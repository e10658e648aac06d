//! Notifies subscribers which documents changed, in this process or another one.
//!
//! Changes are derived from the store's generations, as for the keyword index, so a sync of another process is
//! noticed as well. Nothing polls the store here: each sync calls [`DocumentChangeNotifier::publish`] at its end, and
//! a server calls it periodically.

use ctx_core::ResourceChange;
use ctx_store::{Checkpoint, Store, StoreError};
use std::sync::{Mutex, PoisonError};
use tokio::sync::broadcast::{self, Receiver, Sender};
use uuid::Uuid;

/// URI prefix of document resources.
pub(crate) const URI_PREFIX: &str = "ctx://document/";

/// Maximum number of documents named in one publication. Beyond it, subscribers only learn that the list changed and
/// must read it again.
const NAMED_DOCUMENTS_MAX: usize = 512;
/// Capacity of the broadcast queue; a slower receiver gets a `Lagged` error.
const QUEUE_CAPACITY: usize = 2 * NAMED_DOCUMENTS_MAX;

/// The subscribers, and the checkpoint up to which they were notified.
pub(crate) struct DocumentChangeNotifier {
    sender: Sender<ResourceChange>,
    /// Everything up to this checkpoint was published; `None` without subscribers, or when it is unknown.
    published_up_to: Mutex<Option<Checkpoint>>,
}

impl Default for DocumentChangeNotifier {
    fn default() -> Self {
        Self { sender: Sender::new(QUEUE_CAPACITY), published_up_to: Mutex::default() }
    }
}

impl DocumentChangeNotifier {
    /// Subscribes to changes from now on. The first subscription reads the store's checkpoint.
    pub(crate) fn subscribe(&self, store: &dyn Store) -> Receiver<ResourceChange> {
        let mut published_up_to = self.published_up_to.lock().unwrap_or_else(PoisonError::into_inner);
        if published_up_to.is_none() {
            let warn =
                |error: &StoreError| tracing::debug!(%error, "cannot read the position of the change feed");
            *published_up_to = store.checkpoint().inspect_err(warn).ok();
        }
        self.sender.subscribe()
    }

    /// Publishes the changes since the last publication. Does no work without subscribers, and never waits for a slow
    /// one.
    pub(crate) fn publish(&self, store: &dyn Store) -> Result<(), StoreError> {
        // Held throughout: two concurrent publications would send the same changes.
        let mut published_up_to = self.published_up_to.lock().unwrap_or_else(PoisonError::into_inner);
        if self.sender.receiver_count() == 0 {
            *published_up_to = None;
            return Ok(());
        }
        let present = store.checkpoint()?;
        if *published_up_to == Some(present) {
            return Ok(());
        }
        let changes = match *published_up_to {
            Some(since) => store.changed_between(since, present, NAMED_DOCUMENTS_MAX)?,
            None => None,
        };
        let (changed, membership_changed) =
            changes.map_or((Vec::new(), true), |changes| (changes.changed, changes.membership_changed));
        let contents = changed.into_iter().map(|id| ResourceChange::Content { uri: document_uri(id) });
        for change in contents.chain(membership_changed.then_some(ResourceChange::List)) {
            // The last subscriber may have left meanwhile.
            let _: Result<usize, broadcast::error::SendError<_>> = self.sender.send(change);
        }
        *published_up_to = Some(present);
        Ok(())
    }
}

/// The resource URI of a document.
pub(crate) fn document_uri(id: Uuid) -> String {
    format!("{URI_PREFIX}{id}")
}
