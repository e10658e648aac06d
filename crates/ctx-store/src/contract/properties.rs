//! Random sequences of mutations, compared with a simple model.

use super::OpenStore;
use super::follower::{DocumentFollower, VectorFollower};
use super::samples::{document, half, id, recount, source, vector, with_vectors};
use crate::changes::Checkpoint;
use crate::documents::{DocumentId, DocumentStamp, Mutation, NewDocument, SkipNote, StoredStamp};
use crate::files::FileState;
use crate::store::Store;
use crate::vectors::{DocumentVectors, ModelKey, PendingQuery};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// Number of sequences.
const CASES: u32 = 48;
/// Maximum number of steps in a sequence.
const STEPS: usize = 40;
/// Maximum number of mutations that are applied together.
const BATCH_MAX: usize = 6;
/// Names of documents, in each of two sources.
const NAMES: [&str; 4] = ["a", "a/b", "a.b", "é"];
/// Texts; some chunks are in several of them.
const BODIES: [&str; 5] = ["", "one\n", "one\ntwo\n", "two\none\nthree\n", "four\ntwo\ntwo\n"];

/// One step of a sequence.
#[derive(Clone, Debug)]
enum StoreStep {
    Put { document: DocumentIndexes, body: usize, made: bool, fingerprint: Option<u8>, note: bool },
    Refresh { document: DocumentIndexes, fingerprint: Option<u8>, note: bool },
    SkipEmpty { document: DocumentIndexes, fingerprint: u8 },
    SkipUnreadable { document: DocumentIndexes, fingerprint: u8 },
    Delete { document: DocumentIndexes },
    Fill { limit: usize },
    ClearVectors,
    Follow { limit: usize },
}

/// A document by its source and the index of its name.
type DocumentIndexes = (u8, usize);

/// The expected content of a store.
#[derive(Default)]
struct ExpectedStore {
    documents: BTreeMap<DocumentId, NewDocument>,
    skipped: BTreeMap<DocumentId, (u8, SkipNote)>,
    /// Ids in insertion order.
    order: Vec<DocumentId>,
}

fn step() -> impl Strategy<Value = StoreStep> {
    let document = || (1..=2u8, 0..NAMES.len());
    let fingerprint = || 0..3u8;
    let optional = || proptest::option::weighted(0.8, 0..3u8);
    prop_oneof![
        8 => (document(), 0..BODIES.len(), any::<bool>(), optional(), any::<bool>()).prop_map(
            |(document, body, made, fingerprint, note)| StoreStep::Put { document, body, made, fingerprint, note }
        ),
        2 => (document(), optional(), any::<bool>())
            .prop_map(|(document, fingerprint, note)| StoreStep::Refresh { document, fingerprint, note }),
        1 => (document(), fingerprint()).prop_map(|(document, fingerprint)| StoreStep::SkipEmpty { document, fingerprint }),
        1 => (document(), fingerprint())
            .prop_map(|(document, fingerprint)| StoreStep::SkipUnreadable { document, fingerprint }),
        3 => document().prop_map(|document| StoreStep::Delete { document }),
        3 => (1..4usize).prop_map(|limit| StoreStep::Fill { limit }),
        1 => Just(StoreStep::ClearVectors),
        3 => (1..5usize).prop_map(|limit| StoreStep::Follow { limit }),
    ]
}

pub(super) fn any_sequence_of_mutations_is_stored_and_followed(open: OpenStore<'_>) {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let count = Cell::new(0);
    let ran = TestRunner::new(config).run(&(vec(step(), 1..STEPS), 1..BATCH_MAX), |(steps, batch)| {
        count.set(count.get() + 1);
        check(&*open(&format!("property-{}", count.get())), &steps, batch);
        Ok(())
    });
    if let Err(failure) = ran {
        panic!("{failure}");
    }
}

/// Mutations that are applied together, with the number of documents that they delete.
#[derive(Default)]
struct MutationBatch {
    mutations: Vec<Mutation>,
    deleted: u64,
}

