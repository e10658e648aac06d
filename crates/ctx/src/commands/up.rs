//! `ctx up`

use super::refresh::{Kept, News, Refresh, Tell};
use super::serve::{Server, load_scripts};
use super::sync::{ProgressKind, summary, sync_all, warn};
use super::{connect, init};
use crate::cli::{Global, working_directory};
use crate::config::Config;
use crate::error::{CommandError, CommandResult};
use crate::output::{Output, count};
use crate::signals::until_stop_deadline;
use crate::trust;
use crate::workspace::Workspace;
use ctx_knowledge::SyncOptions;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Start in one step: make a workspace if there is none, sync it, serve it.
#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    /// The folder; when absent, the workspace the working directory is in, or else that directory.
    directory: Option<PathBuf>,
}

impl Up {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let output = global.output();
        let config = self.config(global)?;
        let workspace = global.open_config(config)?;
        // Taken first: an address in use should be known before a long sync, not after.
        let server = Server::bind(&workspace).await?;
        let scripts = load_scripts(&workspace, &output).await;
        let url = server.url();

        let shutdown = server.shutdown();
        let syncing = async {
            let sources = sync(&workspace, &output, shutdown.clone()).await;
            if !shutdown.is_cancelled() {
                output.say(&served(&workspace.config, &url));
            }
            let tell: Tell = Arc::new(move |news| say(&output, &news));
            Refresh::start(&workspace.knowledge, sources, &tell, &shutdown).end().await;
        };
        // Serving decides when to end, and syncing ends with it.
        let drain = workspace.config.settings.http_limits().drain;
        let syncing = until_stop_deadline(syncing, &shutdown, drain);
        let (ended, _) = tokio::join!(server.run(&workspace, scripts), syncing);
        ended
    }

    /// The named folder's, else the workspace that any command would find here, else a new one.
    fn config(self, global: &Global) -> CommandResult<Config> {
        let located = global.locate()?;
        let directory = match self.directory {
            Some(_) if global.names_config() => {
                return Err(CommandError::usage("either a folder or `--config`, not both"));
            }
            Some(directory) => directory,
            None if located.workspace.is_some() => {
                return global.load_and_settle(trust::ALL_GROUPS, || global.load());
            }
            None => working_directory()?,
        };
        if let Some(contents) = init::ensure(&directory)? {
            let output = global.output();
            output.say(&format!("created {}", directory.join("ctx.toml").display()));
            contents.left_out_line().iter().for_each(|line| output.say(line));
        }
        global.load_and_settle(trust::ALL_GROUPS, || global.load_in(&directory))
    }
}

/// Syncs everything; what fails is told and does not stop the server. Returns what to keep fresh.
async fn sync(workspace: &Workspace, output: &Output, cancellation: CancellationToken) -> Vec<Kept> {
    let names = workspace.freshness.iter().map(|source| source.name.clone()).collect();
    let progress = if output.quiet { ProgressKind::None } else { ProgressKind::Human };
    let outcomes =
        sync_all(&workspace.knowledge, names, SyncOptions::default(), progress, cancellation).await;
    for outcome in &outcomes {
        match outcome {
            Ok(report) => {
                say(output, &News::Warned(report));
                say(output, &News::Synced(report));
            }
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

/// What can be done with a server at this address.
fn served(config: &Config, url: &str) -> String {
    let header = match config.settings.server.token {
        Some(_) => {
            let variable = connect::token_variable(config);
            format!(" \\\n                 -H \"Authorization: Bearer ${variable}\"")
        }
        None => String::new(),
    };
    // Without it nothing is lost but a hint.
    let ways = connect::ways(config, url).unwrap_or_default();
    let ways: String = ways.iter().map(|(client, how)| format!("  {client:<13}{how}\n")).collect();
    format!(
        "
serving {url}

{ways}  others       ctx connect --help

  search       curl -s {url}/tools/search -H 'Content-Type: application/json'{header} \\
                 -d '{{\"query\": \"how do I roll back a release?\"}}'
  tools        curl -s {url}/tools/list{header}
  schema       {url}/openapi.json

Ctrl-C stops."
    )
}
