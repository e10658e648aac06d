//! [`BoundedStore`]: an in-memory store of kept results and files, with bounds on number, size and age. Each entry
//! can be read only by the identity that stored it.

use crate::discover::truncate;
use ctx_core::{Identity, StoredFile, ToolError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Maximum number of entries of one store.
const ENTRIES_MAX: usize = 100;

/// Maximum total size of the entries of one store. An entry that alone is larger is kept alone.
const BYTES_MAX: usize = 64 << 20;

/// Maximum age of an entry.
const AGE_MAX: Duration = Duration::from_secs(3_600);

/// Content that a [`BoundedStore`] can hold.
pub(super) trait StoredContent: Clone {
    /// Its noun in error messages.
    const NOUN: &'static str;

    /// Size in bytes.
    fn size(&self) -> usize;
}

/// A result, as JSON.
impl StoredContent for Arc<str> {
    const NOUN: &'static str = "result";

    fn size(&self) -> usize {
        self.len()
    }
}

impl StoredContent for StoredFile {
    const NOUN: &'static str = "file";

    fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// Entries of one type, oldest first.
pub(super) struct BoundedStore<T> {
    entries: Mutex<VecDeque<StoreEntry<T>>>,
}

impl<T> Default for BoundedStore<T> {
    fn default() -> Self {
        Self { entries: Mutex::default() }
    }
}

struct StoreEntry<T> {
    id: Uuid,
    /// The authenticated subject that stored the entry; `None` without authentication.
    subject: Option<String>,
    stored_at: Instant,
    content: T,
}

impl<T: StoredContent> BoundedStore<T> {
    /// Stores an entry; returns its id, which is random and cannot be guessed.
    pub(super) fn put(&self, content: T, owner: Option<&Identity>, now: Instant) -> Uuid {
        let id = Uuid::new_v4();
        let subject = owner.map(|owner| owner.subject.clone());
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push_back(StoreEntry { id, subject, stored_at: now, content });
        evict(&mut entries, now);
        id
    }

    /// The entry with this id, if `reader` stored it.
    pub(super) fn get(&self, id: &str, reader: Option<&Identity>, now: Instant) -> Result<T, ToolError> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        evict(&mut entries, now);
        let subject = reader.map(|reader| reader.subject.as_str());
        let requested = Uuid::try_parse(id.trim()).ok();
        let found =
            entries.iter().find(|entry| Some(entry.id) == requested && entry.subject.as_deref() == subject);
        // The error is the same for an entry of another identity, so that it does not reveal that there is
        // one.
        found.map(|entry| entry.content.clone()).ok_or_else(|| {
            let (noun, id) = (T::NOUN, truncate(id));
            ToolError::not_found(format!(
                "no {noun} is kept under the id {id}: only the newest {ENTRIES_MAX} are kept, for an hour or \
                 until the server stops; run the script again"
            ))
        })
    }
}

/// Removes expired entries, and the oldest entries while there are too many.
fn evict<T: StoredContent>(entries: &mut VecDeque<StoreEntry<T>>, now: Instant) {
    let mut bytes: usize = entries.iter().map(|entry| entry.content.size()).sum();
    while let Some(oldest) = entries.front() {
        let is_expired = now.saturating_duration_since(oldest.stored_at) > AGE_MAX;
        let is_over_limit = entries.len() > ENTRIES_MAX || (bytes > BYTES_MAX && entries.len() > 1);
        if !is_expired && !is_over_limit {
            break;
        }
        bytes -= oldest.content.size();
        entries.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(subject: &str) -> Identity {
        Identity { subject: subject.to_owned(), ..Identity::default() }
    }

    fn put(store: &BoundedStore<Arc<str>>, bytes: usize, now: Instant) -> String {
        store.put("x".repeat(bytes).into(), None, now).to_string()
    }

    #[test]
    fn only_whoever_made_a_result_reads_it() {
        let (store, now) = (BoundedStore::<Arc<str>>::default(), Instant::now());
        let (mine, theirs) = (identity("me"), identity("them"));
        let id = store.put("1".into(), Some(&mine), now).to_string();
        assert_eq!(&*store.get(&id, Some(&mine), now).unwrap(), "1");
        for reader in [Some(&theirs), None] {
            let error = store.get(&id, reader, now).unwrap_err();
            assert!(
                error.message().starts_with(&format!("no result is kept under the id {id}: ")),
                "{error}"
            );
        }
        let open = store.put("2".into(), None, now).to_string();
        assert_eq!(&*store.get(&open, None, now).unwrap(), "2");
        assert!(store.get(&open, Some(&mine), now).is_err());
        assert!(store.get("no id", None, now).is_err());
    }

    #[test]
    fn a_result_is_gone_after_a_while() {
        let (store, now) = (BoundedStore::<Arc<str>>::default(), Instant::now());
        let id = put(&store, 1, now);
        assert!(store.get(&id, None, now + AGE_MAX).is_ok());
        assert!(store.get(&id, None, now + AGE_MAX + Duration::from_secs(1)).is_err());
    }

    #[test]
    fn the_oldest_gives_way_to_the_newest() {
        let (store, now) = (BoundedStore::<Arc<str>>::default(), Instant::now());
        let ids: Vec<String> = (0..=ENTRIES_MAX).map(|_| put(&store, 1, now)).collect();
        assert!(store.get(&ids[0], None, now).is_err());
        assert!(ids[1..].iter().all(|id| store.get(id, None, now).is_ok()));

        let half = put(&store, BYTES_MAX / 2, now);
        assert!(store.get(&ids[ENTRIES_MAX], None, now).is_ok());
        let other_half = put(&store, BYTES_MAX / 2, now);
        assert!(store.get(&ids[ENTRIES_MAX], None, now).is_err());
        assert!(store.get(&half, None, now).is_ok());
        let huge = put(&store, BYTES_MAX + 1, now);
        assert!(store.get(&other_half, None, now).is_err());
        assert!(store.get(&huge, None, now).is_ok());
    }
}
