//! Mutations that a sync has prepared but not stored yet: storing several in one transaction costs a fraction of a
//! transaction for each.

use ctx_store::Mutation;
use std::mem;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Maximum number of mutations in a batch.
const MUTATIONS_MAX: usize = 64;
/// Size of the documents in a batch beyond which it is stored, a bound on memory and on how long other writers wait.
const BYTES_MAX: usize = 4 << 20;
/// Maximum time that a mutation waits for others.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// Mutations in the order in which they were prepared.
#[derive(Default)]
pub(super) struct MutationBatch {
    mutations: Vec<Mutation>,
    bytes: usize,
    /// When the oldest mutation must be stored.
    due_at: Option<Instant>,
}

impl MutationBatch {
    pub(super) fn push(&mut self, mutation: Mutation) {
        self.due_at.get_or_insert_with(|| Instant::now() + WAIT_MAX);
        self.bytes = self.bytes.saturating_add(size(&mutation));
        self.mutations.push(mutation);
    }

    /// Whether the batch has to be stored before anything is added.
    pub(super) fn is_due(&self) -> bool {
        self.mutations.len() >= MUTATIONS_MAX
            || self.bytes >= BYTES_MAX
            || self.due_at.is_some_and(|due_at| due_at <= Instant::now())
    }

    /// When the batch has to be stored; `None` while it is empty.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.due_at
    }

    /// Whether a mutation of this document is waiting, so that the store has an earlier state of it.
    pub(super) fn contains(&self, id: Uuid) -> bool {
        self.mutations.iter().any(|mutation| mutation.id() == id)
    }

    /// Takes all mutations.
    pub(super) fn take(&mut self) -> Vec<Mutation> {
        mem::take(self).mutations
    }
}

/// Bytes that a mutation brings into the store, roughly.
fn size(mutation: &Mutation) -> usize {
    let Mutation::Put(document) = mutation else { return 0 };
    let vectors = document.vectors.computed.iter().flat_map(|(_, vectors)| vectors);
    document.body.len() + vectors.map(|vector| vector.codes.len() + vector.half.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_core::SourceName;

    fn skip(number: u128) -> Mutation {
        let source = SourceName::new("filesystem", "notes");
        let (source_id, fingerprint) = (number.to_string(), "1".to_owned());
        Mutation::SkipEmpty { id: Uuid::from_u128(number), source, source_id, fingerprint }
    }

    #[test]
    fn a_full_batch_is_due_and_comes_out_in_order() {
        let mut batch = MutationBatch::default();
        assert!(batch.due_at().is_none() && !batch.is_due());
        for number in 0..MUTATIONS_MAX as u128 {
            assert!(!batch.contains(Uuid::from_u128(number)));
            batch.push(skip(number));
            assert!(batch.contains(Uuid::from_u128(number)));
        }
        assert!(batch.is_due());
        let ids: Vec<u128> = batch.take().iter().map(|mutation| mutation.id().as_u128()).collect();
        assert!(ids.into_iter().eq(0..MUTATIONS_MAX as u128));
        assert!(batch.due_at().is_none() && !batch.is_due());
    }

    #[test]
    fn the_oldest_mutation_decides_when_a_batch_is_due() {
        let mut batch = MutationBatch::default();
        batch.push(skip(1));
        let due_at = batch.due_at();
        assert!(due_at.is_some_and(|due_at| due_at <= Instant::now() + WAIT_MAX));
        batch.push(skip(2));
        assert_eq!(batch.due_at(), due_at);
    }
}
