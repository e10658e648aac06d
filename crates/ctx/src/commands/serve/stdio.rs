//! The MCP server on stdin and stdout, for the client that started it.

use super::background::raise_descriptor_limit;
use super::{ConfigLoader, LiveWorkspace, load_scripts, mcp_server, reload_options, until_signal};
use crate::cli::GlobalOptions;
use crate::commands::refresh::RefreshTasks;
use crate::error::CommandResult;
use crate::signals::Signals;
use crate::trust::ALL_GROUPS;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Time for background tasks to end after the client has disconnected.
const SHUTDOWN_GRACE_PERIOD: Duration = Duration::from_millis(300);

/// Serves until the client disconnects. Requests are answered at once, except those that depend on scripts, which wait
/// until these are loaded.
pub(super) async fn serve(load: ConfigLoader, global: &GlobalOptions) -> CommandResult {
    let signals = Signals::listen()?;
    raise_descriptor_limit();
    let config = global.load_with_trust_prompt(ALL_GROUPS, || load(global))?;
    let workspace = Arc::new(global.open_config(config)?);
    if std::io::stdin().is_terminal() {
        global.output().say(
            "serving MCP on stdin and stdout: this command is meant to be started by an MCP client \
             (`ctx connect --help`); for HTTP use `ctx serve mcp`, `ctx up` or `ctx run --http`. Ctrl-C stops.",
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
        let sources = std::future::ready(RefreshTasks::of(&workspace));
        live = Some(LiveWorkspace::start(
            workspace.clone(),
            scripts,
            sources,
            reload_options(load, global),
            &shutdown,
        ));
        ready.send_replace(true);
    };
    let serving = until_signal(serving, signals, &shutdown);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = loading => serving.await,
    };
    mcp.drain(SHUTDOWN_GRACE_PERIOD).await;
    match live {
        Some(live) => live.end(SHUTDOWN_GRACE_PERIOD).await,
        None => {
            workspace.end_processes().await;
            workspace.close();
        }
    }
    ended
}
