//! An upstream with its state, as operations return it.

use crate::config::{Config, TrustRequest};
use crate::logins;
use crate::output::count;
use crate::trust;
use crate::workspace::WorkspaceFunctions;
use ctx_core::{Catalog, Identifier, summary_line};
use ctx_mcp::{DefinitionDiff, UpstreamState, UpstreamStatus, has_login};
use ctx_openapi::{ApiState, ApiStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum number of skipped operations of an API that are named in warnings.
const SKIPPED_MAX: usize = 10;

/// An upstream and its state.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListedUpstream {
    /// The namespace of its functions; the name in its section's header if it is not trusted.
    pub(crate) name: String,
    /// Its command line, its URL, or the location of its description; without secrets.
    pub(crate) reach: String,
    pub(crate) state: UpstreamStanding,
    /// Why it cannot be used.
    pub(crate) last_error: Option<String>,
    /// How to solve the error, if known.
    pub(crate) remedy: Option<String>,
    /// Number of its tools or operations, as far as known.
    pub(crate) function_count: u64,
    /// Its callable functions.
    pub(crate) functions: Vec<ListedFunction>,
    /// Problems with single functions, and remarks.
    pub(crate) warnings: Vec<String>,
    #[serde(flatten)]
    pub(crate) details: UpstreamDetails,
}

/// The state of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UpstreamStanding {
    /// An MCP server is starting.
    Connecting,
    /// The description of an API is being read.
    Reading,
    /// Its functions can be called.
    Ready,
    /// An MCP server that starts with the next call.
    Idle,
    /// It cannot be reached.
    Failed,
    /// An MCP server that requires a login.
    NeedsLogin,
    /// An MCP server that was shut down.
    Stopped,
    /// Its section is not trusted, so it is not used.
    NotTrusted,
}

/// A function of an upstream.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListedFunction {
    /// The full name.
    pub(crate) name: String,
    /// The first line of its description.
    pub(crate) summary: String,
}

/// Details that differ by kind of upstream.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum UpstreamDetails {
    /// An MCP server.
    Mcp {
        /// The name and version that the server reports, once it has been connected.
        server: Option<String>,
        /// The MCP revision, once it has been connected.
        protocol: Option<String>,
        /// The difference of its tool definitions from the accepted ones.
        #[schemars(with = "Value")]
        changes: DefinitionDiff,
        login: LoginState,
    },
    /// An API with an OpenAPI description.
    Openapi {
        /// The title in the description, once it has been read.
        title: Option<String>,
        /// Operations that cannot be called.
        skipped: Vec<SkippedOperation>,
        /// Number of functions that need credentials which are not configured.
        locked: u64,
    },
}

/// The state of the user's login at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LoginState {
    /// The server has not required a login.
    None,
    /// A login is stored.
    #[serde(rename = "kept")]
    Stored,
    /// The server requires a login, or one with further scopes than the stored one.
    Needed,
}

/// An operation of an API that cannot be called.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SkippedOperation {
    pub(crate) operation: String,
    pub(crate) reason: String,
}

impl ListedUpstream {
    /// Why it cannot be used, and the remedy if known.
    pub(crate) fn problem(&self) -> Option<String> {
        let error = self.last_error.as_ref()?;
        Some(match &self.remedy {
            Some(remedy) => format!("{error}: {remedy}"),
            None => error.clone(),
        })
    }
}

/// Describes a trusted server. Blocks: it reads the stored logins.
pub(super) fn describe_server(
    status: UpstreamStatus,
    functions: &WorkspaceFunctions,
    catalog: &Catalog,
) -> ListedUpstream {
    let sections = functions.config().settings.mcp_servers.iter();
    let mut sections = sections.filter(|(name, _)| Identifier::sanitize(name) == status.name);
    let section = sections.next().map(|(_, section)| section);
    let (state, last_error, remedy) = match status.state {
        UpstreamState::Connecting => (UpstreamStanding::Connecting, None, None),
        UpstreamState::Ready => (UpstreamStanding::Ready, None, None),
        UpstreamState::Idle => (UpstreamStanding::Idle, None, None),
        UpstreamState::Failed { reason, .. } => (UpstreamStanding::Failed, Some(reason), None),
        UpstreamState::LoginNeeded { reason, remedy } => {
            (UpstreamStanding::NeedsLogin, Some(reason), Some(remedy))
        }
        _ => (UpstreamStanding::Stopped, None, None),
    };
    let login = match state {
        UpstreamStanding::NeedsLogin => LoginState::Needed,
        _ => stored_login(section.and_then(|section| section.url())),
    };
    let UpstreamStatus { name, tools, difference, warnings, server, protocol, .. } = status;
    ListedUpstream {
        reach: functions.masked(section.map(|section| section.command_or_url()).unwrap_or_default()),
        state,
        last_error,
        remedy,
        function_count: tools as u64,
        functions: list_functions(&name, catalog),
        warnings,
        details: UpstreamDetails::Mcp { server, protocol, changes: difference, login },
        name: name.to_string(),
    }
}

