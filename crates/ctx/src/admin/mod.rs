//! The hidden provider `admin`: the operations of the command line on a workspace, as tools of the catalog.
//!
//! Only the program itself can call them ([`Call::is_administrative`]); they are neither listed nor callable
//! for scripts and clients. Each group of operations has a file. The commands render the answers for a
//! terminal.

mod doctor;
mod forget;
mod operation_error;
mod runs;
mod settings;
mod sources;
mod stats;
mod sync;
#[cfg(test)]
mod tests;
mod upstreams;

pub(crate) use doctor::{
    CheckWorkspace, CheckWorkspaceRequest, Finding, Verdict, WorkspaceFault, configuration_file,
};
pub(crate) use forget::{ForgetSource, ForgetSourceRequest};
pub(crate) use operation_error::OperationError;
pub(crate) use runs::{ListRuns, ListRunsRequest, ShowRun, ShowRunRequest};
pub(crate) use settings::{ShowSettings, ShowSettingsRequest};
use sources::ListFiles;
pub(crate) use sources::{ListSources, ListSourcesRequest, ListedSource};
pub(crate) use stats::{ShowStats, ShowStatsRequest};
pub(crate) use sync::{PARALLEL_SYNCS_MAX, SourceOutcome, SyncSources, SyncSourcesRequest};
pub(crate) use upstreams::{
    AcceptUpstream, AcceptUpstreamRequest, ListUpstreams, ListUpstreamsRequest, ListedUpstream, TestUpstream,
    TestUpstreamRequest, UpstreamDetails, UpstreamStanding, find_trusted_server,
};

use crate::config::Config;
use crate::workspace::{SourceFreshness, WeakWorkspaceFunctions};
use async_trait::async_trait;
use ctx_core::{
    Annotations, BuiltinProvider, Call, Caller, Catalog, Identifier, Output, Provider, Tool, ToolError,
    ToolName, ToolSpec, input_schema, output_schema,
};
use ctx_knowledge::Knowledge;
use ctx_store::{State, StoreError};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Time limit of an operation. The limit of agents' calls does not apply: a person waits, and may press
/// Ctrl-C.
const OPERATION_TIME_MAX: Duration = Duration::from_secs(3_600);

/// The provider of the operations.
pub(crate) struct Admin {
    tools: Vec<Arc<dyn Tool>>,
}

/// The parts of a workspace that operations access.
pub(crate) struct AdminParts {
    /// `None` where runs are not recorded.
    pub(crate) state: Option<Arc<dyn State>>,
    pub(crate) knowledge: Arc<Knowledge>,
    /// The schedule and watch setting of each source.
    pub(crate) freshness: Vec<SourceFreshness>,
    /// Non-fatal problems of the configuration, without those of the catalog.
    pub(crate) warnings: Vec<String>,
    pub(crate) functions: WeakWorkspaceFunctions,
}

impl Admin {
    /// All operations of an open workspace.
    pub(crate) fn new(config: &Arc<Config>, parts: AdminParts) -> Self {
        let AdminParts { state, knowledge, freshness, warnings, functions } = parts;
        let mut admin = Self::of_config(config);
        admin.tools.extend([
            tool(ListRuns { state: state.clone() }),
            tool(ShowRun { state }),
            tool(ListSources { knowledge: knowledge.clone(), freshness: freshness.clone() }),
            tool(ListFiles { knowledge: knowledge.clone() }),
            tool(SyncSources { knowledge: knowledge.clone(), freshness }),
            tool(ForgetSource { knowledge: knowledge.clone(), cache_base: config.cache_base() }),
            tool(ShowStats { knowledge: knowledge.clone() }),
            tool(ListUpstreams { functions: functions.clone() }),
            tool(TestUpstream { functions: functions.clone() }),
            tool(CheckWorkspace::open(knowledge, warnings, functions)),
        ]);
        admin
    }

    /// The operations that need no open workspace.
    pub(crate) fn of_config(config: &Arc<Config>) -> Self {
        Self { tools: vec![tool(ShowSettings::new(config)), tool(AcceptUpstream { config: config.clone() })] }
    }

    /// Only `doctor`, for a workspace that cannot be opened.
    pub(crate) fn of_fault(fault: WorkspaceFault) -> Self {
        Self { tools: vec![tool(CheckWorkspace::Broken(fault))] }
    }

