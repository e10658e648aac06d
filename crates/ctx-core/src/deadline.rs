//! Deadlines of calls, suspended while the peer answers a question (elicitation, sampling).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Interval for checking whether a suspended deadline has passed.
const RECHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Time spent waiting for answers; shared by a call and all calls nested in it.
#[derive(Debug, Default)]
pub(crate) struct AnswerWaits(Mutex<WaitState>);

#[derive(Debug, Default)]
struct WaitState {
    guards: u32,
    since: Option<Instant>,
    ended: Duration,
}

impl AnswerWaits {
    /// Measures time until the guard is dropped. Overlapping waits count once.
    pub(crate) fn start(&self) -> impl Drop + '_ {
        struct WaitGuard<'a>(&'a AnswerWaits);
        impl Drop for WaitGuard<'_> {
            fn drop(&mut self) {
                let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
                state.guards -= 1;
                if state.guards == 0
                    && let Some(since) = state.since.take()
                {
                    state.ended += since.elapsed();
                }
            }
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.guards += 1;
        state.since.get_or_insert_with(Instant::now);
        WaitGuard(self)
    }

    /// Total time spent waiting until now.
    pub(crate) fn total(&self) -> Duration {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.ended + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// A deadline that is postponed by the time spent waiting for answers.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    set_to: Instant,
    /// Time spent waiting before the deadline was set, which does not postpone it.
    waited_before: Duration,
    waits: Arc<AnswerWaits>,
}

impl Deadline {
    pub(crate) fn new(at: Instant, waits: &Arc<AnswerWaits>) -> Self {
        Self { set_to: at, waited_before: waits.total(), waits: waits.clone() }
    }

    /// The deadline, postponed by the waits so far.
    pub(crate) fn instant(&self) -> Instant {
        self.set_to + self.waits.total().saturating_sub(self.waited_before)
    }

    /// Waits until the deadline has passed by `grace`.
    pub(crate) async fn wait_until_passed(&self, grace: Duration) {
        let deadline_with_grace = || self.instant().checked_add(grace).unwrap_or_else(|| self.instant());
        sleep_until(deadline_with_grace()).await;
        while deadline_with_grace() > Instant::now() {
            sleep_until(deadline_with_grace().max(Instant::now() + RECHECK_INTERVAL)).await;
        }
    }
}
