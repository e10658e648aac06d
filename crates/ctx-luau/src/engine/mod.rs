//! Runs scripts in a pool of sandboxed worker processes. Their host requests go to a [`HostHandler`].

mod deadline;
mod exchange;
pub(crate) mod protocol;
mod worker;

pub(crate) use ctx_worker::log_cost;
pub use protocol::ScriptEntry;
pub use worker::worker_main;

use crate::vm::LogLevel;
use async_trait::async_trait;
use ctx_worker::{LeaseError, Pool, PoolSettings, PoolStats, WorkerLease, WorkerProgram};
use exchange::{ExchangeError, run_job};
use futures::future::BoxFuture;
use protocol::{JobFailure, JobFailureKind};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of concurrent host requests of one run; the worker holds back further ones.
pub(crate) const OPEN_REQUESTS_MAX: usize = 64;

/// Maximum number of host requests of one run. Limits on their cost are left to the handlers.
pub(crate) const REQUESTS_MAX: u32 = 1_000_000;

/// Maximum nesting of runs. Each depth has workers of its own, so that a run never waits for a worker whose
/// run waits for it.
pub const DEPTH_MAX: u32 = 8;

/// Private memory beyond which a worker is replaced after a run.
const REUSE_BYTES_MAX: u64 = 64 << 20;

/// Settings of the engine and its worker pool.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// The worker executable; started with `arguments`, it must call [`worker_main`].
    pub program: PathBuf,
    /// Arguments of `program`.
    pub arguments: Vec<OsString>,
    /// Maximum number of concurrent runs, at each depth.
    pub workers_max: usize,
    /// Number of idle workers that are kept ready, so that a run finds one.
    pub workers_spare: usize,
    /// Maximum number of runs that wait for a worker, at each depth.
    pub queue_max: usize,
    /// Idle time after which workers beyond the spare ones exit.
    pub idle_max: Duration,
    /// Maximum memory limit of any script.
    pub memory_bytes_max: usize,
    /// Maximum time in total that a run waits for people.
    pub pause_max: Duration,
}

impl EngineSettings {
    /// Default settings, for workers of this program.
    pub fn new(program: PathBuf, arguments: Vec<OsString>) -> Self {
        Self {
            program,
            arguments,
            workers_max: 32,
            workers_spare: 1,
            queue_max: 1_024,
            idle_max: Duration::from_secs(60),
            memory_bytes_max: 256 << 20,
            pause_max: Duration::from_secs(600),
        }
    }
}

/// A script to run, with its arguments and limits. Has no `Debug`, because it may hold secrets.
pub struct ScriptRun {
    /// The script's name in error messages: `tools/x.lua`.
    pub chunk_name: String,
    /// The source.
    pub source: Arc<[u8]>,
    /// The function to call.
    pub entry: ScriptEntry,
    /// The arguments of that function, in order.
    pub arguments: Vec<Value>,
    /// The script's section of the configuration.
    pub config: Option<Value>,
    /// Names of the host APIs that the script sees.
    pub apis: Vec<String>,
    /// The time by which the run must have ended.
    pub deadline: Instant,
    /// Memory limit.
    pub memory_bytes: usize,
    /// Maximum size of the result as JSON.
    pub result_bytes: usize,
    /// Maximum size of the log.
    pub log_bytes: usize,
    /// Number of runs that this run is nested in.
    pub depth: u32,
}

/// A line that a script logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Severity.
    pub level: LogLevel,
    /// The text.
    pub message: String,
}

/// A successful run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutput {
    /// The result of the script.
    pub value: Value,
    /// The log.
    pub logs: Vec<LogLine>,
}

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    /// The kind of failure.
    pub kind: RunErrorKind,
    /// The message for people. It names the script and the line, and no absolute paths of this machine.
    pub message: String,
    /// The code of a failed host request whose error the script did not catch.
    pub code: Option<String>,
    /// The log up to the failure.
    pub logs: Vec<LogLine>,
}

