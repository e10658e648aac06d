//! One worker process, as its parent sees it.

use super::frame::{Breach, Frame, Incoming, Kind, Outgoing};
use super::protocol::{Hello, VERSION};
use super::starter::Starter;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout};

/// How long a process may take to say that it is ready; a moment, unless the machine is very busy.
const START_MAX: Duration = Duration::from_secs(20);

/// How long we wait to learn how a process ended, and what it said last.
const END_MAX: Duration = Duration::from_secs(2);

/// How much of that we keep.
const LAST_WORDS_BYTES: usize = 4 << 10;

/// How much is read at once.
pub(super) const READ_BYTES: usize = 32 << 10;

/// What a process that cannot get memory says before it ends itself.
const OUT_OF_MEMORY: &str = "memory allocation of";

/// After so many runs a process is replaced: whatever it gathered goes with it.
const RUNS_MAX: u32 = 1_000;

/// Memory of its own beyond which a process is replaced.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// How often its memory is looked at, in runs; and always after a run that took long enough to fill some.
const RUNS_PER_LOOK: u32 = 16;
const LONG_RUN: Duration = Duration::from_millis(5);

/// Why there is no worker.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("a worker could not be started: {0}")]
    Start(#[from] io::Error),
    #[error("a worker did not become ready: {0}")]
    NotReady(String),
}

/// How a process ended.
pub(super) struct End {
    /// `signal: 9 (SIGKILL)`.
    pub(super) how: String,
    /// What it wrote on its standard error.
    pub(super) last_words: String,
}

impl End {
    pub(super) fn is_out_of_memory(&self) -> bool {
        self.last_words.contains(OUT_OF_MEMORY)
    }
}

/// A worker process. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    child: Child,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    stderr: ChildStderr,
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
    runs: u32,
    pub(super) idle_since: Instant,
    _counted: Counted,
}

impl WorkerProcess {
    /// Starts one and waits until it is confined and ready.
    pub(super) async fn start(
        starter: &Starter,
        address_space_bytes: u64,
        counter: &Arc<AtomicUsize>,
    ) -> Result<Self, StartError> {
        let counted = Counted::new(counter);
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
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            runs: 0,
            idle_since: Instant::now(),
            _counted: counted,
        };
        let greeted = timeout(START_MAX, worker.greet(address_space_bytes)).await;
        match greeted {
            Ok(Ok(())) => {
                worker.idle_since = Instant::now();
                Ok(worker)
            }
            Ok(Err(why)) => {
                let end = worker.end().await;
                let said = if end.last_words.is_empty() { end.how } else { end.last_words };
                Err(StartError::NotReady(format!("{why} ({said})")))
            }
            Err(_) => Err(StartError::NotReady(format!("nothing came for {} s", START_MAX.as_secs()))),
        }
    }

    async fn greet(&mut self, address_space_bytes: u64) -> Result<(), String> {
        let hello = Hello { version: VERSION, address_space_bytes };
        let json = serde_json::to_vec(&hello).map_err(|error| error.to_string())?;
        let hello = Frame { json: &json, ..Frame::new(Kind::Hello, 0) };
        self.outgoing.push(&hello).map_err(|breach| breach.to_string())?;
        while !self.outgoing.pending().is_empty() {
            let length =
                self.stdin.write(self.outgoing.pending()).await.map_err(|error| error.to_string())?;
            self.outgoing.wrote(length);
        }
        loop {
            match self.incoming.frame() {
                Ok(Some((frame, length))) => {
                    let ready = frame.kind == Kind::Ready && frame.number == VERSION;
                    self.incoming.take(length);
                    return if ready { Ok(()) } else { Err(Breach::Order.to_string()) };
                }
                Ok(None) => {}
                Err(breach) => return Err(breach.to_string()),
            }
            match self.stdout.read_buf(self.incoming.room(READ_BYTES)).await {
                Ok(0) => return Err(String::from("it ended")),
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Whether the process is there, as far as the kernel knows.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Counts a run that ended well enough; says whether the process is as good as before.
    pub(super) fn is_good_after(&mut self, run_took: Duration) -> bool {
        self.runs += 1;
        let looked_at = self.runs.is_multiple_of(RUNS_PER_LOOK) || run_took > LONG_RUN;
        self.runs < RUNS_MAX && !(looked_at && self.own_memory_bytes() > KEPT_BYTES_MAX)
    }

    /// Memory that is neither its program's nor a file's; 0 where the system does not tell.
    fn own_memory_bytes(&self) -> u64 {
        let Some(id) = self.child.id() else { return 0 };
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
        let kibibytes = line.split_whitespace().next().and_then(|figure| figure.parse::<u64>().ok());
        kibibytes.unwrap_or_default() << 10
    }

    /// Ends the process and waits until it has.
    pub(super) async fn stop(mut self) {
        if let Err(error) = self.child.start_kill() {
            tracing::debug!("a worker could not be ended: {error}");
        }
        if timeout(END_MAX, self.child.wait()).await.is_err() {
            tracing::warn!("a worker does not end");
        }
    }

    /// Ends the process, if it has not ended, and tells how.
    pub(super) async fn end(mut self) -> End {
        // One that ended by itself takes a moment to be seen as ended; killed too early, it would seem
        // that we did it.
        let ended = match timeout(END_MAX / 20, self.child.wait()).await {
            Ok(ended) => Ok(ended),
            Err(_) => {
                if let Err(error) = self.child.start_kill() {
                    tracing::debug!("a worker could not be ended: {error}");
                }
                timeout(END_MAX, self.child.wait()).await
            }
        };
        let how = match ended {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => String::from("it does not end"),
        };
        let mut said = Vec::new();
        let mut stderr = self.stderr.take(LAST_WORDS_BYTES as u64);
        if timeout(END_MAX, stderr.read_to_end(&mut said)).await.is_err() {
            tracing::debug!("a worker's last words did not end");
        }
        End { how, last_words: String::from_utf8_lossy(&said).trim().to_owned() }
    }
}

/// One more, as long as it lives.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counter))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
