//! The report of an evaluation: metrics per mode, changes since the last time, missed documents.

use super::saved_results::{MeasuredQuestion, ModeResults};
use crate::output::{count, table};
use ctx_core::RetrievalMetrics;
use ctx_knowledge::SearchMode;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum number of lines under a heading; further ones are only counted.
const LINES_SHOWN: usize = 10;
/// Maximum number of questions listed for `--misses`.
const MISSES_SHOWN: usize = 50;
/// A document is missed if it is not among this number of first results.
const TOP_RESULTS: usize = 5;
/// Smaller changes of a metric are rounding errors.
const CHANGE_MIN: f64 = 1e-9;

/// The answer of `ctx eval`.
#[derive(Debug, Serialize)]
pub(super) struct EvalReport {
    pub(super) file: String,
    pub(super) questions: usize,
    /// Expected documents that are not stored; each counts as not found.
    pub(super) unknown: Vec<UnknownDocument>,
    pub(super) modes: Vec<ModeReport>,
}

/// The name of an expected document that is not stored, with its line.
#[derive(Debug, Serialize)]
pub(super) struct UnknownDocument {
    pub(super) line: usize,
    pub(super) name: String,
}

/// The results of one search mode.
#[derive(Debug, Serialize)]
pub(super) struct ModeReport {
    pub(super) mode: SearchMode,
    #[serde(flatten)]
    pub(super) outcome: ModeOutcome,
}

/// The result of measuring a mode.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ModeOutcome {
    /// The reason why the mode is unavailable.
    Unavailable { unavailable: String },
    /// The metrics of the mode.
    Measured {
        figures: RetrievalMetrics,
        /// The change since the last evaluation, if there was one.
        change: Option<MetricsChange>,
        questions: Vec<QuestionResult>,
    },
}

/// A question with its metrics and results.
#[derive(Debug, Serialize)]
pub(super) struct QuestionResult {
    pub(super) line: usize,
    #[serde(flatten)]
    pub(super) measured: MeasuredQuestion,
    /// The `source_id`s of the results, best first.
    pub(super) found: Vec<String>,
}

/// The change since the last evaluation, over the questions that both have in common.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct MetricsChange {
    pub(super) since: Timestamp,
    pub(super) questions: usize,
    pub(super) figures: RetrievalMetrics,
    /// Questions whose nDCG@10 rose (`better`) or fell (`worse`), the largest change first.
    pub(super) better: Vec<QuestionChange>,
    pub(super) worse: Vec<QuestionChange>,
}

/// A question whose nDCG@10 has changed.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct QuestionChange {
    pub(super) query: String,
    pub(super) ndcg_10_before: f64,
    pub(super) ndcg_10: f64,
}

impl MetricsChange {
    /// Compares with the last results. A question whose expected documents were edited counts as a new one.
    pub(super) fn since(last: &ModeResults, results: &[QuestionResult]) -> Option<Self> {
        let before: BTreeMap<&str, &MeasuredQuestion> =
            last.questions.iter().map(|measured| (measured.question.query.as_str(), measured)).collect();
        let both: Vec<(&MeasuredQuestion, &MeasuredQuestion)> = results
            .iter()
            .filter_map(|now| Some((*before.get(now.measured.question.query.as_str())?, &now.measured)))
            .filter(|(then, now)| then.question == now.question)
            .collect();
        if both.is_empty() {
            return None;
        }
        let mean = |figures: fn(&(&MeasuredQuestion, &MeasuredQuestion)) -> RetrievalMetrics| {
            RetrievalMetrics::mean(&both.iter().map(figures).collect::<Vec<_>>())
        };
        let mut changed: Vec<QuestionChange> = both
            .iter()
            .map(|(then, now)| QuestionChange {
                query: now.question.query.clone(),
                ndcg_10_before: then.figures.ndcg_10,
                ndcg_10: now.figures.ndcg_10,
            })
            .filter(|changed| changed.ndcg_change().abs() > CHANGE_MIN)
            .collect();
        changed.sort_by(|a, b| b.ndcg_change().abs().total_cmp(&a.ndcg_change().abs()));
        let (better, worse) = changed.into_iter().partition(|changed| changed.ndcg_change() > 0.0);
        let figures = mean(|(_, now)| now.figures).minus(&mean(|(then, _)| then.figures));
        Some(Self { since: last.at, questions: both.len(), figures, better, worse })
    }
}

impl QuestionChange {
    fn ndcg_change(&self) -> f64 {
        self.ndcg_10 - self.ndcg_10_before
    }

    fn line(&self) -> String {
        format!("{:.2} -> {:.2}  {}", self.ndcg_10_before, self.ndcg_10, self.query)
    }
}

/// The report as text, with the missed documents if `misses` is set.
pub(super) fn as_text(report: &EvalReport, misses: bool) -> String {
    let header = RetrievalMetrics::default().named_values().map(|(name, _)| name.to_owned());
    let mut rows = vec![[vec!["mode".to_owned()], header.to_vec()].concat()];
    let (mut unavailable, mut details) = (String::new(), String::new());
    for ModeReport { mode, outcome } in &report.modes {
        let mode = mode_name(*mode);
        match outcome {
            ModeOutcome::Unavailable { unavailable: reason } => {
                unavailable.push_str(&format!("{mode} is unavailable: {reason}\n"));
            }
            ModeOutcome::Measured { figures, change, questions } => {
                rows.push(row(mode, figures, change.as_ref()));
                details.extend(change.iter().map(|change| change_text(mode, change, report.questions)));
                if misses {
                    details.push_str(&misses_text(mode, &report.file, questions));
                }
            }
        }
    }
    let questions = count(report.questions as u64, "question");
    let table = if rows.len() > 1 { table(&rows) } else { String::new() };
    let unknown = report.unknown.iter();
    let unknown = unknown.map(|unknown| format!("{}:{}  {}", report.file, unknown.line, unknown.name));
    let unknown = list("not indexed, so never found:", LINES_SHOWN, unknown.collect());
    format!("{questions} in {}\n\n{table}{unavailable}{unknown}{details}", report.file)
}

