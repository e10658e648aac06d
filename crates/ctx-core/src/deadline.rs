//! Deadlines of calls, suspended while the peer answers a question (elicitation, sampling).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Interval for checking whether a suspended deadline has passed.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Time spent waiting for answers; shared by a call and all calls nested in it.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: u32,
    since: Option<Instant>,
    ended: Duration,
}

impl Waits {
    /// Measures time until the guard is dropped. Overlapping waits count once.
    pub(crate) fn begin(&self) -> impl Drop + '_ {
        struct Waiting<'a>(&'a Waits);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
                state.open -= 1;
                if state.open == 0
                    && let Some(since) = state.since.take()
                {
                    state.ended += since.elapsed();
                }
            }
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.open += 1;
        state.since.get_or_insert_with(Instant::now);
        Waiting(self)
    }

    /// Total time spent waiting until now.
    pub(crate) fn waited(&self) -> Duration {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.ended + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// A deadline that is postponed by the time spent waiting for answers.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    set_to: Instant,
    /// Time spent waiting before the deadline was set, which does not postpone it.
    waited: Duration,
    waits: Arc<Waits>,
}

impl Deadline {
    pub(crate) fn new(at: Instant, waits: &Arc<Waits>) -> Self {
        Self { set_to: at, waited: waits.waited(), waits: waits.clone() }
    }

    /// The deadline, postponed by the waits so far.
    pub(crate) fn at(&self) -> Instant {
        self.set_to + self.waits.waited().saturating_sub(self.waited)
    }

    /// Waits until the deadline has passed by `grace`.
    pub(crate) async fn passed(&self, grace: Duration) {
        let last = || self.at().checked_add(grace).unwrap_or_else(|| self.at());
        sleep_until(last()).await;
        while last() > Instant::now() {
            sleep_until(last().max(Instant::now() + LOOK_AGAIN)).await;
        }
    }
}
