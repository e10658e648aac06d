//! A stdio server as a process group of its own, on platforms without subreapers: the whole group is killed with it.

use super::reaper::{Reaper, ReaperProgram, end_group};
use super::settings::Command;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

/// Starts servers and registers their process groups with the reaper.
pub(super) struct Starter(Arc<Reaper>);

/// A running server. Dropping it kills its process group.
pub(super) struct Server {
    child: Child,
    group: Group,
}

/// The standard streams of a server.
pub(super) struct Streams {
    pub(super) input: ChildStdin,
    pub(super) output: ChildStdout,
    pub(super) errors: ChildStderr,
}

impl Starter {
    pub(super) fn new(program: ReaperProgram) -> Self {
        Self(Arc::new(Reaper::new(program)))
    }

    pub(super) async fn start(&self, command: &Command) -> io::Result<(Server, Streams)> {
        let mut started = tokio::process::Command::new(&command.program);
        started
            .args(&command.arguments)
            .env_clear()
            .envs(command.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&command.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        started.process_group(0);
        let mut child = started.spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default();
        let group = Group { id: group, reaper: self.0.clone() };
        self.0.watch(group.id)?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("its standard streams are missing"));
        };
        Ok((Server { child, group }, Streams { input, output, errors }))
    }
}

impl Server {
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
struct Group {
    id: i32,
    reaper: Arc<Reaper>,
}

impl Drop for Group {
    fn drop(&mut self) {
        end_group(self.id);
        self.reaper.forget(self.id);
    }
}