/// Describes a trusted API.
pub(super) fn describe_api(status: ApiStatus, catalog: &Catalog) -> ListedUpstream {
    let warnings = api_warnings(&status);
    let (state, last_error) = match status.state {
        ApiState::Loading => (UpstreamStanding::Reading, None),
        ApiState::Ready => (UpstreamStanding::Ready, None),
        ApiState::Failed(reason) => (UpstreamStanding::Failed, Some(reason)),
    };
    let skipped =
        status.skipped.into_iter().map(|(operation, reason)| SkippedOperation { operation, reason });
    ListedUpstream {
        functions: list_functions(&status.name, catalog),
        name: status.name.to_string(),
        reach: status.spec,
        state,
        last_error,
        remedy: None,
        function_count: status.functions as u64,
        warnings,
        details: UpstreamDetails::Openapi {
            title: status.title,
            skipped: skipped.collect(),
            locked: status.missing_credentials.map_or(0, |(locked, _)| locked as u64),
        },
    }
}

/// Describes the servers and APIs whose sections are not trusted.
pub(super) fn describe_untrusted(config: &Config) -> Vec<ListedUpstream> {
    let listed = |request: &TrustRequest| {
        let (group, name) = request.section.split_once('.')?;
        let details = match group {
            "mcp_servers" => UpstreamDetails::Mcp {
                server: None,
                protocol: None,
                changes: DefinitionDiff::default(),
                login: LoginState::None,
            },
            "apis" => UpstreamDetails::Openapi { title: None, skipped: Vec::new(), locked: 0 },
            _ => return None,
        };
        Some(ListedUpstream {
            name: name.to_owned(),
            reach: request.description.clone(),
            state: UpstreamStanding::NotTrusted,
            last_error: Some(trust::refusal()),
            remedy: None,
            function_count: 0,
            functions: Vec::new(),
            warnings: Vec::new(),
            details,
        })
    };
    config.untrusted.iter().filter_map(listed).collect()
}

fn list_functions(name: &Identifier, catalog: &Catalog) -> Vec<ListedFunction> {
    let entries = catalog.entries().filter(|entry| entry.name.provider() == name);
    let listed = entries.map(|entry| ListedFunction {
        name: entry.name.to_string(),
        summary: summary_line(&entry.spec.description).to_owned(),
    });
    listed.collect()
}

/// Logins that cannot be read count as absent: none of them could be used.
fn stored_login(url: Option<&str>) -> LoginState {
    let is_stored = url.zip(logins::store()).map(|(url, store)| has_login(&*store, url));
    if let Some(Ok(true)) = is_stored { LoginState::Stored } else { LoginState::None }
}

fn api_warnings(status: &ApiStatus) -> Vec<String> {
    let mut warnings: Vec<String> = status.base_url_error.clone().into_iter().collect();
    if let Some((locked, missing)) = &status.missing_credentials {
        let functions = count(*locked as u64, "function");
        warnings.push(format!("{functions} cannot be called without credentials; {missing}"));
    }
    let skipped = status.skipped.iter().take(SKIPPED_MAX);
    warnings.extend(skipped.map(|(operation, reason)| format!("{operation} is left out: {reason}")));
    if let Some(more) = status.skipped.len().checked_sub(SKIPPED_MAX).filter(|more| *more > 0) {
        warnings.push(format!("{} more are left out", count(more as u64, "operation")));
    }
    warnings
}
