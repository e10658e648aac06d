//! `ctx upstream`

mod accept;
pub(crate) mod apis;
mod changes;
mod import;
mod login;

use crate::cli::Global;
use crate::config::{Config, TrustRequest, api_section, upstream_section};
use crate::error::{CommandError, CommandResult};
use crate::output::{count, table};
use crate::trust;
use crate::workspace::Workspace;
use clap::Subcommand;
use ctx_core::{Catalog, Entry, Identifier, nearest, summary_line};
use ctx_mcp::{UpstreamState, UpstreamStatus};
use ctx_openapi::{ApiState, ApiStatus};
use serde_json::{Value, json};

/// The state of an upstream that may not be used.
const NOT_TRUSTED: &str = "not trusted";

/// Look at upstream MCP servers and APIs, and at what they can do.
#[derive(Debug, clap::Args)]
pub(crate) struct Upstream {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Connect to every server in `[mcp_servers]`, read every description in `[apis]`, and show how each is doing.
    List,
    /// Connect to one server, or read the description of one API, and show what it can do.
    Test {
        /// Its name in `[mcp_servers]` or `[apis]`.
        name: String,
    },
    /// Accept the tools of a server as they were last seen.
    ///
    /// What a server says of its tools is remembered when it is first seen. If it says something else later,
    /// `ctx upstream list` shows the difference; until it is accepted, those that do more than
    /// read are refused, or all of them with `changes = "ask"`.
    Accept {
        /// Its name in `[mcp_servers]`.
        name: String,
    },
    Import(import::Import),
    /// Log in at a server on the web that lets only known people in.
    Login {
        /// Its name in `[mcp_servers]`.
        name: String,
        /// Do not open a browser; only show the address to log in at.
        #[arg(long)]
        no_browser: bool,
    },
    /// Forget the login at a server.
    Logout {
        /// Its name in `[mcp_servers]`.
        name: String,
    },
}

impl Upstream {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        match self.action {
            Action::List => connected(global, async |workspace| list(workspace, global).await).await,
            Action::Test { name } => {
                connected(global, async |workspace| test(workspace, &name, global).await).await
            }
            Action::Accept { name } => accept::run(&name, global),
            Action::Import(import) => import.run(global),
            Action::Login { name, no_browser } => {
                let login = async |workspace: &Workspace| {
                    let (name, section) = usable(workspace, &name)?;
                    login::login(workspace, &name, &section, !no_browser, global).await
                };
                connected(global, login).await
            }
            Action::Logout { name } => {
                let config = global.load()?;
                refuse_untrusted(&config, &name)?;
                let name = section_named(&config, &name)?;
                login::logout(name, config.settings.mcp_servers[name].url(), global)
            }
        }
    }
}

/// Does it in a workspace whose servers may run, and ends them afterwards.
async fn connected(global: &Global, work: impl AsyncFnOnce(&Workspace) -> CommandResult) -> CommandResult {
    let workspace = global.open_for(&["apis.", "frozen_params", "mcp_servers."])?;
    let done = work(&workspace).await;
    workspace.end_processes().await;
    workspace.close();
    done
}

/// The name of a server as its section has it; found by what its functions are called by, too.
fn section_named<'a>(config: &'a Config, name: &str) -> CommandResult<&'a str> {
    let written: Vec<&str> = config.settings.mcp_servers.keys().map(String::as_str).collect();
    let names = Identifier::sanitize_all(written.iter().copied());
    let called = written.iter().zip(&names).find(|(_, identifier)| identifier.as_str() == name);
    let found = written.iter().find(|written| **written == name).or(called.map(|(written, _)| written));
    found.copied().ok_or_else(|| {
        let error = CommandError::usage(format!("there is no server `{name}` in [mcp_servers]"));
        match nearest(name, written.iter().copied()) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint("`ctx upstream list` shows those that are there"),
        }
    })
}

