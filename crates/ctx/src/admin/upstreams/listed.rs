//! One upstream as operations answer with it.

use crate::config::{Config, TrustRequest};
use crate::logins;
use crate::output::count;
use crate::trust;
use crate::workspace::Callable;
use ctx_core::{Catalog, Identifier, summary_line};
use ctx_mcp::{Difference, UpstreamState, UpstreamStatus, has_login};
use ctx_openapi::{ApiState, ApiStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Operations that cannot be called and that are named, of one API.
const SKIPPED_MAX: usize = 10;

/// An upstream, and how it is doing.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListedUpstream {
    /// The namespace of its functions; as it is written where it is not trusted.
    pub(crate) name: String,
    /// Its command line, its address, or where its description is; without secrets.
    pub(crate) reach: String,
    pub(crate) state: UpstreamStanding,
    /// Why it cannot be used.
    pub(crate) last_error: Option<String>,
    /// What to do about the error, where that is known.
    pub(crate) remedy: Option<String>,
    /// How many tools or operations it has, as far as is known.
    pub(crate) function_count: u64,
    /// Those that can be called.
    pub(crate) functions: Vec<ListedFunction>,
    /// What does not keep it from being called, but some of its functions, or should be looked at.
    pub(crate) warnings: Vec<String>,
    #[serde(flatten)]
    pub(crate) details: UpstreamDetails,
}

/// How an upstream is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UpstreamStanding {
    /// A server that is being started.
    Connecting,
    /// An API whose description is being read.
    Reading,
    /// It can be called.
    Ready,
    /// A server that sleeps until the next call.
    Idle,
    /// It cannot be reached.
    Failed,
    /// A server that wants somebody to log in.
    NeedsLogin,
    /// A server that was shut down.
    Stopped,
    /// Its section is not trusted, so it is left out.
    NotTrusted,
}

/// A function of an upstream.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListedFunction {
    /// Its full name.
    pub(crate) name: String,
    /// The first line of what it says of itself.
    pub(crate) summary: String,
}

/// What only one kind of upstream has.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum UpstreamDetails {
    /// An MCP server.
    Mcp {
        /// What it calls itself, once it has been reached.
        server: Option<String>,
        /// The revision of the protocol it speaks, once it has been reached.
        protocol: Option<String>,
        /// How its definitions differ from the accepted ones.
        #[schemars(with = "Value")]
        changes: Difference,
        login: LoginState,
    },
    /// An API with an OpenAPI description.
    Openapi {
        /// What it is called, once that is known.
        title: Option<String>,
        /// Operations that cannot be called.
        skipped: Vec<SkippedOperation>,
        /// How many functions need credentials that are not configured.
        locked: u64,
    },
}

/// Where a server stands with logins of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LoginState {
    /// It has not asked for a login.
    None,
    /// A login is kept.
    Kept,
    /// It wants a login, or more than the one that is kept.
    Needed,
}

/// An operation of an API that cannot be called.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SkippedOperation {
    pub(crate) operation: String,
    pub(crate) reason: String,
}

impl ListedUpstream {
    /// Why it cannot be used, and what to do about it where that is known.
    pub(crate) fn problem(&self) -> Option<String> {
        let error = self.last_error.as_ref()?;
        Some(match &self.remedy {
            Some(remedy) => format!("{error}: {remedy}"),
            None => error.clone(),
        })
    }
}

/// A server that may be used. Blocks.
pub(super) fn server(status: UpstreamStatus, callable: &Callable, catalog: &Catalog) -> ListedUpstream {
    let sections = callable.config().settings.mcp_servers.iter();
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
        _ => kept_login(section.and_then(|section| section.url())),
    };
    let UpstreamStatus { name, tools, difference, warnings, server, protocol, .. } = status;
    ListedUpstream {
        reach: callable.masked(section.map(|section| section.shown()).unwrap_or_default()),
        state,
        last_error,
        remedy,
        function_count: tools as u64,
        functions: functions(&name, catalog),
        warnings,
        details: UpstreamDetails::Mcp { server, protocol, changes: difference, login },
        name: name.to_string(),
    }
}

/// An API that may be used.
pub(super) fn api(status: ApiStatus, catalog: &Catalog) -> ListedUpstream {
    let warnings = api_warnings(&status);
    let (state, last_error) = match status.state {
        ApiState::Reading => (UpstreamStanding::Reading, None),
        ApiState::Ready => (UpstreamStanding::Ready, None),
        ApiState::Failed(reason) => (UpstreamStanding::Failed, Some(reason)),
    };
    let skipped =
        status.skipped.into_iter().map(|(operation, reason)| SkippedOperation { operation, reason });
    ListedUpstream {
        functions: functions(&status.name, catalog),
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
            locked: status.locked.map_or(0, |(locked, _)| locked as u64),
        },
    }
}

/// The servers and APIs whose sections are not trusted.
pub(super) fn untrusted(config: &Config) -> Vec<ListedUpstream> {
    let listed = |request: &TrustRequest| {
        let (group, name) = request.section.split_once('.')?;
        let details = match group {
            "mcp_servers" => UpstreamDetails::Mcp {
                server: None,
                protocol: None,
                changes: Difference::default(),
                login: LoginState::None,
            },
            "apis" => UpstreamDetails::Openapi { title: None, skipped: Vec::new(), locked: 0 },
            _ => return None,
        };
        Some(ListedUpstream {
            name: name.to_owned(),
            reach: request.what.clone(),
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

fn functions(name: &Identifier, catalog: &Catalog) -> Vec<ListedFunction> {
    let entries = catalog.entries().filter(|entry| entry.name.provider() == name);
    let listed = entries.map(|entry| ListedFunction {
        name: entry.name.to_string(),
        summary: summary_line(&entry.spec.description).to_owned(),
    });
    listed.collect()
}

/// Where logins cannot be read there is none that could be used.
fn kept_login(url: Option<&str>) -> LoginState {
    let kept = url.zip(logins::store()).map(|(url, store)| has_login(&*store, url));
    if let Some(Ok(true)) = kept { LoginState::Kept } else { LoginState::None }
}

fn api_warnings(status: &ApiStatus) -> Vec<String> {
    let mut warnings: Vec<String> = status.unplaced.clone().into_iter().collect();
    if let Some((locked, missing)) = &status.locked {
        let functions = count(*locked as u64, "function");
        warnings.push(format!("{functions} cannot be called without credentials; {missing}"));
    }
    let skipped = status.skipped.iter().take(SKIPPED_MAX);
    warnings.extend(skipped.map(|(what, why)| format!("{what} is left out: {why}")));
    if let Some(more) = status.skipped.len().checked_sub(SKIPPED_MAX).filter(|more| *more > 0) {
        warnings.push(format!("{} more are left out", count(more as u64, "operation")));
    }
    warnings
}
