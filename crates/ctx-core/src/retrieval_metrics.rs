//! Retrieval metrics of a ranking: nDCG, recall and mean reciprocal rank (MRR).

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::Hash;

/// Rank cutoff; later results do not count.
const DEPTH: usize = 10;
/// Results that fit on a first screen.
const FIRST_SCREEN: usize = 5;

/// Retrieval metrics of one query, or averages over several; each in [0, 1].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RetrievalMetrics {
    /// nDCG of the first ten results. The gain of a document is its grade itself, as in `trec_eval` and BEIR,
    /// discounted by the logarithm of its rank.
    pub ndcg_10: f64,
    /// Share of the expected documents among the first five results.
    pub recall_5: f64,
    /// Share of the expected documents among the first ten results.
    pub recall_10: f64,
    /// Reciprocal rank of the first expected document; 0 if it is not among the first ten results.
    pub mrr_10: f64,
}

impl RetrievalMetrics {
    /// Metrics of one query: its results, best first, against the grades of the expected documents. A grade of 0 means
    /// not expected; a document that is found twice counts at its first rank.
    pub fn of<Id: Eq + Hash>(found: &[Id], expected: &HashMap<Id, u32>) -> Self {
        let mut ideal: Vec<u32> = expected.values().copied().filter(|grade| *grade > 0).collect();
        if ideal.is_empty() {
            return Self::default();
        }
        ideal.sort_unstable_by(|a, b| b.cmp(a));
        let mut remaining: HashMap<&Id, u32> = expected.iter().map(|(id, grade)| (id, *grade)).collect();
        let grades: Vec<u32> = found.iter().take(DEPTH).map(|id| remaining.remove(id).unwrap_or(0)).collect();
        let recall = |depth: usize| {
            let hits = grades.iter().take(depth).filter(|grade| **grade > 0).count();
            hits as f64 / ideal.len() as f64
        };
        let first = grades.iter().position(|grade| *grade > 0);
        Self {
            ndcg_10: dcg(&grades) / dcg(&ideal),
            recall_5: recall(FIRST_SCREEN),
            recall_10: recall(DEPTH),
            mrr_10: first.map_or(0.0, |index| 1.0 / (index + 1) as f64),
        }
    }

    /// The average; all zero if there is nothing to average.
    pub fn mean<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let (mut sum, mut count) = (Self::default(), 0.0);
        for figures in all {
            sum = sum.zip(figures, |a, b| a + b);
            count += 1.0;
        }
        if count == 0.0 { sum } else { sum.zip(&sum, |a, _| a / count) }
    }

    /// The differences from `before`, metric by metric.
    #[must_use]
    pub fn minus(&self, before: &Self) -> Self {
        self.zip(before, |now, then| now - then)
    }

    /// Each metric with its usual name.
    pub fn named_values(&self) -> [(&'static str, f64); 4] {
        [
            ("nDCG@10", self.ndcg_10),
            ("recall@5", self.recall_5),
            ("recall@10", self.recall_10),
            ("MRR@10", self.mrr_10),
        ]
    }

    fn zip(&self, other: &Self, join: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            ndcg_10: join(self.ndcg_10, other.ndcg_10),
            recall_5: join(self.recall_5, other.recall_5),
            recall_10: join(self.recall_10, other.recall_10),
            mrr_10: join(self.mrr_10, other.mrr_10),
        }
    }
}

