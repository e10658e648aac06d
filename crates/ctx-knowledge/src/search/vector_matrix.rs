//! The quantised vectors of one model in memory, and the scan for the nearest.
//!
//! A copy of the store's vectors that only grows: new vectors are appended, and deleted ones are noticed when their exact
//! values are read.

use ctx_embed::vector;
use ctx_store::{
    ChangeCursor, ChangeScope, ChunkPosition, DocumentSet, ModelKey, Store, StoreError, VectorRow,
    VectorSequence, VectorState,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tantivy::directory::OwnedBytes;

/// Vectors per page of the change feed.
const PAGE_VECTORS: usize = 8192;
/// Rows scored at a time: their scores fit into the L1 cache.
const BLOCK_ROWS: usize = 1024;
/// Maximum number of segments of a matrix before small ones are merged.
pub(super) const SEGMENTS_MAX: usize = 24;
/// Segments of at least this many rows are not merged.
const MERGED_ROWS_MAX: usize = 1 << 16;
/// Deleted rows tolerated before a rebuild, in addition to a quarter of the live ones.
const DELETED_ROWS_SPARE: usize = 4096;

/// Bound on the rounding errors of a cosine in single precision.
const ROUNDING: f32 = 1e-4;

/// All vectors of one model.
#[derive(Default)]
pub(super) struct VectorMatrix {
    /// Position in the change feed where the next update continues.
    pub(super) cursor: ChangeCursor,
    pub(super) rows: usize,
    /// How many of the rows the store still has.
    pub(super) live: usize,
    /// How many of the rows are in the model's file.
    pub(super) saved_rows: usize,
    pub(super) segments: Vec<Arc<Segment>>,
}

/// A part of a matrix: vectors stored column by column.
pub(super) struct Segment {
    pub(super) columns: SegmentColumns,
    /// `columns.keys.len()` rows of codes: signed bytes, in memory or in a mapped file.
    pub(super) codes: OwnedBytes,
    /// One bit per row: whether it was found to be deleted.
    deleted: Vec<AtomicU64>,
}

/// The columns of a segment other than the codes.
#[derive(Default)]
pub(super) struct SegmentColumns {
    pub(super) dimensions: usize,
    pub(super) keys: Vec<VectorSequence>,
    pub(super) places: Vec<(u64, u32)>,
    pub(super) scales: Vec<f32>,
}

/// A segment that rows are added to.
#[derive(Default)]
struct SegmentBuilder {
    columns: SegmentColumns,
    codes: Vec<u8>,
}

/// A row among the best so far. Of equal scores the newer row is better: the older one may be deleted.
#[derive(PartialEq)]
pub(super) struct ScoredRow {
    pub(super) score: f32,
    pub(super) key: VectorSequence,
    pub(super) place: ChunkPosition,
    /// Index of the row's segment in the matrix.
    segment: usize,
    row: usize,
}

impl VectorMatrix {
    pub(super) fn is_current(&self, state: VectorState) -> bool {
        self.live as u64 == state.live && self.cursor.vectors >= state.newest
    }

    /// Whether the matrix must be rebuilt: too many rows are deleted, or the store was replaced.
    pub(super) fn needs_rebuild(&self, state: VectorState) -> bool {
        let live = usize::try_from(state.live).unwrap_or(usize::MAX);
        state.newest < self.cursor.vectors && live > self.rows
            || self.rows > live.saturating_add(live / 4 + DELETED_ROWS_SPARE)
    }

    /// Reads the vectors of the store; those of an `older` matrix are kept and not read again.
    pub(super) fn read(store: &dyn Store, model: ModelKey, older: Option<&Self>) -> Result<Self, StoreError> {
        let mut segments: Vec<Arc<Segment>> = older.map_or_else(Vec::new, |older| older.segments.clone());
        let mut cursor = older.map_or(ChangeCursor::START, |older| older.cursor);
        let mut new_rows = SegmentBuilder::default();
        let live = loop {
            let Some(page) = store.changes(cursor, ChangeScope::Vectors(model), PAGE_VECTORS)? else {
                return Self::read(store, model, None);
            };
            page.vectors.rows().for_each(|row| new_rows.push(row));
            cursor = page.next;
            if !page.more {
                break page.live_vectors;
            }
        };
        if !new_rows.columns.keys.is_empty() {
            segments.push(Arc::new(new_rows.finish()));
        }
        if segments.len() > SEGMENTS_MAX {
            segments = merge_small(segments);
        }
        Ok(Self {
            cursor,
            rows: segments.iter().map(|segment| segment.columns.keys.len()).sum(),
            live: usize::try_from(live).unwrap_or(usize::MAX),
            saved_rows: older.map_or(0, |older| older.saved_rows),
            segments,
        })
    }

    /// Marks a row as deleted, so that later scans skip it.
    pub(super) fn mark_deleted(&self, row: &ScoredRow) {
        if let Some(segment) = self.segments.get(row.segment) {
            segment.mark_deleted(row.row);
        }
    }

    /// The highest cosine that the exact vector of a row can have with `query`.
    ///
    /// A value differs from its code times the scale by at most half the scale, and from its half-precision form by at
    /// most 127 / 2048 of it; the cosine differs by no more than the length of all these differences.
    pub(super) fn highest_cosine(&self, query: &[f32], row: &ScoredRow) -> f32 {
        let Some(segment) = self.segments.get(row.segment) else { return f32::INFINITY };
        let VectorRow { scale, codes, .. } = segment.row(row.row);
        let dot: f32 =
            query.iter().zip(vector::codes(codes)).map(|(value, code)| value * f32::from(*code)).sum();
        let length = query.iter().map(|value| value * value).sum::<f32>().sqrt();
        let difference = scale * (0.5 + 127.0 / 2048.0) * (codes.len() as f32).sqrt();
        (dot * scale + length * difference) * (1.0 + ROUNDING) + ROUNDING
    }

    /// The rows with the highest approximate scores, unordered.
    pub(super) fn scan(&self, query: &[f32], within: Option<&DocumentSet>, count: usize) -> Vec<ScoredRow> {
        let (codes, _) = vector::quantize(query);
        let mut best = BinaryHeap::with_capacity(count + 1);
        let mut scores = vec![0i32; BLOCK_ROWS];
        // Vectors with other dimensions than the query's cannot be compared with it.
        let comparable = |(_, segment): &(usize, &Arc<Segment>)| segment.columns.dimensions == query.len();
        for (number, segment) in self.segments.iter().enumerate().filter(comparable) {
            for (block, rows) in
                vector::codes(&segment.codes).chunks(BLOCK_ROWS * segment.columns.dimensions).enumerate()
            {
                let scores = &mut scores[..rows.len() / segment.columns.dimensions];
                vector::dots(&codes, rows, scores);
                let first = block * BLOCK_ROWS;
                let mut worst = worst_score(&best, count);
                for (offset, score) in scores.iter().enumerate() {
                    let row = first + offset;
                    let score = *score as f32 * segment.columns.scales[row];
                    if score < worst {
                        continue;
                    }
                    let (document, position) = segment.columns.places[row];
                    if segment.is_deleted(row) || within.is_some_and(|within| !within.contains(document)) {
                        continue;
                    }
                    best.push(Reverse(ScoredRow {
                        score,
                        key: segment.columns.keys[row],
                        place: (document, position.into()),
                        segment: number,
                        row,
                    }));
                    if best.len() > count {
                        best.pop();
                    }
                    worst = worst_score(&best, count);
                }
            }
        }
        best.into_iter().map(|Reverse(scored)| scored).collect()
    }
}

/// The score that a row must reach to be among the best `count`.
fn worst_score(best: &BinaryHeap<Reverse<ScoredRow>>, count: usize) -> f32 {
    match best.peek() {
        Some(Reverse(worst)) if best.len() >= count => worst.score,
        _ => f32::NEG_INFINITY,
    }
}

impl SegmentBuilder {
    fn push(&mut self, row: VectorRow<'_>) {
        let VectorRow { sequence, place: (document, position), scale, codes } = row;
        let columns = &mut self.columns;
        if columns.keys.is_empty() {
            columns.dimensions = codes.len();
        }
        if codes.is_empty() || codes.len() != columns.dimensions {
            return;
        }
        columns.keys.push(sequence);
        columns.places.push((document, u32::try_from(position).unwrap_or(u32::MAX)));
        columns.scales.push(scale);
        self.codes.extend_from_slice(codes);
    }

    fn finish(self) -> Segment {
        Segment::new(self.columns, OwnedBytes::new(self.codes))
    }
}

impl Segment {
    /// A segment of complete columns, with no row known to be deleted.
    pub(super) fn new(columns: SegmentColumns, codes: OwnedBytes) -> Self {
        let mut deleted = Vec::new();
        deleted.resize_with(columns.keys.len().div_ceil(64), AtomicU64::default);
        Self { columns, codes, deleted }
    }

    fn row(&self, row: usize) -> VectorRow<'_> {
        let SegmentColumns { dimensions, keys, places, scales } = &self.columns;
        let (document, position) = places[row];
        VectorRow {
            sequence: keys[row],
            place: (document, position.into()),
            scale: scales[row],
            codes: &self.codes[row * dimensions..(row + 1) * dimensions],
        }
    }

    fn mark_deleted(&self, row: usize) {
        if let Some(bits) = self.deleted.get(row / 64) {
            bits.fetch_or(1 << (row % 64), Ordering::Relaxed);
        }
    }

    fn is_deleted(&self, row: usize) -> bool {
        self.deleted.get(row / 64).is_some_and(|bits| bits.load(Ordering::Relaxed) & 1 << (row % 64) != 0)
    }
}