async fn list(workspace: &Workspace, global: &Global) -> CommandResult {
    let output = global.output();
    let upstreams = workspace.connect_upstreams().await;
    let (states, apis) = (upstreams.servers.states(), upstreams.apis.states());
    let untrusted = untrusted(&workspace.config);
    if !untrusted.is_empty() {
        let shown = count(untrusted.len() as u64, "upstream");
        let (are, them) = if untrusted.len() == 1 { ("is", "it") } else { ("are", "them") };
        output.say(&format!(
            "{shown} {are} configured, but the workspace is not trusted; `ctx trust` allows {them}"
        ));
    } else if states.is_empty() && apis.is_empty() {
        output.say(
            "no upstream is configured; add a [mcp_servers.<name>] or [apis.<name>] section to ctx.toml",
        );
    }
    let catalog = workspace.catalog.current();
    let servers = states.iter().map(|status| as_json(status, &catalog));
    let upstreams = servers.chain(apis.iter().map(|status| apis::as_json(status, &catalog)));
    let left_out = untrusted.iter().map(|(kind, request)| {
        let name = request.section.split_once('.').map_or("", |(_, name)| name);
        json!({ "name": name, "kind": kind, "state": NOT_TRUSTED, "reason": trust::refusal(), "functions": [] })
    });
    let upstreams: Vec<Value> = upstreams.chain(left_out).collect();
    output.answer(&json!({ "upstreams": upstreams }), || {
        let servers = states.iter().map(|status| row(workspace, status));
        let left_out = untrusted.iter().map(|(_, request)| {
            let name = request.section.split_once('.').map_or("", |(_, name)| name);
            let cells = [name, NOT_TRUSTED, "", &request.what];
            cells.map(str::to_owned).to_vec()
        });
        let rows = table(&servers.chain(apis.iter().map(apis::row)).chain(left_out).collect::<Vec<_>>());
        let warnings = states
            .iter()
            .flat_map(|status| status.warnings.iter().map(move |warning| (&status.name, warning)));
        let rows =
            warnings.fold(rows, |text, (name, warning)| format!("{text}\nwarning: {name}: {warning}\n"));
        let differing = states.iter().filter(|status| !status.difference.is_empty());
        differing.fold(rows, |text, UpstreamStatus { name, difference, .. }| {
            let changes = changes::shown(difference);
            format!(
                "{text}\n{name}: its tools are not those that were accepted; `ctx upstream accept {name}` \
                 accepts them\n{changes}"
            )
        })
    })
}

/// The sections of servers and APIs that are not trusted, each with its kind.
fn untrusted(config: &Config) -> Vec<(&'static str, &TrustRequest)> {
    let kind_of = |request: &TrustRequest| match request.section.split_once('.') {
        Some(("mcp_servers", _)) => Some("mcp"),
        Some(("apis", _)) => Some("openapi"),
        _ => None,
    };
    config.untrusted.iter().filter_map(|request| Some((kind_of(request)?, request))).collect()
}

async fn test(workspace: &Workspace, name: &str, global: &Global) -> CommandResult {
    let section = usable_section(workspace, name)?;
    let upstreams = workspace.connect_some_upstreams(&|wanted| wanted == section).await;
    if let Some(status) = upstreams.apis.states().first() {
        return test_api(workspace, status, &section, global);
    }
    let states = upstreams.servers.states();
    let Some(status) = states.first() else { return Ok(()) };
    match &status.state {
        UpstreamState::LoginNeeded { told } => return Err(CommandError::new(told)),
        UpstreamState::Failed { reason, .. } => {
            return Err(
                CommandError::new(format!("{name}: {reason}")).hint(format!("check [{section}] in ctx.toml"))
            );
        }
        _ => {}
    }
    let catalog = workspace.catalog.current();
    global.output().answer(&as_json(status, &catalog), || {
        let server = status.server.as_deref().unwrap_or("a server without a name");
        let protocol = status.protocol.as_deref().unwrap_or_default();
        let mut text = format!("✓ {server} answers (MCP {protocol})\n");
        text.push_str(&format!("✓ {}\n", count(status.tools as u64, "tool")));
        for entry in functions(&status.name, &catalog) {
            let summary = summary_line(&entry.spec.description);
            text.push_str(&format!("    {}  {summary}\n", entry.name));
        }
        text
    })
}

