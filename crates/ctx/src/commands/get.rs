//! `ctx get`

use crate::cli::Global;
use crate::error::{CommandError, CommandResult};
use crate::output::table;
use serde_json::{Value, json};

/// Show one document, whole.
#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    /// The document's id, from a search result.
    id: String,
}

impl Get {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let workspace = global.open()?;
        let document = workspace.call("context.get", json!({ "id": self.id })).await;
        workspace.close();
        let document = document
            .map_err(|error| CommandError::from(error).hint("`ctx search` shows the ids of what it finds"))?;
        global.output().content(&document, || as_text(&document))
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
