//! `ctx up`

use super::init;
use super::serve::Server;
use super::sync::{ProgressKind, summary, sync_all, warn};
use crate::cli::{Global, load_in, working_directory};
use crate::config::Config;
use crate::error::{CommandError, CommandResult};
use crate::output::{Output, count};
use crate::signals::Signals;
use crate::workspace::Workspace;
use ctx_knowledge::SyncOptions;
use std::path::PathBuf;
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
        let mut signals = Signals::listen()?;
        let workspace = Workspace::open(self.config(global)?)?;
        workspace.warnings.iter().for_each(|warning| output.warn(warning));
        // Taken first: an address in use should be known before a long sync, not after.
        let server = Server::bind(&workspace).await?;
        let url = server.url();
        let token = workspace.config.settings.server.token.is_some();

        let cancellation = CancellationToken::new();
        let syncing = async {
            sync(&workspace, &output, cancellation.clone()).await;
            if !cancellation.is_cancelled() {
                output.say(&connect(&url, token));
            }
            // Serving decides when to end.
            std::future::pending::<()>().await;
        };
        let serving = async {
            let ended = server.run(&workspace).await;
            cancellation.cancel();
            ended
        };
        let stopped = async {
            signals.next().await;
            cancellation.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = serving => ended,
            () = syncing => Ok(()),
            () = stopped => Ok(()),
        }
    }

    /// The named folder's, else the workspace that any command would find here, else a new one.
    fn config(self, global: &Global) -> CommandResult<Config> {
        let located = global.locate()?;
        let directory = match self.directory {
            Some(_) if global.names_config() => {
                return Err(CommandError::usage("either a folder or `--config`, not both"));
            }
            Some(directory) => directory,
            None if located.workspace.is_some() => return global.load(),
            None => working_directory()?,
        };
        if init::ensure(&directory)? {
            global.output().say(&format!("created {}", directory.join("ctx.toml").display()));
        }
        load_in(&directory)
    }
}

/// Syncs everything; what fails is told and does not stop the server.
async fn sync(workspace: &Workspace, output: &Output, cancellation: CancellationToken) {
    let names = workspace.knowledge.source_names().cloned().collect();
    let progress = if output.quiet { ProgressKind::None } else { ProgressKind::Human };
    let outcomes =
        sync_all(&workspace.knowledge, names, SyncOptions::default(), progress, cancellation).await;
    for outcome in outcomes {
        match outcome {
            Ok(report) => {
                warn(output, &report);
                output.say(&summary(&report));
            }
            Err(error) => output.fail(&error),
        }
    }
    if let Ok(stats) = workspace.knowledge.stats() {
        let (documents, chunks) = (count(stats.documents, "document"), count(stats.chunks, "chunk"));
        output.say(&format!("{documents} in {chunks} ready to be searched"));
    }
}

fn connect(url: &str, token: bool) -> String {
    let header = if token { " \\\n    -H \"Authorization: Bearer $CTX_TOKEN\"" } else { "" };
    format!(
        "
serving {url}

  search   curl -s {url}/tools/search -H 'Content-Type: application/json'{header} \\
             -d '{{\"query\": \"how do I roll back a release?\"}}'
  tools    curl -s {url}/tools/list{header}
  schema   {url}/openapi.json

Ctrl-C stops."
    )
}
