//! Vector search in memory: scans all vectors, quantised to one byte per dimension, and rescores the best with exact
//! ones.
//!
//! The matrix of a model is a copy of the store's vectors that only grows: new vectors are appended, deleted ones are
//! noticed when their exact values are read, and with too many deleted the copy is rebuilt.

use super::Candidate;
use ctx_embed::vector;
use ctx_store::{
    ChangeCursor, ChangeScope, ChunkPlace, DocumentSet, ModelKey, Store, StoreError, VectorRow,
    VectorSequence, VectorState,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Vectors per page of the change feed.
const PAGE_VECTORS: usize = 8192;
/// Rows scored at a time: their scores fit into the L1 cache.
const BLOCK: usize = 1024;
/// Maximum number of segments of a matrix before small ones are merged.
const SEGMENTS_MAX: usize = 24;
/// Segments of at least this many rows are not merged.
const SEGMENT_LARGE: usize = 1 << 16;
/// Deleted rows tolerated before a rebuild, in addition to a quarter of the live ones.
const STALE_SPARE: usize = 4096;
/// Candidates that are rescored for each requested one.
const RESCORED: usize = 3;
/// Maximum number of candidates when many of the nearest turn out to be deleted.
const CANDIDATES_MAX: usize = 8192;

/// The matrices of all models in use.
#[derive(Default)]
pub(crate) struct Vectors {
    loaded: Mutex<HashMap<ModelKey, Arc<Matrix>>>,
    /// Held while a matrix is brought up to date.
    refresh: Mutex<()>,
}

/// All vectors of one model.
#[derive(Default)]
struct Matrix {
    /// Position in the change feed where the next update continues.
    seen: ChangeCursor,
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
    gone: Vec<AtomicU64>,
}

impl Vectors {
    /// The chunks with the highest exact cosines to `query`, best first.
    pub(crate) fn nearest(
        &self,
        store: &dyn Store,
        model: ModelKey,
        query: &[f32],
        within: Option<&DocumentSet>,
        count: usize,
    ) -> Result<Vec<Candidate>, StoreError> {
        let matrix = self.current(store, model)?;
        let mut wanted = count * RESCORED;
        let mut nearest = loop {
            let candidates = matrix.scan(query, within, wanted);
            let keys: Vec<VectorSequence> = candidates.iter().map(|row| row.key).collect();
            let mut nearest = Vec::with_capacity(candidates.len());
            for (row, exact) in candidates.iter().zip(store.exact_vectors(&keys)?) {
                match exact.and_then(|half| vector::dot_half(query, &half)) {
                    Some(score) => nearest.push(Candidate { place: row.place, score }),
                    None => matrix.forget(row),
                }
            }
            let gone = candidates.len() - nearest.len();
            // Deleted rows displaced others; the next scan skips them.
            if gone == 0 || nearest.len() >= count * RESCORED / 2 || wanted >= CANDIDATES_MAX {
                break nearest;
            }
            wanted = (wanted + gone).min(CANDIDATES_MAX);
        };
        nearest.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.place.cmp(&b.place)));
        nearest.truncate(count);
        Ok(nearest)
    }

    /// Drops the matrices of all models but these.
    pub(crate) fn retain(&self, keep: &[ModelKey]) {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).retain(|key, _| keep.contains(key));
    }

    /// The matrix of a model, brought up to date.
    fn current(&self, store: &dyn Store, model: ModelKey) -> Result<Arc<Matrix>, StoreError> {
        let known = self.get(model);
        let state = store.vector_state(model)?;
        if let Some(matrix) = known.as_ref().filter(|matrix| matrix.is_at(state)) {
            return Ok(matrix.clone());
        }
        // While another thread updates the matrix, the outdated one is used if there is one.
        let _one_at_a_time = match (self.refresh.try_lock(), known) {
            (Ok(guard), _) => guard,
            (Err(_), Some(matrix)) => return Ok(matrix),
            (Err(_), None) => self.refresh.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let known = self.get(model).filter(|matrix| !matrix.is_worn(state));
        let matrix = Arc::new(Matrix::read(store, model, known.as_deref())?);
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).insert(model, matrix.clone());
        Ok(matrix)
    }

    fn get(&self, model: ModelKey) -> Option<Arc<Matrix>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).get(&model).cloned()
    }
}

impl Matrix {
    fn is_at(&self, state: VectorState) -> bool {
        self.live as u64 == state.live && self.seen.vectors >= state.newest
    }

    /// Whether the matrix must be rebuilt: too many rows are deleted, or the store was replaced.
    fn is_worn(&self, state: VectorState) -> bool {
        let live = usize::try_from(state.live).unwrap_or(usize::MAX);
        state.newest < self.seen.vectors && live > self.rows
            || self.rows > live.saturating_add(live / 4 + STALE_SPARE)
    }

    /// Reads the vectors of the store; those of an `older` matrix are kept and not read again.
    fn read(store: &dyn Store, model: ModelKey, older: Option<&Self>) -> Result<Self, StoreError> {
        let mut segments: Vec<Arc<Segment>> = older.map_or_else(Vec::new, |older| older.segments.clone());
        let mut seen = older.map_or(ChangeCursor::START, |older| older.seen);
        let mut fresh = Segment::default();
        let live = loop {
            let Some(page) = store.changes(seen, ChangeScope::Vectors(model), PAGE_VECTORS)? else {
                return Self::read(store, model, None);
            };
            page.vectors.rows().for_each(|row| fresh.push(row));
            seen = page.next;
            if !page.more {
                break page.live_vectors;
            }
        };
        if !fresh.keys.is_empty() {
            segments.push(Arc::new(fresh));
        }
        if segments.len() > SEGMENTS_MAX {
            segments = join_small(segments);
        }
        Ok(Self {
            seen,
            rows: segments.iter().map(|segment| segment.keys.len()).sum(),
            live: usize::try_from(live).unwrap_or(usize::MAX),
            segments,
        })
    }

