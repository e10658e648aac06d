//! A parallel map: jobs that threads take from a shared counter.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs jobs `0..jobs` on up to `threads` threads, including this one, and returns their results in order. `bench`
/// creates the working buffers of each thread.
pub(crate) fn run<Bench, Made: Send>(
    jobs: usize,
    threads: usize,
    bench: impl Fn() -> Bench + Sync,
    job: impl Fn(&mut Bench, usize) -> Made + Sync,
) -> Vec<Made> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut bench = bench();
        let mut made = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= jobs {
                return made;
            }
            made.push((number, job(&mut bench, number)));
        }
    };
    let mut made = thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads.min(jobs)).map(|_| scope.spawn(work)).collect();
        let mut made = work();
        for helper in helpers {
            match helper.join() {
                Ok(more) => made.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        made
    });
    made.sort_unstable_by_key(|(number, _)| *number);
    made.into_iter().map(|(_, made)| made).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_made_once_and_in_order_by_any_number_of_threads() {
        for threads in [0, 1, 2, 7, 100] {
            let made = run(20, threads, || 0, |_, number| number * 2);
            assert_eq!(made, (0..20).map(|number| number * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_jobs_make_nothing() {
        assert_eq!(run(0, 2, || (), |(), number| number), Vec::<usize>::new());
    }
}
