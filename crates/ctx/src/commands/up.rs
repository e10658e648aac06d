//! `ctx up`: creates a workspace if there is none, syncs it and serves it.

use super::init::NewWorkspace;
use super::refresh::{Kept, News, Refresh, Tell};
use super::serve::{ConfigLoader, Live, Reloading, Server, load_scripts};
use super::sync::{ProgressKind, summary, sync_sources, warn};
use super::{connect, first_index};
use crate::admin::{SourceOutcome, SyncSourcesRequest};
use crate::cli::{Global, examples, working_directory};
use crate::config::{Config, FILE_NAMES, Typed, TypedBind};
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::{Output, count};
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
    listen: TypedBind,
}

impl Up {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let output = global.output();
        let Self { directory, yes, listen } = self;
        let place = ConfigPlace::of(directory, global)?;
        let is_new = match &place {
            ConfigPlace::Folder(folder) => create(folder, yes, &output)?,
            _ => false,
        };
        let is_typed = listen.is_given();
        let typed = Typed { bind: listen, ..Typed::default() };
        let load: ConfigLoader = Arc::new(move |global| match &place {
            ConfigPlace::Found => global.load_with(&typed),
            ConfigPlace::File(path) => global.load_at(path, &typed),
            ConfigPlace::Folder(folder) => global.load_in(folder, &typed),
        });
        let config = global.load_and_settle(trust::ALL_GROUPS, || load(global))?;
        if let Some(server) = RunningServer::of(config.data_folder()) {
            return tell_running(&config, &server, is_typed, &output);
        }
        let workspace = Arc::new(global.open_config(config)?);
        // For a new workspace, `create` has already asked.
        if !is_new {
            first_index::confirm_sources(&workspace, yes, &output)?;
        }
        // Bound before the sync: an address in use should be reported before a long sync, not after it.
        let server = Server::bind(&workspace).await?;
        let scripts = load_scripts(&workspace, &output).await;
        let url = server.url();

        let shutdown = server.shutdown();
        let tell: Tell = Arc::new(move |news| say(&output, &news));
        let say = Arc::new(move |line: &str| output.say(line));
        let reloading = Reloading { load, global: global.clone(), tell, say };
        let (synced, sources) = oneshot::channel();
        let sources = async { sources.await.unwrap_or_default() };
        let live = Live::start(workspace.clone(), scripts, sources, reloading, &shutdown);
        let syncing = async {
            let sources = sync(&workspace, &output, shutdown.clone()).await;
            if !shutdown.is_cancelled() {
                output.say(&served(&workspace.config, &url));
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
enum ConfigPlace {
    /// Found as for any command: named with `--config`, or in the workspace that contains the working directory.
    Found,
    File(PathBuf),
    /// In this folder, if the folder has a configuration.
    Folder(PathBuf),
}

impl ConfigPlace {
    fn of(named: Option<PathBuf>, global: &Global) -> CommandResult<Self> {
        let located = global.locate()?;
        match named {
            Some(_) if global.names_config() => {
                Err(CommandError::usage("either a folder or `--config`, not both"))
            }
            Some(path) if is_config(&path) && !path.is_file() => {
                Err(CommandError::usage(format!("there is no configuration file {}", path.display())))
            }
            Some(path) if is_config(&path) => Ok(Self::File(path)),
            Some(folder) => Ok(Self::Folder(folder)),
            None if located.workspace.is_some() => Ok(Self::Found),
            None => Ok(Self::Folder(working_directory()?)),
        }
    }
}

/// Creates a workspace in a folder without one, after the user has confirmed a large folder. Returns whether one was
/// created.
fn create(folder: &Path, yes: bool, output: &Output) -> CommandResult<bool> {
    let Some(new) = NewWorkspace::fit(folder)? else { return Ok(false) };
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
fn tell_running(config: &Config, server: &RunningServer, is_typed: bool, output: &Output) -> CommandResult {
    let (url, process) = (server.url(), server.process);
    if is_typed && config.settings.server.bind != server.address.to_string() {
        return Err(CommandError::new(format!(
            "this workspace is served already, at {url} (process {process})"
        ))
        .hint("stop that one first, or leave out `--port` and `--bind`"));
    }
    let answer = json!({ "url": url, "mcp": format!("{url}/mcp"), "process": process });
    output.answer(&answer, || {
        format!("already running at {url} (MCP at {url}/mcp, process {process})\n\n{}\n", ways(config, &url))
    })
}

/// Syncs all sources and prints failures, which do not stop the server. Returns the sources to keep fresh.
async fn sync(workspace: &Workspace, output: &Output, cancellation: CancellationToken) -> Vec<Kept> {
    let sources: Vec<_> = workspace.freshness.iter().map(|source| source.name.to_string()).collect();
    let progress = if output.quiet { ProgressKind::None } else { ProgressKind::Human };
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
            return Refresh::of(workspace);
        }
    };
    for outcome in &outcomes {
        match outcome {
            Ok(report) => {
                say(output, &News::Warned(report));
                say(output, &News::Synced(report));
            }
            // Ctrl-C is the usual way to stop a server, not a failure.
            Err(error) if error.exit == Exit::Interrupted => output.say(&error.messages.join("; ")),
            Err(error) => say(output, &News::Failed(error)),
        }
    }
    if let Ok(stats) = workspace.knowledge.stats() {
        let (documents, chunks) = (count(stats.documents, "document"), count(stats.chunks, "chunk"));
        output.say(&format!("{documents} in {chunks} ready to be searched"));
    }
    let kept = workspace.freshness.iter().zip(&outcomes);
    kept.map(|(freshness, outcome)| Kept::after(freshness, outcome)).collect()
}

fn say(output: &Output, news: &News<'_>) {
    match news {
        News::Synced(report) => output.say(&summary(report)),
        News::Warned(report) => warn(output, report),
        News::Failed(error) => output.fail(error),
    }
}

/// The message printed when the server starts to serve at this address.
fn served(config: &Config, url: &str) -> String {
    format!("\nserving {url}\n\n{}\n\nCtrl-C stops.", ways(config, url))
}

/// Instructions for connecting to a server at this address: clients, and `curl` commands.
fn ways(config: &Config, url: &str) -> String {
    let header = match config.settings.server.token {
        Some(_) => {
            let variable = connect::token_variable(config);
            format!(" \\\n                 -H \"Authorization: Bearer ${variable}\"")
        }
        None => String::new(),
    };
    // An error here costs only the instructions for clients.
    let ways = connect::ways(config, url).unwrap_or_default();
    let ways: String = ways.iter().map(|(client, how)| format!("  {client:<13}{how}\n")).collect();
    format!(
        "{ways}  others       ctx connect --help

  search       curl -s {url}/tools/search -H 'Content-Type: application/json'{header} \\
                 -d '{{\"query\": \"how do I roll back a release?\"}}'
  tools        curl -s {url}/tools/list{header}
  schema       {url}/openapi.json"
    )
}
