//! `ctx search`: one call of `context.search`, printed for people.

use crate::cli::{GlobalOptions, examples};
use crate::error::{CommandError, CommandResult};
use crate::style::{self, Painter};
use anstyle::Style;
use ctx_core::nearest;
use ctx_rank::Highlighter;
use serde_json::{Map, Value, json};

/// Search documents by keywords and by meaning.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Ask in plain words", "ctx search how do I roll back a release"),
    ("Search one source for documents changed this year", "ctx search certificate --source filesystem:handbook --since 2026-01-01"),
    ("Match keywords only, and show how each score is computed", "ctx search rate limit --mode keyword --explain"),
]))]
pub(crate) struct Search {
    /// The query, in plain words.
    #[arg(required = true)]
    query: Vec<String>,
    /// Search mode. By default the workspace's `retrieval.mode`.
    #[arg(long, value_name = "keyword|semantic|hybrid")]
    mode: Option<String>,
    /// Only documents of this source (`filesystem:notes`) or kind of source (`filesystem`).
    #[arg(long)]
    source: Option<String>,
    /// Only documents with this tag. If given several times, only documents with all of the tags.
    #[arg(long)]
    tag: Vec<String>,
    /// Only documents changed at this time or later.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only documents changed at this time or earlier.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Maximum number of results. By default the workspace's `retrieval.final_limit`.
    #[arg(long, allow_negative_numbers = true)]
    limit: Option<i64>,
    /// Show how each score is computed.
    #[arg(long)]
    explain: bool,
    /// Treat the last word as a prefix, for search as you type.
    #[arg(long)]
    prefix: bool,
}

impl Search {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let workspace = global.open()?;
        let output = global.output();
        // After a crash the keyword index may lag behind the store; it catches up before the search.
        if let Err(error) = workspace.knowledge.catch_up() {
            output.warn(&ctx_core::error_chain(&error));
        }
        if self.source.is_some() {
            let known = workspace.knowledge.sources().await?;
            self.check_source(known.into_iter().map(|source| source.name).collect())?;
        }
        let (query, mode) = (self.query.join(" "), self.mode.clone());
        let highlighter = Highlighter::new(&query, self.prefix);
        let is_filtered = self.is_filtered();
        let answer = workspace.call("context.search", self.arguments()).await;
        workspace.close();
        let answer = answer?;
        let results = answer["results"].as_array().cloned().unwrap_or_default();
        if results.is_empty() && workspace.knowledge.stats()?.documents == 0 {
            output.say("nothing is indexed yet; run `ctx sync`");
        } else if results.is_empty() {
            output.say("nothing relevant found");
            output.hint(match (is_filtered, mode.as_deref()) {
                (true, _) => "try it without a filter (`--source`, `--tag`, `--since`, `--until`)",
                (false, Some("keyword")) => {
                    "try other words, or leave `--mode keyword` out to search by meaning too"
                }
                (false, _) => "try other words; `ctx sources` shows what is indexed",
            });
        }
        output.print_painted(&answer, |painter| {
            results.iter().zip(1..).map(|(hit, rank)| as_text(hit, rank, &highlighter, painter)).collect()
        })
    }

    fn is_filtered(&self) -> bool {
        self.source.is_some() || !self.tag.is_empty() || self.since.is_some() || self.until.is_some()
    }

    fn check_source(&self, known: Vec<String>) -> CommandResult {
        let Some(source) = &self.source else { return Ok(()) };
        let kinds: Vec<&str> = known.iter().filter_map(|name| name.split(':').next()).collect();
        let mut names = known.iter().map(String::as_str).chain(kinds);
        if names.clone().any(|name| name == source) {
            return Ok(());
        }
        let error = CommandError::usage(format!("no source named `{source}`"));
        Err(match nearest(source, names.by_ref()) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint("`ctx sources` lists them"),
        })
    }

    fn arguments(self) -> Value {
        let mut filters = Map::new();
        let text = |value: Option<String>| value.map(Value::String);
        for (name, value) in
            [("source", text(self.source)), ("since", text(self.since)), ("until", text(self.until))]
        {
            filters.extend(value.map(|value| (name.to_owned(), value)));
        }
        if !self.tag.is_empty() {
            filters.insert("tags".to_owned(), json!(self.tag));
        }
        let mut arguments = Map::from_iter([("query".to_owned(), json!(self.query.join(" ")))]);
        arguments.extend(text(self.mode).map(|mode| ("mode".to_owned(), mode)));
        arguments.extend(self.limit.map(|limit| ("limit".to_owned(), json!(limit))));
        if !filters.is_empty() {
            arguments.insert("filters".to_owned(), Value::Object(filters));
        }
        for (name, is_set) in [("explain", self.explain), ("prefix", self.prefix)] {
            if is_set {
                arguments.insert(name.to_owned(), json!(true));
            }
        }
        Value::Object(arguments)
    }
}

/// A search hit in a few lines, with the words of the query highlighted.
fn as_text(hit: &Value, rank: usize, highlighter: &Highlighter, painter: Painter) -> String {
    let field = |name: &str| hit[name].as_str().unwrap_or_default();
    let highlighted = |style, name| painter.highlight(style, field(name), &highlighter.ranges(field(name)));
    let faint = |text: &str| painter.paint(style::FAINT, text);
    let date = field("updated_at").split('T').next().unwrap_or_default();
    let score = format!("({:.2})", hit["score"].as_f64().unwrap_or_default());
    let mut text = format!(
        "{rank:>2}. {}  {}\n    {}  {}  {}\n    {}\n    {}\n",
        highlighted(style::TITLE, "title"),
        faint(&score),
        faint(field("source")),
        painter.plain(field("source_id")),
        faint(date),
        highlighted(Style::new(), "snippet"),
        faint(&format!("id {}", field("id"))),
    );
    if let Some(explain) = hit.get("explain") {
        text.push_str(&format!("    {}\n", faint(&explain.to_string())));
    }
    text
}
