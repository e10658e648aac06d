//! Rate limits, written as `10/m`.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A number of calls in a period, with a burst of the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateLimit {
    calls: NonZeroU32,
    period: Duration,
}

/// A text that is not a rate limit.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a rate limit; write calls per second, minute, hour or day, like `10/m`")]
pub struct InvalidRate(String);

impl FromStr for RateLimit {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        let invalid = || InvalidRate(text.to_owned());
        let (calls, unit) = text.split_once('/').ok_or_else(invalid)?;
        let seconds = match unit.trim() {
            "s" | "sec" | "second" => 1,
            "m" | "min" | "minute" => 60,
            "h" | "hour" => 3_600,
            "d" | "day" => 86_400,
            _ => return Err(invalid()),
        };
        let calls = calls.trim().parse().map_err(|_| invalid())?;
        Ok(Self { calls, period: Duration::from_secs(seconds) })
    }
}

/// Enforces a [`RateLimit`] with the generic cell rate algorithm (GCRA): a token bucket whose only state is one time.
#[derive(Debug)]
pub struct RateLimiter {
    interval: Duration,
    /// How far the theoretical arrival time may be ahead of now: the burst.
    tolerance: Duration,
    /// The theoretical arrival time: when the bucket is full again.
    full_at: Mutex<Instant>,
}

impl RateLimiter {
    /// Starts with a whole burst available.
    pub fn new(limit: RateLimit) -> Self {
        let interval = limit.period / limit.calls.get();
        Self {
            interval,
            tolerance: limit.period.saturating_sub(interval),
            full_at: Mutex::new(Instant::now()),
        }
    }

    /// Counts one call, or returns the time to wait for it.
    pub fn try_acquire(&self) -> Result<(), Duration> {
        self.take_at(Instant::now())
    }

    fn take_at(&self, now: Instant) -> Result<(), Duration> {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = full_at.saturating_duration_since(now);
        if ahead > self.tolerance {
            return Err(ahead - self.tolerance);
        }
        *full_at = now + ahead + self.interval;
        Ok(())
    }
}

/// The meters of all tools that have a rate limit, by full name. A catalog shares them with its replacement, so that
/// the limit holds whichever catalog a call uses.
#[derive(Debug, Default)]
pub(crate) struct Meters(Mutex<HashMap<(String, RateLimit), Arc<RateLimiter>>>);

impl Meters {
    /// The meter of a tool, created on first use.
    pub(crate) fn of(&self, name: &str, limit: RateLimit) -> Arc<RateLimiter> {
        let mut meters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        meters.entry((name.to_owned(), limit)).or_insert_with(|| Arc::new(RateLimiter::new(limit))).clone()
    }

    /// Drops the meters of tools that are in no catalog any more.
    pub(crate) fn prune(&self) {
        let mut meters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        meters.retain(|_, meter| Arc::strong_count(meter) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_written() {
        let rate = |text: &str| text.parse::<RateLimit>();
        assert_eq!(rate("10/m").unwrap(), rate(" 10 / minute ").unwrap());
        for wrong in ["", "10", "0/m", "-1/s", "10/fortnight", "/m", "4294967296/s"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_burst_is_allowed_and_the_next_call_must_wait() {
        let meter = RateLimiter::new("3/h".parse().unwrap());
        for _ in 0..3 {
            assert!(meter.try_acquire().is_ok());
        }
        let wait = meter.try_acquire().unwrap_err();
        assert!(wait > Duration::from_secs(1_100) && wait <= Duration::from_secs(1_200), "{wait:?}");
    }

    #[test]
    fn calls_come_back_one_interval_after_another_up_to_the_burst() {
        let meter = RateLimiter::new("3/m".parse().unwrap());
        let start = Instant::now();
        let at = |seconds| meter.take_at(start + Duration::from_secs(seconds)).is_ok();
        assert_eq!([at(0), at(0), at(0), at(0)], [true, true, true, false]);
        assert_eq!([at(19), at(21), at(22), at(39), at(41)], [false, true, false, false, true]);
        // However long nobody calls, no more than the burst is available.
        assert_eq!([at(9_000), at(9_000), at(9_000), at(9_000)], [true, true, true, false]);
    }

    #[test]
    fn the_time_to_wait_is_enough() {
        let meter = RateLimiter::new("7/s".parse().unwrap());
        let mut now = Instant::now() + Duration::from_secs(1);
        for _ in 0..100 {
            if let Err(wait) = meter.take_at(now) {
                assert!(meter.take_at(now + wait - Duration::from_nanos(1)).is_err());
                now += wait;
                assert!(meter.take_at(now).is_ok());
            }
        }
    }
}
