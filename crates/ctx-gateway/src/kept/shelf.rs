//! Where results wait for whoever made them: in memory, the newest, for a while.

use crate::discover::cut;
use ctx_core::{Identity, ToolError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Results kept at once.
const RESULTS_MAX: usize = 100;

/// Their bytes as JSON. One that is larger alone is kept alone.
const BYTES_MAX: usize = 64 << 20;

/// How long one is kept.
const AGE_MAX: Duration = Duration::from_secs(3_600);

/// Results that were too large for an answer, oldest first.
#[derive(Default)]
pub(super) struct Shelf {
    results: Mutex<VecDeque<Kept>>,
}

struct Kept {
    id: Uuid,
    /// Whom its maker had proved to be.
    subject: Option<String>,
    since: Instant,
    json: Arc<str>,
}

impl Shelf {
    /// Keeps a result; its id cannot be guessed.
    pub(super) fn put(&self, json: Arc<str>, maker: Option<&Identity>, now: Instant) -> Uuid {
        let id = Uuid::new_v4();
        let subject = maker.map(|maker| maker.subject.clone());
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.push_back(Kept { id, subject, since: now, json });
        clear(&mut results, now);
        id
    }

    /// The result of this id, for whoever made it.
    pub(super) fn get(
        &self,
        id: &str,
        reader: Option<&Identity>,
        now: Instant,
    ) -> Result<Arc<str>, ToolError> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        clear(&mut results, now);
        let subject = reader.map(|reader| reader.subject.as_str());
        let wanted = Uuid::try_parse(id.trim()).ok();
        let found = results.iter().find(|kept| Some(kept.id) == wanted && kept.subject.as_deref() == subject);
        // Whether it is another's is nobody's business.
        found.map(|kept| kept.json.clone()).ok_or_else(|| {
            ToolError::not_found(format!(
                "no result is kept under the id {}: the newest {RESULTS_MAX} are, for an hour, until the server \
                 ends; run the script again",
                cut(id)
            ))
        })
    }
}

/// Lets go of what is too old, and of the oldest while there is too much.
fn clear(results: &mut VecDeque<Kept>, now: Instant) {
    let mut bytes: usize = results.iter().map(|kept| kept.json.len()).sum();
    while let Some(oldest) = results.front() {
        let is_old = now.saturating_duration_since(oldest.since) > AGE_MAX;
        let is_much = results.len() > RESULTS_MAX || (bytes > BYTES_MAX && results.len() > 1);
        if !is_old && !is_much {
            break;
        }
        bytes -= oldest.json.len();
        results.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(subject: &str) -> Identity {
        Identity { subject: subject.to_owned(), ..Identity::default() }
    }

    fn put(shelf: &Shelf, bytes: usize, now: Instant) -> String {
        shelf.put("x".repeat(bytes).into(), None, now).to_string()
    }

    #[test]
    fn only_whoever_made_a_result_reads_it() {
        let (shelf, now) = (Shelf::default(), Instant::now());
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
        let (shelf, now) = (Shelf::default(), Instant::now());
        let id = put(&shelf, 1, now);
        assert!(shelf.get(&id, None, now + AGE_MAX).is_ok());
        assert!(shelf.get(&id, None, now + AGE_MAX + Duration::from_secs(1)).is_err());
    }

    #[test]
    fn the_oldest_gives_way_to_the_newest() {
        let (shelf, now) = (Shelf::default(), Instant::now());
        let ids: Vec<String> = (0..=RESULTS_MAX).map(|_| put(&shelf, 1, now)).collect();
        assert!(shelf.get(&ids[0], None, now).is_err());
        assert!(ids[1..].iter().all(|id| shelf.get(id, None, now).is_ok()));

        let half = put(&shelf, BYTES_MAX / 2, now);
        assert!(shelf.get(&ids[RESULTS_MAX], None, now).is_ok());
        let other_half = put(&shelf, BYTES_MAX / 2, now);
        assert!(shelf.get(&ids[RESULTS_MAX], None, now).is_err());
        assert!(shelf.get(&half, None, now).is_ok());
        let huge = put(&shelf, BYTES_MAX + 1, now);
        assert!(shelf.get(&other_half, None, now).is_err());
        assert!(shelf.get(&huge, None, now).is_ok());
    }
}