/// Merges the small segments into one.
fn merge_small(segments: Vec<Arc<Segment>>) -> Vec<Arc<Segment>> {
    let (mut large, small): (Vec<_>, Vec<_>) =
        segments.into_iter().partition(|segment| segment.columns.keys.len() >= MERGED_ROWS_MAX);
    let dimensions = small.last().map_or(0, |segment| segment.columns.dimensions);
    let mut merged = SegmentBuilder::default();
    let mut deleted = Vec::new();
    for segment in small {
        if segment.columns.dimensions != dimensions {
            large.push(segment);
            continue;
        }
        for row in 0..segment.columns.keys.len() {
            if segment.is_deleted(row) {
                deleted.push(merged.columns.keys.len());
            }
            merged.push(segment.row(row));
        }
    }
    let merged = merged.finish();
    deleted.into_iter().for_each(|row| merged.mark_deleted(row));
    large.push(Arc::new(merged));
    large
}

impl Eq for ScoredRow {}

impl Ord for ScoredRow {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.score.total_cmp(&other.score).then(self.key.cmp(&other.key))
    }
}

impl PartialOrd for ScoredRow {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: u64, document: u64, codes: &[u8]) -> VectorRow<'_> {
        VectorRow { sequence: VectorSequence(key), place: (document, 0), scale: 1.0, codes }
    }

    #[test]
    fn deleted_rows_are_skipped_by_later_scans() {
        let mut segment = SegmentBuilder::default();
        for key in 1..=100 {
            segment.push(row(key, 7, &[127, 0]));
        }
        segment.push(row(101, 8, &[100, 50]));
        let segments = vec![Arc::new(segment.finish())];
        let cursor = ChangeCursor { vectors: VectorSequence(101), ..ChangeCursor::START };
        let matrix = VectorMatrix { cursor, rows: 101, live: 2, saved_rows: 0, segments };
        let nearest = || {
            let mut rows = matrix.scan(&[1.0, 0.0], None, 3);
            rows.sort_unstable_by_key(|row| row.key);
            rows
        };
        let keys = |rows: Vec<ScoredRow>| rows.iter().map(|row| row.key.0).collect::<Vec<_>>();
        assert_eq!(keys(nearest()), [98, 99, 100]);
        nearest()[..2].iter().for_each(|row| matrix.mark_deleted(row));
        assert_eq!(keys(nearest()), [96, 97, 100]);
    }

    #[test]
    fn merged_segments_keep_their_deleted_rows() {
        let part = |first: u64| {
            let mut segment = SegmentBuilder::default();
            (first..first + 100).for_each(|key| segment.push(row(key, 1, &[1, 2])));
            let segment = segment.finish();
            segment.mark_deleted(70);
            Arc::new(segment)
        };
        let merged = merge_small(vec![part(0), part(100)]);
        let deleted: Vec<u64> = (0..200)
            .filter(|row| merged[0].is_deleted(*row))
            .map(|row| merged[0].columns.keys[row].0)
            .collect();
        assert_eq!(deleted, [70, 170]);
    }
}
