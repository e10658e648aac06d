//! `ctx runs`: lists recorded runs, or prints one with its nested calls.

use crate::admin::{self, ListRuns, ListRunsRequest, ShowRun, ShowRunRequest};
use crate::cli::{GlobalOptions, examples};
use crate::error::{CommandError, CommandResult};
use crate::output::{bytes, count, table};
use ctx_core::{NestedCallStats, Run, RunOutcome};
use ctx_store::RecordedRun;
use std::time::Duration;

/// List recorded runs, or show one run with its nested calls.
///
/// Every call of a tool by a client, script or command is recorded as a run: tool, caller, arguments, duration,
/// outcome.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("List the latest runs", "ctx runs"),
    ("List the latest failures of one tool", "ctx runs --tool context.search --failed --limit 5"),
    ("Show one run with its nested calls; a prefix of its id is enough", "ctx runs 0198c2f4"),
]))]
pub(crate) struct Runs {
    /// Id of the run to show, or a prefix of it.
    id: Option<String>,
    /// Maximum number of runs to list, newest first.
    #[arg(long, default_value_t = 20)]
    limit: u32,
    /// Only runs of this tool, by its full name (`context.search`).
    #[arg(long)]
    tool: Option<String>,
    /// Only runs that failed.
    #[arg(long)]
    failed: bool,
}

impl Runs {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let workspace = global.open()?;
        let (catalog, output) = (workspace.catalog.current(), global.output());
        let Some(id) = self.id else {
            let empty_message = match (self.failed, &self.tool) {
                (true, None) => "no failed runs are recorded",
                (true, Some(_)) => "no failed runs of this tool are recorded",
                (false, Some(_)) => "no runs of this tool are recorded",
                (false, None) => "no runs are recorded",
            };
            let request = ListRunsRequest { limit: self.limit, tool: self.tool, failed: self.failed };
            let listed = admin::call::<ListRuns>(catalog, request).await?;
            if listed.runs.is_empty() {
                output.say(empty_message);
            }
            return output.print_result(&listed, || run_table(&listed.runs));
        };
        let tree =
            admin::call::<ShowRun>(catalog, ShowRunRequest { id }).await.map_err(|error| {
                match error.is_not_found() {
                    true => CommandError::from(error).hint("`ctx runs` lists the recorded runs"),
                    false => error.into(),
                }
            })?;
        output.print_result(&tree, || tree.runs.iter().map(run_details).collect::<Vec<_>>().join("\n"))
    }
}

fn run_table(runs: &[RecordedRun]) -> String {
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|RecordedRun { run, inside }| {
            vec![
                run.id.to_string(),
                run.started_at.to_string(),
                run.tool.clone(),
                run.caller.clone(),
                outcome_text(run),
                duration_text(run.duration),
                bytes(run.result_bytes as u64),
                nested_calls_text(*inside).unwrap_or_default(),
            ]
        })
        .collect();
    table(&rows)
}

fn run_details(RecordedRun { run, inside }: &RecordedRun) -> String {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("id", run.id.to_string()),
        row("tool", run.tool.clone()),
        row("caller", run.caller.clone()),
        row("started", run.started_at.to_string()),
        row("took", duration_text(run.duration)),
        row("outcome", outcome_text(run)),
        row("arguments", format!("{} ({})", run.arguments, bytes(run.argument_bytes as u64))),
        row("result", bytes(run.result_bytes as u64)),
    ];
    if let Some(parent) = run.parent {
        rows.insert(1, row("parent", parent.to_string()));
    }
    if let Some(text) = nested_calls_text(*inside) {
        rows.push(row("nested", text));
    }
    if let RunOutcome::Failed { message, .. } = &run.outcome {
        rows.push(row("message", message.clone()));
    }
    table(&rows)
}

/// The number of nested calls of a run, and the bytes of their results that were not passed on to its caller;
/// `None` if there were no calls.
fn nested_calls_text(NestedCallStats { calls, bytes_kept }: NestedCallStats) -> Option<String> {
    (calls > 0).then(|| format!("{}, {} of results not returned", count(calls, "call"), bytes(bytes_kept)))
}

fn outcome_text(run: &Run) -> String {
    match &run.outcome {
        RunOutcome::Ok => "ok".to_owned(),
        RunOutcome::Failed { code, .. } => code.clone(),
    }
}

fn duration_text(duration: Duration) -> String {
    let milliseconds = duration.as_secs_f64() * 1_000.0;
    if milliseconds < 1_000.0 {
        format!("{milliseconds:.1} ms")
    } else {
        format!("{:.1} s", milliseconds / 1_000.0)
    }
}
