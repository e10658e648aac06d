//! The pool of worker processes, and the queue of jobs that wait for a worker.

use crate::process::{StartError, WorkerProcess};
use crate::starter::{Starter, WorkerProgram};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Address space of a worker besides the memory of its job: for its program, the frames that it reads and writes, and
/// the values parsed from them.
const ADDRESS_SPACE_SLACK_BYTES: u64 = 512 << 20;

/// Settings of a pool.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// The program to start as a worker.
    pub program: WorkerProgram,
    /// Maximum number of concurrent jobs at each depth.
    pub workers_max: usize,
    /// Number of idle workers that are kept ready.
    pub workers_spare: usize,
    /// Maximum number of jobs that wait for a worker, at each depth.
    pub queue_max: usize,
    /// How long an idle worker beyond the spare ones is kept.
    pub idle_max: Duration,
    /// Memory limit of a job.
    pub memory_bytes_max: usize,
    /// A worker whose private memory exceeds this after a job is replaced.
    pub kept_bytes_max: u64,
    /// Maximum nesting depth of jobs. Each depth has its own workers, so that a job never waits for a worker held by a
    /// job that waits for it.
    pub depth_max: u32,
}

/// Current numbers of workers and waiting jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// Running worker processes.
    pub workers: usize,
    /// Idle worker processes.
    pub idle: usize,
    /// Jobs that wait for a worker.
    pub waiting: usize,
}

/// Why there is no worker for a job.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The queue is full.
    #[error("too many jobs are waiting for a worker")]
    Full,
    /// Jobs are nested deeper than `depth_max`.
    #[error("jobs are nested too deeply")]
    TooDeep,
    /// The deadline passed.
    #[error("timed out waiting for a free worker")]
    TimedOut,
    /// The pool was shut down.
    #[error("the pool was shut down")]
    Stopped,
    /// A worker could not be started.
    #[error("{0}")]
    Start(#[from] StartError),
}

/// The jobs of one nesting depth. A nested job waits only for workers of its own depth, so there can be no deadlock
/// between jobs.
#[derive(Debug)]
struct JobLane {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct IdleWorkers {
    /// Used as a stack, so that workers that are not needed stay idle and can be ended.
    workers: Vec<WorkerProcess>,
    starting: usize,
}

/// Worker processes: started on demand, reused, and replaced when a job fails.
#[derive(Debug)]
pub struct Pool {
    settings: PoolSettings,
    starter: Starter,
    lanes: Vec<JobLane>,
    idle: Mutex<IdleWorkers>,
    alive: Arc<AtomicUsize>,
    closed: CancellationToken,
    tasks: TaskTracker,
    sweeper: OnceLock<()>,
    /// For background tasks and leases, which must not keep the pool alive.
    this: Weak<Self>,
}

impl Pool {
    /// A pool without workers; starts only the thread that starts them.
    pub fn new(settings: PoolSettings) -> io::Result<Arc<Self>> {
        let starter = Starter::new(settings.program.clone())?;
        let permits = settings.workers_max.clamp(1, Semaphore::MAX_PERMITS);
        let lane = |_| JobLane { free: Arc::new(Semaphore::new(permits)), waiting: AtomicUsize::new(0) };
        Ok(Arc::new_cyclic(|this| Self {
            lanes: (0..=settings.depth_max).map(lane).collect(),
            settings,
            starter,
            idle: Mutex::default(),
            alive: Arc::default(),
            closed: CancellationToken::new(),
            tasks: TaskTracker::new(),
            sweeper: OnceLock::new(),
            this: Weak::clone(this),
        }))
    }

    /// Leases a worker for a job: an idle one, or else a new one. Waits while all are busy.
    pub async fn lease(&self, depth: u32, deadline: Instant) -> Result<WorkerLease, LeaseError> {
        let permit = self.wait_in_lane(depth, deadline).await?;
        let ready = self.take_idle();
        self.top_up();
        let worker = match ready {
            Some(worker) => worker,
            None => match timeout_at(deadline, self.start()).await {
                Ok(started) => started?,
                Err(_) => return Err(LeaseError::TimedOut),
            },
        };
        Ok(WorkerLease { worker, replacement: ReplacementGuard(Weak::clone(&self.this)), permit })
    }

    async fn wait_in_lane(&self, depth: u32, deadline: Instant) -> Result<OwnedSemaphorePermit, LeaseError> {
        let lane = self.lanes.get(depth as usize).ok_or(LeaseError::TooDeep)?;
        match Arc::clone(&lane.free).try_acquire_owned() {
            Ok(permit) => return Ok(permit),
            Err(TryAcquireError::Closed) => return Err(LeaseError::Stopped),
            Err(TryAcquireError::NoPermits) => {}
        }
        let _waiting = WaitGuard::new(&lane.waiting, self.settings.queue_max).ok_or(LeaseError::Full)?;
        match timeout_at(deadline, Arc::clone(&lane.free).acquire_owned()).await {
            Ok(permit) => permit.map_err(|_| LeaseError::Stopped),
            Err(_) => Err(LeaseError::TimedOut),
        }
    }

    fn take_idle(&self) -> Option<WorkerProcess> {
        loop {
            let mut worker = self.idle().workers.pop()?;
            if worker.is_alive() {
                return Some(worker);
            }
        }
    }

