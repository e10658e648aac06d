//! `ctx docs`: the documentation of functions, as the tools for agents return it.

use crate::cli::{GlobalOptions, examples};
use crate::error::CommandResult;
use serde_json::{Value, json};

/// Show the documentation of functions as agents see it.
///
/// Prints signatures with Luau types, descriptions and parameters.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("List the providers of functions", "ctx docs"),
    ("Show the signature and types of a function", "ctx docs tools.echo"),
    ("Find functions by what they do", "ctx docs --search create a ticket"),
]))]
pub(crate) struct Docs {
    /// Names of functions, such as `tools.echo`. Without names, lists the providers of functions.
    #[arg(value_name = "NAME", conflicts_with = "search")]
    names: Vec<String>,
    /// Search for functions by purpose, name, parameter or type.
    #[arg(long, value_name = "WORDS", num_args = 1..)]
    search: Vec<String>,
}

impl Docs {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
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
        output.print_content(&json!({ "result": Value::String(text.clone()) }), || text)
    }
}
