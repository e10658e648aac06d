//! Vector search in memory: scans all vectors, quantised to one byte per dimension, and rescores the best with exact
//! ones.
//!
//! The matrix of a model is a copy of the store's vectors that only grows: new vectors are appended, deleted ones are
//! noticed when their exact values are read, and with too many deleted the copy is rebuilt.

use super::Candidate;
use ctx_embed::vector;
use ctx_store::{
    ChangeCursor, ChangeScope, ChunkPosition, DocumentSet, ModelKey, Store, StoreError, VectorRow,
    VectorSequence, VectorState,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Vectors per page of the change feed.
const PAGE_VECTORS: usize = 8192;
/// Rows scored at a time: their scores fit into the L1 cache.
const BLOCK_ROWS: usize = 1024;
/// Maximum number of segments of a matrix before small ones are merged.
const SEGMENTS_MAX: usize = 24;
/// Segments of at least this many rows are not merged.
const MERGED_ROWS_MAX: usize = 1 << 16;
/// Deleted rows tolerated before a rebuild, in addition to a quarter of the live ones.
const DELETED_ROWS_SPARE: usize = 4096;
/// Candidates that are rescored for each requested one.
const RESCORED_PER_RESULT: usize = 3;
/// Maximum number of candidates when many of the nearest turn out to be deleted.
const CANDIDATES_MAX: usize = 8192;

/// The matrices of all models in use.
#[derive(Default)]
pub(crate) struct VectorIndex {
    matrices: Mutex<HashMap<ModelKey, Arc<VectorMatrix>>>,
    /// Held while a matrix is brought up to date.
    refresh_lock: Mutex<()>,
}

/// All vectors of one model.
#[derive(Default)]
struct VectorMatrix {
    /// Position in the change feed where the next update continues.
    cursor: ChangeCursor,
    rows: usize,
    /// How many of the rows the store still has.
    live: usize,
    segments: Vec<Arc<Segment>>,
}

/// A part of a matrix: vectors stored column by column.
#[derive(Default)]
struct Segment {
    dimensions: usize,
    keys: Vec<VectorSequence>,
    places: Vec<(u64, u32)>,
    scales: Vec<f32>,
    codes: Vec<i8>,
    /// One bit per row: whether it was found to be deleted.
    deleted: Vec<AtomicU64>,
}

impl VectorIndex {
    /// The chunks with the highest exact cosines to `query`, best first.
    pub(crate) fn nearest(
        &self,
        store: &dyn Store,
        model: ModelKey,
        query: &[f32],
        within: Option<&DocumentSet>,
        count: usize,
    ) -> Result<Vec<Candidate>, StoreError> {
        let matrix = self.refresh_matrix(store, model)?;
        let mut scan_count = count * RESCORED_PER_RESULT;
        let mut nearest = loop {
            let candidates = matrix.scan(query, within, scan_count);
            let keys: Vec<VectorSequence> = candidates.iter().map(|row| row.key).collect();
            let mut nearest = Vec::with_capacity(candidates.len());
            for (row, exact) in candidates.iter().zip(store.exact_vectors(&keys)?) {
                match exact.and_then(|half| vector::dot_half(query, &half)) {
                    Some(score) => nearest.push(Candidate { place: row.place, score }),
                    None => matrix.mark_deleted(row),
                }
            }
            let deleted = candidates.len() - nearest.len();
            // Deleted rows displaced others; the next scan skips them.
            if deleted == 0
                || nearest.len() >= count * RESCORED_PER_RESULT / 2
                || scan_count >= CANDIDATES_MAX
            {
                break nearest;
            }
            scan_count = (scan_count + deleted).min(CANDIDATES_MAX);
        };
        nearest.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.place.cmp(&b.place)));
        nearest.truncate(count);
        Ok(nearest)
    }

    /// Drops the matrices of all models but these.
    pub(crate) fn retain(&self, keep: &[ModelKey]) {
        self.matrices.lock().unwrap_or_else(PoisonError::into_inner).retain(|key, _| keep.contains(key));
    }

    /// The matrix of a model, brought up to date.
    fn refresh_matrix(&self, store: &dyn Store, model: ModelKey) -> Result<Arc<VectorMatrix>, StoreError> {
        let cached = self.matrix(model);
        let state = store.vector_state(model)?;
        if let Some(matrix) = cached.as_ref().filter(|matrix| matrix.is_current(state)) {
            return Ok(matrix.clone());
        }
        // While another thread updates the matrix, the outdated one is used if there is one.
        let _one_at_a_time = match (self.refresh_lock.try_lock(), cached) {
            (Ok(guard), _) => guard,
            (Err(_), Some(matrix)) => return Ok(matrix),
            (Err(_), None) => self.refresh_lock.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let cached = self.matrix(model).filter(|matrix| !matrix.needs_rebuild(state));
        let matrix = Arc::new(VectorMatrix::read(store, model, cached.as_deref())?);
        self.matrices.lock().unwrap_or_else(PoisonError::into_inner).insert(model, matrix.clone());
        Ok(matrix)
    }

    fn matrix(&self, model: ModelKey) -> Option<Arc<VectorMatrix>> {
        self.matrices.lock().unwrap_or_else(PoisonError::into_inner).get(&model).cloned()
    }
}

impl VectorMatrix {
    fn is_current(&self, state: VectorState) -> bool {
        self.live as u64 == state.live && self.cursor.vectors >= state.newest
    }