    /// Starts workers in the background until enough are idle or starting.
    pub fn top_up(&self) {
        // Without a runtime, the program is shutting down.
        let (Some(pool), Ok(runtime)) = (self.this.upgrade(), Handle::try_current()) else { return };
        self.sweeper.get_or_init(|| {
            self.tasks.spawn_on(sweep(Weak::clone(&self.this), self.closed.clone()), &runtime);
        });
        let mut idle = self.idle();
        while !self.closed.is_cancelled()
            && idle.workers.len() + idle.starting < self.settings.workers_spare
            && self.alive.load(Ordering::Relaxed) < self.settings.workers_max
        {
            idle.starting += 1;
            let starting = StartGuard(Arc::clone(&pool));
            let closed = self.closed.clone();
            let start = async move {
                match starting.0.start().await {
                    Ok(worker) => starting.0.return_idle(worker),
                    Err(error) => tracing::warn!("{error}"),
                }
            };
            self.tasks.spawn_on(async move { closed.run_until_cancelled(start).await }, &runtime);
        }
    }

    async fn start(&self) -> Result<WorkerProcess, StartError> {
        let memory = u64::try_from(self.settings.memory_bytes_max).unwrap_or(u64::MAX);
        let address_space = memory.saturating_add(ADDRESS_SPACE_SLACK_BYTES);
        WorkerProcess::start(&self.starter, address_space, &self.alive).await
    }

    fn return_idle(&self, mut worker: WorkerProcess) {
        let mut idle = self.idle();
        // Nested jobs, and jobs that did not wait for a spare worker to start, may have started more workers than are
        // useful afterwards.
        if !self.closed.is_cancelled() && self.alive.load(Ordering::Relaxed) <= self.settings.workers_max {
            worker.idle_since = Instant::now();
            idle.workers.push(worker);
        }
    }

    /// Ends workers that were idle too long, except the spare ones, and removes those that have exited.
    fn sweep(&self) {
        let mut idle = self.idle();
        let mut spare = idle.workers.len();
        let (idle_max, needed) = (self.settings.idle_max, self.settings.workers_spare);
        idle.workers.retain_mut(|worker| {
            let is_kept = worker.is_alive() && (spare <= needed || worker.idle_since.elapsed() < idle_max);
            spare -= usize::from(!is_kept);
            is_kept
        });
    }

    fn idle(&self) -> MutexGuard<'_, IdleWorkers> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Current numbers of workers and waiting jobs.
    pub fn stats(&self) -> PoolStats {
        PoolStats {
            workers: self.alive.load(Ordering::Relaxed),
            idle: self.idle().workers.len(),
            waiting: self.lanes.iter().map(|lane| lane.waiting.load(Ordering::Relaxed)).sum(),
        }
    }

    /// Resolves when the pool is shut down.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Ends every worker; waiting and running jobs fail.
    pub async fn shutdown(&self) {
        self.closed.cancel();
        for lane in &self.lanes {
            lane.free.close();
        }
        self.tasks.close();
        self.tasks.wait().await;
        let workers = std::mem::take(&mut self.idle().workers);
        for worker in workers {
            worker.stop().await;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

/// Ends idle workers from time to time, until the pool is dropped.
async fn sweep(pool: Weak<Pool>, closed: CancellationToken) {
    let Some(every) = pool.upgrade().map(|pool| pool.settings.idle_max / 2) else { return };
    while closed.run_until_cancelled(sleep(every)).await.is_some() {
        let Some(pool) = pool.upgrade() else { return };
        pool.sweep();
    }
}

/// A worker start in the background, counted until it succeeds or fails.
struct StartGuard(Arc<Pool>);

impl Drop for StartGuard {
    fn drop(&mut self) {
        let mut idle = self.0.idle();
        idle.starting = idle.starting.saturating_sub(1);
    }
}

/// A job in a queue, counted while it waits.
struct WaitGuard<'a>(&'a AtomicUsize);

impl<'a> WaitGuard<'a> {
    fn new(count: &'a AtomicUsize, max: usize) -> Option<Self> {
        let entered = Self(count);
        // If the queue is full, dropping the guard uncounts the job.
        (count.fetch_add(1, Ordering::Relaxed) < max).then_some(entered)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A worker leased to one job. Dropping the lease ends the worker, which may be in the middle of a job;
/// [`Self::give_back`] returns it.
// The order of the fields matters: the worker ends first, then a replacement starts, then the next job gets the permit.
pub struct WorkerLease {
    /// The process.
    pub worker: WorkerProcess,
    replacement: ReplacementGuard,
    permit: OwnedSemaphorePermit,
}

impl WorkerLease {
    /// Returns the worker to the pool after a completed job.
    pub fn give_back(self, job_took: Duration) {
        let Self { mut worker, replacement, permit } = self;
        if let Some(pool) = replacement.0.upgrade()
            && worker.is_reusable_after(job_took, pool.settings.kept_bytes_max)
        {
            pool.return_idle(worker);
        }
        drop((replacement, permit));
    }
}

/// Starts a replacement for the ended worker, on drop.
struct ReplacementGuard(Weak<Pool>);

impl Drop for ReplacementGuard {
    fn drop(&mut self) {
        if let Some(pool) = self.0.upgrade() {
            pool.top_up();
        }
    }
}
