//! Handles Ctrl-C and SIGTERM.

use crate::error::{CommandError, CommandResult, Exit};
use std::time::Duration;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC, ctrl_c};
use tokio_util::sync::CancellationToken;

/// Grace period of cancelled work.
pub(crate) const STOP_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Receives Ctrl-C and SIGTERM from its creation on; before, they end the process at once.
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

    /// Waits for the next signal, including one that arrived before this call.
    pub(crate) async fn next(&mut self) {
        self.next_exit().await;
    }

    /// Waits for the next signal; returns the exit code for work that ends because of it.
    pub(crate) async fn next_exit(&mut self) -> Exit {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Terminated,
        }
        #[cfg(windows)]
        {
            self.interrupt.recv().await;
            Exit::Interrupted
        }
    }
}

/// Runs work that the first Ctrl-C or SIGTERM cancels through its token; a second signal, or the end of
/// `grace_period`, abandons it. If the work fails after a signal, its error has the exit code of that signal.
pub(crate) async fn until_interrupted<T>(
    mut signals: Signals,
    grace_period: Duration,
    cancellation: &CancellationToken,
    work: impl Future<Output = CommandResult<T>>,
) -> CommandResult<T> {
    let mut work = std::pin::pin!(work);
    let exit = tokio::select! {
        done = &mut work => return done,
        exit = signals.next_exit() => exit,
    };
    cancellation.cancel();
    let done = tokio::select! {
        done = until_stop_deadline(work, cancellation, grace_period) => done,
        () = signals.next() => None,
    };
    match done {
        Some(Ok(done)) => Ok(done),
        Some(Err(error)) if error.exit == Exit::Interrupted => Err(CommandError { exit, ..error }),
        Some(Err(error)) => Err(error),
        None => Err(CommandError { exit, ..CommandError::new("stopped; the work done so far is kept") }
            .hint("run the command again to continue")),
    }
}

/// Awaits work for at most `grace_period` after `shutdown` is cancelled: a blocking thread that cannot be
/// cancelled must not hold up the exit. `None` if the work was abandoned.
pub(crate) async fn until_stop_deadline<T>(
    work: impl Future<Output = T>,
    shutdown: &CancellationToken,
    grace_period: Duration,
) -> Option<T> {
    let deadline = async {
        shutdown.cancelled().await;
        tokio::time::sleep(grace_period).await;
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
        let grace_period = Duration::from_millis(10);
        assert_eq!(until_stop_deadline(async { 7 }, &shutdown, grace_period).await, Some(7));
        let slow = tokio::time::sleep(grace_period * 3);
        assert_eq!(
            until_stop_deadline(slow, &shutdown, grace_period).await,
            Some(()),
            "nobody has asked it to end"
        );
        let started = tokio::time::Instant::now();
        shutdown.cancel();
        let never = std::future::pending::<()>();
        assert_eq!(until_stop_deadline(never, &shutdown, grace_period).await, None);
        assert!(started.elapsed() >= grace_period);
    }
}
