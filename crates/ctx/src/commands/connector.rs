//! `ctx connector`: tests connectors in Lua, and writes new ones.

use super::script_test::{TestEnvironment, TestReport};
use super::template;
use crate::cli::{GlobalOptions, examples};
use crate::error::CommandResult;
use crate::output::count;
use clap::Subcommand;
use ctx_core::{Change, Document, DocumentContent, KnownDocuments, Sink, error_chain};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Maximum number of items shown; further ones are only counted.
const SHOWN_MAX: usize = 5;
/// Maximum number of characters shown of an item's text.
const TEXT_CHARS_SHOWN: usize = 200;
/// Capacity of the queue between the connector and the counting task.
const QUEUED_CHANGES_MAX: usize = 16;

/// Create and test connectors in Lua, which read documents from other systems.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Create a connector and its section in ctx.toml", "ctx connector init jira"),
    ("Show the documents that a connector reads, without storing them", "ctx connector test connectors/jira.lua"),
]))]
pub(crate) struct Connector {
    #[command(subcommand)]
    action: ConnectorAction,
}

#[derive(Debug, Subcommand)]
enum ConnectorAction {
    /// Create a connector: connectors/NAME.lua and its section in ctx.toml.
    #[command(after_help = examples(&[
        ("Create connectors/jira.lua", "ctx connector init jira"),
        ("Create a connector, and print its path and section as JSON", "ctx connector init wiki --json"),
    ]))]
    Init {
        /// The connector's name, such as `jira`.
        name: String,
    },
    Test(ConnectorTest),
}

/// Run a connector once, and print the documents without storing them.
///
/// The scan runs as in the first sync of a source.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Test a connector", "ctx connector test connectors/rss.lua"),
    ("Test it with the settings of [connectors.script.news]", "ctx connector test connectors/rss.lua --source news"),
]))]
struct ConnectorTest {
    /// The connector's script.
    file: PathBuf,
    /// The `[connectors.script.NAME]` section of ctx.toml to use. By default the section with this file as its `path`.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

impl Connector {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        match self.action {
            ConnectorAction::Init { name } => template::write(&template::CONNECTOR, &name, global),
            ConnectorAction::Test(test) => test.run(global).await,
        }
    }
}

impl ConnectorTest {
    async fn run(self, global: &GlobalOptions) -> CommandResult {
        let environment = TestEnvironment::open(global, "connectors.")?;
        let mut report = TestReport::new("connector", global.output());
        let mut settings = environment.settings("connectors", &self.file, self.source.as_deref())?;
        let scripts = environment.scripts()?;
        if report.load_script(scripts, &mut settings).await?.is_none() {
            return report.fail();
        }
        let connector = match scripts.connector(&settings).await {
            Ok(connector) => connector,
            Err(problem) => return report.fail_with(&problem.message),
        };
        report.report_step("connector.scan defined")?;
        report.report_step("Calling scan(config)...")?;
        let started = Instant::now();
        let (sink, mut changes) = Sink::channel(QUEUED_CHANGES_MAX, Arc::new(NoKnownItems));
        let counting = async {
            let mut summary = ScanSummary::default();
            while let Some(change) = changes.recv().await {
                summary.add(change);
            }
            summary
        };
        let pulling = async {
            let pulled = connector.pull(None, &sink).await;
            drop(sink);
            pulled
        };
        let (pulled, summary) = tokio::join!(pulling, counting);
        let pulled = match pulled {
            Ok(pulled) => pulled,
            Err(error) => return report.fail_with(&error_chain(&error)),
        };
        let elapsed = started.elapsed();
        report.report_step(&format!("Returned {} in {:.1}s", summary.describe(), elapsed.as_secs_f64()))?;
        let answer = json!({
            "items": summary.items,
            "deleted": summary.deleted,
            "unreadable": summary.unreadable,
            "shown": summary.shown,
            "cursor": pulled.cursor,
        });
        report.succeed("scan", &answer, elapsed.as_millis())
    }
}

/// No known items, as in the first sync of a source.
struct NoKnownItems;

impl KnownDocuments for NoKnownItems {
    fn is_current(&self, _: &str, _: &str) -> bool {
        false
    }
}

/// The items that a scan returned.
#[derive(Default)]
struct ScanSummary {
    items: u64,
    deleted: u64,
    unreadable: Vec<Value>,
    shown: Vec<Value>,
}

impl ScanSummary {
    fn add(&mut self, change: Change) {
        match change {
            Change::Upsert(document) => {
                self.items += 1;
                if self.shown.len() < SHOWN_MAX {
                    self.shown.push(preview(&document));
                }
            }
            Change::Delete { .. } => self.deleted += 1,
            Change::Unreadable { source_id, reason } => {
                self.unreadable.push(json!({"source_id": source_id, "reason": reason}));
            }
        }
    }

    fn describe(&self) -> String {
        let mut parts = vec![count(self.items, "item")];
        if self.deleted > 0 {
            parts.push(format!("{} deleted", self.deleted));
        }
        if !self.unreadable.is_empty() {
            parts.push(format!("{} unusable", self.unreadable.len()));
        }
        parts.join(", ")
    }
}

/// A document as it is shown: all of its fields, with only the beginning of its text.
fn preview(document: &Document) -> Value {
    let text = match &document.content {
        DocumentContent::Text(text) => text.clone(),
        DocumentContent::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    };
    let mut body: String = text.chars().take(TEXT_CHARS_SHOWN).collect();
    if body.len() < text.len() {
        body.push('…');
    }
    let mut shown = json!({"source_id": document.source_id, "title": document.title, "body": body});
    let optional = [
        ("source_url", json!(document.source_url)),
        ("author", json!(document.author)),
        ("created_at", json!(document.created_at)),
        ("updated_at", json!(document.updated_at)),
        ("content_type", json!(document.content_type)),
        ("tags", json!(document.tags)),
        ("metadata", json!(document.metadata)),
    ];
    for (name, value) in optional {
        let is_empty = value.is_null() || value == json!([]) || value == json!({});
        if let (false, Some(fields)) = (is_empty, shown.as_object_mut()) {
            fields.insert(name.to_owned(), value);
        }
    }
    shown
}
