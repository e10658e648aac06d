//! Vectors.

use super::OpenStore;
use super::follower::VectorFollower;
use super::samples::{document, half, source, text_hash, vector, with_vectors};
use crate::documents::Mutation;
use crate::store::Store;
use crate::vectors::{DocumentVectors, ModelKey, PendingQuery, UnreadableChunk};

fn put(store: &dyn Store, body: &str, made: Option<ModelKey>, wanted: Option<ModelKey>) {
    let document = with_vectors(document(1, "a", body), made, wanted);
    store.apply(&[Mutation::Put(Box::new(document))]).unwrap();
}

fn exact(store: &dyn Store, model: ModelKey, chunks: u64) -> Vec<Option<Vec<u8>>> {
    let key = store.list(0, 1).unwrap()[0].key;
    let places: Vec<(u64, u64)> = (0..chunks).map(|position| (key, position)).collect();
    store.exact_chunk_vectors(model, &places).unwrap()
}

pub(super) fn vectors_of_unchanged_texts_survive_a_change(open: OpenStore<'_>) {
    let store = open("survive");
    let (fast, own) = (store.ensure_model("fast").unwrap(), store.ensure_model("own").unwrap());
    assert_eq!((store.ensure_model("own").unwrap(), store.dimensions(own).unwrap()), (own, None));
    put(&*store, "one\ntwo\n", Some(own), Some(own));
    assert_eq!(store.dimensions(own).unwrap(), Some(4));
    assert!(store.incomplete_sources(own).unwrap().is_empty());
    let mut follower = VectorFollower::new(own);
    follower.catch_up(&*store, 1);
    // The second text moves to the front; the first is gone.
    put(&*store, "two\nthree\n", Some(fast), Some(own));
    assert_eq!(exact(&*store, own, 2), [Some(half(own, "two\n")), None]);
    assert_eq!(exact(&*store, fast, 2), [Some(half(fast, "two\n")), Some(half(fast, "three\n"))]);
    assert_eq!(store.incomplete_sources(own).unwrap().len(), 1);
    follower.catch_up(&*store, 1);
    assert_eq!(follower.vectors.len(), 1);
    let coverage = store.coverage(own).unwrap();
    assert_eq!((coverage.chunks, coverage.vectors, coverage.pending_documents), (2, 1, 1));
}

pub(super) fn vectors_of_an_older_text_are_dropped(open: OpenStore<'_>) {
    let store = open("older");
    let own = store.ensure_model("own").unwrap();
    put(&*store, "one\ntwo\n", None, Some(own));
    let query = |marked| PendingQuery { model: own, trusts_marks: marked, after: 0, limit: 9 };
    let pending = store.pending(&query(true)).unwrap().remove(0);
    assert_eq!(pending, store.pending(&query(false)).unwrap().remove(0));
    assert_eq!(pending.chunks.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [0, 1]);
    assert!(store.lacks_vectors(own).unwrap());
    put(&*store, "one\nthree\n", None, Some(own));
    let embedded = |generation| DocumentVectors {
        document: pending.key,
        generation,
        vectors: vec![vector(own, 0, "one\n"), vector(own, 1, "three\n")],
        unreadable: Vec::new(),
    };
    assert!(store.put_vectors(own, true, &[embedded(pending.generation)]).unwrap(), "the model is known");
    assert_eq!(exact(&*store, own, 2), [None, None], "it was written meanwhile");
    let pending = store.pending(&query(true)).unwrap().remove(0);
    let generation = store.generation().unwrap();
    assert!(store.put_vectors(own, true, &[embedded(pending.generation)]).unwrap());
    assert_eq!(store.generation().unwrap(), generation, "no document has changed");
    assert_eq!(exact(&*store, own, 2), [Some(half(own, "one\n")), Some(half(own, "three\n"))]);
    assert!(
        store.pending(&query(true)).unwrap().is_empty() && store.pending(&query(false)).unwrap().is_empty()
    );
}

pub(super) fn refused_chunks_are_not_waited_for(open: OpenStore<'_>) {
    let store = open("refused");
    let own = store.ensure_model("own").unwrap();
    put(&*store, "one\ntwo\n", None, Some(own));
    let query = PendingQuery { model: own, trusts_marks: true, after: 0, limit: 9 };
    let pending = store.pending(&query).unwrap().remove(0);
    let refused = UnreadableChunk { position: 1, hash: text_hash("two\n"), reason: "too long".to_owned() };
    let embedded = DocumentVectors {
        document: pending.key,
        generation: pending.generation,
        vectors: vec![vector(own, 0, "one\n")],
        unreadable: vec![refused],
    };
    store.put_vectors(own, true, &[embedded]).unwrap();
    assert!(store.incomplete_sources(own).unwrap().is_empty() && !store.lacks_vectors(own).unwrap());
    let (count, documents) = store.unreadable(own, 5).unwrap();
    assert_eq!((count, documents[0].reason.as_str(), documents[0].chunks), (1, "too long", 1));
    assert_eq!(documents[0].source, source(1).to_string());
    // The rejection follows its text to the new position; a new text is tried.
    put(&*store, "two\nthree\n", None, Some(own));
    let pending = store.pending(&query).unwrap().remove(0);
    assert_eq!(pending.chunks.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [1]);
    store.clear_model(own).unwrap();
    assert_eq!((store.unreadable(own, 5).unwrap().0, store.vector_state(own).unwrap().live), (0, 0));
}

pub(super) fn models_that_are_not_kept_are_gone(open: OpenStore<'_>) {
    let store = open("models");
    let (fast, own) = (store.ensure_model("fast").unwrap(), store.ensure_model("own").unwrap());
    put(&*store, "one\n", Some(fast), Some(own));
    put(&*store, "one\n", Some(own), Some(own));
    assert_eq!([fast, own].map(|model| store.vector_state(model).unwrap().live), [1, 1]);
    let last = |model| store.vector_state(model).unwrap().last_assigned;
    let before = last(fast);
    store.keep_models(&[own]).unwrap();
    assert_eq!([fast, own].map(|model| store.vector_state(model).unwrap().live), [0, 1]);
    assert_eq!([last(fast), last(own)], [before; 2], "a number stays assigned");
    assert_eq!((store.model("fast").unwrap(), store.model("own").unwrap()), (None, Some(own)));
    assert!(!store.put_vectors(fast, false, &[]).unwrap(), "somebody has removed it");
    let again = store.ensure_model("fast").unwrap();
    assert!(again > own, "numbers of models are not used again");
}
