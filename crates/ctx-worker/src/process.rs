//! A worker process, as seen by its parent.

use crate::frame::{Frame, FrameKind, IncomingFrames, OutgoingFrames, ProtocolViolation};
use crate::greeting::{Greeting, VERSION};
use crate::starter::Starter;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout};

/// Time limit for a worker to become ready; long, because the machine may be very busy.
const START_MAX: Duration = Duration::from_secs(20);

/// Time limit to wait for the exit status and the rest of stderr.
const END_MAX: Duration = Duration::from_secs(2);

/// Maximum bytes of stderr that are kept.
const LAST_WORDS_BYTES: usize = 4 << 10;

/// Bytes read from a pipe in one call.
pub const READ_BYTES: usize = 32 << 10;

/// The message of a Rust program that aborts because an allocation failed.
const OUT_OF_MEMORY: &str = "memory allocation of";

/// The name of the signal in the display of [`std::process::ExitStatus`] of a killed process.
const KILLED: &str = "SIGKILL";

/// Jobs after which a process is replaced, so that leaks do not accumulate.
const JOBS_MAX: u32 = 1_000;

/// The memory of a worker is checked every so many jobs, and always after a long job.
const JOBS_PER_MEMORY_CHECK: u32 = 16;
/// A job that takes longer than this counts as long.
const LONG_JOB: Duration = Duration::from_millis(5);

/// Why a worker process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program cannot be executed.
    #[error("cannot start a worker process: {0}")]
    Start(#[from] io::Error),
    /// The process started, but exited or violated the protocol before it was ready.
    #[error("a worker process did not become ready: {0}")]
    NotReady(String),
}

/// The exit of a worker process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerExit {
    /// Its exit status, for display: `signal: 9 (SIGKILL)`.
    pub status: String,
    /// The text that it wrote to stderr, up to a limit.
    pub stderr: String,
}

impl WorkerExit {
    /// Whether it was killed by `SIGKILL`.
    pub fn was_killed(&self) -> bool {
        self.status.contains(KILLED)
    }

    /// Whether an allocation failed.
    pub fn is_out_of_memory(&self) -> bool {
        self.stderr.contains(OUT_OF_MEMORY)
    }
}

/// A worker process. Dropping it ends the process.
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    /// The pipe for frames to the worker.
    pub stdin: ChildStdin,
    /// The pipe for frames from the worker.
    pub stdout: ChildStdout,
    stderr: ChildStderr,
    /// Received frames.
    pub incoming: IncomingFrames,
    /// Frames to write.
    pub outgoing: OutgoingFrames,
    jobs: u32,
    pub(crate) idle_since: Instant,
    _count_guard: ProcessCountGuard,
}

impl WorkerProcess {
    /// Starts a process and waits until it is confined and ready.
    pub(crate) async fn start(
        starter: &Starter,
        address_space_bytes: u64,
        counter: &Arc<AtomicUsize>,
    ) -> Result<Self, StartError> {
        let count_guard = ProcessCountGuard::new(counter);
        let mut child = starter.start().await?;
        let no_pipe = || io::Error::other("a pipe is missing");
        let stdin = child.stdin.take().ok_or_else(no_pipe)?;
        let stdout = child.stdout.take().ok_or_else(no_pipe)?;
        let stderr = child.stderr.take().ok_or_else(no_pipe)?;
        let mut worker = Self {
            child,
            stdin,
            stdout,
            stderr,
            incoming: IncomingFrames::default(),
            outgoing: OutgoingFrames::default(),
            jobs: 0,
            idle_since: Instant::now(),
            _count_guard: count_guard,
        };
        let greeted = timeout(START_MAX, worker.greet(address_space_bytes)).await;
        match greeted {
            Ok(Ok(())) => {
                worker.idle_since = Instant::now();
                Ok(worker)
            }
            Ok(Err(why)) => {
                let end = worker.end().await;
                let details = if end.stderr.is_empty() { end.status } else { end.stderr };
                Err(StartError::NotReady(format!("{why} ({details})")))
            }
            Err(_) => Err(StartError::NotReady(format!("no response within {} s", START_MAX.as_secs()))),
        }
    }

