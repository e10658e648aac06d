//! Runs scripts in a pool of confined worker processes, and answers what they ask.

mod clock;
mod conversation;
pub(crate) mod protocol;
mod worker;

pub(crate) use ctx_worker::log_cost;
pub use protocol::Entry;
pub use worker::worker_main;

use crate::vm::LogLevel;
use async_trait::async_trait;
use conversation::{Broken, converse};
use ctx_worker::{LeaseError, Pool, PoolFigures, PoolSettings, WorkerLease, WorkerProgram};
use futures::future::BoxFuture;
use protocol::{Failure, FailureKind};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Questions of one run that may be open at once; a worker holds back the others.
pub(crate) const QUESTIONS_OPEN_MAX: usize = 64;

/// Questions that one run may ask in all. What they may cost is for those who answer to bound.
pub(crate) const QUESTIONS_MAX: u32 = 1_000_000;

/// How deep runs may nest. Each depth has workers of its own, so that a run never waits for one that
/// waits for it.
pub const DEPTH_MAX: u32 = 8;

/// Memory of its own beyond which a worker is replaced after a run.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// How the engine runs.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// The program that is a worker, and its arguments; it must call [`worker_main`].
    pub program: PathBuf,
    /// See `program`.
    pub arguments: Vec<OsString>,
    /// How many runs may go on at once, at each depth.
    pub workers_max: usize,
    /// How many workers wait for work, so that a run finds one that is ready.
    pub workers_spare: usize,
    /// How many runs may wait for a worker, at each depth.
    pub queue_max: usize,
    /// How long more workers than the spare ones stay without work.
    pub idle_max: Duration,
    /// The most memory that any script may use.
    pub memory_bytes_max: usize,
    /// How long a run may wait for people, in all.
    pub pause_max: Duration,
}

impl EngineSettings {
    /// Settings as they ship, for workers of this program.
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

/// A script to run, with what it is given and its bounds. It may hold secrets, so it cannot be printed.
pub struct ScriptRun {
    /// How errors call the script: `tools/x.lua`.
    pub chunk_name: String,
    /// Its text.
    pub source: Arc<[u8]>,
    /// Which function of it is called.
    pub entry: Entry,
    /// The arguments of that function, in order.
    pub arguments: Vec<Value>,
    /// What its section of the configuration says.
    pub config: Option<Value>,
    /// The host APIs it sees, by name.
    pub apis: Vec<String>,
    /// When it must have ended.
    pub deadline: Instant,
    /// How much memory it may use.
    pub memory_bytes: usize,
    /// How large its result may be, as JSON.
    pub result_bytes: usize,
    /// How much it may log.
    pub log_bytes: usize,
    /// How many runs this one is inside of.
    pub depth: u32,
}

/// A line that a script logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How serious it is.
    pub level: LogLevel,
    /// What it says.
    pub message: String,
}

/// A run that ended well.
#[derive(Clone, Debug, PartialEq)]
pub struct Completed {
    /// What the script answers.
    pub value: Value,
    /// What it logged.
    pub logs: Vec<LogLine>,
}

/// A run that did not end well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    /// In which way.
    pub kind: RunErrorKind,
    /// For people: with the script's name and line, without paths of this machine.
    pub message: String,
    /// The code of the failed question, where the script let such an error through.
    pub code: Option<String>,
    /// What it logged until then.
    pub logs: Vec<LogLine>,
}

/// How runs fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunErrorKind {
    /// The script is not one: syntax, bytecode, too large.
    Source,
    /// The script does not define what its kind must.
    Contract,
    /// It raised an error.
    Raised,
    /// Its time is over.
    Time,
    /// Its memory is used up.
    Memory,
    /// Its result cannot be told as JSON, or is too large.
    Result,
    /// What it was to be given is too large.
    Arguments,
    /// Its worker ended, or did not keep to the rules.
    Crashed,
    /// Too many runs at once, or too deep.
    Overloaded,
    /// Workers cannot be started here.
    Unavailable,
    /// The engine was shut down.
    Stopped,
}

impl RunError {
    fn new(kind: RunErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), code: None, logs: Vec::new() }
    }
}

impl From<Failure> for RunError {
    fn from(failure: Failure) -> Self {
        let kind = match failure.kind {
            FailureKind::Source => RunErrorKind::Source,
            FailureKind::Contract => RunErrorKind::Contract,
            FailureKind::Raised => RunErrorKind::Raised,
            FailureKind::Time => RunErrorKind::Time,
            FailureKind::Memory => RunErrorKind::Memory,
            FailureKind::Result => RunErrorKind::Result,
        };
        Self { kind, message: failure.message, code: failure.code, logs: Vec::new() }
    }
}

/// Why a question has no answer. The script sees an error that it may catch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For programs: `timeout`, `not_found`.
    pub code: String,
    /// For people.
    pub message: String,
    /// What else a script finds in its error.
    pub data: Map<String, Value>,
}

impl Refusal {
    /// A refusal.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), data: Map::new() }
    }

    /// The same with more for a script to find in its error.
    #[must_use]
    pub fn with_data(self, data: Map<String, Value>) -> Self {
        Self { data, ..self }
    }
}

/// Whatever scripts may reach: it answers their questions.
#[async_trait]
pub trait World: Send + Sync {
    /// Answers a question with a value, and with what need not be text. Several may be open at once. The
    /// future is dropped when the run ends first. While `ask` is answered, which asks a person, the
    /// run's time stands still.
    async fn answer(
        &self,
        about: &str,
        arguments: Value,
        bytes: Vec<u8>,
    ) -> Result<(Value, Vec<u8>), Refusal>;

