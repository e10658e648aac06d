//! The server on stdin and stdout, for the client that started it.

use super::background::{Background, allow_descriptors};
use super::{ConfigLoader, load_scripts, mcp_server, refresh, until_signal};
use crate::cli::Global;
use crate::error::CommandResult;
use crate::signals::Signals;
use crate::trust::ALL_GROUPS;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long work behind the server may take to end once the client has left.
const PATIENCE: Duration = Duration::from_millis(300);

/// Serves until the client leaves. It is answered at once; what depends on scripts waits for them.
pub(super) async fn serve(load: ConfigLoader<'_>, global: &Global) -> CommandResult {
    let signals = Signals::listen()?;
    allow_descriptors();
    let config = global.load_and_settle(ALL_GROUPS, load)?;
    let workspace = global.open_config(config)?;
    let shutdown = CancellationToken::new();
    let (ready, is_ready) = watch::channel(false);
    let mcp = mcp_server(&workspace, is_ready, &shutdown);
    let serving = tokio::spawn({
        let mcp = mcp.clone();
        async move { mcp.serve_stdio().await }
    });
    let mut background = Background::start(&workspace, &shutdown);
    let refresh = refresh(&workspace, &shutdown);
    let loading = async {
        let scripts = load_scripts(&workspace, &global.output()).await;
        background.keep_fresh(&workspace, scripts);
        ready.send_replace(true);
    };
    let serving = until_signal(serving, signals, &shutdown);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = loading => serving.await,
    };
    mcp.drained(PATIENCE).await;
    background.end(&workspace, PATIENCE).await;
    if tokio::time::timeout(PATIENCE, refresh.end()).await.is_err() {
        tracing::debug!("stopped while a source was synced");
    }
    ended
}
