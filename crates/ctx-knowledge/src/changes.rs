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
const NAMED_MAX: usize = 512;
/// Capacity of the broadcast queue; a slower receiver gets a `Lagged` error.
const WAITING_MAX: usize = 2 * NAMED_MAX;

/// The subscribers, and the checkpoint up to which they were notified.
pub(crate) struct Changes {
    receivers: Sender<ResourceChange>,
    /// Everything up to this checkpoint was published; `None` without subscribers, or when it is unknown.
    told: Mutex<Option<Checkpoint>>,
}

impl Default for Changes {
    fn default() -> Self {
        Self { receivers: Sender::new(WAITING_MAX), told: Mutex::default() }
    }
}

impl Changes {
    /// Subscribes to changes from now on. The first subscription reads the store's checkpoint.
    pub(crate) fn listen(&self, store: &dyn Store) -> Receiver<ResourceChange> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none() {
            let warn = |error: &StoreError| tracing::debug!(%error, "cannot tell what changes from now on");
            *told = store.checkpoint().inspect_err(warn).ok();
        }
        self.receivers.subscribe()
    }

    /// Publishes the changes since the last publication. Does no work without subscribers, and never waits for a slow
    /// one.
    pub(crate) fn tell(&self, store: &dyn Store) -> Result<(), StoreError> {
        // Held throughout: two concurrent publications would send the same changes.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if self.receivers.receiver_count() == 0 {
            *told = None;
            return Ok(());
        }
        let now = store.checkpoint()?;
        if *told == Some(now) {
            return Ok(());
        }
        let news = match *told {
            Some(since) => store.changed_between(since, now, NAMED_MAX)?,
            None => None,
        };
        let (changed, others) = news.map_or((Vec::new(), true), |news| (news.changed, news.list_changed));
        let contents = changed.into_iter().map(|id| ResourceChange::Content { uri: uri(id) });
        for change in contents.chain(others.then_some(ResourceChange::List)) {
            // The last subscriber may have left meanwhile.
            let _: Result<usize, broadcast::error::SendError<_>> = self.receivers.send(change);
        }
        *told = Some(now);
        Ok(())
    }
}

/// The resource URI of a document.
pub(crate) fn uri(id: Uuid) -> String {
    format!("{URI_PREFIX}{id}")
}
