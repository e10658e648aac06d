//! Work that cannot be interrupted, on a thread that can be left behind.

use super::{Extracted, NoText};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Threads left behind that are still at work; at this many no further one is begun.
const ABANDONED_MAX: usize = 4;
/// Parsers of nested things call themselves.
const STACK_BYTES: usize = 16 << 20;
/// Interval at which a waiting thread polls for cancellation.
const CANCELLATION_POLL: Duration = Duration::from_millis(20);

/// Runs `work` on this thread; a panic is a failure like any other.
pub(super) fn contained(work: impl FnOnce() -> Result<Extracted, NoText>) -> Result<Extracted, NoText> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(NoText::Failed("the extractor panicked".to_owned())))
}

/// Result of a cancelled extraction; the document is read again by the next sync.
pub(super) fn interruption() -> NoText {
    NoText::NotNow("reading it was interrupted".to_owned())
}

/// Runs `work` on a thread of its own and waits until it ends, until `time` is over (the result is `late`), or
/// until cancellation. A thread left behind is counted in `abandoned` until it ends.
pub(super) fn isolated(
    abandoned: &'static AtomicUsize,
    time: Duration,
    cancellation: &CancellationToken,
    late: NoText,
    work: impl FnOnce() -> Result<Extracted, NoText> + Send + 'static,
) -> Result<Extracted, NoText> {
    if abandoned.load(Ordering::Acquire) >= ABANDONED_MAX {
        return Err(NoText::NotNow(format!("{ABANDONED_MAX} other documents are taking too long to read")));
    }
    // Without room in between: either the result is taken or the thread learns that nobody waits.
    let (sender, receiver) = sync_channel(0);
    let spawned =
        thread::Builder::new().name("extract".to_owned()).stack_size(STACK_BYTES).spawn(move || {
            if sender.send(contained(work)).is_err() {
                abandoned.fetch_sub(1, Ordering::AcqRel);
            }
        });
    if let Err(error) = spawned {
        return Err(NoText::NotNow(format!("no thread to read it on: {error}")));
    }
    let deadline = Instant::now() + time;
    let reason = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left.min(CANCELLATION_POLL)) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(NoText::Failed("the extractor panicked".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) if cancellation.is_cancelled() => break interruption(),
            Err(RecvTimeoutError::Timeout) if left.is_zero() => break late,
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    abandoned.fetch_add(1, Ordering::AcqRel);
    drop(receiver);
    Err(reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn work_that_hangs_is_left_behind_and_not_too_often() {
        static ABANDONED: AtomicUsize = AtomicUsize::new(0);
        let late = NoText::Failed("late".to_owned());
        let run = |work: Box<dyn FnOnce() -> Result<Extracted, NoText> + Send>, time| {
            isolated(&ABANDONED, time, &CancellationToken::new(), NoText::Failed("late".to_owned()), work)
        };
        let ends: Vec<_> = (0..ABANDONED_MAX)
            .map(|_| {
                let (end, ended) = channel::<()>();
                let hang = move || {
                    let _ = ended.recv();
                    Err(NoText::NotText)
                };
                assert_eq!(run(Box::new(hang), Duration::ZERO), Err(late.clone()));
                end
            })
            .collect();
        let refused = run(Box::new(|| Ok(Extracted::default())), Duration::from_secs(60));
        assert!(matches!(refused, Err(NoText::NotNow(_))), "{refused:?}");
        drop(ends);
        while ABANDONED.load(Ordering::Acquire) > 0 {
            thread::yield_now();
        }
        assert!(run(Box::new(|| Ok(Extracted::default())), Duration::from_secs(60)).is_ok());
    }

    #[test]
    fn work_that_hangs_does_not_hold_up_whoever_cancels_it() {
        static ABANDONED: AtomicUsize = AtomicUsize::new(0);
        let cancellation = CancellationToken::new();
        let (end, ended) = channel::<()>();
        let cancel = cancellation.clone();
        let hang = move || {
            cancel.cancel();
            let _ = ended.recv();
            Err(NoText::NotText)
        };
        let late = NoText::Failed("late".to_owned());
        let left = isolated(&ABANDONED, Duration::from_secs(600), &cancellation, late, hang);
        assert_eq!(left, Err(interruption()));
        drop(end);
    }

    #[test]
    fn a_panic_is_a_failure() {
        let panicked = Err(NoText::Failed("the extractor panicked".to_owned()));
        assert_eq!(contained(|| panic!("on purpose")), panicked);
    }
}