/// Discounted cumulative gain of grades in this order.
fn dcg(grades: &[u32]) -> f64 {
    let discounted = |(index, grade): (usize, &u32)| f64::from(*grade) / ((index + 2) as f64).log2();
    // The `sum` of no floats is minus zero, and would be displayed as such.
    grades.iter().take(DEPTH).enumerate().map(discounted).fold(0.0, |sum, gain| sum + gain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{hash_map, vec};
    use proptest::prelude::*;

    fn expected(grades: &[(char, u32)]) -> HashMap<char, u32> {
        grades.iter().copied().collect()
    }

    fn found(ids: &str) -> Vec<char> {
        ids.chars().collect()
    }

    fn is_near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-6
    }

    #[test]
    fn figures_are_those_worked_out_by_hand() {
        // Ranks 2 and 6 of grades 2 and 1: (2/log2 3 + 1/log2 7) / (2 + 1/log2 3).
        let figures = RetrievalMetrics::of(&found("xayzwbv"), &expected(&[('a', 2), ('b', 1)]));
        assert!(is_near(figures.ndcg_10, (1.261_859_5 + 0.356_207_2) / 2.630_929_8), "{figures:?}");
        assert_eq!((figures.recall_5, figures.recall_10, figures.mrr_10), (0.5, 1.0, 0.5));

        // Grades 3, 2, 3, 0, 1, 2 in this order: 3 + 1.2619 + 1.5 + 0 + 0.3869 + 0.7124 against
        // 3, 3, 2, 2, 1: 3 + 1.8928 + 1 + 0.8614 + 0.3869.
        let grades = expected(&[('a', 3), ('b', 2), ('c', 3), ('e', 1), ('f', 2)]);
        let figures = RetrievalMetrics::of(&found("abcdef"), &grades);
        assert!(is_near(figures.ndcg_10, 6.861_126_7 / 7.140_995_2), "{figures:?}");
        assert_eq!((figures.recall_5, figures.recall_10, figures.mrr_10), (0.8, 1.0, 1.0));
    }

    #[test]
    fn what_comes_after_the_tenth_counts_for_nothing() {
        let grades = expected(&[('a', 1)]);
        for nothing in ["0123456789a", ""] {
            let figures = RetrievalMetrics::of(&found(nothing), &grades);
            assert_eq!(format!("{figures:?}"), format!("{:?}", RetrievalMetrics::default()));
        }
        assert!(is_near(RetrievalMetrics::of(&found("012345678a"), &grades).mrr_10, 0.1));
    }

    #[test]
    fn a_grade_of_zero_expects_nothing() {
        let figures = RetrievalMetrics::of(&found("ba"), &expected(&[('a', 4), ('b', 0)]));
        assert_eq!((figures.recall_5, figures.mrr_10), (1.0, 0.5));
        assert_eq!(RetrievalMetrics::of(&found("b"), &expected(&[('b', 0)])), RetrievalMetrics::default());
    }

    #[test]
    fn the_mean_weighs_every_question_alike_and_of_nothing_is_zero() {
        let (one, none) = (RetrievalMetrics::of(&['a'], &expected(&[('a', 7)])), RetrievalMetrics::default());
        let mean = RetrievalMetrics::mean([&one, &none, &none, &none]);
        assert!(mean.named_values().iter().all(|(_, value)| is_near(*value, 0.25)), "{mean:?}");
        assert_eq!(RetrievalMetrics::mean([]), RetrievalMetrics::default());
        assert_eq!(one.minus(&none), one);
    }

    proptest! {
        #[test]
        fn every_figure_is_between_zero_and_one(
            found in vec(0..30_u8, 0..40), expected in hash_map(0..30_u8, 0..5_u32, 0..30)
        ) {
            for (name, value) in RetrievalMetrics::of(&found, &expected).named_values() {
                prop_assert!((0.0..=1.0 + 1e-9).contains(&value), "{} {}", name, value);
            }
        }

        #[test]
        fn the_best_order_there_could_be_has_nothing_to_improve(
            expected in hash_map(0..30_u8, 1..5_u32, 1..=5)
        ) {
            let mut best: Vec<u8> = expected.keys().copied().collect();
            best.sort_by_key(|id| std::cmp::Reverse(expected[id]));
            for (name, value) in RetrievalMetrics::of(&best, &expected).named_values() {
                prop_assert!(is_near(value, 1.0), "{} {}", name, value);
            }
        }

        #[test]
        fn moving_an_expected_document_up_never_makes_a_figure_worse(
            expected in hash_map(0..12_u8, 1..5_u32, 1..8), order in Just((0..12_u8).collect::<Vec<_>>()).prop_shuffle(),
            index in 1..12_usize
        ) {
            let grade = |id: &u8| expected.get(id).copied().unwrap_or(0);
            let mut better = order.clone();
            if grade(&order[index]) > grade(&order[index - 1]) {
                better.swap(index, index - 1);
            }
            let change = RetrievalMetrics::of(&better, &expected).minus(&RetrievalMetrics::of(&order, &expected));
            prop_assert!(change.named_values().iter().all(|(_, value)| *value > -1e-9), "{:?}", change);
        }
    }
}
