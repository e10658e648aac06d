//! `ctx sources`: lists sources, and deletes the documents of a removed one.

use crate::admin::{self, ForgetSource, ForgetSourceRequest, ListSources, ListSourcesRequest, ListedSource};
use crate::cli::{GlobalOptions, examples};
use crate::error::CommandResult;
use crate::output::{count, table};
use crate::style::{self, Painter};
use crate::trust::SYNC_GROUPS;
use anstyle::Style;
use jiff::Timestamp;

/// List sources with their health, schedule and last sync.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("List all sources", "ctx sources"),
    ("Delete the documents of a source that was removed from ctx.toml", "ctx sources --forget filesystem:old-notes"),
]))]
pub(crate) struct Sources {
    /// Delete the documents of a source that is no longer configured.
    #[arg(long, value_name = "SOURCE")]
    forget: Option<String>,
}

impl Sources {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let workspace = global.open_for(SYNC_GROUPS)?;
        let (catalog, output) = (workspace.catalog.current(), global.output());
        if let Some(source) = self.forget {
            let forgotten = admin::call::<ForgetSource>(catalog, ForgetSourceRequest { source }).await?;
            return output.print_result(&forgotten, || {
                format!("{}: {} removed", forgotten.source, count(forgotten.removed, "document"))
            });
        }
        let answer = admin::call::<ListSources>(catalog, ListSourcesRequest {}).await?;
        let sources = &answer.sources;
        if sources.is_empty() {
            output.say("no source is configured; add a [connectors.filesystem.<name>] section to ctx.toml");
        }
        output.print_result_painted(&answer, |painter| {
            let rows = table(&sources.iter().map(row).collect::<Vec<_>>());
            let painted = |row: &str| {
                let source = sources.iter().find(|source| row.starts_with(&source.status.name));
                source.map_or_else(
                    || painter.plain(row).into_owned(),
                    |source| painted_row(source, row, painter),
                )
            };
            rows.lines().map(|row| painted(row) + "\n").collect()
        })
    }
}

/// The word for a source's health, and the style of that word.
fn health(source: &ListedSource) -> (&'static str, Style) {
    match (source.status.configured, source.status.healthy) {
        (false, _) => ("gone", style::FAINT),
        (true, true) => ("ok", style::OK),
        (true, false) => ("failing", style::ERROR),
    }
}

/// A row of the table with the health in colour. The health is the first word after the name.
fn painted_row(source: &ListedSource, row: &str, painter: Painter) -> String {
    let (health, style) = health(source);
    let name_end = source.status.name.len().min(row.len());
    match row[name_end..].find(health) {
        Some(gap) => {
            let (before, rest) = row.split_at(name_end + gap);
            let (word, after) = rest.split_at(health.len());
            format!("{}{}{}", painter.plain(before), painter.paint(style, word), painter.plain(after))
        }
        None => painter.plain(row).into_owned(),
    }
}

fn row(source: &ListedSource) -> Vec<String> {
    let (health, _) = health(source);
    let notes = source.status.notes.as_deref().unwrap_or_default();
    let notes = match source.next_sync {
        Some(next) if next > Timestamp::now() => format!("{notes}, next {next}"),
        Some(_) => format!("{notes}, due"),
        None => notes.to_owned(),
    };
    vec![source.status.name.clone(), health.to_owned(), freshness(source), notes]
}

/// How the source is kept up to date: watched, on a schedule, or by hand.
fn freshness(source: &ListedSource) -> String {
    let watched = source.watched.then(|| "watched".to_owned());
    let every = source.every.as_ref().map(|every| format!("every {every}"));
    let modes: Vec<String> = watched.into_iter().chain(every).collect();
    match (source.status.configured, modes.is_empty()) {
        (false, _) => String::new(),
        (true, true) => "manual".to_owned(),
        (true, false) => modes.join(", "),
    }
}
