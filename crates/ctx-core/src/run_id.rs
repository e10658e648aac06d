//! Ids of runs: UUIDs (version 7) that sort by time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::{Builder, Uuid};

/// The bits of an id after its time that count up.
const SEQUENCE_BITS: u32 = 74;

/// Identifies a run; sorts by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct RunId(#[schemars(with = "String")] Uuid);

/// The last id of this process.
struct LastId {
    millis: u64,
    sequence: u128,
}

static LAST: Mutex<Option<LastId>> = Mutex::new(None);

impl RunId {
    /// A new id, greater than all others of this process. Only the first takes random bits from the system, which tell
    /// processes apart; every call has an id, and asking the system takes longer than the rest of it.
    pub(crate) fn generate() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.get_or_insert_with(|| {
            // Without the highest bit, so that the sequence never ends.
            let sequence = Uuid::new_v4().as_u128() >> (u128::BITS - SEQUENCE_BITS + 1);
            LastId { millis: now, sequence }
        });
        // The clock may be set back.
        last.millis = last.millis.max(now);
        last.sequence += 1;
        // The fields of the version and the variant lie within the sequence; `Builder` sets them.
        let high = (last.sequence >> 62) as u16;
        let low = last.sequence & ((1 << 62) - 1);
        let id = u128::from(last.millis) << 80 | u128::from(high) << 64 | low;
        Self(
            Builder::from_u128(id)
                .with_version(uuid::Version::SortRand)
                .with_variant(uuid::Variant::RFC4122)
                .into_uuid(),
        )
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for RunId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_version_7_of_now_and_each_is_greater_than_the_last() {
        let ids: Vec<RunId> = (0..10_000).map(|_| RunId::generate()).collect();
        assert!(ids.is_sorted_by(|one, next| one < next));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        for RunId(id) in ids {
            assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
            let (seconds, _) = id.get_timestamp().unwrap().to_unix();
            assert!(seconds.abs_diff(now) < 60);
        }
    }
}
