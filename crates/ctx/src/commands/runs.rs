//! `ctx runs`

use crate::cli::Global;
use crate::error::{CommandError, CommandResult};
use crate::output::{bytes, count, table};
use ctx_core::{Inside, Outcome, Run};
use ctx_state::{Recorded, RunFilter};
use serde_json::json;
use std::time::Duration;

/// Show recorded runs, or one with the calls inside it.
#[derive(Debug, clap::Args)]
pub(crate) struct Runs {
    /// The run to show; the beginning of its id is enough.
    id: Option<String>,
    /// How many to list, newest first.
    #[arg(long, default_value_t = 20)]
    limit: u32,
    /// Only runs of this tool, by full name (`context.search`).
    #[arg(long)]
    tool: Option<String>,
    /// Only runs that failed.
    #[arg(long)]
    failed: bool,
}

impl Runs {
    pub(crate) fn run(self, global: &Global) -> CommandResult {
        let workspace = global.open()?;
        let (runs, output) = (workspace.runs()?, global.output());
        let Some(prefix) = self.id else {
            let filter = RunFilter { limit: self.limit as usize, tool: self.tool, failed: self.failed };
            let listed = runs.list(&filter)?;
            if listed.is_empty() {
                output.say(match &filter {
                    RunFilter { failed: true, .. } => "no run that failed is recorded",
                    RunFilter { tool: Some(_), .. } => "no run of this tool is recorded",
                    _ => "no runs are recorded",
                });
            }
            return output.answer(&json!({ "runs": listed }), || list(&listed));
        };
        let id = runs.find(&prefix)?.ok_or_else(|| {
            CommandError::new(format!("no single run has an id that begins with `{prefix}`"))
                .hint("`ctx runs` lists them")
        })?;
        let tree = runs.tree(id)?;
        output.answer(&json!({ "runs": tree }), || tree.iter().map(whole).collect::<Vec<_>>().join("\n"))
    }
}

fn list(runs: &[Recorded]) -> String {
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|Recorded { run, inside }| {
            vec![
                run.id.to_string(),
                run.started_at.to_string(),
                run.tool.clone(),
                run.caller.clone(),
                outcome(run),
                duration(run.duration),
                bytes(run.result_bytes as u64),
                told(*inside).unwrap_or_default(),
            ]
        })
        .collect();
    table(&rows)
}

fn whole(Recorded { run, inside }: &Recorded) -> String {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("id", run.id.to_string()),
        row("tool", run.tool.clone()),
        row("caller", run.caller.clone()),
        row("started", run.started_at.to_string()),
        row("took", duration(run.duration)),
        row("outcome", outcome(run)),
        row("arguments", format!("{} ({})", run.arguments, bytes(run.argument_bytes as u64))),
        row("result", bytes(run.result_bytes as u64)),
    ];
    if let Some(parent) = run.parent {
        rows.insert(1, row("inside", parent.to_string()));
    }
    if let Some(told) = told(*inside) {
        rows.push(row("within", told));
    }
    if let Outcome::Failed { message, .. } = &run.outcome {
        rows.push(row("message", message.clone()));
    }
    table(&rows)
}

/// What was called inside, and how much of it nobody had to read.
fn told(Inside { calls, bytes_kept }: Inside) -> Option<String> {
    (calls > 0).then(|| format!("{}, {} kept", count(calls, "call"), bytes(bytes_kept)))
}

fn outcome(run: &Run) -> String {
    match &run.outcome {
        Outcome::Ok => "ok".to_owned(),
        Outcome::Failed { code, .. } => code.clone(),
    }
}

fn duration(duration: Duration) -> String {
    let milliseconds = duration.as_secs_f64() * 1_000.0;
    if milliseconds < 1_000.0 {
        format!("{milliseconds:.1} ms")
    } else {
        format!("{:.1} s", milliseconds / 1_000.0)
    }
}
