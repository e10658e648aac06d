//! How much one document may cost, whatever it claims about itself.

use super::NoText;
use std::time::{Duration, Instant};

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
        output_bytes: 8 << 10,
        time: Duration::from_secs(30),
    };
}

/// The bounds of one document that is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) limits: ExtractLimits,
    deadline: Instant,
}

impl Bounds {
    pub(super) fn start(limits: ExtractLimits) -> Self {
        Self { limits, deadline: Instant::now() + limits.time }
    }

    pub(super) fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// An error once the time is up; for loops that make no text.
    pub(super) fn check_time(&self) -> Result<(), NoText> {
        if self.is_late() { Err(self.too_slow()) } else { Ok(()) }
    }

    pub(super) fn too_slow(&self) -> NoText {
        NoText::Failed(format!("reading it took longer than {} s", self.limits.time.as_secs()))
    }
}
