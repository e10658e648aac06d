//! `ctx doctor`: prints the results of all checks.

use crate::admin::{self, Admin, CheckWorkspace, CheckWorkspaceRequest, Finding, Verdict, WorkspaceFault};
use crate::cli::{GlobalOptions, examples};
use crate::error::{CommandError, CommandResult};
use crate::style::{self, Painter};
use crate::workspace::Workspace;
use serde_json::{Value, json};

/// Check the workspace and suggest fixes.
///
/// Checks configuration, store, keyword index, embeddings, sources, scripts and upstreams. Exits with 1 if a check
/// fails.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Run all checks", "ctx doctor"),
    ("List the failed checks", "ctx doctor --json | jq '.checks[] | select(.ok | not)'"),
]))]
pub(crate) struct Doctor {}

impl Doctor {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let findings = match open(global) {
            Ok(workspace) => {
                let catalog = workspace.catalog.current();
                let checked = admin::call::<CheckWorkspace>(catalog, CheckWorkspaceRequest {}).await;
                workspace.end_processes().await;
                checked?.findings
            }
            Err(fault) => {
                let catalog = Admin::of_fault(fault).into_catalog();
                admin::call::<CheckWorkspace>(catalog, CheckWorkspaceRequest {}).await?.findings
            }
        };
        let failed = findings.iter().filter(|finding| finding.verdict == Verdict::Problem).count();
        let checks: Vec<Value> = findings.iter().map(as_json).collect();
        global.output().print_result_painted(&json!({"ok": failed == 0, "checks": checks}), |painter| {
            findings.iter().map(|finding| as_text(finding, painter)).collect()
        })?;
        if failed == 0 {
            Ok(())
        } else {
            Err(CommandError::new(format!("{failed} of {} checks failed", findings.len())))
        }
    }
}

/// The workspace, or the reason why it cannot be opened.
fn open(global: &GlobalOptions) -> Result<Workspace, WorkspaceFault> {
    let config = global.load().map_err(WorkspaceFault::Configuration)?;
    let file = admin::configuration_file(&config);
    Workspace::open(config, &global.additions).map_err(|error| WorkspaceFault::of_open(file, error))
}

fn as_json(finding: &Finding) -> Value {
    let ok = finding.verdict != Verdict::Problem;
    let mut check = json!({"name": finding.title(), "ok": ok, "detail": finding.message});
    if !finding.advice.is_empty() {
        check["hints"] = json!(finding.advice);
    }
    check
}

fn as_text(finding: &Finding, painter: Painter) -> String {
    let mark = match finding.verdict {
        Verdict::Problem => painter.paint(style::ERROR, "✗"),
        Verdict::Ok | Verdict::Warning => painter.paint(style::OK, "✓"),
    };
    let hint = painter.paint(style::HINT, "hint:");
    let hints: String =
        finding.advice.iter().map(|text| format!("    {hint} {}\n", painter.plain(text))).collect();
    format!("{mark} {}: {}\n{hints}", painter.plain(finding.title()), painter.plain(&finding.message))
}
