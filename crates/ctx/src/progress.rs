//! Progress on stderr, with the estimated remaining time: a bar in a terminal; elsewhere, a line at most
//! every 10 seconds.

use crate::output::CommandOutput;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval between progress lines when stderr is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Time constant of the exponential moving average of the speed. Recent work has the most weight, but one
/// slow batch does not make the estimate jump.
const SPEED_TIME_CONSTANT: Duration = Duration::from_secs(20);
/// Minimum time between two samples.
const SAMPLE_INTERVAL_MIN: Duration = Duration::from_millis(500);
/// Minimum time between the first sample and the first estimate.
const WARM_UP_TIME: Duration = Duration::from_secs(2);

/// The bar of the current `ProgressMeter`; `suspend_bar` hides it while other output is written.
static CURRENT_BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Hides the bar while `write` writes to stderr.
pub(crate) fn suspend_bar<T>(write: impl FnOnce() -> T) -> T {
    let bar = lock(&CURRENT_BAR).clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Displays the progress of one operation; removes the bar when dropped.
pub(crate) struct ProgressMeter {
    output: CommandOutput,
    /// `None` if `output` is quiet.
    state: Option<Mutex<MeterState>>,
}

struct MeterState {
    bar: ProgressBar,
    estimate: TimeEstimate,
    next_line_at: Instant,
}

impl ProgressMeter {
    /// Creates a meter, which displays nothing if `output` is quiet.
    pub(crate) fn start(output: CommandOutput) -> Self {
        let state = (!output.quiet).then(|| {
            let bar = ProgressBar::new(0);
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {msg}") {
                bar.set_style(style);
            }
            *lock(&CURRENT_BAR) = Some(bar.clone());
            Mutex::new(MeterState {
                bar,
                estimate: TimeEstimate::default(),
                next_line_at: Instant::now() + LINE_INTERVAL,
            })
        });
        Self { output, state }
    }

    /// Displays how many items are done, and the total if it is known; `label` names the items.
    pub(crate) fn show(&self, done: u64, total: Option<u64>, label: &str) {
        let Some(state) = &self.state else { return };
        let mut state = lock(state);
        let now = Instant::now();
        let remaining = state.estimate.update(now, done, total);
        let text = describe(done, total, label, remaining);
        // indicatif hides the bar when stderr is not a terminal.
        if !state.bar.is_hidden() {
            state.bar.set_length(total.unwrap_or(done).max(done));
            state.bar.set_position(done);
            state.bar.set_message(text);
        } else if state.take_due_line(now) {
            self.output.say(&text);
        }
    }
}

impl MeterState {
    /// Returns whether a progress line is due; if so, schedules the next one.
    fn take_due_line(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next_line_at;
        if is_due {
            self.next_line_at = now + LINE_INTERVAL;
        }
        is_due
    }
}

impl Drop for ProgressMeter {
    fn drop(&mut self) {
        if let Some(state) = &self.state {
            *lock(&CURRENT_BAR) = None;
            lock(state).bar.finish_and_clear();
        }
    }
}

fn describe(done: u64, total: Option<u64>, label: &str, remaining: Option<Duration>) -> String {
    let remaining_text =
        remaining.map(|remaining| format!(", {} left", coarse_duration(remaining))).unwrap_or_default();
    match total {
        Some(total) => format!("{done} of {total} {label}{remaining_text}"),
        None => format!("{done} {label}"),
    }
}

/// Formats a duration, rounded: the longer it is, the coarser.
fn coarse_duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..10.0 => "a few seconds".to_owned(),
        ..55.0 => format!("about {:.0} s", (seconds / 10.0).ceil() * 10.0),
        ..3300.0 => format!("about {:.0} min", (seconds / 60.0).ceil()),
        _ => format!("about {:.1} h", seconds / 3600.0),
    }
}

/// Estimates the remaining time from an exponential moving average of the speed.
#[derive(Debug, Default)]
struct TimeEstimate {
    first: Option<ProgressSample>,
    last: Option<ProgressSample>,
    /// The weighted sum of the measured speeds, in items per second.
    weighted_speed: f64,
    /// The sum of the weights, which approaches one. Dividing `weighted_speed` by it corrects the bias of the
    /// first samples towards zero.
    weight: f64,
}

#[derive(Clone, Copy, Debug)]
struct ProgressSample {
    at: Instant,
    done: u64,
}

