//! The process of an upstream server: started with an environment of its own and a group of its own, and
//! ended with all that it has started.

use super::lines::Lines;
use super::reaper::{Reaper, end_group};
use super::settings::Command;
use std::collections::VecDeque;
use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr};
use tokio::task::JoinHandle;

/// How long a server may take to end by itself once its input has ended, and once more after a signal.
const ENDING: Duration = Duration::from_secs(2);
/// How long the last of what it said may take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Lines of what a server says on stderr that are kept.
const SAID_LINES_MAX: usize = 50;
/// Bytes of such a line that are kept.
const SAID_LINE_BYTES_MAX: usize = 500;

/// The last lines that a server has written to stderr.
#[derive(Clone, Default)]
pub(super) struct Said(Arc<Mutex<VecDeque<String>>>);

impl Said {
    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// What another process said is not what this one does.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn add(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        tracing::debug!(target: "upstream", "{line}");
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == SAID_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }

    /// Reads to the end. Whatever a server writes is read, else it would wait for us.
    async fn listen(self, mut stderr: ChildStderr) {
        let mut chunk = [0; 4096];
        let mut line = Vec::new();
        while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
            for byte in &chunk[..count] {
                match byte {
                    b'\n' => {
                        self.add(&line);
                        line.clear();
                    }
                    byte if line.len() < SAID_LINE_BYTES_MAX => line.push(*byte),
                    _ => {}
                }
            }
        }
        self.add(&line);
    }
}

/// A server that runs. Dropped, it ends at once with all that it has started.
pub(super) struct Process {
    child: Child,
    group: Group,
    listening: JoinHandle<()>,
}

impl Process {
    /// Starts it; what it says on stderr is added to `said`.
    pub(super) fn start(
        command: &Command,
        line_bytes_max: usize,
        said: &Said,
        reaper: &Arc<Reaper>,
    ) -> io::Result<(Self, Lines)> {
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
        let group = Group { id: group, reaper: reaper.clone() };
        reaper.watch(group.id)?;
        let (Some(input), Some(output), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("its standard streams are missing"));
        };
        let listening = tokio::spawn(said.clone().listen(stderr));
        Ok((Self { child, group, listening }, Lines::new(output, input, line_bytes_max)))
    }

    /// Waits for it to end by itself, as it should once its input has ended, and then sees to it; tells how
    /// it ended.
    pub(super) async fn end(mut self) -> String {
        let mut ended = tokio::time::timeout(ENDING, self.child.wait()).await;
        #[cfg(unix)]
        if ended.is_err() {
            super::reaper::signal_group(self.group.id, rustix::process::Signal::TERM);
            ended = tokio::time::timeout(ENDING, self.child.wait()).await;
        }
        // What it has started may still hold the other end.
        let _ = tokio::time::timeout(LAST_WORDS, &mut self.listening).await;
        match ended {
            Ok(Ok(status)) => format!("its process ended with {status}"),
            Ok(Err(error)) => format!("its process is lost: {error}"),
            Err(_) => "its process did not end by itself".to_owned(),
        }
    }
}

/// A group of processes; none of them outlives this.
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
