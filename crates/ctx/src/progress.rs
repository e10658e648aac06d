//! Progress on stderr: a bar with an estimate of the remaining time in a terminal, occasional lines
//! elsewhere.

use crate::output::CommandOutput;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval of lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Time constant of the moving average of the speed: recent work counts most, and a slow batch does not make
/// the estimate jump.
const AVERAGED_OVER: Duration = Duration::from_secs(20);
/// Minimum duration of a speed sample.
const SAMPLE_MIN: Duration = Duration::from_millis(500);
/// Minimum observation time before the first estimate.
const WATCHED_MIN: Duration = Duration::from_secs(2);

/// The visible bar, which must be hidden while lines are printed.
static VISIBLE_BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Hides the bar while `write` writes to stderr.
pub(crate) fn suspend_bar<T>(write: impl FnOnce() -> T) -> T {
    let bar = lock(&VISIBLE_BAR).clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Shows the progress of some work.
pub(crate) struct ProgressMeter {
    output: CommandOutput,
    /// `None` if progress is not shown.
    state: Option<Mutex<MeterState>>,
}

struct MeterState {
    bar: ProgressBar,
    estimate: TimeEstimate,
    line_at: Instant,
}

impl ProgressMeter {
    /// Shows progress from now on, unless `--quiet` is set.
    pub(crate) fn start(output: CommandOutput) -> Self {
        let state = (!output.quiet).then(|| {
            let bar = ProgressBar::new(0);
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {msg}") {
                bar.set_style(style);
            }
            *lock(&VISIBLE_BAR) = Some(bar.clone());
            Mutex::new(MeterState {
                bar,
                estimate: TimeEstimate::default(),
                line_at: Instant::now() + LINE_EVERY,
            })
        });
        Self { output, state }
    }

    /// Shows that `done` of `total` items are done, if the total is known; `label` names the items.
    pub(crate) fn show(&self, done: u64, total: Option<u64>, label: &str) {
        let Some(state) = &self.state else { return };
        let mut state = lock(state);
        let now = Instant::now();
        let remaining = state.estimate.remaining(now, done, total);
        let text = describe(done, total, label, remaining);
        if !state.bar.is_hidden() {
            state.bar.set_length(total.unwrap_or(done).max(done));
            state.bar.set_position(done);
            state.bar.set_message(text);
        } else if state.is_line_due(now) {
            self.output.say(&text);
        }
    }
}

impl MeterState {
    /// Whether a line is due; if so, schedules the next one.
    fn is_line_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.line_at;
        if is_due {
            self.line_at = now + LINE_EVERY;
        }
        is_due
    }
}

impl Drop for ProgressMeter {
    fn drop(&mut self) {
        if let Some(state) = &self.state {
            *lock(&VISIBLE_BAR) = None;
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

/// Formats a duration; the longer, the coarser.
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
    first: Option<SpeedSample>,
    last: Option<SpeedSample>,
    /// The weighted sum of speeds, and the sum of their weights, which approaches one over time.
    speed: f64,
    weight: f64,
}

#[derive(Clone, Copy, Debug)]
struct SpeedSample {
    at: Instant,
    done: u64,
}

impl TimeEstimate {
    /// Adds a sample, and estimates the remaining time. Work done before the first call does not count
    /// towards the speed.
    fn remaining(&mut self, now: Instant, done: u64, total: Option<u64>) -> Option<Duration> {
        let first = *self.first.get_or_insert(SpeedSample { at: now, done });
        let last = *self.last.get_or_insert(first);
        let passed = now.saturating_duration_since(last.at);
        if passed >= SAMPLE_MIN {
            let decay = (-passed.as_secs_f64() / AVERAGED_OVER.as_secs_f64()).exp();
            let speed = done.saturating_sub(last.done) as f64 / passed.as_secs_f64();
            self.speed = self.speed * decay + speed * (1.0 - decay);
            self.weight = self.weight * decay + (1.0 - decay);
            self.last = Some(SpeedSample { at: now, done });
        }
        let observed = now.saturating_duration_since(first.at);
        let speed = self.speed / self.weight;
        if observed < WATCHED_MIN || !speed.is_normal() || speed <= 0.0 {
            return None;
        }
        let remaining_items = total?.checked_sub(done).filter(|remaining_items| *remaining_items > 0)?;
        Duration::try_from_secs_f64(remaining_items as f64 / speed).ok()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The estimates, in seconds, after each batch of work; a batch is its duration and its number of items.
    fn estimates(begun_with: u64, total: u64, batches: &[(f64, u64)]) -> Vec<f64> {
        let mut estimate = TimeEstimate::default();
        let mut now = Instant::now();
        let mut done = begun_with;
        estimate.remaining(now, done, Some(total));
        let estimated = batches.iter().filter_map(|(seconds, count)| {
            now += Duration::from_secs_f64(*seconds);
            done += count;
            estimate.remaining(now, done, Some(total))
        });
        estimated.map(|time| time.as_secs_f64()).collect()
    }

    #[test]
    fn steady_work_is_estimated_exactly_whatever_was_done_before() {
        let estimated = estimates(50_000, 51_000, &[(1.0, 10); 50]);
        let expected: Vec<f64> = (2..=50).map(|second| f64::from(100 - second)).collect();
        let wrong = estimated.iter().zip(&expected).map(|(estimated, expected)| (estimated - expected).abs());
        assert_eq!(estimated.len(), expected.len());
        assert!(wrong.fold(0.0, f64::max) < 0.01, "{estimated:?}");
    }

    #[test]
    fn batches_of_uneven_speed_do_not_make_it_jump() {
        // Every third batch takes ten times as long.
        let batches: Vec<(f64, u64)> =
            (0..120).map(|number| if number % 3 == 0 { (3.0, 32) } else { (0.3, 32) }).collect();
        let estimated = estimates(0, 120 * 32 * 10, &batches);
        let settled = &estimated[15..];
        let jump = settled.windows(2).map(|pair| (pair[1] / pair[0] - 1.0).abs()).fold(0.0, f64::max);
        assert!(jump < 0.15, "it jumps by {jump:.2}: {settled:?}");
    }

    #[test]
    fn outside_of_a_terminal_lines_are_few() {
        let begun = Instant::now();
        let bar = ProgressBar::hidden();
        let mut state = MeterState { bar, estimate: TimeEstimate::default(), line_at: begun + LINE_EVERY };
        let is_due = |second: &u64| state.is_line_due(begun + Duration::from_secs(*second));
        assert_eq!((0..45).filter(is_due).collect::<Vec<u64>>(), [10, 20, 30, 40]);
    }

    #[test]
    fn nothing_is_estimated_before_the_speed_is_known() {
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
