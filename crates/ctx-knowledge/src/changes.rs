//! Tells whoever listens which documents changed, whoever changed them.
//!
//! What changed is read off the store's generations, as the keyword index does it, so that a sync of
//! another process is seen as well. Somebody must look ([`Changes::tell`]): each sync does when it is
//! done, and a server now and then.

use ctx_core::ResourceChange;
use ctx_store::{Checkpoint, Store, StoreError};
use std::sync::{Mutex, PoisonError};
use tokio::sync::broadcast::{self, Receiver, Sender};
use uuid::Uuid;

/// What the URIs of documents begin with.
pub(crate) const URI_PREFIX: &str = "ctx://document/";

/// How many documents are named in one go. Of more it is only told that the list is another one:
/// whoever needs each must look for itself.
const NAMED_MAX: usize = 512;
/// How much may wait for a receiver; one that is slower is told that it missed something.
const WAITING_MAX: usize = 2 * NAMED_MAX;

/// What was told, and whom to tell.
pub(crate) struct Changes {
    receivers: Sender<ResourceChange>,
    /// Up to where everything was told; `None` while nobody listens, or when it is not known.
    told: Mutex<Option<Checkpoint>>,
}

impl Default for Changes {
    fn default() -> Self {
        Self { receivers: Sender::new(WAITING_MAX), told: Mutex::default() }
    }
}

impl Changes {
    /// Hears what changes from now on. The first who listens makes it look at the store, briefly.
    pub(crate) fn listen(&self, store: &dyn Store) -> Receiver<ResourceChange> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none() {
            let warn = |error: &StoreError| tracing::debug!(%error, "cannot tell what changes from now on");
            *told = store.checkpoint().inspect_err(warn).ok();
        }
        self.receivers.subscribe()
    }

    /// Looks what changed since the last time, and tells it. Costs nothing while nobody listens, and
    /// never waits for who does.
    pub(crate) fn tell(&self, store: &dyn Store) -> Result<(), StoreError> {
        // Two at once would tell the same.
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
            // Whoever listened may have left.
            let _: Result<usize, broadcast::error::SendError<_>> = self.receivers.send(change);
        }
        *told = Some(now);
        Ok(())
    }
}

/// Where a document is read.
pub(crate) fn uri(id: Uuid) -> String {
    format!("{URI_PREFIX}{id}")
}
