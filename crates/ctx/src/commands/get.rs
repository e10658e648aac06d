//! `ctx get`: looks a document up by path, name or id, and prints it.

use crate::cli::{GlobalOptions, examples, working_directory};
use crate::error::{CommandError, CommandResult};
use crate::output::table;
use crate::workspace::Workspace;
use ctx_core::ErrorKind;
use ctx_knowledge::{Lookup, NamedDocument};
use serde_json::{Value, json};

/// Maximum number of documents listed when a name is ambiguous.
const CANDIDATES_SHOWN: usize = 10;

/// Print a whole document.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Print a document by its path", "ctx get docs/runbooks/roll-back-a-release.md"),
    ("Print a document by source and name", "ctx get filesystem:handbook:policies/on-call.md"),
    ("Print a document by the beginning of its id, with all fields, as JSON", "ctx get 0198c2f4 --json"),
]))]
pub(crate) struct Get {
    /// The document: its path, its name within the source, `source:name`, or its id from a search result. The first
    /// four or more digits of an id are enough.
    document: String,
}

impl Get {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let workspace = global.open()?;
        let document = get(&workspace, &self.document).await;
        workspace.close();
        let document = document?;
        global.output().print_content(&document, || as_text(&document))
    }
}

async fn get(workspace: &Workspace, name: &str) -> CommandResult<Value> {
    let id = match workspace.knowledge.look_up(name, &working_directory()?)? {
        Lookup::Found(id) => id.to_string(),
        Lookup::Ambiguous(candidates) => return Err(ambiguous(name, &candidates)),
        Lookup::Missing(nearest) => return Err(missing(name, &nearest)),
    };
    Ok(workspace.call("context.get", json!({ "id": id })).await?)
}

fn ambiguous(name: &str, candidates: &[NamedDocument]) -> CommandError {
    let matches = candidates.len();
    let mut error = CommandError::usage(format!("`{name}` is ambiguous: {matches} documents match"));
    for candidate in candidates.iter().take(CANDIDATES_SHOWN) {
        error = error.hint(format!("{}  {}", candidate.id, candidate.full_name));
    }
    match matches.saturating_sub(CANDIDATES_SHOWN) {
        0 => error,
        more => error.hint(format!("and {more} more")),
    }
}

fn missing(name: &str, nearest: &[String]) -> CommandError {
    let error = CommandError::of_kind(ErrorKind::NotFound, format!("no document `{name}`"));
    match nearest {
        [] => error.hint("`ctx search` shows the paths and ids of what it finds"),
        nearest => nearest.iter().fold(error, |error, name| error.hint(format!("did you mean `{name}`?"))),
    }
}

fn as_text(document: &Value) -> String {
    let field = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
    let names =
        ["title", "source", "source_id", "source_url", "author", "created_at", "updated_at", "content_type"];
    let rows: Vec<Vec<String>> = names
        .iter()
        .filter(|name| document[**name].is_string())
        .map(|name| vec![(*name).to_owned(), field(name)])
        .collect();
    format!("{}\n{}", table(&rows), field("body"))
}
