//! Memory allocator settings.
//!
//! By default glibc creates up to eight malloc arenas per core and rarely returns their memory to the system. The memory
//! of a burst of requests then stays resident, once per arena. So the number of arenas is bounded, and a server returns
//! free memory after a burst (`malloc_trim`).

use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Bounds on the number of malloc arenas.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENAS: std::ops::RangeInclusive<usize> = 2..=8;

/// Limits malloc to about one arena per core. Must be called before any thread starts.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "glibc is configured by `mallopt`")]
pub(crate) fn bound_arenas() {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let count = cores.clamp(*ARENAS.start(), *ARENAS.end());
    let Ok(count) = libc::c_int::try_from(count) else { return };
    // SAFETY: `mallopt` takes two integers and no pointers; no other thread runs yet.
    let is_set = unsafe { libc::mallopt(libc::M_ARENA_MAX, count) } == 1;
    if !is_set {
        tracing::debug!("cannot limit the number of malloc arenas");
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn bound_arenas() {}

/// How often a server compares its resident memory with that after the last trim.
const TRIM_CHECK_EVERY: Duration = Duration::from_secs(10);
/// Growth of resident memory that is worth a trim, which takes some milliseconds.
const TRIM_GROWTH_BYTES: u64 = 16 << 20;

/// Returns free memory to the system whenever the resident memory has grown, until `shutdown`.
pub(crate) async fn trim_after_bursts(shutdown: CancellationToken) {
    let mut trimmed_bytes = 0;
    while shutdown.run_until_cancelled(tokio::time::sleep(TRIM_CHECK_EVERY)).await.is_some() {
        let Some(resident) = resident_bytes() else { return };
        if resident < trimmed_bytes + TRIM_GROWTH_BYTES {
            continue;
        }
        // It waits for the locks of the arenas, and it touches every free page.
        if tokio::task::spawn_blocking(trim).await.is_err() {
            return;
        }
        trimmed_bytes = resident_bytes().unwrap_or_default();
        tracing::debug!("resident memory trimmed from {} to {} MiB", resident >> 20, trimmed_bytes >> 20);
    }
}

/// The resident memory of this process; `None` where there is no `/proc`.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    Some(kibibytes * 1024)
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "glibc is asked by `malloc_trim`")]
fn trim() {
    // SAFETY: `malloc_trim` takes an integer and may be called from any thread at any time.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn a_trim_returns_freed_memory_to_the_system() {
        let blocks: Vec<Vec<u8>> = (0..40_000).map(|_| vec![1; 4_096]).collect();
        // Keeps the end of the heap in use, so that the allocator cannot shrink the heap by itself.
        let last = vec![1_u8; 4_096];
        let full = resident_bytes().unwrap();
        drop(blocks);
        trim();
        let trimmed = resident_bytes().unwrap();
        assert!(trimmed + (64 << 20) < full, "{full} before, {trimmed} after");
        drop(last);
    }
}
