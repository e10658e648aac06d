//! Concurrent writers on two handles, while a follower reads the change feed.

use super::OpenStore;
use super::follower::{DocumentFollower, VectorFollower};
use super::samples::{document, id, recount, vector, with_vectors};
use crate::changes::Generation;
use crate::documents::Mutation;
use crate::vectors::{DocumentVectors, PendingQuery};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Number of writers; half of them use a second handle.
const WRITERS: u8 = 4;
/// Documents per writer.
const DOCUMENTS: usize = 40;

/// Documents that two writers with a handle each put, change and delete in turn.
const SHARED_DOCUMENTS: usize = 6;
const SHARED_ROUNDS: usize = 30;

pub(super) fn counts_equal_a_recount_after_writers_of_the_same_documents(open: OpenStore<'_>) {
    let handles = [open("counted"), open("counted")];
    let write = |number: usize| {
        for round in 0..SHARED_ROUNDS {
            let name = format!("n{}", (round * (number + 1)) % SHARED_DOCUMENTS);
            let put = Mutation::Put(Box::new(document(1, &name, &"line\n".repeat(round % 5 + number))));
            let delete = Mutation::Delete(id(1, &name));
            let mutations = if (round + number).is_multiple_of(3) { vec![put, delete] } else { vec![put] };
            handles[number].apply(&mutations).unwrap();
        }
    };
    thread::scope(|scope| (0..handles.len()).for_each(|number| drop(scope.spawn(move || write(number)))));
    let counts = handles[0].counts().unwrap();
    assert_eq!(counts, recount(&*handles[1]));
    assert!(handles[0].problems().unwrap().is_empty());
    let deletions: Vec<Mutation> =
        (0..SHARED_DOCUMENTS).map(|number| Mutation::Delete(id(1, &format!("n{number}")))).collect();
    handles[1].apply(&deletions).unwrap();
    assert!(handles[0].counts().unwrap().is_empty(), "a source without documents is not counted");
}

pub(super) fn writers_at_once_lose_nothing_and_hide_nothing(open: OpenStore<'_>) {
    let (ours, theirs) = (open("concurrent"), open("concurrent"));
    let (fast, own) = (ours.ensure_model("fast").unwrap(), ours.ensure_model("own").unwrap());
    let running = AtomicUsize::new(usize::from(WRITERS));
    let write = |number: u8| {
        let store = if number.is_multiple_of(2) { &ours } else { &theirs };
        let mut generations = Vec::new();
        for index in 0..DOCUMENTS {
            let name = format!("n{index}");
            let new =
                with_vectors(document(number, &name, &format!("{number}\n{index}\n")), Some(fast), Some(own));
            generations.push(store.apply(&[Mutation::Put(Box::new(new))]).unwrap().generation);
            if index % 4 == 3 {
                let deleted_id = id(number, &format!("n{}", index - 2));
                generations.push(store.apply(&[Mutation::Delete(deleted_id)]).unwrap().generation);
            }
        }
        running.fetch_sub(1, Ordering::SeqCst);
        generations
    };
    // Stores missing vectors without changing documents, until the writers are done and none is missing.
    let fill = || {
        loop {
            let writing = running.load(Ordering::SeqCst) > 0;
            let query = PendingQuery { model: own, trusts_marks: true, after: 0, limit: 8 };
            let pending = theirs.pending(&query).unwrap();
            if pending.is_empty() && !writing {
                return;
            }
            let vectors = pending.iter().map(|pending| DocumentVectors {
                document: pending.key,
                generation: pending.generation,
                vectors: pending
                    .chunks
                    .iter()
                    .map(|(position, span)| vector(own, *position, span.of(&pending.body)))
                    .collect(),
                unreadable: Vec::new(),
            });
            assert!(theirs.put_vectors(own, true, &vectors.collect::<Vec<_>>()).unwrap());
        }
    };
    let follow = || {
        let mut documents = DocumentFollower::default();
        let mut vectors = [VectorFollower::new(fast), VectorFollower::new(own)];
        while running.load(Ordering::SeqCst) > 0 {
            documents.follow(&*ours, 5);
            for follower in &mut vectors {
                follower.follow(&*ours, 7);
            }
        }
        (documents, vectors)
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|number| scope.spawn(move || write(number))).collect();
        let filler = scope.spawn(fill);
        let follower = scope.spawn(follow);
        let generations: Vec<Vec<Generation>> =
            writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        filler.join().unwrap();
        assert!(generations.iter().all(|of_one| of_one.is_sorted()), "a later change has a higher number");
        let all: BTreeSet<Generation> = generations.iter().flatten().copied().collect();
        assert_eq!(
            all.len(),
            generations.iter().map(Vec::len).sum::<usize>(),
            "no two changes have the same"
        );
        // The pages read during the writes and the rest together are the whole feed.
        let (mut documents, mut vectors) = follower.join().unwrap();
        documents.catch_up(&*theirs, 11);
        vectors.iter_mut().for_each(|follower| follower.catch_up(&*theirs, 13));
        let expected = usize::from(WRITERS) * (DOCUMENTS - DOCUMENTS / 4);
        assert_eq!(documents.documents.len(), expected);
        assert!(vectors.iter().all(|follower| follower.vectors.len() == expected * 2));
    });
    assert_eq!(ours.counts().unwrap(), recount(&*theirs));
    assert!(ours.problems().unwrap().is_empty());
}
