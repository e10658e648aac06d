//! Where text is extracted: plain text in this process, every other format in sandboxed worker processes, so that a
//! document that crashes, stalls or exhausts memory costs only a warning.

use ctx_extract::{CancelCheck, ExtractError, ExtractLimits, ExtractedText, RawDocument, STACK_BYTES};
use ctx_worker::{JobRequest, JobRequestError, LeaseError, Pool, PoolSettings, PoolStats, WorkerProgram};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// Maximum number of documents waiting for a worker; each source extracts one at a time.
const QUEUE_MAX: usize = 1_024;
/// Maximum time a document waits for a worker.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Idle time after which a worker exits.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Private memory after a document beyond which a worker is replaced.
const REUSABLE_WORKER_BYTES_MAX: u64 = 128 << 20;
/// Maximum size of a reply without the text: title, tags, metadata.
const HEADER_BYTES_MAX: usize = 4 << 20;

/// Settings of the worker processes that extract text.
#[derive(Clone, Debug)]
pub struct ExtractionSettings {
    /// The worker executable; started with `arguments`, it must call [`extraction_worker_main`].
    pub program: PathBuf,
    /// Arguments of `program`.
    pub arguments: Vec<OsString>,
    /// Maximum number of concurrent workers.
    pub workers_max: usize,
    /// Memory limit of a worker.
    pub memory_bytes_max: usize,
    /// Limits of one document.
    pub limits: ExtractLimits,
    /// Time after `limits.time` in which a worker may return a partial text, before it is killed.
    pub grace: Duration,
}

impl ExtractionSettings {
    /// Default settings for workers of this program: one worker per core.
    pub fn new(program: PathBuf, arguments: Vec<OsString>) -> Self {
        Self {
            program,
            arguments,
            workers_max: thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_bytes_max: 1 << 30,
            limits: ExtractLimits::DEFAULT,
            grace: Duration::from_secs(5),
        }
    }
}

/// Extracts the text of documents. Clones share the workers.
#[derive(Clone, Debug)]
pub struct Extraction {
    /// `None` in tests that read every format in their own process.
    workers: Option<Arc<ExtractionWorkers>>,
}

impl Extraction {
    /// Extracts everything but plain text in sandboxed processes. Starts none before the first such document.
    pub fn confined(settings: ExtractionSettings) -> Self {
        Self { workers: Some(Arc::new(ExtractionWorkers { settings, pool: Mutex::default() })) }
    }

    /// Extracts every format in this process, bounded only by the extractors' own limits: for tests only.
    pub fn in_process() -> Self {
        Self { workers: None }
    }

    /// The state of the worker pool; `None` before it is started.
    pub fn pool_stats(&self) -> Option<PoolStats> {
        self.workers.as_ref()?.running_pool().map(|pool| pool.stats())
    }

    /// Stops all workers; the next sync extracts interrupted documents again.
    pub async fn shutdown(&self) {
        let pool = self.workers.as_ref().and_then(|workers| workers.running_pool());
        if let Some(pool) = pool {
            pool.shutdown().await;
        }
    }

    /// Extracts the text of a document. Blocks; `runtime` serves the pipes of the workers.
    pub(crate) fn extract(
        &self,
        document: RawDocument,
        cancellation: &CancellationToken,
        runtime: &Handle,
    ) -> Result<ExtractedText, ExtractError> {
        let needs_worker = document.needs_worker();
        match &self.workers {
            Some(workers) if needs_worker => runtime.block_on(workers.extract(&document, cancellation)),
            None if needs_worker => extract_on_deep_stack(document, cancellation),
            _ => ctx_extract::extract(document, ExtractLimits::DEFAULT, cancel_check(cancellation)),
        }
    }
}

fn cancel_check(cancellation: &CancellationToken) -> CancelCheck {
    let cancellation = cancellation.clone();
    Arc::new(move || cancellation.is_cancelled())
}

