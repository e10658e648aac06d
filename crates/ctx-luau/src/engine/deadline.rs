//! The deadline of one run, and its pauses.

use std::time::Duration;
use tokio::time::Instant;

/// Time after the deadline until a worker that has not ended its run is killed.
const GRACE: Duration = Duration::from_millis(100);

/// The deadline of a run, paused while the run waits for a person.
pub(super) struct PausableDeadline {
    deadline: Instant,
    /// Number of open requests to people; the first began at `paused_at`.
    pauses: u32,
    paused_at: Instant,
    pause_left: Duration,
    /// Whether the deadline has passed and only the grace period is left.
    pub(super) has_passed: bool,
}

impl PausableDeadline {
    pub(super) fn new(deadline: Instant, pause_max: Duration) -> Self {
        Self { deadline, pauses: 0, paused_at: deadline, pause_left: pause_max, has_passed: false }
    }

    /// When the timer fires next. While the deadline is paused that is at the latest possible deadline: requests
    /// to people have a timeout of their own.
    pub(super) fn fires_at(&self) -> Instant {
        if self.has_passed {
            self.deadline + GRACE
        } else if self.pauses > 0 {
            self.deadline + self.pause_left
        } else {
            self.deadline
        }
    }

    /// Pauses the deadline; returns when the pause must end.
    pub(super) fn pause(&mut self) -> Instant {
        if self.pauses == 0 {
            self.paused_at = Instant::now();
        }
        self.pauses += 1;
        self.paused_at + self.pause_left
    }

    pub(super) fn resume(&mut self) {
        self.pauses = self.pauses.saturating_sub(1);
        if self.pauses == 0 {
            let paused_for = self.paused_at.elapsed();
            self.deadline += paused_for;
            self.pause_left = self.pause_left.saturating_sub(paused_for);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{GRACE, PausableDeadline};
    use std::time::Duration;
    use tokio::time::{Instant, advance};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn concurrent_pauses_move_the_deadline_once() {
        let deadline = Instant::now() + 30 * SECOND;
        let mut pausable = PausableDeadline::new(deadline, 600 * SECOND);
        pausable.pause();
        advance(10 * SECOND).await;
        pausable.pause();
        advance(10 * SECOND).await;
        pausable.resume();
        advance(10 * SECOND).await;
        pausable.resume();
        assert_eq!(pausable.fires_at(), deadline + 30 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_are_bounded_in_total() {
        let began = Instant::now();
        let mut pausable = PausableDeadline::new(began + 30 * SECOND, 600 * SECOND);
        assert_eq!(pausable.pause(), began + 600 * SECOND);
        advance(500 * SECOND).await;
        pausable.resume();
        assert_eq!(pausable.pause(), began + 600 * SECOND);
        assert_eq!(pausable.fires_at(), began + 630 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_deadline_a_worker_has_a_grace_period() {
        let deadline = Instant::now() + SECOND;
        let mut pausable = PausableDeadline::new(deadline, 600 * SECOND);
        assert_eq!(pausable.fires_at(), deadline);
        pausable.has_passed = true;
        assert_eq!(pausable.fires_at(), deadline + GRACE);
    }
}
