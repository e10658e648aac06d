//! `ctx eval`: measures retrieval quality with questions whose expected documents are known.

mod kept;
mod questions;
mod report;

use crate::cli::{Global, examples};
use crate::error::{CommandError, CommandResult};
use crate::workspace::Workspace;
use ctx_core::{ErrorKind, Figures, ToolError};
use ctx_knowledge::Mode;
use jiff::Timestamp;
use kept::{Kept, Measured, Results};
use questions::{Lines, Question};
use report::{Asked, Change, ModeReport, Outcome, Report, Unknown, as_text, name};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Number of results per query; the metrics consider no more.
const LIMIT: usize = 10;
const MODES: [Mode; 3] = [Mode::Keyword, Mode::Semantic, Mode::Hybrid];

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
    #[arg(long, value_name = "keyword|semantic|hybrid", value_parser = mode)]
    mode: Vec<Mode>,
    /// List the questions whose expected documents are not all among the first five results.
    #[arg(long)]
    misses: bool,
    /// Do not store the results for comparison with the next run.
    #[arg(long)]
    no_save: bool,
}

/// A question whose expected documents are resolved to ids.
struct Ready {
    line: usize,
    question: Question,
    /// Grades by document id. The name of a missing document stands for its id and is never found.
    expected: HashMap<String, u32>,
}

impl Eval {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let questions = questions::read(&self.file)?;
        let workspace = global.open()?;
        workspace.stop_recording();
        let output = global.output();
        if workspace.knowledge.stats()?.documents == 0 {
            return Err(CommandError::new("nothing is indexed yet").hint("run `ctx sync`"));
        }
        // As in `ctx search`: after a crash the keyword index may lag behind the store.
        if let Err(error) = workspace.knowledge.tend() {
            output.warn(&ctx_core::chain(&error));
        }
        let (ready, unknown) = look_up(&workspace, &self.file, questions)?;
        let file = place(&self.file, &workspace.config.root);
        let path = Kept::path(workspace.config.store_path(), &file);
        let mut kept = Kept::read(&path).unwrap_or_else(|error| {
            output.warn(&format!("the last results cannot be read: {error}"));
            Kept::default()
        });

        let chosen = if self.mode.is_empty() { &MODES[..] } else { &self.mode[..] };
        let mut modes = Vec::new();
        for mode in MODES.into_iter().filter(|mode| chosen.contains(mode)) {
            modes.push(ModeReport { mode, outcome: measure(&workspace, mode, &ready, &mut kept).await? });
        }
        workspace.close();
        if !self.no_save {
            kept.file.clone_from(&file);
            if let Err(error) = kept.write(&path) {
                output.warn(&format!("the results are not kept: {error}"));
            }
        }
        let shown = self.file.display().to_string();
        let report = Report { file: shown, questions: ready.len(), unknown, modes };
        output.answer(&report, || as_text(&report, self.misses))
    }
}

/// Runs all questions in one mode, and replaces the stored results of that mode.
async fn measure(
    workspace: &Workspace,
    mode: Mode,
    questions: &[Ready],
    kept: &mut Kept,
) -> CommandResult<Outcome> {
    let mut asked = Vec::with_capacity(questions.len());
    for ready in questions {
        let hits = match ask(workspace, mode, &ready.question.query).await {
            Ok(hits) => hits,
            Err(error)
                if matches!(error.kind(), ErrorKind::EmbeddingsDisabled | ErrorKind::NotConfigured) =>
            {
                return Ok(Outcome::Unavailable { unavailable: error.to_string() });
            }
            Err(error) => return Err(error.into()),
        };
        let field = |name: &str| -> Vec<String> {
            hits.iter().map(|hit| hit[name].as_str().unwrap_or_default().to_owned()).collect()
        };
        let figures = Figures::of(&field("id"), &ready.expected);
        asked.push(Asked {
            line: ready.line,
            measured: Measured { question: ready.question.clone(), figures },
            found: field("source_id"),
        });
    }
    let figures = Figures::mean(asked.iter().map(|asked| &asked.measured.figures));
    let questions = asked.iter().map(|asked| asked.measured.clone()).collect();
    let last = kept.modes.insert(name(mode).to_owned(), Results { at: Timestamp::now(), questions });
    let change = last.and_then(|last| Change::since(&last, &asked));
    Ok(Outcome::Measured { figures, change, questions: asked })
}

/// Runs one query by a call of `context.search`, as clients do.
async fn ask(workspace: &Workspace, mode: Mode, query: &str) -> Result<Vec<Value>, ToolError> {
    let arguments = json!({ "query": query, "mode": mode, "limit": LIMIT });
    let mut answer = workspace.call("context.search", arguments).await?;
    Ok(answer["results"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// Resolves the expected documents of all questions, and returns the names of those that are not stored.
fn look_up(
    workspace: &Workspace,
    file: &Path,
    questions: Lines<Question>,
) -> CommandResult<(Vec<Ready>, Vec<Unknown>)> {
    let names = questions.iter().flat_map(|(_, question)| question.expect.keys().map(String::as_str));
    let meant = workspace.knowledge.named(&names.collect())?;
    let (mut ready, mut unknown, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for (line, question) in questions {
        let mut expected = HashMap::new();
        for (name, grade) in &question.expect {
            let id = match meant.get(name).map_or(&[][..], Vec::as_slice) {
                [] => {
                    unknown.push(Unknown { line, name: name.clone() });
                    name.clone()
                }
                [one] => one.id.to_string(),
                several => {
                    let names: Vec<_> =
                        several.iter().map(|named| format!("`{}`", named.full_name)).collect();
                    problems.push((line, format!("`{name}` may be {}; write which", names.join(" or "))));
                    continue;
                }
            };
            // Two names of the same document count once, with the higher grade.
            let best = expected.entry(id).or_insert(0);
            *best = (*best).max(*grade);
        }
        ready.push(Ready { line, question, expected });
    }
    if problems.is_empty() { Ok((ready, unknown)) } else { Err(questions::wrong(file, problems)) }
}

/// The key of a file's results: its path relative to the workspace, or its absolute path outside of it.
fn place(file: &Path, root: &Path) -> String {
    let whole = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (file, root) = (whole(file), whole(root));
    file.strip_prefix(&root).unwrap_or(&file).display().to_string()
}

fn mode(text: &str) -> Result<Mode, String> {
    MODES
        .into_iter()
        .find(|mode| name(*mode) == text)
        .ok_or_else(|| "write `keyword`, `semantic` or `hybrid`".to_owned())
}
