//! Memory allocator settings.
//!
//! By default glibc creates up to eight malloc arenas per core and rarely returns their memory to the system. The memory
//! of a burst of large requests then stays resident, once per arena. So the number of arenas is bounded.

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
        tracing::debug!("the allocator keeps as many heaps as it likes");
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn bound_arenas() {}
