//! Concurrent recording, extension and pruning by two handles, as two processes with one workspace do.

use super::OpenState;
use super::state::{run, run_id};
use crate::state::{DefinitionKey, RUN_DAYS_KEPT, RUNS_KEPT, RunFilter, State};
use ctx_core::RunId;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::thread;

/// Outer calls per handle, each with one nested call.
const CALLS: u128 = 400;
/// Number of writers that extend the same definitions; half of them use a second handle.
const WRITERS: usize = 4;
/// Number of additions per writer.
const ADDITIONS: usize = 10;
/// Runs that a handle records between start and stop: fewer than the queue holds.
const BATCH: u128 = 2_000;
/// Number of such batches per handle.
const BATCHES: u128 = 3;

fn outermost(state: &dyn State) -> Vec<(RunId, u64)> {
    let runs = state.runs(&RunFilter { limit: 100_000, ..RunFilter::default() }).unwrap();
    runs.into_iter().map(|recorded| (recorded.run.id, recorded.inside.calls)).collect()
}

pub(super) fn two_handles_record_at_once_and_lose_nothing(open: OpenState<'_>) {
    let handles = [open("at-once"), open("at-once")];
    let record = |state: &dyn State, first: u128| {
        state.start_recording().unwrap();
        for number in 0..CALLS {
            let outer = first + number * 4;
            state.record(run(outer + 2, Some(outer), None));
            state.record(run(outer, None, None));
        }
        state.stop_recording();
    };
    thread::scope(|scope| {
        for (first, state) in handles.iter().enumerate() {
            scope.spawn(move || record(&**state, first as u128 + 4));
        }
    });
    let numbers = (0..CALLS).rev().flat_map(|number| [number * 4 + 5, number * 4 + 4]);
    assert_eq!(outermost(&*open("at-once")), numbers.map(|number| (run_id(number), 1)).collect::<Vec<_>>());
}

pub(super) fn of_racing_extensions_none_is_lost(open: OpenState<'_>) {
    let handles = [open("race"), open("race")];
    let server = DefinitionKey { name: "up", address: "a" };
    handles[0].record_definitions(&server, "0").unwrap();
    let extend = |state: &dyn State, writer: usize| {
        for addition in 0..ADDITIONS {
            loop {
                let before = state.definitions(&server).unwrap().unwrap().accepted;
                let accepted = format!("{before} {writer}-{addition}");
                if state.replace_accepted_if(&server, &before, &accepted).unwrap() {
                    break;
                }
            }
        }
    };
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let state = &*handles[writer % 2];
            scope.spawn(move || extend(state, writer));
        }
    });
    let record = open("race").definitions(&server).unwrap().unwrap();
    let words: Vec<&str> = record.accepted.split(' ').collect();
    let expected = (0..WRITERS).flat_map(|writer| (0..ADDITIONS).map(move |n| format!("{writer}-{n}")));
    let expected: BTreeSet<String> = expected.chain(["0".to_owned()]).collect();
    assert_eq!((record.seen.as_str(), words.len()), ("0", expected.len()));
    assert_eq!(words.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), expected);
}

pub(super) fn retention_removes_the_oldest_and_no_other(open: OpenState<'_>) {
    let handles = [open("retention"), open("retention")];
    let of_handle = |handle: u128| (1..=BATCH * BATCHES).map(move |number| number * 2 + handle);
    let newest = of_handle(1).max().unwrap() + 1;
    let record = |state: &dyn State, handle: u128| {
        let numbers: Vec<u128> = of_handle(handle).collect();
        for batch in numbers.chunks(BATCH as usize) {
            state.start_recording().unwrap();
            batch.iter().for_each(|number| state.record(run(*number, None, None)));
            state.stop_recording();
        }
    };
    thread::scope(|scope| {
        for (handle, state) in (0..).zip(&handles) {
            scope.spawn(move || record(&**state, handle));
        }
    });
    let state = open("retention");
    let mut old = run(newest + 1, None, None);
    old.started_at =
        Timestamp::from_millisecond(Timestamp::now().as_millisecond() - (RUN_DAYS_KEPT * 24 + 1) * 3_600_000)
            .unwrap();
    for last in [old, run(newest, None, None)] {
        state.start_recording().unwrap();
        state.record(last);
        state.stop_recording();
    }
    let mut numbers: Vec<u128> = of_handle(0).chain(of_handle(1)).chain([newest]).collect();
    numbers.sort_unstable();
    let newest_runs = numbers.into_iter().rev().take(RUNS_KEPT).map(|number| (run_id(number), 0));
    assert!(outermost(&*state) == newest_runs.collect::<Vec<_>>(), "the newest are kept, and no others");
}
