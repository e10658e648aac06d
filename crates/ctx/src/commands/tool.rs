//! `ctx tool`

use crate::cli::Global;
use crate::error::CommandResult;
use clap::Subcommand;
use ctx_core::Entry;
use serde_json::{Value, json};

/// List what can be called.
#[derive(Debug, clap::Args)]
pub(crate) struct Tool {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List every tool and its parameters.
    List,
}

impl Tool {
    pub(crate) fn run(self, global: &Global) -> CommandResult {
        let Action::List = self.action;
        let workspace = global.open()?;
        let catalog = workspace.catalog.current();
        let tools: Vec<Value> = catalog
            .entries()
            .map(|entry| {
                json!({
                    "name": entry.name.outward(),
                    "full_name": entry.name.to_string(),
                    "description": entry.spec.description,
                    "builtin": entry.builtin,
                    "parameters": entry.spec.input_schema,
                })
            })
            .collect();
        global.output().answer(&json!({ "tools": tools }), || catalog.entries().map(as_text).collect())
    }
}

fn as_text(entry: &Entry) -> String {
    let schema = &entry.spec.input_schema;
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let origin = if entry.builtin { "  (built in)" } else { "" };
    let mut text = format!("{}{origin}\n    {}\n", entry.name.outward(), entry.spec.description);
    for (name, parameter) in schema["properties"].as_object().into_iter().flatten() {
        let mark = if required.contains(&name.as_str()) { "*" } else { " " };
        let description = parameter["description"].as_str().unwrap_or_default().replace('\n', " ");
        text.push_str(&format!("    {mark} {name:<10} {description}\n"));
    }
    text
}