impl MutationBatch {
    fn apply(&mut self, store: &dyn Store) {
        let Self { mutations, deleted } = std::mem::take(self);
        let generation = store.generation().unwrap();
        let applied = store.apply(&mutations).unwrap();
        assert_eq!(applied.deleted, deleted, "{mutations:?}");
        let newest = store.generation().unwrap();
        assert!(applied.generation == newest || newest == generation, "{mutations:?}");
    }
}

/// Runs the steps; mutations are applied together, up to `batch_max` at a time.
fn check(store: &dyn Store, steps: &[StoreStep], batch_max: usize) {
    let mut batch = MutationBatch::default();
    let (fast, own) = (store.ensure_model("fast").unwrap(), store.ensure_model("own").unwrap());
    let mut expected = ExpectedStore::default();
    let mut documents = DocumentFollower::default();
    let mut vectors = [VectorFollower::new(fast), VectorFollower::new(own)];
    let start = store.checkpoint().unwrap();
    let mut middle: Option<(Checkpoint, BTreeMap<DocumentId, NewDocument>)> = None;
    for (index, step) in steps.iter().enumerate() {
        if mutation(step, fast, own).is_none() {
            batch.apply(store);
        }
        match step {
            StoreStep::Fill { limit } => fill(store, own, *limit),
            StoreStep::ClearVectors => store.clear_model(own).unwrap(),
            StoreStep::Follow { limit } => {
                documents.follow(store, *limit);
                for follower in &mut vectors {
                    follower.follow(store, *limit);
                }
            }
            step => {
                let Some(mutation) = mutation(step, fast, own) else { continue };
                batch.deleted += u64::from(expected.apply(step, &mutation));
                batch.mutations.push(mutation);
                if batch.mutations.len() == batch_max {
                    batch.apply(store);
                }
            }
        }
        if index == steps.len() / 2 {
            batch.apply(store);
            middle = Some((store.checkpoint().unwrap(), expected.documents.clone()));
        }
    }
    batch.apply(store);
    expected.compare(store);
    documents.catch_up(store, 3);
    vectors.iter_mut().for_each(|follower| follower.catch_up(store, 3));
    for model in [fast, own] {
        check_vectors(store, model);
    }
    let (middle, then) = middle.unwrap();
    let changed = store.changed_between(middle, store.checkpoint().unwrap(), 1_000).unwrap().unwrap();
    let deleted = then.keys().filter(|id| !expected.documents.contains_key(*id));
    assert!(deleted.clone().all(|id| changed.changed.contains(id)), "those that are gone have changed");
    assert!(changed.changed.iter().all(|id| then.contains_key(id)), "only those that were there");
    assert!(changed.membership_changed || then.keys().eq(expected.documents.keys()));
    let all = store.changed_between(start, store.checkpoint().unwrap(), 0).unwrap();
    assert!(all.is_some_and(|all| all.changed.is_empty()), "nothing was there at first");
}

fn mutation(step: &StoreStep, fast: ModelKey, own: ModelKey) -> Option<Mutation> {
    let shown = |fingerprint: u8| format!("f{fingerprint}");
    let note = |note: bool| note.then(|| "in part".to_owned());
    let of = |(source_number, name): &DocumentIndexes| {
        (id(*source_number, NAMES[*name]), source(*source_number), NAMES[*name].to_owned())
    };
    Some(match step {
        StoreStep::Put { document: (number, name), body, made, fingerprint, note: noted } => {
            let new = document(*number, NAMES[*name], BODIES[*body]);
            let mut new = with_vectors(new, made.then_some(fast), Some(own));
            new.fingerprint = fingerprint.map(shown);
            new.note = note(*noted);
            Mutation::Put(Box::new(new))
        }
        StoreStep::Refresh { document, fingerprint, note: noted } => {
            let (id, source, source_id) = of(document);
            let fingerprint = fingerprint.map(shown);
            Mutation::Refresh { id, source, source_id, fingerprint, note: note(*noted) }
        }
        StoreStep::SkipEmpty { document, fingerprint } => {
            let (id, source, source_id) = of(document);
            Mutation::SkipEmpty { id, source, source_id, fingerprint: shown(*fingerprint) }
        }
        StoreStep::SkipUnreadable { document, fingerprint } => {
            let (id, source, source_id) = of(document);
            let (fingerprint, reason) = (shown(*fingerprint), "damaged".to_owned());
            Mutation::SkipUnreadable { id, source, source_id, fingerprint, reason }
        }
        StoreStep::Delete { document } => Mutation::Delete(of(document).0),
        StoreStep::Fill { .. } | StoreStep::ClearVectors | StoreStep::Follow { .. } => return None,
    })
}

