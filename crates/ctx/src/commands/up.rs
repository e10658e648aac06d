//! `ctx up`: creates a workspace if there is none, syncs it and serves it.

use super::init::NewWorkspace;
use super::refresh::{RefreshTasks, SourceRefresh, SyncEvent, SyncReporter};
use super::serve::{BoundServer, ConfigLoader, LiveWorkspace, ReloadOptions, load_scripts};
use super::sync::{ProgressFormat, print_warnings, summary, sync_sources};
use super::{connect, first_index};
use crate::admin::{SourceOutcome, SyncSourcesRequest};
use crate::cli::{GlobalOptions, examples, working_directory};
use crate::config::{BindOptions, CliOverrides, Config, FILE_NAMES};
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::{CommandOutput, count};
use crate::server_record::RunningServer;
use crate::signals::until_stop_deadline;
use crate::trust;
use crate::workspace::Workspace;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Create a workspace if there is none, sync it and serve it.
///
/// Serves HTTP and MCP (at `/mcp`) until Ctrl-C, syncs again when sources change, and shows how to connect a client. If
/// the workspace is served already, only shows where.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Index a folder and serve it", "ctx up ./notes"),
    ("Serve the example workspace, and trust what its ctx.toml requests", "ctx up examples/workspace --trust"),
    ("Serve this workspace at another port", "ctx up --port 8080"),
]))]
pub(crate) struct Up {
    /// A folder or a configuration file. By default the workspace that contains the working directory, else the working
    /// directory itself.
    #[arg(value_name = "FOLDER")]
    directory: Option<PathBuf>,
    /// Do not ask before indexing the home folder, a whole file system, more than 50,000 files or more than 2 GB.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    listen: BindOptions,
}

impl Up {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let output = global.output();
        let Self { directory, yes, listen } = self;
        let target = ConfigTarget::of(directory, global)?;
        let is_new = match &target {
            ConfigTarget::Folder(folder) => create(folder, yes, &output)?,
            _ => false,
        };
        let has_bind_option = listen.is_set();
        let overrides = CliOverrides { bind: listen, ..CliOverrides::default() };
        let load: ConfigLoader = Arc::new(move |global| match &target {
            ConfigTarget::Discovered => global.load_with(&overrides),
            ConfigTarget::File(path) => global.load_at(path, &overrides),
            ConfigTarget::Folder(folder) => global.load_in(folder, &overrides),
        });
        let config = global.load_with_trust_prompt(trust::ALL_GROUPS, || load(global))?;
        if let Some(server) = RunningServer::of(config.data_folder()) {
            return report_running(&config, &server, has_bind_option, &output);
        }
        let workspace = Arc::new(global.open_config(config)?);
        // For a new workspace, `create` has already asked.
        if !is_new {
            first_index::confirm_sources(&workspace, yes, &output)?;
        }
        // Bound before the sync: an address in use should be reported before a long sync, not after it.
        let server = BoundServer::bind(&workspace).await?;
        let scripts = load_scripts(&workspace, &output).await;
        let url = server.url();

        let shutdown = server.shutdown();
        let report_event: SyncReporter = Arc::new(move |event| print_sync_event(&output, &event));
        let report_reload = Arc::new(move |line: &str| output.say(line));
        let reload_options = ReloadOptions { load, global: global.clone(), report_event, report_reload };
        let (synced, sources) = oneshot::channel();
        let sources = async { sources.await.unwrap_or_default() };
        let live = LiveWorkspace::start(workspace.clone(), scripts, sources, reload_options, &shutdown);
        let syncing = async {
            let sources = sync(&workspace, &output, shutdown.clone()).await;
            if !shutdown.is_cancelled() {
                output.say(&serving_message(&workspace.config, &url));
            }
            drop(synced.send(sources));
        };
        // The server decides when to stop; the sync stops with it.
        let drain = workspace.config.settings.http_limits().drain;
        let syncing = until_stop_deadline(syncing, &shutdown, drain);
        let (ended, _) = tokio::join!(server.run(live, drain), syncing);
        ended
    }
}

/// Location of the configuration to serve.
enum ConfigTarget {
    /// Found as for any command: named with `--config`, or in the workspace that contains the working directory.
    Discovered,
    File(PathBuf),
    /// In this folder, if the folder has a configuration.
    Folder(PathBuf),
}

impl ConfigTarget {
    fn of(path: Option<PathBuf>, global: &GlobalOptions) -> CommandResult<Self> {
        let located = global.locate()?;
        match path {
            Some(_) if global.names_config() => {
                Err(CommandError::usage("either a folder or `--config`, not both"))
            }
            Some(path) if is_config(&path) && !path.is_file() => {
                Err(CommandError::usage(format!("there is no configuration file {}", path.display())))
            }
            Some(path) if is_config(&path) => Ok(Self::File(path)),
            Some(folder) => Ok(Self::Folder(folder)),
            None if located.workspace.is_some() => Ok(Self::Discovered),
            None => Ok(Self::Folder(working_directory()?)),
        }
    }
}

