//! A parallel map: jobs that threads take from a shared counter.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs jobs `0..jobs` on up to `threads` threads, including this one, and returns their results in order. `buffers`
/// creates the working buffers of each thread.
pub(crate) fn run<Buffers, Output: Send>(
    jobs: usize,
    threads: usize,
    buffers: impl Fn() -> Buffers + Sync,
    job: impl Fn(&mut Buffers, usize) -> Output + Sync,
) -> Vec<Output> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut buffers = buffers();
        let mut outputs = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= jobs {
                return outputs;
            }
            outputs.push((index, job(&mut buffers, index)));
        }
    };
    let mut outputs = thread::scope(|scope| {
        let workers: Vec<_> = (1..threads.min(jobs)).map(|_| scope.spawn(work)).collect();
        let mut outputs = work();
        for worker in workers {
            match worker.join() {
                Ok(more) => outputs.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outputs
    });
    outputs.sort_unstable_by_key(|(index, _)| *index);
    outputs.into_iter().map(|(_, output)| output).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_made_once_and_in_order_by_any_number_of_threads() {
        for threads in [0, 1, 2, 7, 100] {
            let outputs = run(20, threads, || 0, |_, index| index * 2);
            assert_eq!(outputs, (0..20).map(|index| index * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_jobs_make_nothing() {
        assert_eq!(run(0, 2, || (), |(), index| index), Vec::<usize>::new());
    }
}
