//! How much one document may cost, whatever it claims about itself.

use super::NoText;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Bounds on reading one document. Its size is bounded before it comes here.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtractLimits {
    /// Bytes of text made of anything that is not text already.
    pub(super) text_bytes: usize,
    /// Pages, slides, chapters or sheets.
    pub(super) parts: usize,
    /// Files in an archive.
    pub(super) members: usize,
    /// Bytes unpacked from one document, counted as they come out.
    pub(super) unpacked_bytes: usize,
    /// Elements inside each other.
    pub(super) depth: usize,
    /// Rows of all tables together.
    pub(super) rows: usize,
    /// Cells of one row.
    pub(super) cells: usize,
    /// Entries of one lookup table: shared strings, styles, number formats.
    pub(super) entries: usize,
    /// Bytes of one output of a notebook.
    pub(super) output_bytes: usize,
    /// How long it may take.
    pub(super) time: Duration,
}

impl ExtractLimits {
    pub(super) const DEFAULT: Self = Self {
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
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) limits: ExtractLimits,
    deadline: Instant,
    cancellation: CancellationToken,
}

impl Bounds {
    /// Bounds whose deadline counts from now, without cancellation.
    #[cfg(test)]
    pub(super) fn start(limits: ExtractLimits) -> Self {
        Self::with_cancellation(limits, CancellationToken::new())
    }

    /// Bounds whose deadline counts from now; cancellation counts as a missed deadline.
    pub(super) fn with_cancellation(limits: ExtractLimits, cancellation: CancellationToken) -> Self {
        Self { limits, deadline: Instant::now() + limits.time, cancellation }
    }

    pub(super) fn is_late(&self) -> bool {
        self.is_cancelled() || Instant::now() >= self.deadline
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// An error once the time is up; for loops that make no text.
    pub(super) fn check_time(&self) -> Result<(), NoText> {
        if self.is_late() { Err(self.too_slow()) } else { Ok(()) }
    }

    pub(super) fn too_slow(&self) -> NoText {
        NoText::Failed(format!("reading it took longer than {} s", self.limits.time.as_secs()))
    }
}
