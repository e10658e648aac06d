//! `ctx eval`: measures retrieval quality with questions whose expected documents are known.

mod questions;
mod report;
mod saved_results;

use crate::cli::{GlobalOptions, examples};
use crate::error::{CommandError, CommandResult};
use crate::workspace::Workspace;
use ctx_core::{ErrorKind, RetrievalMetrics, ToolError};
use ctx_knowledge::SearchMode;
use jiff::Timestamp;
use questions::{EvalQuestion, LineItems};
use report::{
    EvalReport, MetricsChange, ModeOutcome, ModeReport, QuestionResult, UnknownDocument, as_text, mode_name,
};
use saved_results::{MeasuredQuestion, ModeResults, SavedResults};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Number of results per query; the metrics consider no more.
const LIMIT: usize = 10;
const MODES: [SearchMode; 3] = [SearchMode::Keyword, SearchMode::Semantic, SearchMode::Hybrid];

/// Measure retrieval quality with questions whose answers are known.
///
/// Runs every question in each search mode, prints nDCG, recall and MRR, and compares them with those of the last run.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Measure all search modes", "ctx eval eval.jsonl"),
    ("Show which questions hybrid search misses", "ctx eval eval.jsonl --mode hybrid --misses"),
]))]
pub(crate) struct Eval {
    /// File of questions, one JSON object per line: {"query": "…", "expect": ["notes/a.md"]}. A document is named by
    /// its `source_id`, by `source:source_id` or by its id. With grades: {"notes/a.md": 2, "b.md": 1}.
    file: PathBuf,
    /// Measure only this search mode. Can be repeated. By default all modes.
    #[arg(long, value_name = "keyword|semantic|hybrid", value_parser = parse_mode)]
    mode: Vec<SearchMode>,
    /// List the questions whose expected documents are not all among the first five results.
    #[arg(long)]
    misses: bool,
    /// Do not store the results for comparison with the next run.
    #[arg(long)]
    no_save: bool,
}

/// A question whose expected documents are resolved to ids.
struct ResolvedQuestion {
    line: usize,
    question: EvalQuestion,
    /// Grades by document id. The name of a missing document stands for its id and is never found.
    expected: HashMap<String, u32>,
}

impl Eval {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let questions = questions::read(&self.file)?;
        let workspace = global.open()?;
        workspace.stop_recording();
        let output = global.output();
        if workspace.knowledge.stats()?.documents == 0 {
            return Err(CommandError::new("nothing is indexed yet").hint("run `ctx sync`"));
        }
        // As in `ctx search`: after a crash the keyword index may lag behind the store.
        if let Err(error) = workspace.knowledge.catch_up() {
            output.warn(&ctx_core::error_chain(&error));
        }
        let (resolved, unknown) = resolve_questions(&workspace, &self.file, questions)?;
        let file = results_key(&self.file, &workspace.config.root);
        let path = SavedResults::path(workspace.config.store_path(), &file);
        let mut saved = SavedResults::read(&path).unwrap_or_else(|error| {
            output.warn(&format!("cannot read the last results: {error}"));
            SavedResults::default()
        });

        let selected = if self.mode.is_empty() { &MODES[..] } else { &self.mode[..] };
        let mut modes = Vec::new();
        for mode in MODES.into_iter().filter(|mode| selected.contains(mode)) {
            modes.push(ModeReport { mode, outcome: measure(&workspace, mode, &resolved, &mut saved).await? });
        }
        workspace.close();
        if !self.no_save {
            saved.file.clone_from(&file);
            if let Err(error) = saved.write(&path) {
                output.warn(&format!("cannot save the results: {error}"));
            }
        }
        let shown = self.file.display().to_string();
        let report = EvalReport { file: shown, questions: resolved.len(), unknown, modes };
        output.print_result(&report, || as_text(&report, self.misses))
    }
}

