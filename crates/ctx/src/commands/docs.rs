//! `ctx docs`

use crate::cli::Global;
use crate::error::CommandResult;
use serde_json::{Value, json};

/// Show functions as an agent sees them: how they are called, with all their types.
#[derive(Debug, clap::Args)]
pub(crate) struct Docs {
    /// Their names, as `tools.echo`; without any, who provides functions.
    #[arg(value_name = "NAME", conflicts_with = "search")]
    names: Vec<String>,
    /// Find functions by what they do, by name, parameter or type.
    #[arg(long, value_name = "WORDS", num_args = 1..)]
    search: Vec<String>,
}

impl Docs {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let workspace = global.open_for(&["apis.", "frozen_params", "mcp_servers.", "tools."])?;
        let output = global.output();
        let scripts = workspace.load_callable().await;
        scripts.problems().iter().for_each(|problem| output.warn(problem));
        let answer = if !self.search.is_empty() {
            workspace.call("search_docs", json!({ "query": self.search.join(" ") })).await
        } else if !self.names.is_empty() {
            workspace.call("get_function_docs", json!({ "name": self.names })).await
        } else {
            workspace.call("list_functions", json!({})).await
        };
        workspace.end_processes().await;
        workspace.close();
        let answer = answer?;
        let text = answer.as_str().unwrap_or_default().trim_end().to_owned();
        output.content(&json!({ "result": Value::String(text.clone()) }), || text)
    }
}