/// Creates a workspace in a folder without one, after the user has confirmed a large folder. Returns whether one was
/// created.
fn create(folder: &Path, yes: bool, output: &CommandOutput) -> CommandResult<bool> {
    let Some(new) = NewWorkspace::for_folder(folder)? else { return Ok(false) };
    first_index::confirm_new(&new, yes, output)?;
    output.say(&format!("created {}", new.write()?.display()));
    new.contents.left_out_line().iter().for_each(|line| output.say(line));
    Ok(true)
}

/// Whether a path names a configuration file, judged by its file name.
fn is_config(path: &Path) -> bool {
    !path.is_dir() && FILE_NAMES.iter().any(|name| path.ends_with(name))
}

/// Reports where the workspace is already served and how to connect. Fails if an option asks for another address.
fn report_running(
    config: &Config,
    server: &RunningServer,
    has_bind_option: bool,
    output: &CommandOutput,
) -> CommandResult {
    let (url, process) = (server.url(), server.process);
    if has_bind_option && config.settings.server.bind != server.address.to_string() {
        return Err(CommandError::new(format!(
            "this workspace is served already, at {url} (process {process})"
        ))
        .hint("stop that one first, or leave out `--port` and `--bind`"));
    }
    let answer = json!({ "url": url, "mcp": format!("{url}/mcp"), "process": process });
    output.print_result(&answer, || {
        format!(
            "already running at {url} (MCP at {url}/mcp, process {process})\n\n{}\n",
            connect_instructions(config, &url)
        )
    })
}

/// Syncs all sources and prints failures, which do not stop the server. Returns the sources to keep fresh.
async fn sync(
    workspace: &Workspace,
    output: &CommandOutput,
    cancellation: CancellationToken,
) -> Vec<SourceRefresh> {
    let sources: Vec<_> = workspace.freshness.iter().map(|source| source.name.to_string()).collect();
    let progress = if output.quiet { ProgressFormat::None } else { ProgressFormat::Human };
    let synced = match sources.is_empty() {
        true => Ok(Vec::new()),
        false => {
            let request = SyncSourcesRequest { sources, ..SyncSourcesRequest::default() };
            sync_sources(workspace, request, progress, &cancellation).await
        }
    };
    let outcomes: Vec<_> = match synced {
        Ok(synced) => synced.into_iter().map(SourceOutcome::into_result).collect(),
        Err(error) => {
            output.fail(&error);
            return RefreshTasks::of(workspace);
        }
    };
    for outcome in &outcomes {
        match outcome {
            Ok(report) => {
                print_sync_event(output, &SyncEvent::Warned(report));
                print_sync_event(output, &SyncEvent::Synced(report));
            }
            // Ctrl-C is the usual way to stop a server, not a failure.
            Err(error) if error.exit == Exit::Interrupted => output.say(&error.messages.join("; ")),
            Err(error) => print_sync_event(output, &SyncEvent::Failed(error)),
        }
    }
    if let Ok(stats) = workspace.knowledge.stats() {
        let (documents, chunks) = (count(stats.documents, "document"), count(stats.chunks, "chunk"));
        output.say(&format!("{documents} in {chunks} ready to be searched"));
    }
    let sources = workspace.freshness.iter().zip(&outcomes);
    sources.map(|(freshness, outcome)| SourceRefresh::after_sync(freshness, outcome)).collect()
}

fn print_sync_event(output: &CommandOutput, event: &SyncEvent<'_>) {
    match event {
        SyncEvent::Synced(report) => output.say(&summary(report)),
        SyncEvent::Warned(report) => print_warnings(output, report),
        SyncEvent::Failed(error) => output.fail(error),
    }
}

/// The message printed when the server starts to serve at this address.
fn serving_message(config: &Config, url: &str) -> String {
    format!("\nserving {url}\n\n{}\n\nCtrl-C stops.", connect_instructions(config, url))
}

/// Instructions for connecting to a server at this address: clients, and `curl` commands.
fn connect_instructions(config: &Config, url: &str) -> String {
    let header = match config.settings.server.token {
        Some(_) => {
            let variable = connect::token_variable(config);
            format!(" \\\n                 -H \"Authorization: Bearer ${variable}\"")
        }
        None => String::new(),
    };
    // An error here costs only the instructions for clients.
    let commands = connect::connect_commands(config, url).unwrap_or_default();
    let commands: String = commands.iter().map(|(client, how)| format!("  {client:<13}{how}\n")).collect();
    format!(
        "{commands}  others       ctx connect --help

  search       curl -s {url}/tools/search -H 'Content-Type: application/json'{header} \\
                 -d '{{\"query\": \"how do I roll back a release?\"}}'
  tools        curl -s {url}/tools/list{header}
  schema       {url}/openapi.json"
    )
}
