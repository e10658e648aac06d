//! Packs units into chunks as a stream, and buffers no more units than one chunk needs.

use super::units::{Unit, UnitBoundary};
use super::{Chunking, Span};
use std::collections::VecDeque;

/// Maximum units of a chunk beyond one per token: the units of some texts have no tokens at all.
const UNITS_MAX: usize = 4_096;
/// Maximum units of the overlap with the next chunk, beyond one per token.
const OVERLAP_UNITS_MAX: usize = 64;
/// Maximum bytes of all headings of a document's chunks together; later chunks are stored without a heading.
const HEADINGS_BYTES_MAX: usize = 32 << 20;
/// Units between two polls of `is_stopped`.
const UNITS_PER_CHECK: u32 = 64;

/// Fills chunks with units, in order.
pub(super) struct Packer<'a> {
    heading: String,
    max_tokens: usize,
    overlap_tokens: usize,
    /// Units from the start of the current chunk on.
    units: VecDeque<Unit>,
    /// Number of `units` in the current chunk, and their tokens.
    unit_count: usize,
    tokens: usize,
    spans: Vec<Span>,
    headings_bytes: usize,
    is_stopped: &'a dyn Fn() -> bool,
    checks: u32,
}

impl<'a> Packer<'a> {
    pub(super) fn new(is_stopped: &'a dyn Fn() -> bool) -> Self {
        Self {
            heading: String::new(),
            max_tokens: 1,
            overlap_tokens: 0,
            units: VecDeque::new(),
            unit_count: 0,
            tokens: 0,
            spans: Vec::new(),
            headings_bytes: 0,
            is_stopped,
            checks: 0,
        }
    }

    /// Begins a section whose chunks hold at most `max_tokens` tokens of text.
    pub(super) fn begin_section(&mut self, heading: &str, max_tokens: usize, chunking: Chunking) {
        self.heading = heading.to_owned();
        self.max_tokens = max_tokens;
        // Long headings leave little room for text; without this bound each chunk would repeat most of the last one.
        self.overlap_tokens = chunking.overlap_tokens.min(max_tokens - max_tokens / 4);
    }

    pub(super) fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Raises the break quality of the last unit's end to at least `boundary`.
    pub(super) fn raise_boundary(&mut self, boundary: UnitBoundary) {
        if let Some(last) = self.units.back_mut() {
            last.boundary = last.boundary.max(boundary);
        }
    }

    /// Polls `is_stopped` every [`UNITS_PER_CHECK`] calls; `None` once stopped.
    pub(super) fn check_stopped(&mut self) -> Option<()> {
        self.checks = self.checks.wrapping_add(1);
        let stopped = self.checks.is_multiple_of(UNITS_PER_CHECK) && (self.is_stopped)();
        (!stopped).then_some(())
    }

    /// Adds a unit and ends every chunk that is full. Units of an ended chunk no longer change.
    pub(super) fn push(&mut self, unit: Unit) {
        self.units.push_back(unit);
        while let Some(next) = self.units.get(self.unit_count) {
            let fits = self.tokens + next.tokens <= self.max_tokens && self.unit_count < self.units_max();
            if self.unit_count == 0 || fits {
                self.tokens += next.tokens;
                self.unit_count += 1;
            } else {
                self.end_chunk();
            }
        }
    }

    /// Ends the section; the remaining units are its last chunk.
    pub(super) fn end_section(&mut self) {
        if let (Some(first), Some(last)) = (self.units.front(), self.units.back()) {
            self.add_span(first.start, last.end);
        }
        self.units.clear();
        (self.unit_count, self.tokens) = (0, 0);
    }

    pub(super) fn finish(self) -> Vec<Span> {
        self.spans
    }

    fn units_max(&self) -> usize {
        self.max_tokens.saturating_add(UNITS_MAX)
    }

    fn end_chunk(&mut self) {
        let units = self.units.make_contiguous();
        let last = preferred_end(units, self.unit_count).unwrap_or(self.unit_count);
        let (start, end) = (units[0].start, units[last - 1].end);
        let next = overlap_start(units, last, self.overlap_tokens);
        self.add_span(start, end);
        self.units.drain(..next);
        (self.unit_count, self.tokens) = (0, 0);
    }

    fn add_span(&mut self, start: usize, end: usize) {
        self.headings_bytes += self.heading.len();
        let heading =
            if self.headings_bytes <= HEADINGS_BYTES_MAX { self.heading.clone() } else { String::new() };
        self.spans.push(Span { start, end, heading });
    }
}

/// The end of the last paragraph, or else list item, in the second half of the first `last` units.
fn preferred_end(units: &[Unit], last: usize) -> Option<usize> {
    let half = last / 2;
    let last_with =
        |boundary: UnitBoundary| (half..last).rev().find(|index| units[*index].boundary >= boundary);
    last_with(UnitBoundary::Paragraph).or_else(|| last_with(UnitBoundary::ListItem)).map(|index| index + 1)
}

/// Index of the first unit of the next chunk: some whole units before `last` (the overlap), never the first unit.
fn overlap_start(units: &[Unit], last: usize, overlap_tokens: usize) -> usize {
    let earliest = last.saturating_sub(overlap_tokens.saturating_add(OVERLAP_UNITS_MAX)).max(1);
    let mut start = last;
    let mut tokens = 0;
    while start > earliest && tokens + units[start - 1].tokens <= overlap_tokens {
        start -= 1;
        tokens += units[start].tokens;
    }
    start
}
