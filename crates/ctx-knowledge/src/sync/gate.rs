//! Shared or exclusive access to document extraction: a document that may crash the process is read while no
//! other is, so that a crash is attributed to it. A read-write lock whose wait can be cancelled.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval at which a waiting thread polls for cancellation.
const CANCELLATION_POLL: Duration = Duration::from_millis(20);

/// The gate of this process, for all sources.
pub(super) static EXTRACTION_GATE: ExtractionGate = ExtractionGate::new();

/// Admits documents of several sources at once, or one exclusively.
pub(super) struct ExtractionGate {
    state: Mutex<GateState>,
    changed: Condvar,
}

struct GateState {
    /// Permits that are held.
    permits: usize,
    /// Whether an exclusive permit is held or waited for.
    is_closed: bool,
}

/// Permission to read a document, released on drop.
pub(super) struct GatePermit<'a> {
    gate: &'a ExtractionGate,
    exclusive: bool,
}

impl ExtractionGate {
    const fn new() -> Self {
        Self { state: Mutex::new(GateState { permits: 0, is_closed: false }), changed: Condvar::new() }
    }

    /// Waits for a permit, shared or exclusive; `None` once cancelled.
    pub(super) fn acquire(
        &self,
        exclusive: bool,
        cancellation: &CancellationToken,
    ) -> Option<GatePermit<'_>> {
        let mut state = self.wait(|state| state.is_closed, cancellation)?;
        state.is_closed = exclusive;
        if exclusive {
            drop(state);
            let Some(guard) = self.wait(|state| state.permits > 0, cancellation) else {
                self.lock().is_closed = false;
                self.changed.notify_all();
                return None;
            };
            state = guard;
        }
        state.permits += 1;
        Some(GatePermit { gate: self, exclusive })
    }

    fn wait(
        &self,
        is_blocked: impl Fn(&GateState) -> bool,
        cancellation: &CancellationToken,
    ) -> Option<MutexGuard<'_, GateState>> {
        let mut state = self.lock();
        while is_blocked(&state) {
            if cancellation.is_cancelled() {
                return None;
            }
            let result = self.changed.wait_timeout(state, CANCELLATION_POLL);
            state = result.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state)
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GatePermit<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.permits -= 1;
        state.is_closed &= !self.exclusive;
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn an_exclusive_permit_excludes_all_others() {
        static EXTRACTION_GATE: ExtractionGate = ExtractionGate::new();
        let never = CancellationToken::new();
        let (first, second) = (
            EXTRACTION_GATE.acquire(false, &never).unwrap(),
            EXTRACTION_GATE.acquire(false, &never).unwrap(),
        );
        let (sender, permits) = channel();
        let waiting = thread::spawn(move || {
            let exclusive = EXTRACTION_GATE.acquire(true, &CancellationToken::new());
            sender.send(EXTRACTION_GATE.lock().permits).unwrap();
            drop(exclusive);
        });
        while !EXTRACTION_GATE.lock().is_closed {
            thread::yield_now();
        }
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        assert!(
            EXTRACTION_GATE.acquire(false, &cancelled).is_none()
                && EXTRACTION_GATE.acquire(true, &cancelled).is_none()
        );
        assert!(permits.try_recv().is_err());
        drop((first, second));
        assert_eq!(permits.recv().unwrap(), 1);
        waiting.join().unwrap();
        assert!(EXTRACTION_GATE.acquire(true, &cancelled).is_some(), "nobody is in the way");
    }
}
