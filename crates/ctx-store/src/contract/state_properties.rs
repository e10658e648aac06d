//! Random sequences of runs and decisions by two handles, compared with a simple model.

use super::OpenState;
use super::state::{run, run_id};
use crate::state::{DefinitionKey, RecordedRun, RunFilter, ServerDefinitions, State};
use ctx_core::{NestedCallStats, Run, RunOutcome};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Number of sequences.
const CASES: u32 = 32;
/// Maximum number of steps in a sequence.
const STEPS: usize = 40;
/// Highest number of a run.
const RUNS: u128 = 12;
/// Server names, and no more ways to reach each server than are recorded.
const SERVERS: [&str; 2] = ["up", "files"];
const REACHES: [&str; 3] = ["a", "b", "c"];
/// Texts of definitions.
const TEXTS: [&str; 3] = ["one", "two", ""];

/// One step of a sequence. Runs with an odd number are recorded by the second handle.
#[derive(Clone, Debug)]
enum StateStep {
    Start { second: bool },
    Stop { second: bool },
    Record { number: u128, parent: Option<u128>, failed: bool },
    See { server: ServerIndexes, seen: usize, second: bool },
    Accept { server: ServerIndexes, accepted: usize, second: bool },
    Extend { server: ServerIndexes, before: usize, accepted: usize, second: bool },
}

/// A server by the indexes of its name and of how it is reached.
type ServerIndexes = (usize, usize);

/// The expected content of a state.
#[derive(Default)]
struct ExpectedState {
    recording: [bool; 2],
    runs: BTreeMap<u128, Run>,
    definitions: BTreeMap<ServerIndexes, (usize, usize)>,
}

fn step() -> impl Strategy<Value = StateStep> {
    let server = || (0..SERVERS.len(), 0..REACHES.len());
    let text = || 0..TEXTS.len();
    prop_oneof![
        2 => any::<bool>().prop_map(|second| StateStep::Start { second }),
        1 => any::<bool>().prop_map(|second| StateStep::Stop { second }),
        8 => (1..=RUNS, proptest::option::of(1..=RUNS), any::<bool>()).prop_map(|(number, parent, failed)| {
            // No run is nested in one that began later.
            StateStep::Record { number, parent: parent.filter(|parent| *parent < number), failed }
        }),
        3 => (server(), text(), any::<bool>())
            .prop_map(|(server, seen, second)| StateStep::See { server, seen, second }),
        2 => (server(), text(), any::<bool>())
            .prop_map(|(server, accepted, second)| StateStep::Accept { server, accepted, second }),
        2 => (server(), text(), text(), any::<bool>())
            .prop_map(|(server, before, accepted, second)| StateStep::Extend { server, before, accepted, second }),
    ]
}

pub(super) fn any_sequence_of_runs_and_decisions_is_remembered(open: OpenState<'_>) {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let count = Cell::new(0);
    let ran = TestRunner::new(config).run(&vec(step(), 1..STEPS), |steps| {
        count.set(count.get() + 1);
        let name = format!("property-{}", count.get());
        let handles = [open(&name), open(&name)];
        let mut expected = ExpectedState::default();
        steps.iter().for_each(|step| expected.apply_step(step, &handles));
        handles.iter().for_each(|state| state.stop_recording());
        expected.compare(&*open(&name));
        Ok(())
    });
    if let Err(failure) = ran {
        panic!("{failure}");
    }
}

fn server(name: ServerIndexes) -> DefinitionKey<'static> {
    DefinitionKey { name: SERVERS[name.0], address: REACHES[name.1] }
}

fn definitions((seen, accepted): (usize, usize)) -> ServerDefinitions {
    ServerDefinitions { seen: TEXTS[seen].to_owned(), accepted: TEXTS[accepted].to_owned() }
}