    async fn greet(&mut self, address_space_bytes: u64) -> Result<(), String> {
        let greeting = Greeting { version: VERSION, address_space_bytes };
        let json = serde_json::to_vec(&greeting).map_err(|error| error.to_string())?;
        let greeting = Frame { json: &json, ..Frame::new(FrameKind::Hello, 0) };
        self.outgoing.push(&greeting).map_err(|violation| violation.to_string())?;
        while !self.outgoing.pending().is_empty() {
            let length =
                self.stdin.write(self.outgoing.pending()).await.map_err(|error| error.to_string())?;
            self.outgoing.mark_written(length);
        }
        loop {
            match self.incoming.next_frame() {
                Ok(Some((frame, length))) => {
                    let ready = frame.kind == FrameKind::Ready && frame.number == VERSION;
                    self.incoming.consume(length);
                    return if ready { Ok(()) } else { Err(ProtocolViolation::Order.to_string()) };
                }
                Ok(None) => {}
                Err(violation) => return Err(violation.to_string()),
            }
            match self.stdout.read_buf(self.incoming.spare_buffer(READ_BYTES)).await {
                Ok(0) => return Err(String::from("it exited")),
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Whether the process is running.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Counts a completed job; returns whether the process can be reused.
    pub(crate) fn is_reusable_after(&mut self, job_took: Duration, kept_bytes_max: u64) -> bool {
        self.jobs += 1;
        let is_memory_checked = self.jobs.is_multiple_of(JOBS_PER_MEMORY_CHECK) || job_took > LONG_JOB;
        self.jobs < JOBS_MAX && !(is_memory_checked && self.private_memory_bytes() > kept_bytes_max)
    }

    /// Private (anonymous) memory of the process; 0 where the system does not report it.
    fn private_memory_bytes(&self) -> u64 {
        let Some(id) = self.child.id() else { return 0 };
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
        let kibibytes = line.split_whitespace().next().and_then(|figure| figure.parse::<u64>().ok());
        kibibytes.unwrap_or_default() << 10
    }

    /// Kills the process and waits for its exit.
    pub(crate) async fn stop(mut self) {
        if let Err(error) = self.child.start_kill() {
            tracing::debug!("cannot kill a worker process: {error}");
        }
        if timeout(END_MAX, self.child.wait()).await.is_err() {
            tracing::warn!("a worker process is still running after it was killed");
        }
    }

    /// Waits briefly for the process to exit, then kills it; returns how it ended.
    pub async fn end(mut self) -> WorkerExit {
        // A process that exited by itself may not be reaped yet. Killing it too early would report our kill as the
        // cause.
        let ended = match timeout(END_MAX / 20, self.child.wait()).await {
            Ok(ended) => Ok(ended),
            Err(_) => {
                if let Err(error) = self.child.start_kill() {
                    tracing::debug!("cannot kill a worker process: {error}");
                }
                timeout(END_MAX, self.child.wait()).await
            }
        };
        let status = match ended {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => String::from("still running after it was killed"),
        };
        let mut stderr_text = Vec::new();
        let mut stderr = self.stderr.take(LAST_WORDS_BYTES as u64);
        if timeout(END_MAX, stderr.read_to_end(&mut stderr_text)).await.is_err() {
            tracing::debug!("cannot read the stderr of a worker process: timed out");
        }
        WorkerExit { status, stderr: String::from_utf8_lossy(&stderr_text).trim().to_owned() }
    }
}

/// Counts a process for as long as it lives.
#[derive(Debug)]
struct ProcessCountGuard(Arc<AtomicUsize>);

impl ProcessCountGuard {
    fn new(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counter))
    }
}

impl Drop for ProcessCountGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
