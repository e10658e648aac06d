//! `ctx upstream`: lists and tests upstreams (MCP servers and APIs), and manages their definitions and logins.

mod accept;
mod changes;
mod import;
mod login;

use crate::admin::{
    self, ListUpstreams, ListUpstreamsRequest, ListedUpstream, OperationError, TestUpstream,
    TestUpstreamRequest, UpstreamDetails, UpstreamStanding, find_trusted_server,
};
use crate::cli::{GlobalOptions, examples};
use crate::config::upstream_section;
use crate::error::CommandResult;
use crate::output::{count, table};
use crate::workspace::Workspace;
use clap::Subcommand;
use ctx_core::Identifier;
use serde_json::{Value, json};

/// List, test, import and sign in to upstreams: MCP servers and APIs.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Show the state of all upstreams", "ctx upstream list"),
    ("Connect to one of them and list its functions", "ctx upstream test github"),
    ("Import the MCP servers of an editor", "ctx upstream import .vscode/mcp.json"),
]))]
pub(crate) struct Upstream {
    #[command(subcommand)]
    action: UpstreamAction,
}

#[derive(Debug, Subcommand)]
enum UpstreamAction {
    /// Connect to all upstreams and show their state.
    ///
    /// Connects to the servers in `[mcp_servers]`, and reads the descriptions of the APIs in `[apis]`.
    #[command(after_help = examples(&[
        ("Show the state of all upstreams", "ctx upstream list"),
        ("Show it with functions and errors, as JSON", "ctx upstream list --json"),
    ]))]
    List,
    /// Connect to an upstream and list its functions.
    #[command(after_help = examples(&[
        ("List the functions of a server or API", "ctx upstream test github"),
        ("List them as JSON", "ctx upstream test github --json"),
    ]))]
    Test {
        /// Name of the server or API in `[mcp_servers]` or `[apis]`.
        name: String,
    },
    /// Accept the current tool definitions of a server.
    ///
    /// The definitions (descriptions, schemas, annotations) of a server are recorded when it is first seen. If they
    /// change later, `ctx upstream list` shows the difference. Until you accept them, changed tools that do more than
    /// read are refused, or all changed tools with `changes = "ask"`.
    #[command(after_help = examples(&[
        ("Accept the definitions that `ctx upstream list` shows", "ctx upstream accept github"),
        ("Accept them, and print the difference as JSON", "ctx upstream accept github --json"),
    ]))]
    Accept {
        /// Name of the server in `[mcp_servers]`.
        name: String,
    },
    Import(import::Import),
    /// Sign in to a remote server that requires OAuth.
    ///
    /// Opens the sign-in page in a browser and waits up to five minutes.
    #[command(after_help = examples(&[
        ("Sign in with the browser", "ctx upstream login linear"),
        ("Only print the address of the sign-in page", "ctx upstream login linear --no-browser"),
    ]))]
    Login {
        /// Name of the server in `[mcp_servers]`.
        name: String,
        /// Print the address of the sign-in page instead of opening a browser.
        #[arg(long)]
        no_browser: bool,
    },
    /// Sign out of a server: delete its OAuth tokens.
    #[command(after_help = examples(&[
        ("Sign out", "ctx upstream logout linear"),
        ("Sign out, and print whether there was a login, as JSON", "ctx upstream logout linear --json"),
    ]))]
    Logout {
        /// Name of the server in `[mcp_servers]`.
        name: String,
    },
}

impl Upstream {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        match self.action {
            UpstreamAction::List => {
                with_workspace(global, async |workspace| list(workspace, global).await).await
            }
            UpstreamAction::Test { name } => {
                with_workspace(global, async |workspace| test_upstream(workspace, name, global).await).await
            }
            UpstreamAction::Accept { name } => accept::run(name, global).await,
            UpstreamAction::Import(import) => import.run(global),
            UpstreamAction::Login { name, no_browser } => {
                let login = async |workspace: &Workspace| {
                    let configured_name =
                        find_trusted_server(&workspace.config, &name).map_err(OperationError::from)?;
                    let (name, section) =
                        (Identifier::sanitize(configured_name), upstream_section(configured_name));
                    login::login(workspace, &name, &section, !no_browser, global).await
                };
                with_workspace(global, login).await
            }
            UpstreamAction::Logout { name } => {
                let config = global.load()?;
                let name = find_trusted_server(&config, &name).map_err(OperationError::from)?;
                login::logout(name, config.settings.mcp_servers[name].url(), global)
            }
        }
    }
}

/// Opens the workspace with its upstreams, does the work, and stops the servers afterwards.
async fn with_workspace(
    global: &GlobalOptions,
    work: impl AsyncFnOnce(&Workspace) -> CommandResult,
) -> CommandResult {
    let workspace = global.open_for(&["apis.", "frozen_params", "mcp_servers."])?;
    let result = work(&workspace).await;
    workspace.end_processes().await;
    workspace.close();
    result
}

