//! Resource limits for the extraction of one document, whatever the document claims about itself.

use super::ExtractError;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns whether the caller has cancelled the extraction.
pub type CancelCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// Limits for the extraction of one document. The size of the document itself is limited before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractLimits {
    /// Bytes of text extracted from formats other than text.
    pub text_bytes: usize,
    /// Pages, slides, chapters or sheets.
    pub parts: usize,
    /// Files in an archive.
    pub members: usize,
    /// Bytes unpacked from one document, counted while unpacking.
    pub unpacked_bytes: usize,
    /// Nesting depth of elements.
    pub depth: usize,
    /// Rows of all tables in total.
    pub rows: usize,
    /// Cells per row.
    pub cells: usize,
    /// Entries per lookup table: shared strings, styles, number formats.
    pub entries: usize,
    /// Bytes per output of a notebook cell.
    pub output_bytes: usize,
    /// Time limit.
    pub time: Duration,
}

impl ExtractLimits {
    /// The limits that the program uses.
    pub const DEFAULT: Self = Self {
        text_bytes: 32 << 20,
        parts: 5_000,
        members: 20_000,
        unpacked_bytes: 256 << 20,
        depth: 256,
        rows: 500_000,
        cells: 256,
        entries: 1_000_000,
        output_bytes: 8 << 10,
        time: Duration::from_secs(30),
    };
}

/// The limits of one extraction in progress, with its deadline.
#[derive(Clone)]
pub(super) struct Bounds {
    pub(super) limits: ExtractLimits,
    deadline: Instant,
    is_cancelled: CancelCheck,
}

impl Bounds {
    /// Limits without cancellation; the deadline counts from now.
    #[cfg(test)]
    pub(super) fn start(limits: ExtractLimits) -> Self {
        Self::with_cancellation(limits, Arc::new(|| false))
    }

    /// Limits whose deadline counts from now. Cancellation is treated as a missed deadline.
    pub(super) fn with_cancellation(limits: ExtractLimits, is_cancelled: CancelCheck) -> Self {
        Self { limits, deadline: Instant::now() + limits.time, is_cancelled }
    }

    pub(super) fn is_late(&self) -> bool {
        self.is_cancelled() || Instant::now() >= self.deadline
    }

    pub(super) fn is_cancelled(&self) -> bool {
        (self.is_cancelled)()
    }

    /// Fails after the deadline; for loops that add no text to a [`Composer`](super::composer::Composer).
    pub(super) fn check_time(&self) -> Result<(), ExtractError> {
        if self.is_late() { Err(ExtractError::too_slow(self.limits.time)) } else { Ok(()) }
    }
}
