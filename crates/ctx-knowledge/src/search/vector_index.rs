//! Vector search: scans all vectors in memory, quantised to one byte per dimension, and rescores the best with exact ones.

use super::Candidate;
use super::vector_file::VectorFiles;
use super::vector_matrix::{ScoredRow, VectorMatrix};
use ctx_embed::vector;
use ctx_store::{DocumentSet, ModelKey, Store, StoreError, VectorSequence};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// Candidates that are rescored for each requested one.
const RESCORED_PER_RESULT: usize = 3;
/// Candidates whose exact vectors are read at a time, after the first `count`.
const RESCORED_PAGE: usize = 32;
/// Maximum number of candidates when many of the nearest turn out to be deleted.
const CANDIDATES_MAX: usize = 8192;
/// A file is written again when it lacks more vectors than this, and more than [`UNSAVED_FRACTION`] of all. Reading so few
/// from the store takes two milliseconds.
const UNSAVED_ROWS: usize = 4096;
const UNSAVED_FRACTION: usize = 8;

/// The vectors of all models in use.
pub(crate) struct VectorIndex {
    files: VectorFiles,
    /// Number of vectors that a file may always lack.
    unsaved_rows: usize,
    matrices: Mutex<HashMap<ModelKey, Arc<VectorMatrix>>>,
    /// Held while a matrix is brought up to date.
    refresh_lock: Mutex<()>,
}

impl VectorIndex {
    /// The vectors of the store at `path`. Reads nothing yet.
    pub(crate) fn next_to(path: &Path, store_id: Uuid) -> Self {
        Self {
            files: VectorFiles::next_to(path, store_id),
            unsaved_rows: UNSAVED_ROWS,
            matrices: Mutex::default(),
            refresh_lock: Mutex::default(),
        }
    }

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
            let rescored = rescore(store, &matrix, query, &candidates, count)?;
            // Deleted rows displaced others; the next scan skips them.
            if rescored.deleted == 0
                || candidates.len() - rescored.deleted >= count * RESCORED_PER_RESULT / 2
                || scan_count >= CANDIDATES_MAX
            {
                break rescored.nearest;
            }
            scan_count = (scan_count + rescored.deleted).min(CANDIDATES_MAX);
        };
        nearest.truncate(count);
        Ok(nearest)
    }

    /// Drops the vectors of all models but these.
    pub(crate) fn retain(&self, keep: &[ModelKey]) {
        self.files.retain(keep);
        self.matrices.lock().unwrap_or_else(PoisonError::into_inner).retain(|key, _| keep.contains(key));
    }

    /// Brings the file of a model up to date, unless it lacks only a few vectors.
    pub(crate) fn save(&self, store: &dyn Store, model: ModelKey) -> Result<(), StoreError> {
        let newest = store.vector_state(model)?.newest;
        let covered = self.files.newest(model).unwrap_or_default();
        // An upper bound of the vectors that the file lacks.
        if newest.0.saturating_sub(covered.0) <= self.unsaved_rows as u64 {
            return Ok(());
        }
        let is_in_use = self.matrix(model).is_some();
        self.refresh_matrix(store, model)?;
        if !is_in_use {
            self.matrices.lock().unwrap_or_else(PoisonError::into_inner).remove(&model);
        }
        Ok(())
    }

    /// Deletes the files that are ahead of their store. Call this before vectors are stored.
    pub(crate) fn discard_if_ahead(&self, store: &dyn Store) -> Result<(), StoreError> {
        self.files.discard_if_ahead(store)
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
        let known = match self.matrix(model) {
            Some(matrix) => Some(matrix),
            None => self.files.load(store, model)?.map(Arc::new),
        };
        let known = known.filter(|matrix| !matrix.needs_rebuild(state));
        let matrix = match known {
            Some(matrix) if matrix.is_current(state) => matrix,
            known => {
                let mut matrix = VectorMatrix::read(store, model, known.as_deref())?;
                self.save_if_far_ahead(store, model, &mut matrix);
                Arc::new(matrix)
            }
        };
        self.matrices.lock().unwrap_or_else(PoisonError::into_inner).insert(model, matrix.clone());
        Ok(matrix)
    }

    /// Writes the file of a model if it lacks many of the vectors.
    fn save_if_far_ahead(&self, store: &dyn Store, model: ModelKey, matrix: &mut VectorMatrix) {
        let unsaved = matrix.rows - matrix.saved_rows.min(matrix.rows);
        if unsaved <= self.unsaved_rows.max(matrix.rows / UNSAVED_FRACTION) || !store.writable() {
            return;
        }
        // Not repeated after a failure, until there are as many new vectors: the file only saves time.
        matrix.saved_rows = matrix.rows;
        if let Err(error) = self.files.save(store, model, matrix) {
            tracing::debug!(%error, "cannot write a vector file");
        }
    }

    fn matrix(&self, model: ModelKey) -> Option<Arc<VectorMatrix>> {
        self.matrices.lock().unwrap_or_else(PoisonError::into_inner).get(&model).cloned()
    }
}