    /// A catalog of these operations alone.
    pub(crate) fn into_catalog(self) -> Arc<Catalog> {
        Catalog::builder().provider(Arc::new(self)).build()
    }
}

impl Provider for Admin {
    fn name(&self) -> Identifier {
        BuiltinProvider::Admin.identifier()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.clone()
    }

    fn builtin(&self) -> bool {
        true
    }

    fn exposed(&self) -> bool {
        false
    }
}

/// An administrative operation: a tool with typed arguments and a typed result.
#[async_trait]
pub(crate) trait Operation: Send + Sync + 'static {
    /// The name within the provider.
    const NAME: &'static str;
    /// The description of the tool.
    const DESCRIPTION: &'static str;
    /// The tool's annotations: whether it writes, destroys, may be repeated, or uses the network.
    const ANNOTATIONS: Annotations;
    /// The time limit.
    const TIME_MAX: Duration = OPERATION_TIME_MAX;
    /// How long a cancelled call may continue to finish and answer.
    const STOP_GRACE: Duration = Duration::ZERO;
    /// The arguments.
    type Request: Serialize + DeserializeOwned + JsonSchema + Send;
    /// The result.
    type Response: Serialize + DeserializeOwned + JsonSchema;

    /// Runs the operation. `call` takes its progress and signals its cancellation.
    async fn run(&self, request: Self::Request, call: &Call) -> Result<Self::Response, ToolError>;
}

/// Annotations of operations that only rewrite derived data and may use the network.
const REWRITES_DERIVED_DATA: Annotations = Annotations {
    read_only: Some(false),
    destructive: Some(false),
    idempotent: Some(true),
    open_world: Some(true),
};

/// Calls an operation for a command.
pub(crate) async fn call<O: Operation>(
    catalog: Arc<Catalog>,
    request: O::Request,
) -> Result<O::Response, OperationError> {
    call_with::<O>(Call::new(catalog, Caller::Cli), request).await
}

/// Calls an operation with this call, which has the peer for progress and the cancellation token.
pub(crate) async fn call_with<O: Operation>(
    call: Call,
    request: O::Request,
) -> Result<O::Response, OperationError> {
    let name = ToolName::new(BuiltinProvider::Admin.identifier(), Identifier::sanitize(O::NAME)).to_string();
    let arguments = serde_json::to_value(request)
        .map_err(|error| ToolError::internal("cannot serialize the request", error))
        .map_err(OperationError)?;
    let output = Catalog::call(&name, arguments, call).await;
    let answer = output.and_then(|output| {
        serde_json::from_value(output.value)
            .map_err(|error| ToolError::internal("cannot deserialize the result", error))
    });
    answer.map_err(OperationError)
}

/// Adapts an operation to the [`Tool`] trait.
struct OperationTool<O> {
    spec: Arc<ToolSpec>,
    operation: O,
}

fn tool<O: Operation>(operation: O) -> Arc<dyn Tool> {
    let spec = ToolSpec {
        output_schema: Some(output_schema::<O::Response>().into()),
        annotations: O::ANNOTATIONS,
        ..ToolSpec::new(O::NAME, O::DESCRIPTION, input_schema::<O::Request>())
    };
    Arc::new(OperationTool { spec: Arc::new(spec), operation })
}

#[async_trait]
impl<O: Operation> Tool for OperationTool<O> {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    fn timeout(&self) -> Option<Duration> {
        Some(O::TIME_MAX)
    }

    fn stop_grace(&self) -> Duration {
        O::STOP_GRACE
    }

    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError> {
        let request = serde_json::from_value(Value::Object(arguments))
            .map_err(|error| ToolError::bad_request(error.to_string()))?;
        let answer = self.operation.run(request, call).await?;
        let value = serde_json::to_value(answer)
            .map_err(|error| ToolError::internal("cannot serialize the result", error))?;
        Ok(Output::from(value))
    }
}

/// Runs blocking store access on the blocking pool. The error keeps its cause, for [`OperationError`].
async fn read_store<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ToolError::internal("the operation failed", error))?.map_err(store_error)
}

fn store_error(error: StoreError) -> ToolError {
    ToolError::internal("the store failed", error)
}
