//! The hidden provider `admin`: what commands show of a workspace, as tools behind the same door as everything callable.
//!
//! Only the program itself reaches them ([`Call::is_administrative`]): no script, client or listing does. One file for each
//! group of operations; how an answer looks in a terminal is up to the commands.

mod runs;
mod settings;
mod sources;
mod stats;

pub(crate) use runs::{ListRuns, ListRunsRequest, ShowRun, ShowRunRequest};
pub(crate) use settings::{ShowSettings, ShowSettingsRequest};
use sources::ListFiles;
pub(crate) use sources::{ListSources, ListSourcesRequest, ListedSource};
pub(crate) use stats::{ShowStats, ShowStatsRequest};

use crate::config::Config;
use crate::error::CommandError;
use crate::workspace::Freshness;
use async_trait::async_trait;
use ctx_core::{
    Annotations, BuiltinProvider, Call, Caller, Catalog, ErrorKind, Identifier, Output, Provider, Tool,
    ToolError, ToolName, ToolSpec, chain, input_schema, output_schema,
};
use ctx_knowledge::Knowledge;
use ctx_store::{State, StoreError};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::error::Error;
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
}

impl Admin {
    /// Every operation on a workspace.
    pub(crate) fn new(config: &Config, parts: AdminParts) -> Self {
        let AdminParts { state, knowledge, freshness } = parts;
        let mut admin = Self::of_settings(config);
        admin.tools.extend([
            tool(ListRuns { state: state.clone() }),
            tool(ShowRun { state }),
            tool(ListSources { knowledge: knowledge.clone(), freshness }),
            tool(ListFiles { knowledge: knowledge.clone() }),
            tool(ShowStats { knowledge }),
        ]);
        admin
    }

    /// The operations that need no open workspace.
    pub(crate) fn of_settings(config: &Config) -> Self {
        Self { tools: vec![tool(ShowSettings::new(config))] }
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

/// One operation: a tool with a typed request and a typed answer. All of them only read.
#[async_trait]
pub(crate) trait Operation: Send + Sync + 'static {
    /// Its name within the provider.
    const NAME: &'static str;
    /// Its description.
    const DESCRIPTION: &'static str;
    /// Its arguments.
    type Request: Serialize + DeserializeOwned + JsonSchema + Send;
    /// Its answer.
    type Answer: Serialize + DeserializeOwned + JsonSchema;

    /// Does it.
    async fn answer(&self, request: Self::Request) -> Result<Self::Answer, ToolError>;
}

/// Calls an operation on behalf of a command.
pub(crate) async fn call<O: Operation>(
    catalog: Arc<Catalog>,
    request: O::Request,
) -> Result<O::Answer, OperationError> {
    let name = ToolName::new(BuiltinProvider::Admin.identifier(), Identifier::sanitize(O::NAME)).to_string();
    let arguments = serde_json::to_value(request)
        .map_err(|error| ToolError::internal("the request has no JSON", error))
        .map_err(OperationError)?;
    let output = Catalog::call(&name, arguments, Call::new(catalog, Caller::Cli)).await;
    let answer = output.and_then(|output| {
        serde_json::from_value(output.value)
            .map_err(|error| ToolError::internal("the answer cannot be read", error))
    });
    answer.map_err(OperationError)
}

/// An operation that failed. As the failure of a command it is what it was before it came through the door.
#[derive(Debug)]
pub(crate) struct OperationError(ToolError);

impl OperationError {
    /// Whether what was asked for is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        self.0.kind() == ErrorKind::NotFound
    }
}

impl From<OperationError> for CommandError {
    fn from(OperationError(error): OperationError) -> Self {
        match error.source().and_then(|cause| cause.downcast_ref::<StoreError>()) {
            Some(error) => Self::from(error),
            None => Self::new(chain(&error)),
        }
    }
}

/// An operation as a tool.
struct OperationTool<O> {
    spec: Arc<ToolSpec>,
    operation: O,
}

fn tool<O: Operation>(operation: O) -> Arc<dyn Tool> {
    let spec = ToolSpec {
        output_schema: Some(output_schema::<O::Answer>().into()),
        annotations: Annotations::READ_ONLY,
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
        Some(OPERATION_TIME_MAX)
    }

    async fn run(&self, arguments: Map<String, Value>, _: &Call) -> Result<Output, ToolError> {
        let request = serde_json::from_value(Value::Object(arguments))
            .map_err(|error| ToolError::bad_request(error.to_string()))?;
        let answer = self.operation.answer(request).await?;
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