/// Candidates with exact scores.
struct RescoredCandidates {
    /// Ordered, the best first: all that can be among the best, and some more.
    nearest: Vec<Candidate>,
    /// How many were found to be deleted.
    deleted: usize,
}

/// Computes the exact scores of the candidates. Once there are `count`, it skips those that cannot be better.
fn rescore(
    store: &dyn Store,
    matrix: &VectorMatrix,
    query: &[f32],
    candidates: &[ScoredRow],
    count: usize,
) -> Result<RescoredCandidates, StoreError> {
    let mut by_bound: Vec<(f32, &ScoredRow)> =
        candidates.iter().map(|row| (matrix.highest_cosine(query, row), row)).collect();
    by_bound.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let mut nearest: Vec<Candidate> = Vec::with_capacity(candidates.len());
    let mut deleted = 0;
    let mut unread = by_bound.as_slice();
    let mut page_rows = count.max(1);
    loop {
        let worst = count.checked_sub(1).and_then(|last| nearest.get(last)).map(|candidate| candidate.score);
        let better = unread.iter().take_while(|(bound, _)| worst.is_none_or(|worst| *bound >= worst)).count();
        let (page, rest) = unread.split_at(better.min(page_rows));
        if page.is_empty() {
            return Ok(RescoredCandidates { nearest, deleted });
        }
        let keys: Vec<VectorSequence> = page.iter().map(|(_, row)| row.key).collect();
        for ((_, row), exact) in page.iter().zip(store.exact_vectors(&keys)?) {
            match exact.and_then(|half| vector::dot_half(query, &half)) {
                Some(score) => nearest.push(Candidate { place: row.place, score }),
                None => {
                    matrix.mark_deleted(row);
                    deleted += 1;
                }
            }
        }
        nearest.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.place.cmp(&b.place)));
        unread = rest;
        page_rows = RESCORED_PAGE;
    }
}

#[cfg(test)]
mod tests {
    use super::super::brute_force::tests::{Corpus, embed};
    use super::*;
    use ctx_store::{Mutation, SqliteStore};
    use std::fs;
    use std::path::PathBuf;

    impl VectorIndex {
        /// The same index, which writes a file for any number of vectors.
        pub(in crate::search) fn saving_always(self) -> Self {
            Self { unsaved_rows: 0, ..self }
        }
    }

    fn nearest(corpus: &Corpus, index: &VectorIndex) -> Vec<Candidate> {
        let query = embed("harbour storm and bread");
        index.nearest(&*corpus.store, corpus.models.configured.key, &query, None, 20).unwrap()
    }

    /// The vectors of the corpus as another process sees them that has this path.
    fn index_at(path: &Path, corpus: &Corpus) -> VectorIndex {
        VectorIndex::next_to(path, corpus.store.identity().id).saving_always()
    }

    /// The result of an index that has no file.
    fn expected(corpus: &Corpus) -> Vec<Candidate> {
        let folder = tempfile::tempdir().unwrap();
        nearest(corpus, &VectorIndex::next_to(&folder.path().join("store"), corpus.store.identity().id))
    }

    fn rows_in_file(index: &VectorIndex, corpus: &Corpus) -> Option<usize> {
        let loaded = index.files.load(&*corpus.store, corpus.models.configured.key).unwrap();
        loaded.map(|matrix| matrix.rows)
    }

    fn file_of(path: &Path, corpus: &Corpus) -> PathBuf {
        path.with_extension("vectors-v1").join(format!("{}.vectors", corpus.models.configured.key))
    }