    /// Whether the matrix must be rebuilt: too many rows are deleted, or the store was replaced.
    fn needs_rebuild(&self, state: VectorState) -> bool {
        let live = usize::try_from(state.live).unwrap_or(usize::MAX);
        state.newest < self.cursor.vectors && live > self.rows
            || self.rows > live.saturating_add(live / 4 + DELETED_ROWS_SPARE)
    }

    /// Reads the vectors of the store; those of an `older` matrix are kept and not read again.
    fn read(store: &dyn Store, model: ModelKey, older: Option<&Self>) -> Result<Self, StoreError> {
        let mut segments: Vec<Arc<Segment>> = older.map_or_else(Vec::new, |older| older.segments.clone());
        let mut cursor = older.map_or(ChangeCursor::START, |older| older.cursor);
        let mut new_rows = Segment::default();
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
        if !new_rows.keys.is_empty() {
            segments.push(Arc::new(new_rows));
        }
        if segments.len() > SEGMENTS_MAX {
            segments = merge_small(segments);
        }
        Ok(Self {
            cursor,
            rows: segments.iter().map(|segment| segment.keys.len()).sum(),
            live: usize::try_from(live).unwrap_or(usize::MAX),
            segments,
        })
    }

    /// Marks a row as deleted, so that later scans skip it.
    fn mark_deleted(&self, row: &ScoredRow) {
        if let Some(segment) = self.segments.get(row.segment) {
            segment.mark_deleted(row.row);
        }
    }

    /// The rows with the highest approximate scores, unordered.
    fn scan(&self, query: &[f32], within: Option<&DocumentSet>, count: usize) -> Vec<ScoredRow> {
        let (codes, _) = vector::quantize(query);
        let mut best = BinaryHeap::with_capacity(count + 1);
        let mut scores = vec![0i32; BLOCK_ROWS];
        // Vectors with other dimensions than the query's cannot be compared with it.
        let comparable = |(_, segment): &(usize, &Arc<Segment>)| segment.dimensions == query.len();
        for (number, segment) in self.segments.iter().enumerate().filter(comparable) {
            for (block, rows) in segment.codes.chunks(BLOCK_ROWS * segment.dimensions).enumerate() {
                let scores = &mut scores[..rows.len() / segment.dimensions];
                vector::dots(&codes, rows, scores);
                let first = block * BLOCK_ROWS;
                let mut worst = worst_score(&best, count);
                for (offset, score) in scores.iter().enumerate() {
                    let row = first + offset;
                    let score = *score as f32 * segment.scales[row];
                    if score < worst {
                        continue;
                    }
                    let (document, position) = segment.places[row];
                    if segment.is_deleted(row) || within.is_some_and(|within| !within.contains(document)) {
                        continue;
                    }
                    best.push(Reverse(ScoredRow {
                        score,
                        key: segment.keys[row],
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

impl Segment {
    fn push(&mut self, row: VectorRow<'_>) {
        let VectorRow { sequence, place: (document, position), scale, codes } = row;
        if self.keys.is_empty() {
            self.dimensions = codes.len();
        }
        if codes.is_empty() || codes.len() != self.dimensions {
            return;
        }
        self.deleted.resize_with((self.keys.len() + 1).div_ceil(64), AtomicU64::default);
        self.keys.push(sequence);
        self.places.push((document, u32::try_from(position).unwrap_or(u32::MAX)));
        self.scales.push(scale);
        self.codes.extend(codes.iter().copied().map(u8::cast_signed));
    }

    fn append(&mut self, other: &Self) {
        if self.keys.is_empty() {
            self.dimensions = other.dimensions;
        }
        let first = self.keys.len();
        self.keys.extend_from_slice(&other.keys);
        self.places.extend_from_slice(&other.places);
        self.scales.extend_from_slice(&other.scales);
        self.codes.extend_from_slice(&other.codes);
        self.deleted.resize_with(self.keys.len().div_ceil(64), AtomicU64::default);
        (0..other.keys.len())
            .filter(|row| other.is_deleted(*row))
            .for_each(|row| self.mark_deleted(first + row));
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
        segments.into_iter().partition(|segment| segment.keys.len() >= MERGED_ROWS_MAX);
    let dimensions = small.last().map_or(0, |segment| segment.dimensions);
    let mut merged = Segment::default();
    for segment in &small {
        if segment.dimensions == dimensions { merged.append(segment) } else { large.push(segment.clone()) }
    }
    large.push(Arc::new(merged));
    large
}

/// A row among the best so far. Of equal scores the newer row is better: the older one may be deleted.
#[derive(PartialEq)]
struct ScoredRow {
    score: f32,
    key: VectorSequence,
    place: ChunkPosition,
    /// Index of the row's segment in the matrix.
    segment: usize,
    row: usize,
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
        let mut segment = Segment::default();
        for key in 1..=100 {
            segment.push(row(key, 7, &[127, 0]));
        }
        segment.push(row(101, 8, &[100, 50]));
        let cursor = ChangeCursor { vectors: VectorSequence(101), ..ChangeCursor::START };
        let matrix = VectorMatrix { cursor, rows: 101, live: 2, segments: vec![Arc::new(segment)] };
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
            let mut segment = Segment::default();
            (first..first + 100).for_each(|key| segment.push(row(key, 1, &[1, 2])));
            segment.mark_deleted(70);
            Arc::new(segment)
        };
        let merged = merge_small(vec![part(0), part(100)]);
        let deleted: Vec<u64> =
            (0..200).filter(|row| merged[0].is_deleted(*row)).map(|row| merged[0].keys[row].0).collect();
        assert_eq!(deleted, [70, 170]);
    }
}
