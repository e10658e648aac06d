//! Ctrl-C and SIGTERM.

use crate::error::{CommandError, CommandResult};
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC, ctrl_c};

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