impl ExpectedState {
    /// Applies a step to the model and to the state, and compares the results.
    fn apply_step(&mut self, step: &StateStep, handles: &[Box<dyn State>; 2]) {
        let handle = |second: bool| &handles[usize::from(second)];
        match *step {
            StateStep::Start { second } => {
                handle(second).start_recording().unwrap();
                self.recording[usize::from(second)] = true;
            }
            StateStep::Stop { second } => {
                handle(second).stop_recording();
                self.recording[usize::from(second)] = false;
            }
            StateStep::Record { number, parent, failed } => {
                let second = !number.is_multiple_of(2);
                let run = run(number, parent, failed.then_some("timeout"));
                handle(second).record(run.clone());
                if self.recording[usize::from(second)] {
                    self.runs.insert(number, run);
                }
            }
            StateStep::See { server: name, seen, second } => {
                let accepted = self.definitions.get(&name).map_or(seen, |(_, accepted)| *accepted);
                self.definitions.insert(name, (seen, accepted));
                let record = handle(second).record_definitions(&server(name), TEXTS[seen]).unwrap();
                assert_eq!(record, definitions((seen, accepted)));
            }
            StateStep::Accept { server: name, accepted, second } => {
                let known = self.definitions.get_mut(&name);
                let is_known = known.map(|known| known.1 = accepted).is_some();
                let is_recorded = handle(second).accept_definitions(&server(name), TEXTS[accepted]).unwrap();
                assert_eq!(is_recorded, is_known);
            }
            StateStep::Extend { server: name, before, accepted, second } => {
                let known = self.definitions.get_mut(&name).filter(|known| known.1 == before);
                let is_extended = known.map(|known| known.1 = accepted).is_some();
                let is_recorded = handle(second)
                    .replace_accepted_if(&server(name), TEXTS[before], TEXTS[accepted])
                    .unwrap();
                assert_eq!(is_recorded, is_extended);
            }
        }
    }

    /// The runs nested in one, at any depth.
    fn nested_runs(&self, number: u128) -> Vec<u128> {
        let children = self.runs.iter().filter(|(_, run)| run.parent == Some(run_id(number)));
        children.flat_map(|(child, _)| [vec![*child], self.nested_runs(*child)].concat()).collect()
    }

    fn recorded_run(&self, number: u128) -> RecordedRun {
        let run = self.runs[&number].clone();
        let inside = self.nested_runs(number);
        let bytes: usize = inside.iter().map(|number| self.runs[number].result_bytes).sum();
        RecordedRun { inside: NestedCallStats::new(inside.len() as u64, bytes as u64, run.result_bytes), run }
    }

    fn compare(&self, state: &dyn State) {
        for limit in [1, 3, 100] {
            for tool in [None, Some("even"), Some("odd")] {
                for failed in [false, true] {
                    let is_listed = |run: &Run| {
                        run.parent.is_none()
                            && tool.is_none_or(|tool| run.tool == tool)
                            && (!failed || run.outcome != RunOutcome::Ok)
                    };
                    let newest = self.runs.iter().rev().filter(|(_, run)| is_listed(run)).take(limit);
                    let expected: Vec<RecordedRun> =
                        newest.map(|(number, _)| self.recorded_run(*number)).collect();
                    let filter = RunFilter { limit, tool: tool.map(str::to_owned), failed };
                    assert_eq!(state.runs(&filter).unwrap(), expected, "{filter:?}");
                }
            }
        }
        for number in 1..=RUNS {
            let is_recorded = self.runs.contains_key(&number);
            let mut tree: Vec<RecordedRun> = match is_recorded {
                true => [vec![number], self.nested_runs(number)].concat().into_iter(),
                false => Vec::new().into_iter(),
            }
            .map(|number| self.recorded_run(number))
            .collect();
            tree.sort_by_key(|recorded| (recorded.run.started_at, recorded.run.id.to_string()));
            assert_eq!(state.run_tree(run_id(number)).unwrap(), tree);
            let found = state.find_run(&run_id(number).to_string()).unwrap();
            assert_eq!(found, is_recorded.then(|| run_id(number)));
        }
        for name in (0..SERVERS.len()).flat_map(|one| (0..REACHES.len()).map(move |reach| (one, reach))) {
            let expected = self.definitions.get(&name).map(|record| definitions(*record));
            assert_eq!(state.definitions(&server(name)).unwrap(), expected, "{name:?}");
        }
    }
}
