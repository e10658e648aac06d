//! `ctx sources`

use crate::cli::Global;
use crate::error::CommandResult;
use crate::output::table;
use ctx_knowledge::SourceStatus;
use serde_json::json;

/// List sources and how they are doing.
#[derive(Debug, clap::Args)]
pub(crate) struct Sources {}

impl Sources {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let workspace = global.open()?;
        let sources = workspace.knowledge.sources().await?;
        let output = global.output();
        if sources.is_empty() {
            output.say("no source is configured; add a [connectors.filesystem.<name>] section to ctx.toml");
        }
        output.answer(&json!({ "sources": sources }), || table(&sources.iter().map(row).collect::<Vec<_>>()))
    }
}

fn row(source: &SourceStatus) -> Vec<String> {
    let health = if source.healthy { "ok" } else { "failing" };
    vec![source.name.clone(), health.to_owned(), source.notes.clone().unwrap_or_default()]
}
