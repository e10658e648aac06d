//! `ctx serve`: serves a workspace at an address (HTTP and MCP), or MCP on stdin and stdout.

mod background;
mod config_watcher;
mod discovery_task;
mod server;
mod stdio;

pub(super) use config_watcher::{LiveWorkspace, ReloadOptions};
pub(super) use server::BoundServer;

use super::refresh::{RefreshTasks, SyncEvent};
use super::sync::summary;
use crate::cli::{GlobalOptions, examples};
use crate::config::{ApiArgument, AuthArgument, BindOptions, CliOverrides, Config, ServerArgument};
use crate::error::{CommandError, CommandResult};
use crate::output::CommandOutput;
use crate::scripts::ScriptSet;
use crate::signals::Signals;
use crate::trust::ALL_GROUPS;
use crate::workspace::Workspace;
use clap::Subcommand;
use ctx_mcp::{McpServer, ServerSettings};
use std::error::Error;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The first sentence of the MCP instructions, for a workspace with documents.
const KNOWLEDGE_INSTRUCTIONS: &str = "Knowledge and tools of this workspace. Find documents with `search` and read them \
     whole with `get`.";

/// The MCP instructions on functions, for every server.
const FUNCTION_INSTRUCTIONS: &str = "`execute` runs a Luau script that may call many functions (`sdk.<provider>.<name>{…}`) \
     and returns only what you need: find functions with `search_docs` and read how they are called with \
     `get_function_docs`.";

/// Serve the workspace to MCP clients and over HTTP.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Serve HTTP, and MCP at /mcp", "ctx serve mcp"),
    ("Serve MCP on stdin and stdout", "ctx serve mcp --stdio"),
]))]
pub(crate) struct Serve {
    #[command(subcommand)]
    action: ServeAction,
}

#[derive(Debug, Subcommand)]
enum ServeAction {
    /// Serve HTTP and MCP (at `/mcp`) at `server.bind`, or MCP on stdin and stdout.
    ///
    /// While it runs, sources are kept up to date, missing embeddings are computed, and changes of ctx.toml and of
    /// scripts take effect.
    #[command(after_help = examples(&[
        ("Serve HTTP, and MCP at /mcp, at another port", "ctx serve mcp --port 8080"),
        ("Serve MCP on stdin and stdout, as clients start it", "ctx serve mcp --stdio"),
        ("Serve the workspace with one more MCP server", "ctx serve mcp --mcp issues=https://mcp.example.com/mcp"),
    ]))]
    Mcp {
        /// Serve MCP on stdin and stdout, for a client that starts this command.
        #[arg(long, conflicts_with_all = ["port", "bind"])]
        stdio: bool,
        #[command(flatten)]
        listen: BindOptions,
        /// An additional MCP server, which replaces one of the same name in `[mcp_servers]`: a command line, as in
        /// `files='npx -y server-filesystem .'`, or a URL, as in `remote=https://example.com/mcp`. Can be repeated.
        #[arg(long, value_name = "NAME=COMMAND|URL")]
        mcp: Vec<ServerArgument>,
        /// An additional API, which replaces one of the same name in `[apis]`: path or URL of its OpenAPI description,
        /// as in `pets=petstore.yaml`. Can be repeated.
        #[arg(long, value_name = "NAME=SPEC")]
        api: Vec<ApiArgument>,
        /// Environment variable with the credentials of an API, as in `pets:PETS_TOKEN`; overrides those in `[apis]`.
        /// Can be repeated.
        #[arg(long, value_name = "NAME[.SCHEME]:VARIABLE")]
        auth: Vec<AuthArgument>,
    },
}

impl Serve {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let ServeAction::Mcp { stdio, listen, mcp, api, auth } = self.action;
        let overrides =
            CliOverrides { servers: mcp, apis: api, auth, bind: listen, ..CliOverrides::default() };
        serve_config(Arc::new(move |global| global.load_with(&overrides)), !stdio, global).await
    }
}

