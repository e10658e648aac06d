//! Score fusion for hybrid search: keyword scores and vector scores are combined.
//!
//! Every candidate has both scores, whichever search proposed it. Each score is standardised over the candidates
//! (z-score), so that the two can be added. Vector scores of different models are standardised separately.

use std::collections::HashMap;

/// Ids of a document and of one of its chunks.
pub type ChunkPosition = (u64, u64);

/// Weight of a document's second best chunk.
const SECOND_CHUNK_WEIGHT: f64 = 0.3;

/// A chunk with its keyword score and its vector score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScorePair {
    /// The chunk.
    pub chunk: ChunkPosition,
    /// Keyword score: how well the words match.
    pub keyword: f32,
    /// Vector score: how near the meaning is. `None` while the chunk has no vector.
    pub vector: Option<f32>,
    /// The vector's embedding model, as an index into `alphas` of [`fuse`].
    pub group: usize,
}

/// A document with its fused score and its best chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FusedDocument {
    /// The best chunk.
    pub place: ChunkPosition,
    /// Keyword score of the best chunk.
    pub keyword: f32,
    /// Vector score of the best chunk.
    pub vector: Option<f32>,
    /// Embedding model of that vector.
    pub group: usize,
    /// Fused score, in standard deviations.
    pub score: f64,
}

/// Fuses the scores of chunks; returns one entry for each document. `alphas` has the weight of vector scores for each
/// group.
pub fn fuse(pairs: &[ScorePair], alphas: &[f64]) -> Vec<FusedDocument> {
    let keyword = ScoreDistribution::of(pairs.iter().map(|pair| pair.keyword));
    let vector: Vec<ScoreDistribution> = (0..alphas.len())
        .map(|group| {
            ScoreDistribution::of(
                pairs.iter().filter(|pair| pair.group == group).filter_map(|pair| pair.vector),
            )
        })
        .collect();
    let mut documents: HashMap<u64, Vec<(f64, &ScorePair)>> = HashMap::new();
    for pair in pairs {
        let alpha = alphas.get(pair.group).copied().unwrap_or_default();
        // A missing vector score counts as an average one.
        let vector_score = match (pair.vector, vector.get(pair.group)) {
            (Some(score), Some(distribution)) => distribution.z_score(score),
            _ => 0.0,
        };
        let score = (1.0 - alpha) * keyword.z_score(pair.keyword) + alpha * vector_score;
        documents.entry(pair.chunk.0).or_default().push((score, pair));
    }
    documents.into_values().filter_map(fuse_document).collect()
}

/// Scores a document by its best chunk, and a little by the second best: a document on the topic of the query matches
/// more than once.
fn fuse_document(mut chunks: Vec<(f64, &ScorePair)>) -> Option<FusedDocument> {
    chunks.sort_by(|(a_score, a), (b_score, b)| b_score.total_cmp(a_score).then(a.chunk.cmp(&b.chunk)));
    let (best, pair) = *chunks.first()?;
    let second = chunks.get(1).map_or(0.0, |(score, _)| *score);
    Some(FusedDocument {
        place: pair.chunk,
        keyword: pair.keyword,
        vector: pair.vector,
        group: pair.group,
        score: best + SECOND_CHUNK_WEIGHT * second,
    })
}

/// Mean and standard deviation of scores.
struct ScoreDistribution {
    mean: f64,
    deviation: f64,
}

impl ScoreDistribution {
    fn of(scores: impl Iterator<Item = f32> + Clone) -> Self {
        let count = scores.clone().count().max(1) as f64;
        let mean = scores.clone().map(f64::from).sum::<f64>() / count;
        let variance = scores.map(|score| (f64::from(score) - mean).powi(2)).sum::<f64>() / count;
        Self { mean, deviation: variance.sqrt() }
    }

    /// The z-score: by how many standard deviations a score is above the mean; 0 if all scores are equal.
    fn z_score(&self, score: f32) -> f64 {
        if self.deviation < 1e-9 { 0.0 } else { (f64::from(score) - self.mean) / self.deviation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair(document: u64, chunk: u64, keyword: f32, vector: f32) -> ScorePair {
        ScorePair { chunk: (document, chunk), keyword, vector: Some(vector), group: 0 }
    }

    fn ranking(pairs: &[ScorePair], alpha: f64) -> Vec<u64> {
        let mut fused = fuse(pairs, &[alpha]);
        fused.sort_by(|a, b| b.score.total_cmp(&a.score));
        fused.iter().map(|fused| fused.place.0).collect()
    }

    #[test]
    fn alpha_decides_between_words_and_meaning() {
        let pairs = [pair(1, 0, 12.0, 0.1), pair(2, 0, 3.0, 0.8), pair(3, 0, 1.0, 0.1)];
        assert_eq!(ranking(&pairs, 0.0)[0], 1);
        assert_eq!(ranking(&pairs, 1.0)[0], 2);
    }

    #[test]
    fn a_document_counts_once_with_its_best_chunk() {
        let pairs = [pair(1, 0, 1.0, 0.1), pair(1, 7, 9.0, 0.9), pair(2, 0, 5.0, 0.5)];
        let fused = fuse(&pairs, &[0.5]);
        assert_eq!(fused.len(), 2);
        assert_eq!(fused.iter().find(|fused| fused.place.0 == 1).unwrap().place, (1, 7));
    }

    #[test]
    fn scores_that_are_all_equal_decide_nothing() {
        let pairs = [pair(1, 0, 4.0, 0.3), pair(2, 0, 4.0, 0.4)];
        assert_eq!(ranking(&pairs, 0.3), [2, 1]);
        assert!(fuse(&pairs[..1], &[0.3])[0].score.abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn scores_are_numbers_and_scale_does_not_matter(
            scores in prop::collection::vec((0u64..6, 0.0f32..30.0, -1.0f32..1.0), 1..40),
            factor in 0.1f32..10.0,
        ) {
            let pairs: Vec<ScorePair> =
                scores.iter().zip(0..).map(|((document, k, v), chunk)| pair(*document, chunk, *k, *v)).collect();
            let scaled: Vec<ScorePair> =
                pairs.iter().map(|pair| ScorePair { keyword: pair.keyword * factor, ..*pair }).collect();
            let find = |fused: &[FusedDocument], document: u64| {
                fused.iter().find(|fused| fused.place.0 == document).map(|fused| fused.score)
            };
            let (plain, scaled) = (fuse(&pairs, &[0.4]), fuse(&scaled, &[0.4]));
            for fused in &plain {
                prop_assert!(fused.score.is_finite());
                let other = find(&scaled, fused.place.0).unwrap();
                prop_assert!((fused.score - other).abs() < 1e-2, "{} {}", fused.score, other);
            }
        }
    }
}
