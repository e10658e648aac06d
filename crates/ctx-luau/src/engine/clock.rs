//! The deadline of one run, and its pauses.

use std::time::Duration;
use tokio::time::Instant;

/// Time after the deadline until a worker that has not ended its run is killed.
const GRACE: Duration = Duration::from_millis(100);

/// The deadline of a run, paused while the run waits for a person.
pub(super) struct Clock {
    deadline: Instant,
    /// Number of open requests to people; the first began at `paused_at`.
    pauses: u32,
    paused_at: Instant,
    pause_left: Duration,
    /// Whether the deadline has passed and only the grace period is left.
    pub(super) is_over: bool,
}

impl Clock {
    pub(super) fn new(deadline: Instant, pause_max: Duration) -> Self {
        Self { deadline, pauses: 0, paused_at: deadline, pause_left: pause_max, is_over: false }
    }

    /// When the timer fires next. While the clock is paused that is at the latest possible deadline: requests
    /// to people have a timeout of their own.
    pub(super) fn rings_at(&self) -> Instant {
        if self.is_over {
            self.deadline + GRACE
        } else if self.pauses > 0 {
            self.deadline + self.pause_left
        } else {
            self.deadline
        }
    }

    /// Pauses the clock; returns when the pause must end.
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
            let stood = self.paused_at.elapsed();
            self.deadline += stood;
            self.pause_left = self.pause_left.saturating_sub(stood);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, GRACE};
    use std::time::Duration;
    use tokio::time::{Instant, advance};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn time_spent_on_people_moves_the_deadline_once() {
        let deadline = Instant::now() + 30 * SECOND;
        let mut clock = Clock::new(deadline, 600 * SECOND);
        clock.pause();
        advance(10 * SECOND).await;
        clock.pause();
        advance(10 * SECOND).await;
        clock.resume();
        advance(10 * SECOND).await;
        clock.resume();
        assert_eq!(clock.rings_at(), deadline + 30 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn people_have_a_bound_of_their_own_in_all() {
        let began = Instant::now();
        let mut clock = Clock::new(began + 30 * SECOND, 600 * SECOND);
        assert_eq!(clock.pause(), began + 600 * SECOND);
        advance(500 * SECOND).await;
        clock.resume();
        assert_eq!(clock.pause(), began + 600 * SECOND);
        assert_eq!(clock.rings_at(), began + 630 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_deadline_a_worker_has_a_moment_left() {
        let deadline = Instant::now() + SECOND;
        let mut clock = Clock::new(deadline, 600 * SECOND);
        assert_eq!(clock.rings_at(), deadline);
        clock.is_over = true;
        assert_eq!(clock.rings_at(), deadline + GRACE);
    }
}