    /// Hears a line as it is logged.
    fn log(&self, _level: LogLevel, _message: &str) {}
}

/// What the engine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineFigures {
    /// Worker processes.
    pub workers: usize,
    /// Those of them that wait for work.
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
    /// An engine without workers yet; they come with the first runs, or by [`Engine::warm_up`].
    pub fn new(settings: EngineSettings) -> std::io::Result<Self> {
        let pause_max = settings.pause_max;
        let pool = Pool::new(PoolSettings {
            program: WorkerProgram { path: settings.program, arguments: settings.arguments },
            workers_max: settings.workers_max,
            workers_spare: settings.workers_spare,
            queue_max: settings.queue_max,
            idle_max: settings.idle_max,
            memory_bytes_max: settings.memory_bytes_max,
            kept_bytes_max: KEPT_BYTES_MAX,
            depth_max: DEPTH_MAX,
        })?;
        Ok(Self { pool, pause_max })
    }

    /// Starts the spare workers in the background, so that the first run finds one.
    pub fn warm_up(&self) {
        self.pool.top_up();
    }

    /// Runs a script to its end, or to its deadline. Dropping the future ends the script at once.
    ///
    /// Boxed, so that the conversation with a worker is compiled here only (decision 0012).
    pub fn run<'a>(
        &'a self,
        run: &'a ScriptRun,
        world: &'a dyn World,
    ) -> BoxFuture<'a, Result<Completed, RunError>> {
        Box::pin(self.run_unboxed(run, world))
    }

    async fn run_unboxed(&self, run: &ScriptRun, world: &dyn World) -> Result<Completed, RunError> {
        let mut logs = Vec::new();
        let stopped = || RunError::new(RunErrorKind::Stopped, "the engine was shut down");
        let outcome = tokio::select! {
            outcome = self.run_on_some_worker(run, world, &mut logs) => outcome,
            () = self.pool.closed() => Err(stopped()),
        };
        match outcome {
            Ok(value) => Ok(Completed { value, logs }),
            Err(error) => Err(RunError { logs, ..error }),
        }
    }

    async fn run_on_some_worker(
        &self,
        run: &ScriptRun,
        world: &dyn World,
        logs: &mut Vec<LogLine>,
    ) -> Result<Value, RunError> {
        loop {
            let mut lease = self.pool.lease(run.depth, run.deadline.into()).await.map_err(no_worker)?;
            let started = Instant::now();
            let broken = match converse(&mut lease.worker, run, world, self.pause_max, logs).await {
                Ok(ended) => {
                    lease.give_back(started.elapsed());
                    return ended.map_err(RunError::from);
                }
                Err(broken) => broken,
            };
            match broken {
                // It ended while it had nothing to do. The script did not begin, so another may run it.
                Broken::NotTaken => {}
                Broken::TooLarge => {
                    lease.give_back(Duration::ZERO);
                    return Err(RunError::new(
                        RunErrorKind::Arguments,
                        format!("{}: the script and its arguments are too large", run.chunk_name),
                    ));
                }
                Broken::Late => return Err(late(run)),
                Broken::Breach(breach) => {
                    tracing::warn!("the worker of {} sent {breach}", run.chunk_name);
                    return Err(RunError::new(
                        RunErrorKind::Crashed,
                        format!("{}: the script's worker sent {breach}", run.chunk_name),
                    ));
                }
                Broken::Ended => return Err(crashed(lease, run).await),
            }
        }
    }

    /// What the engine is doing.
    pub fn figures(&self) -> EngineFigures {
        let PoolFigures { workers, idle, waiting } = self.pool.figures();
        EngineFigures { workers, idle, waiting }
    }

    /// Ends every run and every worker.
    pub async fn shutdown(&self) {
        self.pool.shutdown().await;
    }
}

fn no_worker(why: LeaseError) -> RunError {
    let (kind, message) = match &why {
        LeaseError::Full => (RunErrorKind::Overloaded, String::from("too many scripts are waiting to run")),
        LeaseError::TooDeep => {
            (RunErrorKind::Overloaded, String::from("scripts that run scripts are nested too deeply"))
        }
        LeaseError::NotInTime => (RunErrorKind::Overloaded, why.to_string()),
        LeaseError::Stopped => (RunErrorKind::Stopped, String::from("the engine was shut down")),
        LeaseError::Start(_) => (RunErrorKind::Unavailable, why.to_string()),
    };
    RunError::new(kind, message)
}

fn late(run: &ScriptRun) -> RunError {
    RunError::new(
        RunErrorKind::Time,
        format!("{}: the script's time is over and it did not end by itself", run.chunk_name),
    )
}

async fn crashed(lease: WorkerLease, run: &ScriptRun) -> RunError {
    let end = lease.worker.end().await;
    if end.is_out_of_memory() {
        return RunError::new(RunErrorKind::Memory, format!("{}: not enough memory", run.chunk_name));
    }
    tracing::warn!("the worker of {} ended: {}; it said: {}", run.chunk_name, end.status, end.last_words);
    RunError::new(
        RunErrorKind::Crashed,
        format!("{}: the script's worker ended unexpectedly ({})", run.chunk_name, end.status),
    )
}