fn extract_on_deep_stack(
    document: RawDocument,
    cancellation: &CancellationToken,
) -> Result<ExtractedText, ExtractError> {
    let is_cancelled = cancel_check(cancellation);
    let extract = move || ctx_extract::extract(document, ExtractLimits::DEFAULT, is_cancelled);
    let handle = thread::Builder::new().stack_size(STACK_BYTES).spawn(extract);
    let result = handle.map(thread::JoinHandle::join);
    let no_thread = || ExtractError::NotNow("cannot start a thread to read it".to_owned());
    result.ok().and_then(Result::ok).unwrap_or_else(|| Err(no_thread()))
}

/// The worker pool, started on first use.
#[derive(Debug)]
struct ExtractionWorkers {
    settings: ExtractionSettings,
    pool: Mutex<Option<Arc<Pool>>>,
}

impl ExtractionWorkers {
    fn running_pool(&self) -> Option<Arc<Pool>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn pool(&self) -> Result<Arc<Pool>, ExtractError> {
        let mut started = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = &*started {
            return Ok(pool.clone());
        }
        let settings = &self.settings;
        let pool = Pool::new(PoolSettings {
            program: WorkerProgram { path: settings.program.clone(), arguments: settings.arguments.clone() },
            workers_max: settings.workers_max,
            workers_spare: 0,
            queue_max: QUEUE_MAX,
            idle_max: IDLE_MAX,
            memory_bytes_max: settings.memory_bytes_max,
            kept_bytes_max: REUSABLE_WORKER_BYTES_MAX,
            depth_max: 0,
        });
        let pool = pool
            .map_err(|error| ExtractError::NotNow(format!("cannot start the extraction workers: {error}")))?;
        Ok(started.insert(pool).clone())
    }

    async fn extract(
        &self,
        document: &RawDocument,
        cancellation: &CancellationToken,
    ) -> Result<ExtractedText, ExtractError> {
        let limits = self.settings.limits;
        let pool = self.pool()?;
        let request = JobRequest {
            json: &ctx_extract::encode_job(document, limits)?,
            bytes: document.bytes(),
            wait_max: WAIT_MAX,
            time_max: limits.time + self.settings.grace,
            reply_bytes_max: limits.text_bytes + HEADER_BYTES_MAX,
        };
        match cancellation.run_until_cancelled(pool.request(&request)).await {
            None => Err(ExtractError::interrupted()),
            Some(Ok((header, body))) => ctx_extract::decode_reply(header, body),
            Some(Err(error)) => Err(self.classify_error(error)),
        }
    }

    /// The reason why a document has no text, and whether extraction is retried while the document is unchanged.
    fn classify_error(&self, error: JobRequestError) -> ExtractError {
        match error {
            JobRequestError::Lease(LeaseError::Stopped) => ExtractError::interrupted(),
            JobRequestError::Lease(error) => {
                ExtractError::NotNow(format!("no extraction worker is available: {error}"))
            }
            JobRequestError::TimedOut(_) => ExtractError::too_slow(self.settings.limits.time),
            JobRequestError::Violation(violation) => {
                ExtractError::Failed(format!("the extraction worker sent {violation}"))
            }
            JobRequestError::Crashed(exit) if exit.is_out_of_memory() => {
                let megabytes = self.settings.memory_bytes_max >> 20;
                ExtractError::Failed(format!("reading it took more than {megabytes} MB of memory"))
            }
            // A user or the OOM killer may have killed the worker, perhaps not because of the document.
            JobRequestError::Crashed(exit) if exit.was_killed() => {
                ExtractError::NotNow("the extraction worker was killed".to_owned())
            }
            JobRequestError::Crashed(exit) => {
                tracing::warn!("an extraction worker exited: {}; stderr: {}", exit.status, exit.stderr);
                ExtractError::Failed(format!("the extraction worker crashed ({})", exit.status))
            }
        }
    }
}

/// The main function of an extraction worker: extracts the documents that arrive on standard input until it ends. The
/// process must not have started any threads before.
pub fn extraction_worker_main() -> ExitCode {
    let serve = || {
        ctx_worker::worker_main(|| Ok(()), |pipe, ()| ctx_worker::serve_requests(pipe, ctx_extract::run_job))
    };
    let worker = thread::Builder::new().stack_size(STACK_BYTES).spawn(serve);
    worker.ok().and_then(|worker| worker.join().ok()).unwrap_or(ExitCode::FAILURE)
}