/// Runs all questions in one mode, and replaces the stored results of that mode.
async fn measure(
    workspace: &Workspace,
    mode: SearchMode,
    questions: &[ResolvedQuestion],
    saved: &mut SavedResults,
) -> CommandResult<ModeOutcome> {
    let mut results = Vec::with_capacity(questions.len());
    for resolved in questions {
        let hits = match run_query(workspace, mode, &resolved.question.query).await {
            Ok(hits) => hits,
            Err(error)
                if matches!(error.kind(), ErrorKind::EmbeddingsDisabled | ErrorKind::NotConfigured) =>
            {
                return Ok(ModeOutcome::Unavailable { unavailable: error.to_string() });
            }
            Err(error) => return Err(error.into()),
        };
        let field = |name: &str| -> Vec<String> {
            hits.iter().map(|hit| hit[name].as_str().unwrap_or_default().to_owned()).collect()
        };
        let figures = RetrievalMetrics::of(&field("id"), &resolved.expected);
        results.push(QuestionResult {
            line: resolved.line,
            measured: MeasuredQuestion { question: resolved.question.clone(), figures },
            found: field("source_id"),
        });
    }
    let figures = RetrievalMetrics::mean(results.iter().map(|result| &result.measured.figures));
    let questions = results.iter().map(|result| result.measured.clone()).collect();
    let last =
        saved.modes.insert(mode_name(mode).to_owned(), ModeResults { at: Timestamp::now(), questions });
    let change = last.and_then(|last| MetricsChange::since(&last, &results));
    Ok(ModeOutcome::Measured { figures, change, questions: results })
}

/// Runs one query by a call of `context.search`, as clients do.
async fn run_query(workspace: &Workspace, mode: SearchMode, query: &str) -> Result<Vec<Value>, ToolError> {
    let arguments = json!({ "query": query, "mode": mode, "limit": LIMIT });
    let mut answer = workspace.call("context.search", arguments).await?;
    Ok(answer["results"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// Resolves the expected documents of all questions, and returns the names of those that are not stored.
fn resolve_questions(
    workspace: &Workspace,
    file: &Path,
    questions: LineItems<EvalQuestion>,
) -> CommandResult<(Vec<ResolvedQuestion>, Vec<UnknownDocument>)> {
    let names = questions.iter().flat_map(|(_, question)| question.expect.keys().map(String::as_str));
    let matches = workspace.knowledge.documents_by_name(&names.collect())?;
    let (mut resolved, mut unknown, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for (line, question) in questions {
        let mut expected = HashMap::new();
        for (name, grade) in &question.expect {
            let id = match matches.get(name).map_or(&[][..], Vec::as_slice) {
                [] => {
                    unknown.push(UnknownDocument { line, name: name.clone() });
                    name.clone()
                }
                [one] => one.id.to_string(),
                several => {
                    let names: Vec<_> =
                        several.iter().map(|named| format!("`{}`", named.full_name)).collect();
                    problems.push((
                        line,
                        format!("`{name}` is ambiguous: {}; use the full name", names.join(" or ")),
                    ));
                    continue;
                }
            };
            // Two names of the same document count once, with the higher grade.
            let best = expected.entry(id).or_insert(0);
            *best = (*best).max(*grade);
        }
        resolved.push(ResolvedQuestion { line, question, expected });
    }
    if problems.is_empty() { Ok((resolved, unknown)) } else { Err(questions::invalid_lines(file, problems)) }
}

/// The key of a file's results: its path relative to the workspace, or its absolute path outside of it.
fn results_key(file: &Path, root: &Path) -> String {
    let canonical = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (file, root) = (canonical(file), canonical(root));
    file.strip_prefix(&root).unwrap_or(&file).display().to_string()
}

fn parse_mode(text: &str) -> Result<SearchMode, String> {
    MODES
        .into_iter()
        .find(|mode| mode_name(*mode) == text)
        .ok_or_else(|| "write `keyword`, `semantic` or `hybrid`".to_owned())
}
