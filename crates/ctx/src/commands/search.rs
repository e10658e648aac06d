//! `ctx search`

use crate::cli::Global;
use crate::error::{CommandError, CommandResult};
use ctx_core::nearest;
use serde_json::{Map, Value, json};

/// Find documents.
#[derive(Debug, clap::Args)]
pub(crate) struct Search {
    /// What to look for, in plain words.
    #[arg(required = true)]
    query: Vec<String>,
    /// How to search; the workspace decides when absent.
    #[arg(long, value_name = "keyword|semantic|hybrid")]
    mode: Option<String>,
    /// Only this source (`filesystem:notes`) or kind of source (`filesystem`).
    #[arg(long)]
    source: Option<String>,
    /// Only documents with this tag; more than once for all of several.
    #[arg(long)]
    tag: Vec<String>,
    /// Only what changed at this time or later.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what changed at this time or earlier.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// How many results at most.
    #[arg(long, allow_negative_numbers = true)]
    limit: Option<i64>,
    /// Show where each score comes from.
    #[arg(long)]
    explain: bool,
    /// Let the last word be the beginning of one.
    #[arg(long)]
    prefix: bool,
}

impl Search {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let workspace = global.open()?;
        let output = global.output();
        // After a crash the keyword index may lag; a search that can repair it does.
        if let Err(error) = workspace.knowledge.tend() {
            output.warn(&ctx_core::chain(&error));
        }
        if self.source.is_some() {
            let known = workspace.knowledge.sources().await?;
            self.check_source(known.into_iter().map(|source| source.name).collect())?;
        }
        let answer = workspace.call("context.search", self.arguments()).await;
        workspace.close();
        let answer = answer?;
        let results = answer["results"].as_array().cloned().unwrap_or_default();
        if results.is_empty() && workspace.knowledge.stats()?.documents == 0 {
            output.say("nothing is indexed yet; run `ctx sync`");
        } else if results.is_empty() {
            output.say("nothing found");
        }
        output.content(&answer, || results.iter().zip(1..).map(|(hit, rank)| as_text(hit, rank)).collect())
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
        for (name, wanted) in [("explain", self.explain), ("prefix", self.prefix)] {
            if wanted {
                arguments.insert(name.to_owned(), json!(true));
            }
        }
        Value::Object(arguments)
    }
}

fn as_text(hit: &Value, rank: usize) -> String {
    let field = |name: &str| hit[name].as_str().unwrap_or_default();
    let date = field("updated_at").split('T').next().unwrap_or_default();
    let mut text = format!(
        "{rank:>2}. {}  ({:.2})\n    {}  {}  {date}\n    {}\n    id {}\n",
        field("title"),
        hit["score"].as_f64().unwrap_or_default(),
        field("source"),
        field("source_id"),
        field("snippet"),
        field("id"),
    );
    if let Some(explain) = hit.get("explain") {
        text.push_str(&format!("    {explain}\n"));
    }
    text
}
