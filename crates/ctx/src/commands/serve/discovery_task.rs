//! Prepares the discovery of functions in the background: whenever the catalog has changed, so that no question about
//! functions has to wait for it.

use crate::commands::low_priority::lower_priority;
use crate::scripts::ScriptRunner;
use ctx_core::LiveCatalog;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long the catalog must be unchanged: while upstreams connect, it changes often.
const QUIET: Duration = Duration::from_millis(20);

/// Runs until it is aborted. Each catalog is prepared on a thread of its own with low priority, one at a time.
pub(super) async fn prepare_discovery(runner: Arc<ScriptRunner>, live: Arc<LiveCatalog>) {
    let Ok(gateway) = runner.gateway().cloned() else { return };
    let mut replaced = live.subscribe();
    loop {
        while let Ok(changed) = tokio::time::timeout(QUIET, replaced.changed()).await {
            if changed.is_err() {
                return;
            }
        }
        let (gateway, catalog) = (gateway.clone(), live.current());
        let (done, ended) = oneshot::channel::<()>();
        thread::spawn(move || {
            lower_priority();
            gateway.prepare_discovery(&catalog);
            drop(done);
        });
        // It is dropped, not sent, at the end.
        let _ = ended.await;
        if replaced.changed().await.is_err() {
            return;
        }
    }
}
