//! The process of a stdio server: started with an environment of its own, and ended with all of its
//! descendants. That is left to the supervisor on Linux, to a process group elsewhere.

use super::guard::ConnectionGuard;
use super::line_transport::LineTransport;
#[cfg(not(target_os = "linux"))]
use super::process_group as platform;
use super::settings::ServerCommand;
#[cfg(target_os = "linux")]
use super::supervisor as platform;
use ctx_core::{Redactor, escape_line};
pub(super) use platform::ServerStarter;
use std::collections::VecDeque;
use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

/// How long a server may take to exit after its stdin is closed, and again after SIGTERM.
const EXIT_GRACE: Duration = Duration::from_secs(2);
/// How long the rest of a server's stderr may take to arrive after the process has ended.
const STDERR_DRAIN_WAIT: Duration = Duration::from_millis(100);
/// The pause after a process has exited, in which the last of its stdout is read.
const FINAL_OUTPUT_WAIT: Duration = Duration::from_secs(1);
/// Lines of a server's stderr that are kept.
const STDERR_LINES_MAX: usize = 50;
/// Bytes of a stderr line that are kept.
const STDERR_LINE_BYTES_MAX: usize = 500;
/// Bytes of a stderr line that are read beyond `STDERR_LINE_BYTES_MAX`, so that a secret across the cut is
/// redacted as a whole.
const REDACTION_MARGIN_BYTES: usize = 16 << 10;

/// The last lines that a server has written to stderr.
#[derive(Clone, Default)]
pub(super) struct StderrLog(Arc<Mutex<VecDeque<String>>>);

impl StderrLog {
    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Removes the lines of an earlier process.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn add(&self, line: &[u8], redactor: &Redactor) {
        // Redacted before it is truncated: part of a secret is not recognized as one.
        let line = redactor.text(String::from_utf8_lossy(line).into_owned());
        let line = &line[..line.floor_char_boundary(STDERR_LINE_BYTES_MAX)];
        let line = escape_line(strip_colours(line.trim_end()).trim()).into_owned();
        if line.is_empty() {
            return;
        }
        tracing::debug!(target: "upstream", "{line}");
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == STDERR_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Reads stderr to its end, also lines that are not kept: a full pipe would block the server.
    async fn read_from(self, mut stderr: impl AsyncRead + Unpin, redactor: Redactor) {
        let mut chunk = [0; 4096];
        let mut line = Vec::new();
        while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
            for byte in &chunk[..count] {
                match byte {
                    b'\n' => {
                        self.add(&line, &redactor);
                        line.clear();
                    }
                    byte if line.len() < STDERR_LINE_BYTES_MAX + REDACTION_MARGIN_BYTES => line.push(*byte),
                    _ => {}
                }
            }
        }
        self.add(&line, &redactor);
    }
}

/// Removes ANSI colour sequences.
fn strip_colours(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let end = part.find(|letter: char| !letter.is_ascii_digit() && letter != ';');
        match end.map(|end| part.split_at(end)) {
            Some((_, rest)) if rest.starts_with('m') => text + &rest[1..],
            _ => text + "\u{1b}[" + part,
        }
    })
}

/// A running server. Dropping it kills the process and its descendants.
pub(super) struct ServerProcess {
    server: platform::ServerHandle,
    stderr_reader: JoinHandle<()>,
}

impl ServerProcess {
    /// Starts the process; its stderr is added to `stderr_log`.
    pub(super) async fn start(
        command: &ServerCommand,
        line_bytes_max: usize,
        (stderr_log, redactor): (&StderrLog, &Redactor),
        starter: &ServerStarter,
        guard: &Arc<ConnectionGuard>,
    ) -> io::Result<(Self, LineTransport)> {
        let (server, streams) = starter.start(command).await?;
        let stderr_reader = tokio::spawn(stderr_log.clone().read_from(streams.errors, redactor.clone()));
        let lines = LineTransport::new(streams.output, streams.input, line_bytes_max, guard.clone());
        Ok((Self { server, stderr_reader }, lines))
    }

    /// Waits until the process itself has exited and its last output had time to be read; describes its exit.
    pub(super) async fn wait(&mut self) -> String {
        let exit = self.server.wait().await;
        tokio::time::sleep(FINAL_OUTPUT_WAIT).await;
        describe_exit(exit)
    }

    /// Waits for the process to exit, as it should once its stdin is closed; sends SIGTERM if it does not,
    /// and kills what is left, descendants included. Describes the exit.
    pub(super) async fn end(mut self) -> String {
        let mut ended = tokio::time::timeout(EXIT_GRACE, self.server.wait()).await;
        if ended.is_err() {
            self.server.terminate().await;
            ended = tokio::time::timeout(EXIT_GRACE, self.server.wait()).await;
        }
        self.server.kill().await;
        // A descendant may still hold the pipe.
        let _ = tokio::time::timeout(STDERR_DRAIN_WAIT, &mut self.stderr_reader).await;
        ended.map_or_else(|_| "its process did not exit in time and was killed".to_owned(), describe_exit)
    }
}

fn describe_exit(exit: io::Result<ExitStatus>) -> String {
    match exit {
        Ok(status) => format!("its process ended with {status}"),
        Err(error) => format!("the exit status of its process is unknown: {error}"),
    }
}