/// Stores the vectors that some documents lack.
fn fill(store: &dyn Store, model: ModelKey, limit: usize) {
    let pending = store.pending(&PendingQuery { model, trusts_marks: true, after: 0, limit }).unwrap();
    let vectors = pending.iter().map(|pending| DocumentVectors {
        document: pending.key,
        generation: pending.generation,
        vectors: pending
            .chunks
            .iter()
            .map(|(position, span)| vector(model, *position, span.of(&pending.body)))
            .collect(),
        unreadable: Vec::new(),
    });
    assert!(store.put_vectors(model, true, &vectors.collect::<Vec<_>>()).unwrap());
}

/// Checks that every vector matches the current text of its chunk, and that documents are pending exactly if they lack
/// vectors.
fn check_vectors(store: &dyn Store, model: ModelKey) {
    let mut lacking = Vec::new();
    for listed in store.list(0, 1_000).unwrap() {
        let document = store.document(listed.id).unwrap().unwrap();
        let places: Vec<(u64, u64)> =
            document.chunks.iter().map(|chunk| (listed.key, chunk.index as u64)).collect();
        let exact = store.exact_chunk_vectors(model, &places).unwrap();
        for (chunk, exact) in document.chunks.iter().zip(&exact) {
            assert!(exact.as_ref().is_none_or(|exact| *exact == half(model, &chunk.text)), "{chunk:?}");
        }
        if exact.iter().any(Option::is_none) {
            lacking.push(listed.key);
        }
    }
    let query = PendingQuery { model, trusts_marks: false, after: 0, limit: 1_000 };
    let pending: Vec<u64> = store.pending(&query).unwrap().iter().map(|one| one.key).collect();
    assert_eq!(pending, lacking);
    assert_eq!(store.lacks_vectors(model).unwrap(), !lacking.is_empty());
    let unmarked = PendingQuery { trusts_marks: true, ..query };
    let coverage = store.coverage(model).unwrap();
    assert_eq!(coverage.pending_documents, store.pending(&unmarked).unwrap().len() as u64);
    assert_eq!(coverage.chunks, recount(store).values().map(|counts| counts.chunks).sum::<u64>());
}

impl ExpectedStore {
    /// Applies the mutation to the model; returns whether it is a deletion of a stored document.
    fn apply(&mut self, step: &StoreStep, mutation: &Mutation) -> bool {
        let source_number = match step {
            StoreStep::Put { document, .. }
            | StoreStep::Refresh { document, .. }
            | StoreStep::SkipEmpty { document, .. }
            | StoreStep::SkipUnreadable { document, .. }
            | StoreStep::Delete { document } => document.0,
            StoreStep::Fill { .. } | StoreStep::ClearVectors | StoreStep::Follow { .. } => return false,
        };
        let mut note = |id: &DocumentId, fingerprint: &Option<String>, note: &Option<String>| {
            self.skipped.remove(id);
            if let (Some(fingerprint), Some(note)) = (fingerprint, note) {
                self.skipped.insert(*id, (source_number, skip_note(fingerprint, Some(note))));
            }
        };
        match mutation {
            Mutation::Put(document) => {
                note(&document.id, &document.fingerprint, &document.note);
                if self.documents.insert(document.id, (**document).clone()).is_none() {
                    self.order.push(document.id);
                }
                false
            }
            Mutation::Refresh { id, fingerprint, note: noted, .. } => {
                note(id, fingerprint, noted);
                if let Some(document) = self.documents.get_mut(id) {
                    document.fingerprint.clone_from(fingerprint);
                }
                false
            }
            Mutation::SkipEmpty { id, fingerprint, .. } => {
                self.delete(*id);
                self.skipped.insert(*id, (source_number, skip_note(fingerprint, None)));
                false
            }
            Mutation::SkipUnreadable { id, fingerprint, reason, .. } => {
                self.skipped.insert(*id, (source_number, skip_note(fingerprint, Some(reason))));
                false
            }
            Mutation::Delete(id) => self.delete(*id),
        }
    }

