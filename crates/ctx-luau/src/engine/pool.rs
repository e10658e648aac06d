//! Workers that wait for scripts, and scripts that wait for workers.

use super::process::{StartError, WorkerProcess};
use super::starter::{Program, Starter};
use super::{DEPTH_MAX, EngineFigures, EngineSettings};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What a worker may map besides the memory of its script: its program with all it holds, the frames
/// it reads and writes, and what it makes of them.
const ADDRESS_SPACE_SLACK_BYTES: u64 = 512 << 20;

/// Why there is no worker for a run.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoWorker {
    #[error("too many scripts are waiting to run")]
    Full,
    #[error("scripts that run scripts are nested too deeply")]
    TooDeep,
    #[error("no worker was free in time")]
    NotInTime,
    #[error("the engine was shut down")]
    Stopped,
    #[error("{0}")]
    Start(#[from] StartError),
}

/// The runs of one depth. A run waits only in the lane below those it is inside of, so that runs never
/// wait in a circle.
#[derive(Debug)]
struct Lane {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Idle {
    /// The last one to come is the first to go, so that the others can be let go.
    workers: Vec<WorkerProcess>,
    starting: usize,
}

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) settings: EngineSettings,
    starter: Starter,
    lanes: Vec<Lane>,
    idle: Mutex<Idle>,
    alive: Arc<AtomicUsize>,
    closed: CancellationToken,
    tasks: TaskTracker,
    sweeper: OnceLock<()>,
    /// For tasks and leases, which outlive no call of ours.
    this: Weak<Self>,
}

impl Pool {
    pub(super) fn new(settings: EngineSettings) -> io::Result<Arc<Self>> {
        let program = Program { path: settings.program.clone(), arguments: settings.arguments.clone() };
        let starter = Starter::new(program)?;
        let permits = settings.workers_max.clamp(1, Semaphore::MAX_PERMITS);
        let lane = |_| Lane { free: Arc::new(Semaphore::new(permits)), waiting: AtomicUsize::new(0) };
        Ok(Arc::new_cyclic(|this| Self {
            settings,
            starter,
            lanes: (0..=DEPTH_MAX).map(lane).collect(),
            idle: Mutex::default(),
            alive: Arc::default(),
            closed: CancellationToken::new(),
            tasks: TaskTracker::new(),
            sweeper: OnceLock::new(),
            this: Weak::clone(this),
        }))
    }

    /// A worker for a run, one that is ready if there is one.
    pub(super) async fn lease(&self, depth: u32, deadline: Instant) -> Result<Lease, NoWorker> {
        let permit = self.wait_in_lane(depth, deadline).await?;
        let ready = self.take_idle();
        self.top_up();
        let worker = match ready {
            Some(worker) => worker,
            None => match timeout_at(deadline, self.start()).await {
                Ok(started) => started?,
                Err(_) => return Err(NoWorker::NotInTime),
            },
        };
        Ok(Lease { worker, replacement: Replacement(Weak::clone(&self.this)), permit })
    }

    async fn wait_in_lane(&self, depth: u32, deadline: Instant) -> Result<OwnedSemaphorePermit, NoWorker> {
        let lane = self.lanes.get(depth as usize).ok_or(NoWorker::TooDeep)?;
        match Arc::clone(&lane.free).try_acquire_owned() {
            Ok(permit) => return Ok(permit),
            Err(TryAcquireError::Closed) => return Err(NoWorker::Stopped),
            Err(TryAcquireError::NoPermits) => {}
        }
        let _waiting = Waiting::new(&lane.waiting, self.settings.queue_max).ok_or(NoWorker::Full)?;
        match timeout_at(deadline, Arc::clone(&lane.free).acquire_owned()).await {
            Ok(permit) => permit.map_err(|_| NoWorker::Stopped),
            Err(_) => Err(NoWorker::NotInTime),
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

    /// Starts workers in the background until enough are ready or soon will be.
    pub(super) fn top_up(&self) {
        // Without a runtime the program is ending.
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
            let starting = Starting(Arc::clone(&pool));
            let closed = self.closed.clone();
            let start = async move {
                match starting.0.start().await {
                    Ok(worker) => starting.0.keep(worker),
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

    fn keep(&self, mut worker: WorkerProcess) {
        let mut idle = self.idle();
        // Nested runs, and runs that did not wait for a spare worker to start, may have needed more than are of use
        // afterwards.
        if !self.closed.is_cancelled() && self.alive.load(Ordering::Relaxed) <= self.settings.workers_max {
            worker.idle_since = Instant::now();
            idle.workers.push(worker);
        }
    }

    /// Lets go of those that had nothing to do for long, but for the spare ones, and of those that ended.
    fn sweep(&self) {
        let mut idle = self.idle();
        let mut spare = idle.workers.len();
        let (idle_max, needed) = (self.settings.idle_max, self.settings.workers_spare);
        idle.workers.retain_mut(|worker| {
            let kept = worker.is_alive() && (spare <= needed || worker.idle_since.elapsed() < idle_max);
            spare -= usize::from(!kept);
            kept
        });
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn figures(&self) -> EngineFigures {
        EngineFigures {
            workers: self.alive.load(Ordering::Relaxed),
            idle: self.idle().workers.len(),
            waiting: self.lanes.iter().map(|lane| lane.waiting.load(Ordering::Relaxed)).sum(),
        }
    }

    /// Resolves when the pool is shut down.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    pub(super) async fn shutdown(&self) {
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

/// Looks after idle workers until the pool is gone.
async fn sweep(pool: Weak<Pool>, closed: CancellationToken) {
    let Some(every) = pool.upgrade().map(|pool| pool.settings.idle_max / 2) else { return };
    while closed.run_until_cancelled(sleep(every)).await.is_some() {
        let Some(pool) = pool.upgrade() else { return };
        pool.sweep();
    }
}

/// A start in the background, counted until it ends one way or another.
struct Starting(Arc<Pool>);

impl Drop for Starting {
    fn drop(&mut self) {
        let mut idle = self.0.idle();
        idle.starting = idle.starting.saturating_sub(1);
    }
}

/// A run in a queue.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize, max: usize) -> Option<Self> {
        let entered = Self(count);
        // Beyond the bound it is dropped, and leaves again.
        (count.fetch_add(1, Ordering::Relaxed) < max).then_some(entered)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A worker in the hands of one run. Unless it is given back it ends: it is in the middle of a script.
/// What it holds goes in this order.
pub(super) struct Lease {
    pub(super) worker: WorkerProcess,
    replacement: Replacement,
    permit: OwnedSemaphorePermit,
}

impl Lease {
    /// The run ended as it should; the next one may have the worker.
    pub(super) fn give_back(self, run_took: Duration) {
        let Self { mut worker, replacement, permit } = self;
        if let Some(pool) = replacement.0.upgrade()
            && worker.is_good_after(run_took)
        {
            pool.keep(worker);
        }
        drop((replacement, permit));
    }
}

/// Sees to it that another worker comes for one that ended.
struct Replacement(Weak<Pool>);

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(pool) = self.0.upgrade() {
            pool.top_up();
        }
    }
}
