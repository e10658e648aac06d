//! Rate limits, written as `10/m`.

use governor::{DefaultDirectRateLimiter, Quota, clock::Clock};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

/// Enforces a [`RateLimit`] by counting calls.
#[derive(Debug)]
pub struct Meter {
    limiter: DefaultDirectRateLimiter,
}

impl Meter {
    /// Starts with a whole burst available.
    pub fn new(limit: RateLimit) -> Self {
        let interval = limit.period / limit.calls.get();
        // An interval of zero needs more than a billion calls a second; one nanosecond is as good.
        let quota = Quota::with_period(interval.max(Duration::from_nanos(1)))
            .map_or_else(|| Quota::per_second(limit.calls), |quota| quota.allow_burst(limit.calls));
        Self { limiter: DefaultDirectRateLimiter::direct(quota) }
    }

    /// Counts one call, or returns the time to wait for it.
    pub fn take(&self) -> Result<(), Duration> {
        let clock = governor::clock::DefaultClock::default();
        self.limiter.check().map_err(|refusal| refusal.wait_time_from(clock.now()))
    }
}

/// The meters of all tools that have a rate limit, by full name. A catalog shares them with its replacement, so that
/// the limit holds whichever catalog a call uses.
#[derive(Debug, Default)]
pub(crate) struct Meters(Mutex<HashMap<(String, RateLimit), Arc<Meter>>>);

impl Meters {
    /// The meter of a tool, created on first use.
    pub(crate) fn of(&self, name: &str, limit: RateLimit) -> Arc<Meter> {
        let mut meters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        meters.entry((name.to_owned(), limit)).or_insert_with(|| Arc::new(Meter::new(limit))).clone()
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
        let meter = Meter::new("3/h".parse().unwrap());
        for _ in 0..3 {
            assert!(meter.take().is_ok());
        }
        let wait = meter.take().unwrap_err();
        assert!(wait > Duration::from_secs(1_100) && wait <= Duration::from_secs(1_200), "{wait:?}");
    }
}