    #[test]
    fn a_new_process_starts_with_the_file_and_catches_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.sqlite");
        let corpus = Corpus::new();
        corpus.put("wiki:a", 0..40);
        corpus.fill();
        let first = index_at(&path, &corpus);
        assert_eq!(rows_in_file(&first, &corpus), None);
        first.save(&*corpus.store, corpus.models.configured.key).unwrap();
        assert_eq!(rows_in_file(&first, &corpus), Some(100));
        let second = index_at(&path, &corpus);
        assert_eq!(nearest(&corpus, &second), expected(&corpus));
        assert_eq!(second.matrix(corpus.models.configured.key).unwrap().saved_rows, 100, "from the file");
        corpus.put("notes:b", 40..60);
        corpus.fill();
        assert_eq!(nearest(&corpus, &index_at(&path, &corpus)), expected(&corpus));
        assert_eq!(rows_in_file(&first, &corpus), Some(150));
        let listed = corpus.store.list(0, 100).unwrap();
        let deletions: Vec<Mutation> =
            listed.iter().step_by(3).map(|document| Mutation::Delete(document.id)).collect();
        corpus.store.apply(&deletions).unwrap();
        corpus.put("wiki:a", 30..40);
        corpus.fill();
        assert_eq!(nearest(&corpus, &index_at(&path, &corpus)), expected(&corpus));
        first.retain(&[]);
        assert_eq!(rows_in_file(&first, &corpus), None);
    }

    #[test]
    fn a_damaged_or_foreign_file_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.sqlite");
        let (corpus, other) = (Corpus::new(), Corpus::new());
        for corpus in [&corpus, &other] {
            corpus.put("wiki:a", 0..40);
            corpus.fill();
        }
        let expected = expected(&corpus);
        nearest(&corpus, &index_at(&path, &corpus));
        let file = file_of(&path, &corpus);
        let whole = fs::read(&file).unwrap();
        let mut damaged: Vec<Vec<u8>> =
            [0, 1, 11, 12, 50, whole.len() / 2, whole.len() - 1].map(|end| whole[..end].to_vec()).into();
        for position in (0..whole.len()).step_by(97) {
            let mut flipped = whole.clone();
            flipped[position] ^= 1;
            damaged.push(flipped);
        }
        damaged.push([&whole[..], b"more"].concat());
        nearest(&other, &index_at(&path.with_file_name("other"), &other));
        damaged.push(fs::read(file_of(&path.with_file_name("other"), &other)).unwrap());
        for bytes in damaged {
            fs::write(&file, &bytes).unwrap();
            assert_eq!(rows_in_file(&index_at(&path, &corpus), &corpus), None);
            assert_eq!(nearest(&corpus, &index_at(&path, &corpus)), expected);
            assert_eq!(rows_in_file(&index_at(&path, &corpus), &corpus), Some(100));
        }
    }

    #[test]
    fn a_file_that_is_ahead_of_a_restored_store_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let [path, copy] = ["store.sqlite", "copy.sqlite"].map(|name| folder.path().join(name));
        let open = || Corpus::of(Arc::new(SqliteStore::open(&path).unwrap()));
        let corpus = open();
        corpus.put("wiki:a", 0..20);
        corpus.fill();
        drop(corpus);
        fs::copy(&path, &copy).unwrap();
        let corpus = open();
        corpus.put("wiki:a", 20..40);
        corpus.fill();
        nearest(&corpus, &index_at(&path, &corpus));
        assert!(file_of(&path, &corpus).exists());
        drop(corpus);
        fs::rename(&copy, &path).unwrap();
        let corpus = open();
        assert_eq!(rows_in_file(&index_at(&path, &corpus), &corpus), None);
        index_at(&path, &corpus).discard_if_ahead(&*corpus.store).unwrap();
        // The new vectors get the numbers of those in the file.
        corpus.put("notes:b", 40..70);
        corpus.fill();
        assert_eq!(nearest(&corpus, &index_at(&path, &corpus)), expected(&corpus));
    }

    #[test]
    fn rows_whose_exact_vectors_are_not_read_are_not_among_the_best() {
        let corpus = Corpus::new();
        corpus.put("wiki:a", 0..200);
        corpus.fill();
        let index = VectorIndex::next_to(Path::new("unused"), corpus.store.identity().id);
        let matrix = index.refresh_matrix(&*corpus.store, corpus.models.configured.key).unwrap();
        let exact = |query: &[f32], row: &ScoredRow| {
            let half = corpus.store.exact_vectors(&[row.key]).unwrap().remove(0).unwrap();
            vector::dot_half(query, &half).unwrap()
        };
        for text in ["harbour storm", "bread flour dough", "E4217", "violin piano concert stage"] {
            let query = embed(text);
            let rows = matrix.scan(&query, None, 1_000);
            assert_eq!(rows.len(), 500);
            assert!(rows.iter().all(|row| exact(&query, row) <= matrix.highest_cosine(&query, row)));
            let mut all: Vec<Candidate> =
                rows.iter().map(|row| Candidate { place: row.place, score: exact(&query, row) }).collect();
            all.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.place.cmp(&b.place)));
            for count in [1, 5, 40] {
                let rescored = rescore(&*corpus.store, &matrix, &query, &rows, count).unwrap();
                assert_eq!(rescored.nearest[..count], all[..count]);
            }
        }
    }
}
