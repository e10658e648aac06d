//! How much one document may cost, whatever it claims about itself.

use super::ExtractError;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tells whether whoever wanted the text has given up.
pub type CancelCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// Bounds on reading one document. Its size is bounded before it comes here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractLimits {
    /// Bytes of text made of anything that is not text already.
    pub text_bytes: usize,
    /// Pages, slides, chapters or sheets.
    pub parts: usize,
    /// Files in an archive.
    pub members: usize,
    /// Bytes unpacked from one document, counted as they come out.
    pub unpacked_bytes: usize,
    /// Elements inside each other.
    pub depth: usize,
    /// Rows of all tables together.
    pub rows: usize,
    /// Cells of one row.
    pub cells: usize,
    /// Entries of one lookup table: shared strings, styles, number formats.
    pub entries: usize,
    /// Bytes of one output of a notebook.
    pub output_bytes: usize,
    /// How long it may take.
    pub time: Duration,
}

impl ExtractLimits {
    /// The bounds of the product.
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

/// The bounds of one document that is being read.
#[derive(Clone)]
pub(super) struct Bounds {
    pub(super) limits: ExtractLimits,
    deadline: Instant,
    is_cancelled: CancelCheck,
}

impl Bounds {
    /// Bounds whose deadline counts from now, without cancellation.
    #[cfg(test)]
    pub(super) fn start(limits: ExtractLimits) -> Self {
        Self::with_cancellation(limits, Arc::new(|| false))
    }

    /// Bounds whose deadline counts from now; cancellation counts as a missed deadline.
    pub(super) fn with_cancellation(limits: ExtractLimits, is_cancelled: CancelCheck) -> Self {
        Self { limits, deadline: Instant::now() + limits.time, is_cancelled }
    }

    pub(super) fn is_late(&self) -> bool {
        self.is_cancelled() || Instant::now() >= self.deadline
    }

    pub(super) fn is_cancelled(&self) -> bool {
        (self.is_cancelled)()
    }

    /// An error once the time is up; for loops that make no text.
    pub(super) fn check_time(&self) -> Result<(), ExtractError> {
        if self.is_late() { Err(ExtractError::too_slow(self.limits.time)) } else { Ok(()) }
    }
}
