//! The start of stdio servers: a few at a time, each within its limit on a clock that runs slower while the machine is
//! short of CPU time.
//!
//! Servers that start together compete for the CPU, and all of them may miss a limit that each alone would meet. The
//! clock of a server begins when its process runs, not while it waits for its slot.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Servers that start at once, at least.
const SLOTS_MIN: usize = 4;
/// How long a server keeps its slot: one that has not answered by then more likely waits than computes, and others need
/// not wait for it.
const SLOT_MAX: Duration = Duration::from_secs(5);
/// How often the clock is read. A reading that comes late, because this process got no CPU time or the machine was
/// suspended, counts no longer than this.
const TICK: Duration = Duration::from_millis(100);
/// The part of a tick that does not count if processes waited for a CPU during all of it. So a limit is at most doubled.
const STARVED_PART: f64 = 0.5;
/// The file in which Linux reports how long processes have waited for a CPU (pressure stall information).
const CPU_PRESSURE: &str = "/proc/pressure/cpu";

/// How many stdio servers start at once by default: one for each CPU.
pub fn default_starts_at_once() -> usize {
    std::thread::available_parallelism().map_or(SLOTS_MIN, NonZero::get).max(SLOTS_MIN)
}

/// The slots of stdio servers that are starting.
pub(super) struct StartSlots(Arc<Semaphore>);

/// The slot of one server, given back when it is dropped.
pub(super) struct StartSlot {
    _permit: Option<OwnedSemaphorePermit>,
}

impl StartSlots {
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count.max(1))))
    }

    /// Waits for a slot.
    pub(super) async fn acquire(&self) -> StartSlot {
        // The semaphore is never closed.
        StartSlot { _permit: self.0.clone().acquire_owned().await.ok() }
    }
}

impl StartSlot {
    /// Keeps the slot until the server has answered, but for no longer than `SLOT_MAX`.
    pub(super) async fn hold_during<T>(self, answering: impl Future<Output = T>) -> T {
        let mut answering = std::pin::pin!(answering);
        let answer = cpu_adjusted_timeout(SLOT_MAX, &mut answering).await;
        drop(self);
        match answer {
            Some(answer) => answer,
            None => answering.await,
        }
    }
}

/// The answer, if it comes before `limit` has passed on a clock that runs slower while CPU time is short.
pub(super) async fn cpu_adjusted_timeout<T>(
    limit: Duration,
    answering: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        answer = answering => Some(answer),
        () = cpu_adjusted_sleep(limit, cpu_wait) => None,
    }
}

/// Waits until `limit` has passed on that clock. `cpu_wait` is the total time that processes have waited for
/// a CPU, where it is known.
async fn cpu_adjusted_sleep(limit: Duration, cpu_wait: impl Fn() -> Option<Duration>) {
    let mut passed = Duration::ZERO;
    let mut total_wait = cpu_wait();
    while passed < limit {
        let tick = TICK.min(limit - passed);
        let begun = Instant::now();
        tokio::time::sleep(tick).await;
        let now = cpu_wait();
        let wait = now.zip(total_wait).map_or(Duration::ZERO, |(now, before)| now.saturating_sub(before));
        total_wait = now;
        let starved = (wait.as_secs_f64() / begun.elapsed().as_secs_f64()).clamp(0.0, 1.0);
        passed += tick.mul_f64(1.0 - STARVED_PART * starved);
    }
}

/// The total time in which at least one process waited for a CPU.
fn cpu_wait() -> Option<Duration> {
    let pressure = std::fs::read_to_string(CPU_PRESSURE).ok()?;
    parse_cpu_wait(&pressure)
}

/// Reads `some avg10=0.00 avg60=0.00 avg300=0.00 total=<microseconds>`.
fn parse_cpu_wait(pressure: &str) -> Option<Duration> {
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some.split_whitespace().find_map(|field| field.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The time that a limit takes, in which processes wait for a CPU for this part.
    async fn measure(limit: Duration, starved: Option<f64>) -> Duration {
        let begun = Instant::now();
        cpu_adjusted_sleep(limit, || starved.map(|starved| begun.elapsed().mul_f64(starved))).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_processes_wait_for_a_cpu_counts_half() {
        let limit = Duration::from_secs(20);
        let rounded = async |starved| measure(limit, starved).await.as_secs_f64().round();
        assert_eq!(rounded(None).await, 20.0);
        assert_eq!(rounded(Some(0.0)).await, 20.0);
        assert_eq!(rounded(Some(0.5)).await, 27.0);
        assert_eq!(rounded(Some(1.0)).await, 40.0);
        // More than all of it cannot be: the counter was reset, or counts something else.
        assert_eq!(rounded(Some(7.0)).await, 40.0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tick_that_comes_late_counts_as_one() {
        let is_over = Cell::new(false);
        let passing = async {
            cpu_adjusted_sleep(Duration::from_secs(1), || None).await;
            is_over.set(true);
        };
        let jumping = async {
            for _ in 0..5 {
                tokio::time::advance(Duration::from_secs(60)).await;
                tokio::task::yield_now().await;
            }
            assert!(!is_over.get(), "five ticks were counted as more than a second");
        };
        tokio::join!(passing, jumping);
        assert!(is_over.get());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_servers_start_at_once_than_there_are_slots() {
        let slots = StartSlots::new(3);
        let (starting, most) = (Cell::new(0), Cell::new(0));
        let start = |seconds: u64| {
            let (slots, starting, most) = (&slots, &starting, &most);
            async move {
                let slot = slots.acquire().await;
                starting.set(starting.get() + 1);
                most.set(most.get().max(starting.get()));
                let answering = tokio::time::sleep(Duration::from_secs(seconds));
                slot.hold_during(async {
                    answering.await;
                    starting.set(starting.get() - 1);
                })
                .await;
            }
        };
        futures::future::join_all((0..17).map(|number| start(number % 4))).await;
        assert_eq!(most.get(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn servers_that_never_answer_do_not_keep_others_from_starting() {
        let slots = StartSlots::new(2);
        let mute = async { slots.acquire().await.hold_during(std::future::pending::<()>()).await };
        let begun = Instant::now();
        let good = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            slots.acquire().await.hold_during(async {}).await;
        };
        let mute_too = async { slots.acquire().await.hold_during(std::future::pending::<()>()).await };
        tokio::select! {
            biased;
            () = mute => {}
            () = mute_too => {}
            () = good => {}
        }
        assert!(begun.elapsed() < 2 * SLOT_MAX + TICK, "{:?}", begun.elapsed());
    }

    #[test]
    fn the_pressure_of_linux_is_read() {
        let text = "some avg10=91.39 avg60=88.38 avg300=39.79 total=4004837\nfull avg10=0.00 total=7\n";
        assert_eq!(parse_cpu_wait(text), Some(Duration::from_micros(4_004_837)));
        assert_eq!(parse_cpu_wait("full total=7"), None);
        assert_eq!(parse_cpu_wait(""), None);
    }
}
