//! What a workspace remembers besides documents: the record of runs, and what upstream servers said of their tools.

use crate::error::StoreError;
use ctx_core::{Inside, Run, RunId, RunLog};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Runs that are kept: the newest ones.
pub const RUNS_KEPT: usize = 10_000;
/// Days for which runs are kept.
pub const RUN_DAYS_KEPT: i64 = 30;
/// Runs of a tree that are read; the first ones.
pub const RUN_TREE_MAX: usize = 1_000;

/// What a workspace remembers besides documents. Several handles, in several processes, may record at once; none loses what
/// another records. The newest [`RUNS_KEPT`] runs of [`RUN_DAYS_KEPT`] days are kept; older ones are removed now and then, at
/// the latest with the first run that is recorded after a start. Blocking, but for [`RunLog::record`], which never waits.
pub trait State: RunLog {
    /// Opens what recording needs, so that a failure is told before the first run. Runs that come before are lost.
    fn start_recording(&self) -> Result<(), StoreError>;

    /// Writes the runs that wait to be written. Recording afterwards does nothing.
    fn stop_recording(&self);

    /// The newest outermost runs, by their ids.
    fn runs(&self, filter: &RunFilter) -> Result<Vec<RecordedRun>, StoreError>;

    /// One run and those inside it, outermost first; at most [`RUN_TREE_MAX`], so that they need no pages.
    fn run_tree(&self, id: RunId) -> Result<Vec<RecordedRun>, StoreError>;

    /// The one run whose id begins so, if there is exactly one.
    fn find_run(&self, prefix: &str) -> Result<Option<RunId>, StoreError>;

    /// What is remembered of a server.
    fn definitions(&self, server: &Server<'_>) -> Result<Option<ServerDefinitions>, StoreError>;

    /// Remembers what was seen; what is seen first is accepted with it. Tells what is remembered then.
    fn see_definitions(&self, server: &Server<'_>, seen: &str) -> Result<ServerDefinitions, StoreError>;

    /// Takes these definitions as accepted; tells whether anything is remembered of the server.
    fn accept_definitions(&self, server: &Server<'_>, accepted: &str) -> Result<bool, StoreError>;

    /// Replaces the accepted definitions if they still are `before`; tells whether they were.
    fn extend_definitions(
        &self,
        server: &Server<'_>,
        before: &str,
        accepted: &str,
    ) -> Result<bool, StoreError>;
}

/// Which runs to list.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// At most this many, newest first.
    pub limit: usize,
    /// Only those of this tool.
    pub tool: Option<String>,
    /// Only those that failed.
    pub failed: bool,
}

/// A run, and what was called inside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordedRun {
    /// The run itself.
    #[serde(flatten)]
    pub run: Run,
    /// As far as it was recorded.
    #[serde(flatten)]
    pub inside: Inside,
}

/// An upstream server: its name, and how it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server<'a> {
    /// Its name in the configuration.
    pub name: &'a str,
    /// How it is reached; another way is another server.
    pub reach: &'a str,
}

/// Definitions of one server, as they were written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerDefinitions {
    /// Those that were seen last.
    pub seen: String,
    /// Those that were accepted.
    pub accepted: String,
}

/// Each run of a tree with what was called inside it.
pub(crate) fn with_inside(runs: Vec<Run>) -> Vec<RecordedRun> {
    let parents: HashMap<RunId, RunId> = runs.iter().filter_map(|run| Some((run.id, run.parent?))).collect();
    let mut sums: HashMap<RunId, (u64, u64)> = HashMap::new();
    for run in &runs {
        // No run is inside of more than there are, whatever the file says.
        let outer =
            std::iter::successors(parents.get(&run.id), |parent| parents.get(parent)).take(runs.len());
        for id in outer {
            let (calls, bytes) = sums.entry(*id).or_default();
            *calls += 1;
            *bytes += run.result_bytes as u64;
        }
    }
    let recorded = |run: Run| {
        let (calls, bytes) = sums.get(&run.id).copied().unwrap_or_default();
        RecordedRun { inside: Inside::new(calls, bytes, run.result_bytes), run }
    };
    runs.into_iter().map(recorded).collect()
}
