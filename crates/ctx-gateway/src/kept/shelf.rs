//! [`Shelf`]: an in-memory store of kept results and files, with bounds on number, size and age. Each entry
//! can be read only by the identity that stored it.

use crate::discover::cut;
use ctx_core::{Identity, KeptFile, ToolError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Maximum number of entries of one sort.
const THINGS_MAX: usize = 100;

/// Maximum total size of the entries of one sort. An entry that alone is larger is kept alone.
const BYTES_MAX: usize = 64 << 20;

/// Maximum age of an entry.
const AGE_MAX: Duration = Duration::from_secs(3_600);

/// Content that can be kept.
pub(super) trait Thing: Clone {
    /// Its noun in error messages.
    const SORT: &'static str;

    /// Size in bytes.
    fn size(&self) -> usize;
}

/// A result, as JSON.
impl Thing for Arc<str> {
    const SORT: &'static str = "result";

    fn size(&self) -> usize {
        self.len()
    }
}

impl Thing for KeptFile {
    const SORT: &'static str = "file";

    fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// The entries of one sort, oldest first.
pub(super) struct Shelf<T> {
    things: Mutex<VecDeque<Kept<T>>>,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { things: Mutex::default() }
    }
}

struct Kept<T> {
    id: Uuid,
    /// The authenticated subject that stored the entry; `None` without authentication.
    subject: Option<String>,
    since: Instant,
    thing: T,
}

impl<T: Thing> Shelf<T> {
    /// Stores an entry; returns its id, which is random and cannot be guessed.
    pub(super) fn put(&self, thing: T, maker: Option<&Identity>, now: Instant) -> Uuid {
        let id = Uuid::new_v4();
        let subject = maker.map(|maker| maker.subject.clone());
        let mut things = self.things.lock().unwrap_or_else(PoisonError::into_inner);
        things.push_back(Kept { id, subject, since: now, thing });
        clear(&mut things, now);
        id
    }

    /// The entry with this id, if `reader` stored it.
    pub(super) fn get(&self, id: &str, reader: Option<&Identity>, now: Instant) -> Result<T, ToolError> {
        let mut things = self.things.lock().unwrap_or_else(PoisonError::into_inner);
        clear(&mut things, now);
        let subject = reader.map(|reader| reader.subject.as_str());
        let wanted = Uuid::try_parse(id.trim()).ok();
        let found = things.iter().find(|kept| Some(kept.id) == wanted && kept.subject.as_deref() == subject);
        // The error is the same for an entry of another identity, so that it does not reveal that there is
        // one.
        found.map(|kept| kept.thing.clone()).ok_or_else(|| {
            let (sort, id) = (T::SORT, cut(id));
            ToolError::not_found(format!(
                "no {sort} is kept under the id {id}: the newest {THINGS_MAX} are, for an hour, until the server \
                 ends; run the script again"
            ))
        })
    }
}

/// Removes expired entries, and the oldest entries while there are too many.
fn clear<T: Thing>(things: &mut VecDeque<Kept<T>>, now: Instant) {
    let mut bytes: usize = things.iter().map(|kept| kept.thing.size()).sum();
    while let Some(oldest) = things.front() {
        let is_old = now.saturating_duration_since(oldest.since) > AGE_MAX;
        let is_much = things.len() > THINGS_MAX || (bytes > BYTES_MAX && things.len() > 1);
        if !is_old && !is_much {
            break;
        }
        bytes -= oldest.thing.size();
        things.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(subject: &str) -> Identity {
        Identity { subject: subject.to_owned(), ..Identity::default() }
    }

    fn put(shelf: &Shelf<Arc<str>>, bytes: usize, now: Instant) -> String {
        shelf.put("x".repeat(bytes).into(), None, now).to_string()
    }

    #[test]
    fn only_whoever_made_a_result_reads_it() {
        let (shelf, now) = (Shelf::<Arc<str>>::default(), Instant::now());
        let (mine, theirs) = (identity("me"), identity("them"));
        let id = shelf.put("1".into(), Some(&mine), now).to_string();
        assert_eq!(&*shelf.get(&id, Some(&mine), now).unwrap(), "1");
        for reader in [Some(&theirs), None] {
            let error = shelf.get(&id, reader, now).unwrap_err();
            assert!(
                error.message().starts_with(&format!("no result is kept under the id {id}: ")),
                "{error}"
            );
        }
        let open = shelf.put("2".into(), None, now).to_string();
        assert_eq!(&*shelf.get(&open, None, now).unwrap(), "2");
        assert!(shelf.get(&open, Some(&mine), now).is_err());
        assert!(shelf.get("no id", None, now).is_err());
    }

    #[test]
    fn a_result_is_gone_after_a_while() {
        let (shelf, now) = (Shelf::<Arc<str>>::default(), Instant::now());
        let id = put(&shelf, 1, now);
        assert!(shelf.get(&id, None, now + AGE_MAX).is_ok());
        assert!(shelf.get(&id, None, now + AGE_MAX + Duration::from_secs(1)).is_err());
    }

    #[test]
    fn the_oldest_gives_way_to_the_newest() {
        let (shelf, now) = (Shelf::<Arc<str>>::default(), Instant::now());
        let ids: Vec<String> = (0..=THINGS_MAX).map(|_| put(&shelf, 1, now)).collect();
        assert!(shelf.get(&ids[0], None, now).is_err());
        assert!(ids[1..].iter().all(|id| shelf.get(id, None, now).is_ok()));

        let half = put(&shelf, BYTES_MAX / 2, now);
        assert!(shelf.get(&ids[THINGS_MAX], None, now).is_ok());
        let other_half = put(&shelf, BYTES_MAX / 2, now);
        assert!(shelf.get(&ids[THINGS_MAX], None, now).is_err());
        assert!(shelf.get(&half, None, now).is_ok());
        let huge = put(&shelf, BYTES_MAX + 1, now);
        assert!(shelf.get(&other_half, None, now).is_err());
        assert!(shelf.get(&huge, None, now).is_ok());
    }
}
