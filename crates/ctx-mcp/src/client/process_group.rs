//! A stdio server as a process group of its own, on platforms without subreapers: the whole group is killed with it.

use super::reaper::{Reaper, ReaperProgram, kill_group};
use super::settings::ServerCommand;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

/// Starts servers and registers their process groups with the reaper.
pub(super) struct ServerStarter(Arc<Reaper>);

/// A running server. Dropping it kills its process group.
pub(super) struct ServerHandle {
    child: Child,
    group: ProcessGroup,
}

/// The standard streams of a server.
pub(super) struct ServerStreams {
    pub(super) input: ChildStdin,
    pub(super) output: ChildStdout,
    pub(super) errors: ChildStderr,
}

impl ServerStarter {
    pub(super) fn new(program: ReaperProgram) -> Self {
        Self(Arc::new(Reaper::new(program)))
    }

    pub(super) async fn start(&self, command: &ServerCommand) -> io::Result<(ServerHandle, ServerStreams)> {
        let mut child_command = tokio::process::Command::new(&command.program);
        child_command
            .args(&command.arguments)
            .env_clear()
            .envs(command.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&command.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        child_command.process_group(0);
        let mut child = child_command.spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default();
        let group = ProcessGroup { id: group, reaper: self.0.clone() };
        self.0.register(group.id)?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("its standard streams are missing"));
        };
        Ok((ServerHandle { child, group }, ServerStreams { input, output, errors }))
    }
}

impl ServerHandle {
    /// Waits until the server process itself has exited.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Sends SIGTERM to the process group.
    pub(super) async fn terminate(&mut self) {
        #[cfg(unix)]
        super::reaper::signal_group(self.group.id, rustix::process::Signal::TERM);
    }

    /// Kills what is left of the process group.
    pub(super) async fn kill(self) {
        drop(self.group);
    }
}

/// A process group. Dropping it kills all of its processes.
struct ProcessGroup {
    id: i32,
    reaper: Arc<Reaper>,
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        kill_group(self.id);
        self.reaper.unregister(self.id);
    }
}
