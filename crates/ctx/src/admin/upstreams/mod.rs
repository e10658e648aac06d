//! Upstream MCP servers and APIs: list their states, test one, and accept the tool definitions of one.
//!
//! Logging in is left to the command: it needs a browser and a person.

mod listed_upstream;
mod lookup;

pub(crate) use listed_upstream::{ListedUpstream, UpstreamDetails, UpstreamStanding};
pub(crate) use lookup::find_trusted_server;

use super::operation_error::{to_tool_error, with_hints};
use super::{Operation, REWRITES_DERIVED_DATA};
use crate::config::{Config, upstream_section};
use crate::definitions::StateDefinitions;
use crate::error::CommandError;
use crate::workspace::{WeakWorkspaceFunctions, WorkspaceFunctions};
use async_trait::async_trait;
use ctx_core::{Annotations, Call, ErrorKind, ToolError};
use ctx_mcp::{DefinitionDiff, ServerKey, UpstreamStatus};
use ctx_openapi::ApiStatus;
use lookup::{find_server, find_trusted_section, refuse_untrusted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// `admin.list_upstreams`
pub(crate) struct ListUpstreams {
    pub(super) functions: WeakWorkspaceFunctions,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListUpstreamsRequest {}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UpstreamList {
    /// Servers, then APIs, then untrusted ones.
    pub(crate) upstreams: Vec<ListedUpstream>,
}

#[async_trait]
impl Operation for ListUpstreams {
    const NAME: &'static str = "list_upstreams";
    const DESCRIPTION: &'static str =
        "Connect to every upstream server, read every description of an API, and show the state of each.";
    const ANNOTATIONS: Annotations = REWRITES_DERIVED_DATA;
    type Request = ListUpstreamsRequest;
    type Response = UpstreamList;

    async fn run(&self, _: ListUpstreamsRequest, _: &Call) -> Result<UpstreamList, ToolError> {
        let functions = self.functions.upgrade()?;
        let mut upstreams = connect_all(&functions).await?;
        upstreams.extend(listed_upstream::describe_untrusted(functions.config()));
        Ok(UpstreamList { upstreams })
    }
}

/// Connects all trusted upstreams; returns once each has answered or failed.
pub(super) async fn connect_all(functions: &WorkspaceFunctions) -> Result<Vec<ListedUpstream>, ToolError> {
    let upstreams = functions.connect_upstreams(&|_| true).await;
    describe_upstreams(functions, upstreams.servers.statuses(), upstreams.apis.statuses()).await
}

/// Describes these upstreams. Reads logins, which blocks.
async fn describe_upstreams(
    functions: &WorkspaceFunctions,
    servers: Vec<UpstreamStatus>,
    apis: Vec<ApiStatus>,
) -> Result<Vec<ListedUpstream>, ToolError> {
    let functions = functions.clone();
    let listing = move || {
        let catalog = functions.catalog();
        let servers =
            servers.into_iter().map(|status| listed_upstream::describe_server(status, &functions, &catalog));
        servers
            .chain(apis.into_iter().map(|status| listed_upstream::describe_api(status, &catalog)))
            .collect()
    };
    let described = tokio::task::spawn_blocking(listing).await;
    described.map_err(|error| ToolError::internal("the operation failed", error))
}

/// `admin.test_upstream`
pub(crate) struct TestUpstream {
    pub(super) functions: WeakWorkspaceFunctions,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TestUpstreamRequest {
    /// The name in `[mcp_servers]` or `[apis]`.
    pub(crate) name: String,
}

#[async_trait]
impl Operation for TestUpstream {
    const NAME: &'static str = "test_upstream";
    const DESCRIPTION: &'static str =
        "Connect to one upstream server, or read the description of one API; fails if that fails.";
    const ANNOTATIONS: Annotations = REWRITES_DERIVED_DATA;
    type Request = TestUpstreamRequest;
    type Response = ListedUpstream;

    async fn run(&self, request: TestUpstreamRequest, _: &Call) -> Result<ListedUpstream, ToolError> {
        let functions = self.functions.upgrade()?;
        let section = find_trusted_section(functions.config(), &request.name)?;
        let tested = test_upstream(&functions, &section).await?;
        let hint = format!("check [{section}] in ctx.toml");
        let failed = |message| with_hints(ToolError::new(ErrorKind::Tool, message), [hint]);
        match (&tested.state, tested.problem(), &tested.details) {
            (UpstreamStanding::Failed, Some(reason), UpstreamDetails::Openapi { .. }) => {
                Err(failed(format!("{}: {}: {reason}", tested.name, tested.reach)))
            }
            (UpstreamStanding::Failed, Some(reason), UpstreamDetails::Mcp { .. }) => {
                Err(failed(format!("{}: {reason}", request.name)))
            }
            (UpstreamStanding::NeedsLogin, Some(reason), _) => Err(ToolError::new(ErrorKind::Tool, reason)),
            _ => Ok(tested),
        }
    }
}

/// Connects the upstream of this section; returns once it has answered or failed. One that failed before is
/// tried again.
async fn test_upstream(functions: &WorkspaceFunctions, section: &str) -> Result<ListedUpstream, ToolError> {
    let (servers, _) = functions.config().upstreams(&|configured| configured == section);
    let (apis, _) = functions.config().apis(&|configured| configured == section);
    let is_running = functions.started_upstreams().is_some();
    let upstreams = functions.connect_upstreams(&|configured| configured == section).await;
    if let Some(server) = servers.first().filter(|_| is_running) {
        // The error is in its state.
        drop(upstreams.servers.wait_until_connected(&server.name).await);
    }
    let mut servers_tested = upstreams.servers.statuses();
    servers_tested.retain(|status| servers.iter().any(|server| server.name == status.name));
    let mut apis_tested = upstreams.apis.statuses();
    apis_tested.retain(|status| apis.iter().any(|api| api.name == status.name));
    let tested = describe_upstreams(functions, servers_tested, apis_tested).await?.into_iter().next();
    tested.ok_or_else(|| ToolError::not_found(format!("[{section}] is not in use")))
}

/// `admin.accept_upstream`
pub(crate) struct AcceptUpstream {
    pub(super) config: Arc<Config>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcceptUpstreamRequest {
    /// The name in `[mcp_servers]`.
    pub(crate) name: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AcceptedUpstream {
    /// The namespace of its functions.
    pub(crate) name: String,
    /// The difference from the previously accepted definitions.
    #[schemars(with = "Value")]
    pub(crate) accepted: DefinitionDiff,
}

#[async_trait]
impl Operation for AcceptUpstream {
    const NAME: &'static str = "accept_upstream";
    const DESCRIPTION: &'static str =
        "Accept (pin) the tool definitions of a server as last listed: those that the user could review.";
    const ANNOTATIONS: Annotations = Annotations {
        read_only: Some(false),
        destructive: Some(true),
        idempotent: Some(true),
        open_world: Some(false),
    };
    type Request = AcceptUpstreamRequest;
    type Response = AcceptedUpstream;

    async fn run(&self, request: AcceptUpstreamRequest, _: &Call) -> Result<AcceptedUpstream, ToolError> {
        let config = self.config.clone();
        let accepting = move || accept(&config, &request.name);
        let accepted = tokio::task::spawn_blocking(accepting).await;
        accepted.map_err(|error| ToolError::internal("the operation failed", error))?
    }
}

fn accept(config: &Config, name: &str) -> Result<AcceptedUpstream, ToolError> {
    refuse_untrusted(config, name)?;
    let section = upstream_section(find_server(config, name)?);
    let (settings, _) = config.upstreams(&|configured| configured == section);
    let server =
        settings.first().ok_or_else(|| ToolError::not_found(format!("[{section}] is not in use")))?;
    let memory = StateDefinitions::of(config);
    let key = ServerKey::of(server);
    let stored = memory.stored_definitions(&key).map_err(to_tool_error)?;
    let stored = stored.ok_or_else(|| {
        to_tool_error(
            CommandError::new(format!("the tools of {name} have not been listed yet"))
                .hint("`ctx upstream list` connects to it; the first definitions listed are accepted"),
        )
    })?;
    let accepted = stored.difference(&server.tools);
    memory.accept(&key, &stored.seen).map_err(to_tool_error)?;
    Ok(AcceptedUpstream { name: server.name.to_string(), accepted })
}