fn test_api(workspace: &Workspace, status: &ApiStatus, section: &str, global: &Global) -> CommandResult {
    if let ApiState::Failed(reason) = &status.state {
        let message = format!("{}: {}: {reason}", status.name, status.spec);
        return Err(CommandError::new(message).hint(format!("check [{section}] in ctx.toml")));
    }
    let catalog = workspace.catalog.current();
    global.output().answer(&apis::as_json(status, &catalog), || apis::shown(status, &catalog))
}

/// A server that may be used: what it is called, and its section.
fn usable(workspace: &Workspace, name: &str) -> CommandResult<(Identifier, String)> {
    refuse_untrusted(&workspace.config, name)?;
    let name = section_named(&workspace.config, name)?;
    Ok((Identifier::sanitize(name), upstream_section(name)))
}

/// The section of a server or an API that may be used.
fn usable_section(workspace: &Workspace, name: &str) -> CommandResult<String> {
    refuse_untrusted(&workspace.config, name)?;
    let written = workspace.config.settings.apis.keys();
    let is_it = |written: &&String| *written == name || Identifier::sanitize(written).as_str() == name;
    Ok(match written.clone().find(is_it) {
        Some(api) => api_section(api),
        None => upstream_section(section_named(&workspace.config, name).map_err(|error| {
            let near = nearest(name, written.map(String::as_str));
            near.into_iter().fold(error, |error, near| error.hint(format!("did you mean the API `{near}`?")))
        })?),
    })
}

/// Fails for an untrusted server or API. Its section is missing from the settings, so that looking it up would only
/// report an unknown name.
fn refuse_untrusted(config: &Config, name: &str) -> CommandResult {
    let sections = [upstream_section(name), api_section(name)];
    match config.untrusted.iter().find(|request| sections.contains(&request.section)) {
        Some(request) => {
            Err(CommandError::new(format!("[{}] may not be used", request.section)).hint(trust::refusal()))
        }
        None => Ok(()),
    }
}

fn functions<'a>(name: &'a Identifier, catalog: &'a Catalog) -> impl Iterator<Item = &'a Entry> {
    catalog.entries().filter(move |entry| entry.name.provider() == name)
}

fn as_json(status: &UpstreamStatus, catalog: &Catalog) -> Value {
    let functions: Vec<String> =
        functions(&status.name, catalog).map(|entry| entry.name.to_string()).collect();
    let reason = match &status.state {
        UpstreamState::Failed { reason, .. } => Some(reason),
        UpstreamState::LoginNeeded { told } => Some(told),
        _ => None,
    };
    json!({
        "name": status.name.as_str(),
        "kind": "mcp",
        "state": state(&status.state),
        "reason": reason,
        "server": status.server,
        "protocol": status.protocol,
        "functions": functions,
        "changes": (!status.difference.is_empty()).then_some(&status.difference),
        "warnings": status.warnings,
    })
}

fn row(workspace: &Workspace, status: &UpstreamStatus) -> Vec<String> {
    let sections = workspace.config.settings.mcp_servers.iter();
    let mut sections = sections.filter(|(name, _)| Identifier::sanitize(name) == status.name);
    let reached = sections.next().map_or_else(String::new, |(_, section)| section.shown());
    let tools = count(status.tools as u64, "tool");
    let notes = match &status.state {
        UpstreamState::Failed { reason, .. } if status.tools > 0 => format!("{tools} as last seen; {reason}"),
        UpstreamState::Failed { reason, .. } => reason.clone(),
        UpstreamState::LoginNeeded { told } => told.clone(),
        _ => tools,
    };
    vec![status.name.to_string(), state(&status.state).to_owned(), notes, workspace.masked(reached)]
}

fn state(state: &UpstreamState) -> &'static str {
    match state {
        UpstreamState::Connecting => "connecting",
        UpstreamState::Ready => "ready",
        UpstreamState::Idle => "idle",
        UpstreamState::Failed { .. } => "failed",
        UpstreamState::LoginNeeded { .. } => "needs login",
        _ => "stopped",
    }
}
