//! Bounded queues in front of blocking work: as much at once as the machine can do, the rest in order of arrival.
//!
//! More searches at once than cores finish no sooner: all of them take longer, each with a thread, its stack and its heap.

use ctx_core::{ErrorKind, ToolError};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Maximum number of calls that wait in one queue.
const WAITING_MAX: usize = 512;
/// Maximum number of concurrent searches that wait for an embedding service.
const REMOTE_SEARCHES_MAX: usize = 32;
/// When a refused caller may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Searches that compute: one for each core.
pub(crate) static SEARCHES: LazyLock<WorkQueue> = LazyLock::new(|| WorkQueue::new(cores(), WAITING_MAX));
/// Searches whose model is a service, for which they mostly wait.
pub(crate) static REMOTE_SEARCHES: LazyLock<WorkQueue> =
    LazyLock::new(|| WorkQueue::new(REMOTE_SEARCHES_MAX.max(cores()), WAITING_MAX));
/// Reads of documents; apart from searches, so that a slow search delays none.
pub(crate) static READS: LazyLock<WorkQueue> = LazyLock::new(|| WorkQueue::new(cores(), WAITING_MAX));

/// A queue of blocking work, first come, first served.
pub(crate) struct WorkQueue {
    /// Permits of the calls that run or wait.
    places: Arc<Semaphore>,
    /// Permits of the calls that run; the semaphore is fair.
    running: Arc<Semaphore>,
}

impl WorkQueue {
    fn new(running_max: usize, waiting_max: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(running_max + waiting_max)),
            running: Arc::new(Semaphore::new(running_max)),
        }
    }

    /// Runs work on the blocking thread pool when its turn comes; refuses it when too much is waiting. Work that has
    /// started runs to its end and counts until then, even if its caller has given up.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ToolError> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| {
            ToolError::new(ErrorKind::Overloaded, "too many searches and reads at once")
                .with_retry_after(RETRY_AFTER)
        })?;
        let turn = self.running.clone().acquire_owned().await;
        let turn = turn.map_err(|error| ToolError::internal("the call failed", error))?;
        let work = move || {
            let _held = (place, turn);
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| ToolError::internal("the call failed", error))
    }
}

/// The number of cores that the process may use; asked once, because the answer takes several files.
pub(crate) fn cores() -> usize {
    static CORES: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));
    *CORES
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc;
    use std::task::Poll;

    #[tokio::test]
    async fn work_runs_in_order_of_arrival_and_too_much_is_refused() {
        let queue = WorkQueue::new(1, 3);
        let (release, released) = mpsc::channel::<()>();
        let started = Arc::new(Mutex::new(Vec::new()));
        let mut running = Box::pin(queue.run(move || released.recv().unwrap()));
        assert!(futures::poll!(&mut running).is_pending());
        let mut waiting: Vec<_> = (0..3)
            .map(|number| {
                let started = started.clone();
                Box::pin(queue.run(move || started.lock().unwrap().push(number)))
            })
            .collect();
        for call in &mut waiting {
            assert!(futures::poll!(call).is_pending());
        }
        let refused = queue.run(|| ()).await.unwrap_err();
        assert_eq!((refused.kind(), refused.retry_after()), (ErrorKind::Overloaded, Some(RETRY_AFTER)));
        // A caller that gives up while it waits leaves its place to another.
        drop(waiting.remove(1));
        let mut last = {
            let started = started.clone();
            Box::pin(queue.run(move || started.lock().unwrap().push(3)))
        };
        assert!(matches!(futures::poll!(&mut last), Poll::Pending));
        release.send(()).unwrap();
        running.await.unwrap();
        let (first, second, third) = futures::join!(waiting.remove(0), waiting.remove(0), last);
        first.and(second).and(third).unwrap();
        assert_eq!(*started.lock().unwrap(), [0, 2, 3]);
    }
}
