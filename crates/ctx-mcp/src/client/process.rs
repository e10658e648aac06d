//! The process of a stdio server: started with an environment of its own, and ended with all of its
//! descendants. That is left to the supervisor on Linux, to a process group elsewhere.

#[cfg(not(target_os = "linux"))]
use super::group as platform;
use super::guard::Guard;
use super::lines::Lines;
use super::settings::Command;
#[cfg(target_os = "linux")]
use super::supervisor as platform;
use ctx_core::{Redactor, escape_line};
pub(super) use platform::Starter;
use std::collections::VecDeque;
use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

/// How long a server may take to exit after its stdin is closed, and again after SIGTERM.
const ENDING: Duration = Duration::from_secs(2);
/// How long the rest of a server's stderr may take to arrive after the process has ended.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// The pause after a process has exited, in which the last of its stdout is read.
const FINAL_OUTPUT_WAIT: Duration = Duration::from_secs(1);
/// Lines of a server's stderr that are kept.
const SAID_LINES_MAX: usize = 50;
/// Bytes of a stderr line that are kept.
const SAID_LINE_BYTES_MAX: usize = 500;
/// Bytes of a stderr line that are read beyond `SAID_LINE_BYTES_MAX`, so that a secret across the cut is
/// redacted as a whole.
const REDACTION_MARGIN_BYTES: usize = 16 << 10;

/// The last lines that a server has written to stderr.
#[derive(Clone, Default)]
pub(super) struct Said(Arc<Mutex<VecDeque<String>>>);

impl Said {
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
        let line = &line[..line.floor_char_boundary(SAID_LINE_BYTES_MAX)];
        let line = escape_line(strip_colours(line.trim_end()).trim()).into_owned();
        if line.is_empty() {
            return;
        }
        tracing::debug!(target: "upstream", "{line}");
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == SAID_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Reads stderr to its end, also lines that are not kept: a full pipe would block the server.
    async fn listen(self, mut stderr: impl AsyncRead + Unpin, redactor: Redactor) {
        let mut chunk = [0; 4096];
        let mut line = Vec::new();
        while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
            for byte in &chunk[..count] {
                match byte {
                    b'\n' => {
                        self.add(&line, &redactor);
                        line.clear();
                    }
                    byte if line.len() < SAID_LINE_BYTES_MAX + REDACTION_MARGIN_BYTES => line.push(*byte),
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
pub(super) struct Process {
    server: platform::Server,
    listening: JoinHandle<()>,
}

impl Process {
    /// Starts the process; its stderr is added to `said`.
    pub(super) async fn start(
        command: &Command,
        line_bytes_max: usize,
        (said, redactor): (&Said, &Redactor),
        starter: &Starter,
        guard: &Arc<Guard>,
    ) -> io::Result<(Self, Lines)> {
        let (server, streams) = starter.start(command).await?;
        let listening = tokio::spawn(said.clone().listen(streams.errors, redactor.clone()));
        let lines = Lines::new(streams.output, streams.input, line_bytes_max, guard.clone());
        Ok((Self { server, listening }, lines))
    }

    /// Waits until the process itself has exited and its last output had time to be read; describes its exit.
    pub(super) async fn wait(&mut self) -> String {
        let exit = self.server.wait().await;
        tokio::time::sleep(FINAL_OUTPUT_WAIT).await;
        describe(exit)
    }

    /// Waits for the process to exit, as it should once its stdin is closed; sends SIGTERM if it does not,
    /// and kills what is left, descendants included. Describes the exit.
    pub(super) async fn end(mut self) -> String {
        let mut ended = tokio::time::timeout(ENDING, self.server.wait()).await;
        if ended.is_err() {
            self.server.terminate().await;
            ended = tokio::time::timeout(ENDING, self.server.wait()).await;
        }
        self.server.kill().await;
        // A descendant may still hold the pipe.
        let _ = tokio::time::timeout(LAST_WORDS, &mut self.listening).await;
        ended.map_or_else(|_| "its process did not end by itself".to_owned(), describe)
    }
}

fn describe(exit: io::Result<ExitStatus>) -> String {
    match exit {
        Ok(status) => format!("its process ended with {status}"),
        Err(error) => format!("its process is lost: {error}"),
    }
}
