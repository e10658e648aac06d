//! Runs and definitions.

use super::OpenState;
use crate::state::{DefinitionKey, RUN_TREE_MAX, RunFilter, ServerDefinitions};
use ctx_core::{Run, RunId, RunOutcome};
use jiff::Timestamp;
use serde_json::json;
use std::time::Duration;
use uuid::Uuid;

/// The id of a run of the suite; a higher number is a newer run.
pub(super) fn run_id(number: u128) -> RunId {
    Uuid::from_u128(number).to_string().parse().unwrap()
}

/// A run of the suite: `even` or `odd` is its tool.
pub(super) fn run(number: u128, parent: Option<u128>, code: Option<&str>) -> Run {
    Run {
        id: run_id(number),
        parent: parent.map(run_id),
        tool: if number.is_multiple_of(2) { "even" } else { "odd" }.to_owned(),
        caller: "cli".to_owned(),
        started_at: Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap(),
        duration: Duration::from_micros(1_500),
        arguments: json!({"query": "x"}),
        argument_bytes: 13,
        result_bytes: 100,
        outcome: code.map_or(RunOutcome::Ok, |code| RunOutcome::Failed {
            code: code.to_owned(),
            message: "no".to_owned(),
        }),
    }
}

pub(super) fn runs_come_back_with_what_was_called_inside(open: OpenState<'_>) {
    let state = open("tree");
    state.start_recording().unwrap();
    // Run 1 has the nested runs 2 and 3, run 3 has run 4. Run 5 has none.
    for (number, parent, code) in [
        (4, Some(3), None),
        (2, Some(1), None),
        (3, Some(1), None),
        (1, None, None),
        (5, None, Some("timeout")),
    ] {
        state.record(run(number, parent, code));
    }
    state.stop_recording();
    let list = |filter: RunFilter| {
        let runs = state.runs(&filter).unwrap();
        runs.into_iter().map(|recorded| (recorded.run.id, recorded.inside.calls)).collect::<Vec<_>>()
    };
    let all = || RunFilter { limit: 9, ..RunFilter::default() };
    assert_eq!(list(all()), [(run_id(5), 0), (run_id(1), 3)], "newest first");
    assert_eq!(list(RunFilter { limit: 1, ..all() }), [(run_id(5), 0)]);
    assert_eq!(list(RunFilter { failed: true, ..all() }), [(run_id(5), 0)]);
    assert_eq!(list(RunFilter { tool: Some("even".to_owned()), ..all() }), []);
    let tree = state.run_tree(run_id(1)).unwrap();
    assert_eq!(tree.len(), 4);
    assert!(tree.iter().any(|recorded| recorded.run.outcome == RunOutcome::Ok && recorded.inside.calls == 1));
    let text = run_id(5).to_string();
    assert_eq!(state.find_run(&text).unwrap(), Some(run_id(5)));
    assert_eq!(state.find_run(&text[..8]).unwrap(), None, "several begin so");
    assert_eq!((state.find_run("%").unwrap(), state.find_run("").unwrap()), (None, None));
}

pub(super) fn runs_are_recorded_only_while_recording(open: OpenState<'_>) {
    let state = open("recording");
    let count = || state.runs(&RunFilter { limit: 9, ..RunFilter::default() }).unwrap().len();
    state.record(run(1, None, None));
    state.start_recording().unwrap();
    state.record(run(2, None, None));
    state.stop_recording();
    state.record(run(3, None, None));
    assert_eq!(count(), 1);
}

pub(super) fn a_tree_is_cut_at_its_bound(open: OpenState<'_>) {
    let state = open("bound");
    state.start_recording().unwrap();
    let count = RUN_TREE_MAX as u128 + 20;
    (1..=count).for_each(|number| state.record(run(number, (number > 1).then_some(1), None)));
    state.stop_recording();
    let tree = state.run_tree(run_id(1)).unwrap();
    assert_eq!((tree.len(), tree[0].run.id), (RUN_TREE_MAX, run_id(1)));
    let outermost = state.runs(&RunFilter { limit: 9, ..RunFilter::default() }).unwrap();
    assert_eq!(
        (outermost.len(), outermost[0].inside.calls),
        (1, count as u64 - 1),
        "all of them are counted"
    );
}

pub(super) fn definitions_are_accepted_once_and_then_by_decision(open: OpenState<'_>) {
    let state = open("definitions");
    let record_of = |seen: &str, accepted: &str| ServerDefinitions {
        seen: seen.to_owned(),
        accepted: accepted.to_owned(),
    };
    let up = DefinitionKey { name: "up", address: "a" };
    assert_eq!(state.definitions(&up).unwrap(), None);
    assert!(!state.accept_definitions(&up, "one").unwrap(), "nothing is remembered of it");
    assert_eq!(state.record_definitions(&up, "one").unwrap(), record_of("one", "one"));
    assert_eq!(state.record_definitions(&up, "two").unwrap(), record_of("two", "one"));
    assert!(state.accept_definitions(&up, "two").unwrap());
    assert!(!state.replace_accepted_if(&up, "one", "more").unwrap(), "something else is accepted by now");
    assert!(state.replace_accepted_if(&up, "two", "more").unwrap());
    assert_eq!(state.definitions(&up).unwrap(), Some(record_of("two", "more")));
    let elsewhere = DefinitionKey { address: "b", ..up };
    assert_eq!(state.record_definitions(&elsewhere, "other").unwrap(), record_of("other", "other"));
    assert_eq!(state.definitions(&up).unwrap(), Some(record_of("two", "more")));
}
