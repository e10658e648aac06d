//! `ctx eval`

mod kept;
mod questions;
mod report;

use crate::cli::Global;
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

/// Results asked for; the figures look at no more.
const LIMIT: usize = 10;
const MODES: [Mode; 3] = [Mode::Keyword, Mode::Semantic, Mode::Hybrid];

/// Measure how well questions find the documents that answer them.
#[derive(Debug, clap::Args)]
pub(crate) struct Eval {
    /// The questions, one a line: {"query": "…", "expect": ["notes/a.md"]}. A document is named by its
    /// `source_id`, by `source:source_id` or by its id; grades make {"notes/a.md": 2, "b.md": 1}.
    file: PathBuf,
    /// Only this way of searching; more than once for several.
    #[arg(long, value_name = "keyword|semantic|hybrid", value_parser = mode)]
    mode: Vec<Mode>,
    /// Show the questions whose documents are not all among the first five.
    #[arg(long)]
    misses: bool,
    /// Do not keep the results to compare the next ones with.
    #[arg(long)]
    no_save: bool,
}

/// A question whose expectations are looked up.
struct Ready {
    line: usize,
    question: Question,
    /// By document id; a name that means no document stands for itself and is never found.
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
        // As before any other search: after a crash the keyword index may lag.
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

/// Asks every question in one mode, and puts the results in place of the last ones.
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

/// Asks one question, through the same door as everybody.
async fn ask(workspace: &Workspace, mode: Mode, query: &str) -> Result<Vec<Value>, ToolError> {
    let arguments = json!({ "query": query, "mode": mode, "limit": LIMIT });
    let mut answer = workspace.call("context.search", arguments).await?;
    Ok(answer["results"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// Finds the documents that are expected, and names those that are not stored.
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
            // Two names of one document are one expectation, the better grade holds.
            let best = expected.entry(id).or_insert(0);
            *best = (*best).max(*grade);
        }
        ready.push(Ready { line, question, expected });
    }
    if problems.is_empty() { Ok((ready, unknown)) } else { Err(questions::wrong(file, problems)) }
}

/// What the results of a file are kept under: its place in the workspace, or else its whole path.
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