/// Kinds of failed runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunErrorKind {
    /// The source is invalid: a syntax error, bytecode, or too large.
    Source,
    /// The script does not define what its kind requires, or has no result or several.
    Contract,
    /// The script raised an error.
    Raised,
    /// The time limit was exceeded.
    Time,
    /// The memory limit was exceeded.
    Memory,
    /// The result has no form in JSON, or is too large.
    Result,
    /// The script and its arguments are too large to send to a worker.
    Arguments,
    /// The worker exited or violated the protocol.
    Crashed,
    /// Too many concurrent runs, or nested too deeply.
    Overloaded,
    /// Workers cannot be started on this machine.
    Unavailable,
    /// The engine was shut down.
    Stopped,
}

impl RunError {
    fn new(kind: RunErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), code: None, logs: Vec::new() }
    }
}

impl From<JobFailure> for RunError {
    fn from(failure: JobFailure) -> Self {
        let kind = match failure.kind {
            JobFailureKind::Source => RunErrorKind::Source,
            JobFailureKind::Contract => RunErrorKind::Contract,
            JobFailureKind::Raised => RunErrorKind::Raised,
            JobFailureKind::Time => RunErrorKind::Time,
            JobFailureKind::Memory => RunErrorKind::Memory,
            JobFailureKind::Result => RunErrorKind::Result,
        };
        Self { kind, message: failure.message, code: failure.code, logs: Vec::new() }
    }
}

/// The error of a host request. The script sees it as an error that it can catch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostError {
    /// The code for programs, such as `timeout` or `not_found`.
    pub code: String,
    /// The message for people.
    pub message: String,
    /// Further fields of the error that the script sees.
    pub data: Map<String, Value>,
}

impl HostError {
    /// An error without further fields.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), data: Map::new() }
    }

    /// Sets the further fields of the error that the script sees.
    #[must_use]
    pub fn with_data(self, data: Map<String, Value>) -> Self {
        Self { data, ..self }
    }
}

/// The host APIs of scripts, implemented in the parent process: handles their host requests.
#[async_trait]
pub trait HostHandler: Send + Sync {
    /// Handles a host request; returns a JSON value and raw bytes. Several requests may be open at once. The
    /// future is dropped when the run ends first. During an `ask`, which waits for a person, the run's
    /// deadline is paused.
    async fn handle(
        &self,
        method: &str,
        arguments: Value,
        bytes: Vec<u8>,
    ) -> Result<(Value, Vec<u8>), HostError>;

    /// Receives each line when the script logs it.
    fn log(&self, _level: LogLevel, _message: &str) {}
}

/// Counts of workers and waiting runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineFigures {
    /// Worker processes.
    pub workers: usize,
    /// Idle worker processes.
    pub idle: usize,
    /// Runs that wait for a worker.
    pub waiting: usize,
}

/// Runs scripts in worker processes. Clones share the workers.
#[derive(Clone, Debug)]
pub struct Engine {
    pool: Arc<Pool>,
    pause_max: Duration,
}

impl Engine {
    /// Creates an engine. The first runs start workers, or [`Engine::warm_up`] does.
    pub fn new(settings: EngineSettings) -> std::io::Result<Self> {
        let pause_max = settings.pause_max;
        let pool = Pool::new(PoolSettings {
            program: WorkerProgram { path: settings.program, arguments: settings.arguments },
            workers_max: settings.workers_max,
            workers_spare: settings.workers_spare,
            queue_max: settings.queue_max,
            idle_max: settings.idle_max,
            memory_bytes_max: settings.memory_bytes_max,
            kept_bytes_max: REUSE_BYTES_MAX,
            depth_max: DEPTH_MAX,
        })?;
        Ok(Self { pool, pause_max })
    }

    /// Starts the spare workers in the background, so that the first run finds one.
    pub fn warm_up(&self) {
        self.pool.top_up();
    }

