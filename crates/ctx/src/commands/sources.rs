//! `ctx sources`

use crate::cli::Global;
use crate::error::{CommandError, CommandResult};
use crate::output::{count, table};
use crate::workspace::Workspace;
use ctx_core::SourceName;
use ctx_knowledge::SourceStatus;
use serde_json::json;

/// List sources and how they are doing.
#[derive(Debug, clap::Args)]
pub(crate) struct Sources {
    /// Remove the documents of a source that is no longer configured.
    #[arg(long, value_name = "SOURCE")]
    forget: Option<String>,
}

impl Sources {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let workspace = global.open()?;
        let sources = workspace.knowledge.sources().await?;
        let output = global.output();
        if let Some(name) = &self.forget {
            let removed = forget(&workspace, &sources, name)?;
            return output.answer(&json!({"source": name, "removed": removed}), || {
                format!("{name}: {} removed", count(removed, "document"))
            });
        }
        if sources.is_empty() {
            output.say("no source is configured; add a [connectors.filesystem.<name>] section to ctx.toml");
        }
        output.answer(&json!({ "sources": sources }), || table(&sources.iter().map(row).collect::<Vec<_>>()))
    }
}

fn forget(workspace: &Workspace, sources: &[SourceStatus], name: &str) -> CommandResult<u64> {
    let Some(source) = sources.iter().find(|source| source.name == name) else {
        return Err(CommandError::usage(format!("no source named `{name}`")).hint("`ctx sources` lists them"));
    };
    if source.configured {
        return Err(CommandError::usage(format!(
            "`{name}` is configured, so the next sync would bring it back"
        ))
        .hint("take its section out of ctx.toml first"));
    }
    let (kind, own) = name.split_once(':').unwrap_or((name, ""));
    Ok(workspace.knowledge.forget(&SourceName::new(kind, own))?)
}

fn row(source: &SourceStatus) -> Vec<String> {
    let health = match (source.configured, source.healthy) {
        (false, _) => "gone",
        (true, true) => "ok",
        (true, false) => "failing",
    };
    vec![source.name.clone(), health.to_owned(), source.notes.clone().unwrap_or_default()]
}
