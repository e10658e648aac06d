//! The clock of one run.

use std::time::Duration;
use tokio::time::Instant;

/// From the deadline until a worker that does not end its run is ended.
const GRACE: Duration = Duration::from_millis(100);

/// The run's deadline, which stands still while a person is asked.
pub(super) struct Clock {
    deadline: Instant,
    /// Open questions to people, and since when there is one.
    pauses: u32,
    paused_at: Instant,
    pause_left: Duration,
    /// The deadline has passed; what is left is the worker's grace.
    pub(super) is_over: bool,
}

impl Clock {
    pub(super) fn new(deadline: Instant, pause_max: Duration) -> Self {
        Self { deadline, pauses: 0, paused_at: deadline, pause_left: pause_max, is_over: false }
    }

    /// When something is to happen: a question to a person ends by itself, so that only a worker's
    /// time rings.
    pub(super) fn rings_at(&self) -> Instant {
        if self.is_over {
            self.deadline + GRACE
        } else if self.pauses > 0 {
            self.deadline + self.pause_left
        } else {
            self.deadline
        }
    }

    /// Stands still; says until when at most.
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