    /// Runs a script until it ends or its deadline passes. Dropping the future ends the script at once.
    ///
    /// Boxed, so that the exchange with a worker is compiled in this crate only (decision 0012).
    pub fn run<'a>(
        &'a self,
        run: &'a ScriptRun,
        world: &'a dyn HostHandler,
    ) -> BoxFuture<'a, Result<RunOutput, RunError>> {
        Box::pin(self.run_unboxed(run, world))
    }

    async fn run_unboxed(&self, run: &ScriptRun, world: &dyn HostHandler) -> Result<RunOutput, RunError> {
        let mut logs = Vec::new();
        let stopped = || RunError::new(RunErrorKind::Stopped, "the engine was shut down");
        let outcome = tokio::select! {
            outcome = self.run_on_worker(run, world, &mut logs) => outcome,
            () = self.pool.closed() => Err(stopped()),
        };
        match outcome {
            Ok(value) => Ok(RunOutput { value, logs }),
            Err(error) => Err(RunError { logs, ..error }),
        }
    }

    async fn run_on_worker(
        &self,
        run: &ScriptRun,
        world: &dyn HostHandler,
        logs: &mut Vec<LogLine>,
    ) -> Result<Value, RunError> {
        loop {
            let mut lease = self.pool.lease(run.depth, run.deadline.into()).await.map_err(lease_failure)?;
            let started = Instant::now();
            let error = match run_job(&mut lease.worker, run, world, self.pause_max, logs).await {
                Ok(outcome) => {
                    lease.give_back(started.elapsed());
                    return outcome.map_err(RunError::from);
                }
                Err(error) => error,
            };
            match error {
                // The worker exited while idle. The script did not start, so another worker may run it.
                ExchangeError::WorkerGone => {}
                ExchangeError::JobTooLarge => {
                    lease.give_back(Duration::ZERO);
                    return Err(RunError::new(
                        RunErrorKind::Arguments,
                        format!("{}: the script and its arguments are too large", run.chunk_name),
                    ));
                }
                ExchangeError::DeadlineIgnored => return Err(deadline_ignored(run)),
                ExchangeError::Violation(violation) => {
                    tracing::warn!("the worker of {} sent {violation}", run.chunk_name);
                    return Err(RunError::new(
                        RunErrorKind::Crashed,
                        format!("{}: the script's worker sent {violation}", run.chunk_name),
                    ));
                }
                ExchangeError::PipeClosed => return Err(worker_failure(lease, run).await),
            }
        }
    }

    /// Counts of workers and waiting runs.
    pub fn figures(&self) -> EngineFigures {
        let PoolStats { workers, idle, waiting } = self.pool.stats();
        EngineFigures { workers, idle, waiting }
    }

    /// Stops all runs and all workers.
    pub async fn shutdown(&self) {
        self.pool.shutdown().await;
    }
}

fn lease_failure(why: LeaseError) -> RunError {
    let (kind, message) = match &why {
        LeaseError::Full => (RunErrorKind::Overloaded, String::from("too many scripts are waiting to run")),
        LeaseError::TooDeep => {
            (RunErrorKind::Overloaded, String::from("scripts that run scripts are nested too deeply"))
        }
        LeaseError::TimedOut => (RunErrorKind::Overloaded, why.to_string()),
        LeaseError::Stopped => (RunErrorKind::Stopped, String::from("the engine was shut down")),
        LeaseError::Start(_) => (RunErrorKind::Unavailable, why.to_string()),
    };
    RunError::new(kind, message)
}

fn deadline_ignored(run: &ScriptRun) -> RunError {
    RunError::new(
        RunErrorKind::Time,
        format!("{}: the script exceeded its time limit and was killed", run.chunk_name),
    )
}

async fn worker_failure(lease: WorkerLease, run: &ScriptRun) -> RunError {
    let end = lease.worker.end().await;
    if end.is_out_of_memory() {
        return RunError::new(RunErrorKind::Memory, format!("{}: not enough memory", run.chunk_name));
    }
    tracing::warn!("the worker of {} exited: {}; stderr: {}", run.chunk_name, end.status, end.stderr);
    RunError::new(
        RunErrorKind::Crashed,
        format!("{}: the script's worker ended unexpectedly ({})", run.chunk_name, end.status),
    )
}