/// The name of a mode.
pub(super) fn mode_name(mode: SearchMode) -> &'static str {
    match mode {
        SearchMode::Keyword => "keyword",
        SearchMode::Semantic => "semantic",
        SearchMode::Hybrid => "hybrid",
    }
}

fn row(mode: &str, figures: &RetrievalMetrics, change: Option<&MetricsChange>) -> Vec<String> {
    let changes = change.map(|change| change.figures.named_values());
    let cells = figures.named_values().into_iter().enumerate().map(|(index, (_, value))| {
        let by = changes.map_or_else(String::new, |changes| signed(changes[index].1));
        format!("{value:.3}{by}")
    });
    std::iter::once(mode.to_owned()).chain(cells).collect()
}

/// A change with sign and three decimals; `(=)` if it rounds to zero.
fn signed(by: f64) -> String {
    if by.abs() < 0.0005 { " (=)".to_owned() } else { format!(" ({by:+.3})") }
}

fn change_text(mode: &str, change: &MetricsChange, questions: usize) -> String {
    let scope = if change.questions == questions {
        String::new()
    } else {
        format!(", over the {} in both runs", count(change.questions as u64, "question"))
    };
    let (better, worse) = (change.better.len(), change.worse.len());
    let lines = |changed: &[QuestionChange]| changed.iter().map(QuestionChange::line).collect();
    let mut text = format!("\n{mode} since {}: {better} better, {worse} worse{scope}\n", change.since);
    text.push_str(&list("better:", LINES_SHOWN, lines(&change.better)));
    text.push_str(&list("worse:", LINES_SHOWN, lines(&change.worse)));
    text
}

fn misses_text(mode: &str, file: &str, results: &[QuestionResult]) -> String {
    let missed: Vec<&QuestionResult> =
        results.iter().filter(|result| result.measured.figures.recall_5 < 1.0).collect();
    let heading = format!("{mode}, expected documents not all in the top {TOP_RESULTS}: {}", missed.len());
    let line = |result: &&QuestionResult| {
        let question = &result.measured.question;
        let expected: Vec<&str> = question.expect.keys().map(String::as_str).collect();
        let found: Vec<&str> = result.found.iter().take(TOP_RESULTS).map(String::as_str).collect();
        let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
        format!(
            "{file}:{}  {}\n    expected  {}\n    found     {found}",
            result.line,
            question.query,
            expected.join(", ")
        )
    };
    list(&heading, MISSES_SHOWN, missed.iter().map(line).collect())
}

/// A heading with at most `shown` lines under it; empty without lines.
fn list(heading: &str, shown: usize, lines: Vec<String>) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let left_out = lines.len().saturating_sub(shown);
    let mut text = format!("\n{heading}\n");
    text.extend(lines.iter().take(shown).map(|line| format!("  {line}\n")));
    if left_out > 0 {
        text.push_str(&format!("  and {left_out} more\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::questions::EvalQuestion;
    use super::*;

    fn measured(query: &str, expect: &str, ndcg_10: f64) -> MeasuredQuestion {
        let question =
            EvalQuestion { query: query.to_owned(), expect: BTreeMap::from([(expect.to_owned(), 1)]) };
        MeasuredQuestion { question, figures: RetrievalMetrics { ndcg_10, ..RetrievalMetrics::default() } }
    }

    fn result_of(measured: MeasuredQuestion) -> QuestionResult {
        QuestionResult { line: 1, measured, found: Vec::new() }
    }

    #[test]
    fn only_questions_that_are_the_same_are_compared() {
        let last = ModeResults {
            at: Timestamp::UNIX_EPOCH,
            questions: vec![
                measured("kept", "a", 0.5),
                measured("better", "a", 0.0),
                measured("edited", "a", 1.0),
                measured("removed", "a", 1.0),
            ],
        };
        let now = [("kept", "a", 0.5), ("edited", "b", 0.0), ("new", "a", 0.0), ("better", "a", 1.0)];
        let now = now.map(|(query, expect, ndcg_10)| result_of(measured(query, expect, ndcg_10)));
        let change = MetricsChange::since(&last, &now).unwrap();
        assert_eq!((change.questions, change.figures.ndcg_10), (2, 0.5));
        assert_eq!(
            change.better.iter().map(|changed| changed.query.as_str()).collect::<Vec<_>>(),
            ["better"]
        );
        assert!(change.worse.is_empty());
        assert_eq!(MetricsChange::since(&last, &now[1..3]), None);
    }

    #[test]
    fn a_list_is_cut_and_says_so() {
        let lines = |count: usize| (0..count).map(|index| index.to_string()).collect();
        assert_eq!(list("some:", 2, lines(2)), "\nsome:\n  0\n  1\n");
        assert_eq!(list("some:", 2, lines(5)), "\nsome:\n  0\n  1\n  and 3 more\n");
        assert_eq!(list("none:", 2, lines(0)), "");
    }
}