/// Loads the configuration. Called again after the user has trusted it, and when a file has changed.
pub(super) type ConfigLoader = Arc<dyn Fn(&GlobalOptions) -> CommandResult<Config> + Send + Sync>;

/// Serves a configuration at an address, or on stdin and stdout.
pub(super) async fn serve_config(
    load: ConfigLoader,
    over_http: bool,
    global: &GlobalOptions,
) -> CommandResult {
    match over_http {
        true => serve_http(load, global).await,
        false => stdio::serve(load, global).await,
    }
}

async fn serve_http(load: ConfigLoader, global: &GlobalOptions) -> CommandResult {
    let config = global.load_with_trust_prompt(ALL_GROUPS, || load(global))?;
    let workspace = Arc::new(global.open_config(config)?);
    let server = BoundServer::bind(&workspace).await?;
    let scripts = load_scripts(&workspace, &global.output()).await;
    global.output().say(&format!("serving {}", server.url()));
    let drain = workspace.config.settings.http_limits().drain;
    let sources = std::future::ready(RefreshTasks::of(&workspace));
    let live =
        LiveWorkspace::start(workspace, scripts, sources, reload_options(load, global), &server.shutdown());
    server.run(live, drain).await
}

/// How a server reloads its configuration; messages go to its log.
fn reload_options(load: ConfigLoader, global: &GlobalOptions) -> ReloadOptions {
    let report_reload = Arc::new(|line: &str| tracing::info!("{line}"));
    ReloadOptions {
        load,
        global: global.clone(),
        report_event: Arc::new(|event| log_sync_event(&event)),
        report_reload,
    }
}

/// Loads the scripts of a workspace. Scripts that fail to load are reported and left out.
pub(crate) async fn load_scripts(workspace: &Workspace, output: &CommandOutput) -> ScriptSet {
    let scripts = workspace.load_scripts().await;
    scripts.problems().iter().for_each(|problem| output.warn(problem));
    workspace.runner().warm_up();
    scripts
}

/// The workspace's catalog as an MCP server.
fn mcp_server(
    workspace: &Workspace,
    ready: watch::Receiver<bool>,
    shutdown: &CancellationToken,
) -> McpServer {
    let settings = ServerSettings {
        name: "ctx".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instructions: match workspace.config.without_knowledge {
            true => FUNCTION_INSTRUCTIONS.to_owned(),
            false => format!("{KNOWLEDGE_INSTRUCTIONS} {FUNCTION_INSTRUCTIONS}"),
        },
        request_bytes: workspace.config.settings.http_limits().body_bytes,
    };
    McpServer::new(workspace.catalog.clone(), settings, ready, shutdown.clone())
}

/// Waits until the server has ended. A first signal lets requests in flight finish; a second one stops at once.
async fn until_signal<E: Error>(
    mut serving: JoinHandle<Result<(), E>>,
    mut signals: Signals,
    shutdown: &CancellationToken,
) -> CommandResult {
    let server_failed = |error: &dyn Error| CommandError::new(format!("the server failed: {error}"));
    let ended = |served: Result<Result<(), E>, _>| match served {
        Ok(served) => served.map_err(|error| server_failed(&error)),
        Err(error) => Err(server_failed(&error)),
    };
    let ended = tokio::select! {
        served = &mut serving => ended(served),
        () = signals.next() => {
            shutdown.cancel();
            tokio::select! {
                served = &mut serving => ended(served),
                () = signals.next() => {
                    Err(CommandError::new("stopped before requests in flight had finished"))
                }
            }
        }
    };
    shutdown.cancel();
    ended
}

/// Writes the result of a sync to the log.
fn log_sync_event(event: &SyncEvent<'_>) {
    match event {
        SyncEvent::Synced(report) => tracing::info!("{}", summary(report)),
        SyncEvent::Warned(report) => {
            for warning in &report.warnings {
                tracing::info!("{}: {}: {}", report.source, warning.source_id, warning.reason);
            }
        }
        SyncEvent::Failed(error) => tracing::warn!("{}; it will be retried", error.messages.join("; ")),
    }
}