    fn delete(&mut self, id: DocumentId) -> bool {
        self.skipped.remove(&id);
        self.order.retain(|known| *known != id);
        self.documents.remove(&id).is_some()
    }

    /// The state of each file of a source, by name.
    fn files(&self, number: u8) -> Vec<(String, FileState)> {
        let mut names = NAMES.to_vec();
        names.sort_unstable();
        let state = |name: &str| {
            let note = self.skipped.get(&id(number, name)).map(|(_, note)| note.clone());
            let Some(document) = self.documents.get(&id(number, name)) else {
                return note.map(|note| match note.reason {
                    Some(reason) => FileState::Unreadable { reason, has_earlier_text: false },
                    None => FileState::Empty,
                });
            };
            Some(match note.and_then(|note| Some((note.fingerprint, note.reason?))) {
                None => FileState::Indexed,
                Some((of, reason)) if document.fingerprint.as_ref() == Some(&of) => {
                    FileState::Partial { reason }
                }
                Some((_, reason)) => FileState::Unreadable { reason, has_earlier_text: true },
            })
        };
        names.into_iter().filter_map(|name| Some((name.to_owned(), state(name)?))).collect()
    }

    fn compare(&self, store: &dyn Store) {
        for number in 1..=2 {
            for name in NAMES {
                let id = id(number, name);
                let expected = self.documents.get(&id);
                let stored = store.document(id).unwrap();
                assert_eq!(stored.map(|one| one.body), expected.map(|one| one.body.clone()));
                let stamp = DocumentStamp {
                    stored: expected.map(|one| StoredStamp {
                        hash: one.hash.to_vec(),
                        fingerprint: one.fingerprint.clone(),
                    }),
                    skipped: self.skipped.get(&id).map(|(_, note)| note.clone()),
                };
                assert_eq!(store.stamps(&[id]).unwrap(), [stamp]);
            }
            let of_source = self.documents.values().filter(|one| one.source == source(number).to_string());
            let counts = store.counts().unwrap().remove(&source(number).to_string());
            assert_eq!(counts.is_some(), of_source.clone().count() > 0);
            let counts = counts.unwrap_or_default();
            assert_eq!(counts.documents, of_source.clone().count() as u64);
            assert_eq!(counts.chunks, of_source.clone().map(|one| one.chunks.len() as u64).sum::<u64>());
            assert_eq!(counts.bytes, of_source.clone().map(|one| one.body.len() as u64).sum::<u64>());
            assert_eq!(listed_files(store, number, 3), self.files(number));
        }
        let listed: Vec<DocumentId> = store.list(0, 1_000).unwrap().iter().map(|one| one.id).collect();
        assert_eq!(listed, self.order, "in the order in which they came");
        let sources: BTreeSet<String> = self.documents.values().map(|one| one.source.clone()).collect();
        assert_eq!(store.sources_with_documents().unwrap(), sources);
        assert_eq!(store.counts().unwrap(), recount(store));
        assert!(store.problems().unwrap().is_empty());
    }
}

fn skip_note(fingerprint: &str, reason: Option<&String>) -> SkipNote {
    SkipNote { fingerprint: fingerprint.to_owned(), reason: reason.cloned(), is_named: true }
}

/// The files of a source, read in pages.
fn listed_files(store: &dyn Store, number: u8, limit: usize) -> Vec<(String, FileState)> {
    let (mut files, mut after) = (Vec::new(), None);
    loop {
        let page = store.files(&source(number), after.as_ref(), limit).unwrap();
        let Some(last) = page.last() else { return files };
        assert!(page.len() <= limit && page.iter().all(|file| file.read_at.is_some()));
        after = Some(last.position());
        for file in page {
            let name = file.source_id.unwrap();
            assert_eq!(file.id, id(number, &name));
            files.push((name, file.state));
        }
    }
}