async fn list(workspace: &Workspace, global: &GlobalOptions) -> CommandResult {
    let output = global.output();
    let answer = admin::call::<ListUpstreams>(workspace.catalog.current(), ListUpstreamsRequest {}).await?;
    let upstreams = &answer.upstreams;
    let untrusted =
        upstreams.iter().filter(|upstream| upstream.state == UpstreamStanding::NotTrusted).count();
    if untrusted > 0 {
        let shown = count(untrusted as u64, "upstream");
        let (are, them) = if untrusted == 1 { ("is", "it") } else { ("are", "them") };
        output.say(&format!(
            "{shown} {are} configured, but the workspace is not trusted; `ctx trust` allows {them}"
        ));
    } else if upstreams.is_empty() {
        output.say(
            "no upstream is configured; add a [mcp_servers.<name>] or [apis.<name>] section to ctx.toml",
        );
    }
    let answer = json!({ "upstreams": upstreams.iter().map(as_json).collect::<Vec<_>>() });
    output.print_result(&answer, || {
        let rows = table(&upstreams.iter().map(row).collect::<Vec<_>>());
        let servers = upstreams.iter().filter_map(|upstream| match &upstream.details {
            UpstreamDetails::Mcp { changes, .. } => Some((upstream, changes)),
            UpstreamDetails::Openapi { .. } => None,
        });
        let warnings = servers
            .clone()
            .flat_map(|(upstream, _)| upstream.warnings.iter().map(move |warning| (&upstream.name, warning)));
        let rows =
            warnings.fold(rows, |text, (name, warning)| format!("{text}\nwarning: {name}: {warning}\n"));
        let differing = servers.filter(|(_, changes)| !changes.is_empty());
        differing.fold(rows, |text, (ListedUpstream { name, .. }, changes)| {
            let changes = changes::difference_text(changes);
            format!(
                "{text}\n{name}: its tools are not those that were accepted; `ctx upstream accept {name}` \
                 accepts them\n{changes}"
            )
        })
    })
}

async fn test_upstream(workspace: &Workspace, name: String, global: &GlobalOptions) -> CommandResult {
    let tested =
        admin::call::<TestUpstream>(workspace.catalog.current(), TestUpstreamRequest { name }).await?;
    global.output().print_result(&as_json(&tested), || {
        let mut text = match &tested.details {
            UpstreamDetails::Mcp { server, protocol, .. } => {
                let server = server.as_deref().unwrap_or("a server without a name");
                let protocol = protocol.as_deref().unwrap_or_default();
                let tools = count(tested.function_count, "tool");
                format!("✓ {server} answers (MCP {protocol})\n✓ {tools}\n")
            }
            UpstreamDetails::Openapi { title, .. } => {
                let title = title.as_deref().unwrap_or("a description without a title");
                let functions = count(tested.function_count, "function");
                format!("✓ {title} was read ({})\n✓ {functions}\n", tested.reach)
            }
        };
        for function in &tested.functions {
            text.push_str(&format!("    sdk.{}  {}\n", function.name, function.summary));
        }
        if let UpstreamDetails::Openapi { .. } = &tested.details {
            text.extend(tested.warnings.iter().map(|warning| format!("! {warning}\n")));
        }
        text
    })
}

fn as_json(upstream: &ListedUpstream) -> Value {
    let ListedUpstream { name, reach, warnings, .. } = upstream;
    let (state, reason) = (state_word(upstream.state), upstream.problem());
    let functions: Vec<&str> = upstream.functions.iter().map(|function| function.name.as_str()).collect();
    match &upstream.details {
        details if upstream.state == UpstreamStanding::NotTrusted => {
            let kind = match details {
                UpstreamDetails::Mcp { .. } => "mcp",
                UpstreamDetails::Openapi { .. } => "openapi",
            };
            json!({ "name": name, "kind": kind, "state": state, "reason": reason, "functions": functions })
        }
        UpstreamDetails::Mcp { server, protocol, changes, .. } => json!({
            "name": name,
            "kind": "mcp",
            "state": state,
            "reason": reason,
            "server": server,
            "protocol": protocol,
            "functions": functions,
            "changes": (!changes.is_empty()).then_some(changes),
            "warnings": warnings,
        }),
        UpstreamDetails::Openapi { title, skipped, .. } => json!({
            "name": name,
            "kind": "openapi",
            "state": state,
            "reason": reason,
            "spec": reach,
            "title": title,
            "functions": functions,
            "skipped": skipped,
            "warnings": warnings,
        }),
    }
}

fn row(upstream: &ListedUpstream) -> Vec<String> {
    let ListedUpstream { name, reach, function_count, last_error, .. } = upstream;
    let notes = match (&upstream.details, upstream.state, last_error) {
        (_, UpstreamStanding::NotTrusted, _) => String::new(),
        (UpstreamDetails::Mcp { .. }, UpstreamStanding::Failed, Some(reason)) if *function_count > 0 => {
            format!("{} as last seen; {reason}", count(*function_count, "tool"))
        }
        (_, _, Some(_)) => upstream.problem().unwrap_or_default(),
        (UpstreamDetails::Mcp { .. }, ..) => count(*function_count, "tool"),
        (UpstreamDetails::Openapi { skipped, locked, .. }, ..) => {
            let mut notes = vec![count(*function_count, "function")];
            if !skipped.is_empty() {
                notes.push(format!("{} left out", count(skipped.len() as u64, "operation")));
            }
            if *locked > 0 {
                notes.push(format!("{locked} need credentials"));
            }
            notes.join(", ")
        }
    };
    vec![name.clone(), state_word(upstream.state).to_owned(), notes, reach.clone()]
}

/// The state in words.
fn state_word(state: UpstreamStanding) -> &'static str {
    match state {
        UpstreamStanding::Connecting => "connecting",
        UpstreamStanding::Reading => "reading",
        UpstreamStanding::Ready => "ready",
        UpstreamStanding::Idle => "idle",
        UpstreamStanding::Failed => "failed",
        UpstreamStanding::NeedsLogin => "needs login",
        UpstreamStanding::Stopped => "stopped",
        UpstreamStanding::NotTrusted => "not trusted",
    }
}