    /// Marks a row as deleted, so that later scans skip it.
    fn forget(&self, row: &Scored) {
        if let Some(segment) = self.segments.get(row.segment) {
            segment.forget(row.row);
        }
    }

    /// The rows with the highest approximate scores, unordered.
    fn scan(&self, query: &[f32], within: Option<&DocumentSet>, count: usize) -> Vec<Scored> {
        let (codes, _) = vector::quantize(query);
        let mut best = BinaryHeap::with_capacity(count + 1);
        let mut scores = vec![0i32; BLOCK];
        // Vectors with other dimensions than the query's cannot be compared with it.
        let comparable = |(_, segment): &(usize, &Arc<Segment>)| segment.dimensions == query.len();
        for (number, segment) in self.segments.iter().enumerate().filter(comparable) {
            for (block, rows) in segment.codes.chunks(BLOCK * segment.dimensions).enumerate() {
                let scores = &mut scores[..rows.len() / segment.dimensions];
                vector::dots(&codes, rows, scores);
                let first = block * BLOCK;
                let mut worst = worst_of(&best, count);
                for (offset, score) in scores.iter().enumerate() {
                    let row = first + offset;
                    let score = *score as f32 * segment.scales[row];
                    if score < worst {
                        continue;
                    }
                    let (document, position) = segment.places[row];
                    if segment.is_gone(row) || within.is_some_and(|within| !within.contains(document)) {
                        continue;
                    }
                    best.push(Reverse(Scored {
                        score,
                        key: segment.keys[row],
                        place: (document, position.into()),
                        segment: number,
                        row,
                    }));
                    if best.len() > count {
                        best.pop();
                    }
                    worst = worst_of(&best, count);
                }
            }
        }
        best.into_iter().map(|Reverse(scored)| scored).collect()
    }
}

/// The score that a row must reach to be among the best `count`.
fn worst_of(best: &BinaryHeap<Reverse<Scored>>, count: usize) -> f32 {
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
        self.gone.resize_with((self.keys.len() + 1).div_ceil(64), AtomicU64::default);
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
        self.gone.resize_with(self.keys.len().div_ceil(64), AtomicU64::default);
        (0..other.keys.len()).filter(|row| other.is_gone(*row)).for_each(|row| self.forget(first + row));
    }

    fn forget(&self, row: usize) {
        if let Some(bits) = self.gone.get(row / 64) {
            bits.fetch_or(1 << (row % 64), Ordering::Relaxed);
        }
    }

    fn is_gone(&self, row: usize) -> bool {
        self.gone.get(row / 64).is_some_and(|bits| bits.load(Ordering::Relaxed) & 1 << (row % 64) != 0)
    }
}

/// Merges the small segments into one.
fn join_small(segments: Vec<Arc<Segment>>) -> Vec<Arc<Segment>> {
    let (mut large, small): (Vec<_>, Vec<_>) =
        segments.into_iter().partition(|segment| segment.keys.len() >= SEGMENT_LARGE);
    let dimensions = small.last().map_or(0, |segment| segment.dimensions);
    let mut joined = Segment::default();
    for segment in &small {
        if segment.dimensions == dimensions { joined.append(segment) } else { large.push(segment.clone()) }
    }
    large.push(Arc::new(joined));
    large
}

/// A row among the best so far. Of equal scores the newer row is better: the older one may be deleted.
#[derive(PartialEq)]
struct Scored {
    score: f32,
    key: VectorSequence,
    place: ChunkPlace,
    /// Index of the row's segment in the matrix.
    segment: usize,
    row: usize,
}

impl Eq for Scored {}

impl Ord for Scored {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.score.total_cmp(&other.score).then(self.key.cmp(&other.key))
    }
}

impl PartialOrd for Scored {
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
    fn rows_that_were_replaced_by_equal_ones_do_not_push_those_out() {
        let mut segment = Segment::default();
        for key in 1..=100 {
            segment.push(row(key, 7, &[127, 0]));
        }
        segment.push(row(101, 8, &[100, 50]));
        let seen = ChangeCursor { vectors: VectorSequence(101), ..ChangeCursor::START };
        let matrix = Matrix { seen, rows: 101, live: 2, segments: vec![Arc::new(segment)] };
        let nearest = || {
            let mut rows = matrix.scan(&[1.0, 0.0], None, 3);
            rows.sort_unstable_by_key(|row| row.key);
            rows
        };
        let keys = |rows: Vec<Scored>| rows.iter().map(|row| row.key.0).collect::<Vec<_>>();
        assert_eq!(keys(nearest()), [98, 99, 100]);
        nearest()[..2].iter().for_each(|row| matrix.forget(row));
        assert_eq!(keys(nearest()), [96, 97, 100]);
    }

    #[test]
    fn parts_that_are_joined_keep_what_is_gone() {
        let part = |first: u64| {
            let mut segment = Segment::default();
            (first..first + 100).for_each(|key| segment.push(row(key, 1, &[1, 2])));
            segment.forget(70);
            Arc::new(segment)
        };
        let joined = join_small(vec![part(0), part(100)]);
        let gone: Vec<u64> =
            (0..200).filter(|row| joined[0].is_gone(*row)).map(|row| joined[0].keys[row].0).collect();
        assert_eq!(gone, [70, 170]);
    }
}
