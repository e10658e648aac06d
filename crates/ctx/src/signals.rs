//! Ctrl-C and SIGTERM.

use crate::error::{CommandError, CommandResult};
use std::time::Duration;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC, ctrl_c};
use tokio_util::sync::CancellationToken;

/// Hears Ctrl-C and SIGTERM from the moment it is made; until then they end the process at once.
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
    #[cfg(windows)]
    interrupt: CtrlC,
}

impl Signals {
    pub(crate) fn listen() -> CommandResult<Self> {
        let failed = |error| CommandError::new(format!("cannot listen for signals: {error}"));
        Ok(Self {
            #[cfg(unix)]
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            #[cfg(unix)]
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            #[cfg(windows)]
            interrupt: ctrl_c().map_err(failed)?,
        })
    }

    /// Waits for the next one. One that came before this was called counts.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(windows)]
        self.interrupt.recv().await;
    }
}

/// Awaits some work, but at most `patience` after `shutdown`: a blocking thread that cannot be cancelled must not hold
/// up the exit. `None` if the work was abandoned.
pub(crate) async fn until_stop_deadline<T>(
    work: impl Future<Output = T>,
    shutdown: &CancellationToken,
    patience: Duration,
) -> Option<T> {
    let deadline = async {
        shutdown.cancelled().await;
        tokio::time::sleep(patience).await;
    };
    tokio::select! {
        done = work => Some(done),
        () = deadline => {
            tracing::debug!("stopped while a source was synced");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_never_ends_is_left_when_the_time_to_drain_is_up() {
        let shutdown = CancellationToken::new();
        let patience = Duration::from_millis(10);
        assert_eq!(until_stop_deadline(async { 7 }, &shutdown, patience).await, Some(7));
        let slow = tokio::time::sleep(patience * 3);
        assert_eq!(
            until_stop_deadline(slow, &shutdown, patience).await,
            Some(()),
            "nobody has asked it to end"
        );
        let started = tokio::time::Instant::now();
        shutdown.cancel();
        let never = std::future::pending::<()>();
        assert_eq!(until_stop_deadline(never, &shutdown, patience).await, None);
        assert!(started.elapsed() >= patience);
    }
}
