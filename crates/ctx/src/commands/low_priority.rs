//! The scheduling priority of threads for background work.

/// The nice value of a thread; 19 is the lowest priority.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Lowers the scheduling priority of this thread. A failure is harmless.
pub(super) fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!(%error, "cannot lower the priority of a thread");
    }
}
