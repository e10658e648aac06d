//! The sync interval of a source: `every = "15m"`.

use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// Bounds of the interval. To react faster, a source is watched.
const INTERVAL_MIN: Duration = Duration::from_secs(10);
const INTERVAL_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// Units with their length in seconds, largest first.
const UNITS: [(&str, u64); 4] = [("d", 24 * 60 * 60), ("h", 60 * 60), ("m", 60), ("s", 1)];

/// An interval in whole seconds, minutes, hours or days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub(crate) struct SyncInterval(Duration);

impl SyncInterval {
    pub(crate) fn duration(self) -> Duration {
        self.0
    }
}

impl TryFrom<String> for SyncInterval {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parsed = UNITS.iter().find_map(|(letter, seconds)| {
            let number: u64 = text.strip_suffix(letter)?.trim_end().parse().ok()?;
            number.checked_mul(*seconds).map(Duration::from_secs)
        });
        match parsed {
            Some(duration) => Self::try_from(duration).map_err(|problem| format!("\"{text}\" {problem}")),
            None => Err(format!(
                "\"{text}\" is not a duration; write one like \"30s\", \"15m\", \"2h\" or \"1d\""
            )),
        }
    }
}

impl TryFrom<Duration> for SyncInterval {
    type Error = String;

    fn try_from(duration: Duration) -> Result<Self, String> {
        match (INTERVAL_MIN..=INTERVAL_MAX).contains(&duration) {
            true => Ok(Self(duration)),
            false => Err(format!("must be between {} and {}", Self(INTERVAL_MIN), Self(INTERVAL_MAX))),
        }
    }
}

impl fmt::Display for SyncInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (letter, size) =
            UNITS.into_iter().find(|(_, size)| seconds.is_multiple_of(*size)).unwrap_or(("s", 1));
        write!(f, "{}{letter}", seconds / size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SyncInterval, String> {
        SyncInterval::try_from(text.to_owned())
    }

    #[test]
    fn every_unit_is_parsed_and_shown_in_the_largest_that_fits() {
        for (text, seconds, shown) in [
            ("30s", 30, "30s"),
            ("15m", 900, "15m"),
            ("120 m", 7_200, "2h"),
            ("24h", 86_400, "1d"),
            ("90s", 90, "90s"),
            ("366d", 31_622_400, "366d"),
        ] {
            let interval = parse(text).unwrap();
            assert_eq!(
                (interval.duration().as_secs(), interval.to_string().as_str()),
                (seconds, shown),
                "{text}"
            );
            assert_eq!(parse(shown), Ok(interval));
        }
    }

    #[test]
    fn invalid_or_out_of_range_intervals_are_refused() {
        for text in ["", "m", "15", "15 minutes", "-5m", "1.5h", "1h30m", "99999999999999999999d", "5w"] {
            assert!(parse(text).unwrap_err().contains("is not a duration"), "{text}");
        }
        for text in ["9s", "0m", "367d", "200000000000000d"] {
            assert_eq!(parse(text).unwrap_err(), format!("\"{text}\" must be between 10s and 366d"));
        }
    }
}
