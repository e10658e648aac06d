//! State of a workspace besides its documents: run records, and the tool definitions of upstream servers.

use crate::error::StoreError;
use ctx_core::{NestedCallStats, Run, RunId, RunLog};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Maximum number of runs that are kept: the newest.
pub const RUNS_KEPT: usize = 10_000;
/// Days for which runs are kept.
pub const RUN_DAYS_KEPT: i64 = 30;
/// Maximum number of runs that are read of one tree: the first.
pub const RUN_TREE_MAX: usize = 1_000;

/// Storage of run records and tool definitions. Several handles, in several processes, may record at once without
/// losing records. The newest [`RUNS_KEPT`] runs of the last [`RUN_DAYS_KEPT`] days are kept; older runs are removed
/// from time to time, at the latest with the first run that is recorded after a start. All methods block, except
/// [`RunLog::record`], which never waits.
pub trait State: RunLog {
    /// Opens the run record, so that a failure is reported before the first run. Runs recorded before this call are
    /// dropped.
    fn start_recording(&self) -> Result<(), StoreError>;

    /// Writes the queued runs. Runs recorded after this call are dropped.
    fn stop_recording(&self);

    /// The newest outermost runs that match, in descending order of their ids.
    fn runs(&self, filter: &RunFilter) -> Result<Vec<RecordedRun>, StoreError>;

    /// A run and all runs nested in it, outermost first. At most [`RUN_TREE_MAX`], so there is no paging.
    fn run_tree(&self, id: RunId) -> Result<Vec<RecordedRun>, StoreError>;

    /// The run whose id starts with `prefix`, if exactly one does.
    fn find_run(&self, prefix: &str) -> Result<Option<RunId>, StoreError>;

    /// The recorded definitions of a server.
    fn definitions(&self, server: &DefinitionKey<'_>) -> Result<Option<ServerDefinitions>, StoreError>;

    /// Records the definitions that a server sent; the first ones are also accepted. Returns the updated record.
    fn record_definitions(
        &self,
        server: &DefinitionKey<'_>,
        seen: &str,
    ) -> Result<ServerDefinitions, StoreError>;

    /// Records these definitions as accepted; returns false if the server has no record.
    fn accept_definitions(&self, server: &DefinitionKey<'_>, accepted: &str) -> Result<bool, StoreError>;

    /// Replaces the accepted definitions if they still equal `before` (compare and swap); returns whether they did.
    fn replace_accepted_if(
        &self,
        server: &DefinitionKey<'_>,
        before: &str,
        accepted: &str,
    ) -> Result<bool, StoreError>;
}

/// A filter for lists of runs.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Maximum number of runs, newest first.
    pub limit: usize,
    /// Only runs of this tool.
    pub tool: Option<String>,
    /// Only failed runs.
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
    pub inside: NestedCallStats,
}

/// The key of an upstream server's record: its name, and how it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefinitionKey<'a> {
    /// Its name in the configuration.
    pub name: &'a str,
    /// Its URL or command. A server of the same name with another one has a record of its own.
    pub address: &'a str,
}

/// The recorded tool definitions of a server, as text that only the caller interprets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerDefinitions {
    /// The definitions that the server sent last.
    pub seen: String,
    /// The accepted (pinned) definitions.
    pub accepted: String,
}

/// Adds the totals of its nested calls to each run of a tree.
pub(crate) fn with_nested_totals(runs: Vec<Run>) -> Vec<RecordedRun> {
    let parents: HashMap<RunId, RunId> = runs.iter().filter_map(|run| Some((run.id, run.parent?))).collect();
    let mut sums: HashMap<RunId, (u64, u64)> = HashMap::new();
    for run in &runs {
        // Bounded, because a damaged file may contain a cycle of parents.
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
        RecordedRun { inside: NestedCallStats::new(calls, bytes, run.result_bytes), run }
    };
    runs.into_iter().map(recorded).collect()
}