impl TimeEstimate {
    /// Adds a sample, unless the last one is too recent, and returns the estimated remaining time. Work done
    /// before the first call does not count towards the speed.
    fn update(&mut self, now: Instant, done: u64, total: Option<u64>) -> Option<Duration> {
        let first = *self.first.get_or_insert(ProgressSample { at: now, done });
        let last = *self.last.get_or_insert(first);
        let elapsed = now.saturating_duration_since(last.at);
        if elapsed >= SAMPLE_INTERVAL_MIN {
            let decay = (-elapsed.as_secs_f64() / SPEED_TIME_CONSTANT.as_secs_f64()).exp();
            let speed = done.saturating_sub(last.done) as f64 / elapsed.as_secs_f64();
            self.weighted_speed = self.weighted_speed * decay + speed * (1.0 - decay);
            self.weight = self.weight * decay + (1.0 - decay);
            self.last = Some(ProgressSample { at: now, done });
        }
        let observed = now.saturating_duration_since(first.at);
        // NaN (0 / 0) before the second sample.
        let average_speed = self.weighted_speed / self.weight;
        if observed < WARM_UP_TIME || !average_speed.is_normal() || average_speed <= 0.0 {
            return None;
        }
        let remaining_items = total?.checked_sub(done).filter(|remaining_items| *remaining_items > 0)?;
        Duration::try_from_secs_f64(remaining_items as f64 / average_speed).ok()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The estimates, in seconds, after each batch of work; batches without an estimate are left out. A batch
    /// is its duration in seconds and its number of items.
    fn estimates(done_before: u64, total: u64, batches: &[(f64, u64)]) -> Vec<f64> {
        let mut estimate = TimeEstimate::default();
        let mut now = Instant::now();
        let mut done = done_before;
        estimate.update(now, done, Some(total));
        let estimated = batches.iter().filter_map(|(seconds, count)| {
            now += Duration::from_secs_f64(*seconds);
            done += count;
            estimate.update(now, done, Some(total))
        });
        estimated.map(|time| time.as_secs_f64()).collect()
    }

    #[test]
    fn steady_work_is_estimated_exactly_regardless_of_earlier_work() {
        let estimated = estimates(50_000, 51_000, &[(1.0, 10); 50]);
        let expected: Vec<f64> = (2..=50).map(|second| f64::from(100 - second)).collect();
        let errors =
            estimated.iter().zip(&expected).map(|(estimated, expected)| (estimated - expected).abs());
        assert_eq!(estimated.len(), expected.len());
        assert!(errors.fold(0.0, f64::max) < 0.01, "{estimated:?}");
    }

    #[test]
    fn batches_of_uneven_speed_do_not_make_the_estimate_jump() {
        // Every third batch takes ten times as long.
        let batches: Vec<(f64, u64)> =
            (0..120).map(|number| if number % 3 == 0 { (3.0, 32) } else { (0.3, 32) }).collect();
        let estimated = estimates(0, 120 * 32 * 10, &batches);
        let settled = &estimated[15..];
        let jump = settled.windows(2).map(|pair| (pair[1] / pair[0] - 1.0).abs()).fold(0.0, f64::max);
        assert!(jump < 0.15, "it jumps by {jump:.2}: {settled:?}");
    }

    #[test]
    fn without_a_terminal_a_line_is_due_every_ten_seconds() {
        let start = Instant::now();
        let bar = ProgressBar::hidden();
        let mut state =
            MeterState { bar, estimate: TimeEstimate::default(), next_line_at: start + LINE_INTERVAL };
        let is_due = |second: &u64| state.take_due_line(start + Duration::from_secs(*second));
        assert_eq!((0..45).filter(is_due).collect::<Vec<u64>>(), [10, 20, 30, 40]);
    }

    #[test]
    fn estimates_need_a_known_speed_and_are_described_coarsely() {
        assert_eq!(estimates(0, 100, &[(1.0, 0), (1.0, 0), (1.0, 0)]), [0.0; 0], "nothing was done");
        assert_eq!(estimates(0, 100, &[(0.1, 5), (0.1, 5)]), [0.0; 0], "it has only begun");
        assert_eq!(describe(7, None, "files", None), "7 files");
        let remaining = Some(Duration::from_secs(95));
        assert_eq!(describe(7, Some(100), "files", remaining), "7 of 100 files, about 2 min left");
        let texts =
            [4.0, 31.0, 3000.0, 7200.0].map(|seconds| coarse_duration(Duration::from_secs_f64(seconds)));
        assert_eq!(texts, ["a few seconds", "about 40 s", "about 50 min", "about 2.0 h"]);
    }
}
