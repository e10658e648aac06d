//! Recorded runs: a list of the newest, and one run with its nested runs.

use super::{Operation, read_store};
use async_trait::async_trait;
use ctx_core::{Annotations, Call, ErrorKind, ToolError};
use ctx_store::{RecordedRun, RunFilter, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `admin.list_runs`
pub(crate) struct ListRuns {
    /// `None` if runs are not recorded.
    pub(super) state: Option<Arc<dyn State>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListRunsRequest {
    /// Maximum number of runs.
    pub(crate) limit: u32,
    /// Only runs of this tool, by full name.
    pub(crate) tool: Option<String>,
    /// Only runs that failed.
    #[serde(default)]
    pub(crate) failed: bool,
}

/// Runs, each with the number of its nested runs.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RunList {
    /// Newest first; each run precedes its nested runs.
    pub(crate) runs: Vec<RecordedRun>,
}

#[async_trait]
impl Operation for ListRuns {
    const NAME: &'static str = "list_runs";
    const DESCRIPTION: &'static str = "List the newest outermost runs.";
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Request = ListRunsRequest;
    type Response = RunList;

    async fn run(&self, request: ListRunsRequest, _: &Call) -> Result<RunList, ToolError> {
        let state = require_state(self.state.as_ref())?;
        let ListRunsRequest { limit, tool, failed } = request;
        let filter = RunFilter { limit: limit as usize, tool, failed };
        Ok(RunList { runs: read_store(move || state.runs(&filter)).await? })
    }
}

/// `admin.show_run`
pub(crate) struct ShowRun {
    /// `None` if runs are not recorded.
    pub(super) state: Option<Arc<dyn State>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowRunRequest {
    /// The run's ID, or a unique prefix of it.
    pub(crate) id: String,
}

#[async_trait]
impl Operation for ShowRun {
    const NAME: &'static str = "show_run";
    const DESCRIPTION: &'static str = "Show one run and those inside it, outermost first.";
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Request = ShowRunRequest;
    type Response = RunList;

    async fn run(&self, ShowRunRequest { id }: ShowRunRequest, _: &Call) -> Result<RunList, ToolError> {
        let state = require_state(self.state.as_ref())?;
        let prefix = id.clone();
        let tree = move || state.find_run(&prefix)?.map(|id| state.run_tree(id)).transpose();
        let runs = read_store(tree).await?;
        let missing =
            || ToolError::not_found(format!("no run, or more than one, has an id that begins with `{id}`"));
        Ok(RunList { runs: runs.ok_or_else(missing)? })
    }
}

fn require_state(state: Option<&Arc<dyn State>>) -> Result<Arc<dyn State>, ToolError> {
    let state = state.cloned();
    state.ok_or_else(|| ToolError::new(ErrorKind::NotConfigured, "runs are not recorded here"))
}
