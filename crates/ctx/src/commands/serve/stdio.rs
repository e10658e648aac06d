//! The MCP server on stdin and stdout, for the client that started it.

use super::background::allow_descriptors;
use super::{ConfigLoader, Live, load_scripts, mcp_server, reloading, until_signal};
use crate::cli::Global;
use crate::commands::refresh::Refresh;
use crate::error::CommandResult;
use crate::signals::Signals;
use crate::trust::ALL_GROUPS;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Time for background tasks to end after the client has disconnected.
const PATIENCE: Duration = Duration::from_millis(300);

/// Serves until the client disconnects. Requests are answered at once, except those that depend on scripts, which wait
/// until these are loaded.
pub(super) async fn serve(load: ConfigLoader, global: &Global) -> CommandResult {
    let signals = Signals::listen()?;
    allow_descriptors();
    let config = global.load_and_settle(ALL_GROUPS, || load(global))?;
    let workspace = Arc::new(global.open_config(config)?);
    if std::io::stdin().is_terminal() {
        global.output().say(
            "speaking MCP on stdin and stdout: an MCP client is to start this command (`ctx connect --help`); over HTTP \
             serve `ctx serve mcp`, `ctx up` and `ctx run --http`. Ctrl-C stops.",
        );
    }
    let shutdown = CancellationToken::new();
    let (ready, is_ready) = watch::channel(false);
    let mcp = mcp_server(&workspace, is_ready, &shutdown);
    let serving = tokio::spawn({
        let mcp = mcp.clone();
        async move { mcp.serve_stdio().await }
    });
    workspace.start_upstreams();
    let mut live = None;
    let loading = async {
        let scripts = load_scripts(&workspace, &global.output()).await;
        let sources = std::future::ready(Refresh::of(&workspace));
        live = Some(Live::start(workspace.clone(), scripts, sources, reloading(load, global), &shutdown));
        ready.send_replace(true);
    };
    let serving = until_signal(serving, signals, &shutdown);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = loading => serving.await,
    };
    mcp.drained(PATIENCE).await;
    match live {
        Some(live) => live.end(PATIENCE).await,
        None => {
            workspace.end_processes().await;
            workspace.close();
        }
    }
    ended
}
