//! `ctx sources`

use super::refresh;
use crate::cli::Global;
use crate::config::Every;
use crate::error::{CommandError, CommandResult};
use crate::output::{count, table};
use crate::style::{self, Painter};
use crate::trust::SYNC_GROUPS;
use crate::workspace::Workspace;
use anstyle::Style;
use ctx_core::SourceName;
use ctx_knowledge::{SourceStatus, cache_path};
use jiff::Timestamp;
use serde::Serialize;
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
        let workspace = global.open_for(SYNC_GROUPS)?;
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
        let sources: Vec<Shown> = sources.into_iter().map(|status| Shown::new(status, &workspace)).collect();
        output.answer_painted(&json!({ "sources": sources }), |painter| {
            let rows = table(&sources.iter().map(Shown::row).collect::<Vec<_>>());
            let painted = |row: &str| {
                let source = sources.iter().find(|source| row.starts_with(&source.status.name));
                source.map_or_else(|| painter.plain(row).into_owned(), |source| source.painted(row, painter))
            };
            rows.lines().map(|row| painted(row) + "\n").collect()
        })
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
    let name = SourceName::new(kind, own);
    let removed = workspace.knowledge.forget(&name)?;
    // `forget` removes the cache beside the store; with `db.path` the cache is in the data folder instead. A failure
    // only costs disk space.
    std::fs::remove_dir_all(cache_path(&workspace.config.cache_base(), &name)).ok();
    Ok(removed)
}

/// A source, how it is doing, and how a server keeps it fresh.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    status: SourceStatus,
    /// Whether it is synced when it changes.
    watched: bool,
    /// How often it is synced.
    every: Option<String>,
    /// When that is next.
    next_sync: Option<Timestamp>,
}

impl Shown {
    fn new(status: SourceStatus, workspace: &Workspace) -> Self {
        let freshness = workspace.freshness.iter().find(|source| source.name.to_string() == status.name);
        let every = freshness.and_then(|freshness| freshness.every);
        let now = Timestamp::now();
        let next =
            |(every, last): (Every, _)| now.checked_add(refresh::wait(every.duration(), Some(last), now));
        Self {
            watched: freshness.is_some_and(|freshness| freshness.watch),
            every: every.map(|every| every.to_string()),
            next_sync: every.zip(status.last_sync).and_then(|times| next(times).ok()),
            status,
        }
    }

    /// How it is, and the style of that word.
    fn health(&self) -> (&'static str, Style) {
        match (self.status.configured, self.status.healthy) {
            (false, _) => ("gone", style::FAINT),
            (true, true) => ("ok", style::OK),
            (true, false) => ("failing", style::ERROR),
        }
    }

    /// Its row with the health in colour: the first word after the name and the gap.
    fn painted(&self, row: &str, painter: Painter) -> String {
        let (health, style) = self.health();
        let name_end = self.status.name.len().min(row.len());
        match row[name_end..].find(health) {
            Some(gap) => {
                let (before, rest) = row.split_at(name_end + gap);
                let (word, after) = rest.split_at(health.len());
                format!("{}{}{}", painter.plain(before), painter.paint(style, word), painter.plain(after))
            }
            None => painter.plain(row).into_owned(),
        }
    }

    fn row(&self) -> Vec<String> {
        let (health, _) = self.health();
        let notes = self.status.notes.as_deref().unwrap_or_default();
        let notes = match self.next_sync {
            Some(next) if next > Timestamp::now() => format!("{notes}, next {next}"),
            Some(_) => format!("{notes}, due"),
            None => notes.to_owned(),
        };
        vec![self.status.name.clone(), health.to_owned(), self.freshness(), notes]
    }

    /// What brings in what changed.
    fn freshness(&self) -> String {
        let watched = self.watched.then(|| "watched".to_owned());
        let every = self.every.as_ref().map(|every| format!("every {every}"));
        let ways: Vec<String> = watched.into_iter().chain(every).collect();
        match (self.status.configured, ways.is_empty()) {
            (false, _) => String::new(),
            (true, true) => "by hand".to_owned(),
            (true, false) => ways.join(", "),
        }
    }
}
