//! The hidden provider `admin`: what commands show of a workspace and what they do to it, as tools behind the
//! same door as everything callable.
//!
//! Only the program itself reaches them ([`Call::is_administrative`]): no script, client or listing does. One file for each
//! group of operations; how an answer looks in a terminal is up to the commands.

mod doctor;
mod failure;
mod forget;
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
pub(crate) use failure::OperationError;
pub(crate) use forget::{ForgetSource, ForgetSourceRequest};
pub(crate) use runs::{ListRuns, ListRunsRequest, ShowRun, ShowRunRequest};
pub(crate) use settings::{ShowSettings, ShowSettingsRequest};
use sources::ListFiles;
pub(crate) use sources::{ListSources, ListSourcesRequest, ListedSource};
pub(crate) use stats::{ShowStats, ShowStatsRequest};
pub(crate) use sync::{PARALLEL, SourceOutcome, SyncSources, SyncSourcesRequest};
pub(crate) use upstreams::{
    AcceptUpstream, AcceptUpstreamRequest, ListUpstreams, ListUpstreamsRequest, ListedUpstream, TestUpstream,
    TestUpstreamRequest, UpstreamDetails, UpstreamStanding, usable_server,
};

use crate::config::Config;
use crate::workspace::{Freshness, WeakCallable};
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

/// How long an operation may take. The bound of agents' calls does not apply: a person waits, and may press Ctrl-C.
const OPERATION_TIME_MAX: Duration = Duration::from_secs(3_600);

/// The provider.
pub(crate) struct Admin {
    tools: Vec<Arc<dyn Tool>>,
}

/// The parts of a workspace that the operations are about.
pub(crate) struct AdminParts {
    /// `None` where runs are not recorded.
    pub(crate) state: Option<Arc<dyn State>>,
    pub(crate) knowledge: Arc<Knowledge>,
    /// How each source is kept fresh.
    pub(crate) freshness: Vec<Freshness>,
    /// Problems of the configuration that do not stop anything; those of the catalog are not among them.
    pub(crate) warnings: Vec<String>,
    pub(crate) callable: WeakCallable,
}

impl Admin {
    /// Every operation on a workspace.
    pub(crate) fn new(config: &Arc<Config>, parts: AdminParts) -> Self {
        let AdminParts { state, knowledge, freshness, warnings, callable } = parts;
        let mut admin = Self::of_config(config);
        admin.tools.extend([
            tool(ListRuns { state: state.clone() }),
            tool(ShowRun { state }),
            tool(ListSources { knowledge: knowledge.clone(), freshness: freshness.clone() }),
            tool(ListFiles { knowledge: knowledge.clone() }),
            tool(SyncSources { knowledge: knowledge.clone(), freshness }),
            tool(ForgetSource { knowledge: knowledge.clone(), cache_base: config.cache_base() }),
            tool(ShowStats { knowledge: knowledge.clone() }),
            tool(ListUpstreams { callable: callable.clone() }),
            tool(TestUpstream { callable: callable.clone() }),
            tool(CheckWorkspace::open(knowledge, warnings, callable)),
        ]);
        admin
    }

    /// The operations that need no open workspace.
    pub(crate) fn of_config(config: &Arc<Config>) -> Self {
        Self { tools: vec![tool(ShowSettings::new(config)), tool(AcceptUpstream { config: config.clone() })] }
    }

    /// The operation that says what keeps a workspace from being opened.
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

/// One operation: a tool with a typed request and a typed answer.
#[async_trait]
pub(crate) trait Operation: Send + Sync + 'static {
    /// Its name within the provider.
    const NAME: &'static str;
    /// Its description.
    const DESCRIPTION: &'static str;
    /// What it does to the world.
    const ANNOTATIONS: Annotations;
    /// How long it may take.
    const TIME_MAX: Duration = OPERATION_TIME_MAX;
    /// How long it may take to end by itself once its call is cancelled; until then it goes on to its answer.
    const STOP_GRACE: Duration = Duration::ZERO;
    /// Its arguments.
    type Request: Serialize + DeserializeOwned + JsonSchema + Send;
    /// Its answer.
    type Answer: Serialize + DeserializeOwned + JsonSchema;

    /// Does it. The call says how far it has come, and when to stop.
    async fn answer(&self, request: Self::Request, call: &Call) -> Result<Self::Answer, ToolError>;
}

/// What an operation does that changes only what can be made again, here and at upstreams.
const RENEWS: Annotations = Annotations {
    read_only: Some(false),
    destructive: Some(false),
    idempotent: Some(true),
    open_world: Some(true),
};

/// Calls an operation on behalf of a command.
pub(crate) async fn call<O: Operation>(
    catalog: Arc<Catalog>,
    request: O::Request,
) -> Result<O::Answer, OperationError> {
    call_as::<O>(Call::new(catalog, Caller::Cli), request).await
}

/// Makes this call of an operation: of the command line, with whom to tell and when to stop.
pub(crate) async fn call_as<O: Operation>(
    call: Call,
    request: O::Request,
) -> Result<O::Answer, OperationError> {
    let name = ToolName::new(BuiltinProvider::Admin.identifier(), Identifier::sanitize(O::NAME)).to_string();
    let arguments = serde_json::to_value(request)
        .map_err(|error| ToolError::internal("the request has no JSON", error))
        .map_err(OperationError)?;
    let output = Catalog::call(&name, arguments, call).await;
    let answer = output.and_then(|output| {
        serde_json::from_value(output.value)
            .map_err(|error| ToolError::internal("the answer cannot be read", error))
    });
    answer.map_err(OperationError)
}

/// An operation as a tool.
struct OperationTool<O> {
    spec: Arc<ToolSpec>,
    operation: O,
}

fn tool<O: Operation>(operation: O) -> Arc<dyn Tool> {
    let spec = ToolSpec {
        output_schema: Some(output_schema::<O::Answer>().into()),
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
        let answer = self.operation.answer(request, call).await?;
        let value = serde_json::to_value(answer)
            .map_err(|error| ToolError::internal("the answer has no JSON", error))?;
        Ok(Output::from(value))
    }
}

/// Reads from a store, which blocks, on the blocking pool. The error keeps its cause for [`OperationError`].
async fn read<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ToolError::internal("the operation failed", error))?.map_err(store_failed)
}

fn store_failed(error: StoreError) -> ToolError {
    ToolError::internal("the store failed", error)
}
