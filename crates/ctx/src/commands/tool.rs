//! `ctx tool`: lists tools, tests tools in Lua, and writes new ones.

use super::script_test::{TestEnvironment, TestReport, parse_arguments, parse_pair};
use super::template;
use crate::cli::{GlobalOptions, examples};
use crate::error::CommandResult;
use crate::output::count;
use crate::scripts::{CallableKind, ScriptProvider, ScriptSet};
use clap::Subcommand;
use ctx_core::{Catalog, CatalogEntry, Identifier, summary_line};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// List, test and create tools.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("List all tools", "ctx tool list"),
    ("Create a tool and its section in ctx.toml", "ctx tool init post-message"),
    ("Run a tool once", "ctx tool test tools/echo.lua --param message=hello"),
]))]
pub(crate) struct Tool {
    #[command(subcommand)]
    action: ToolAction,
}

#[derive(Debug, Subcommand)]
enum ToolAction {
    /// Create a tool: tools/NAME.lua and its section in ctx.toml.
    #[command(after_help = examples(&[
        ("Create tools/post-message.lua", "ctx tool init post-message"),
        ("Create a tool, and print its path and section as JSON", "ctx tool init post-message --json"),
    ]))]
    Init {
        /// The tool's name, such as `post-slack`.
        name: String,
    },
    Test(ToolTest),
    /// List all tools with their parameters, and report those that cannot be loaded.
    #[command(after_help = examples(&[
        ("List all tools; `*` marks required parameters", "ctx tool list"),
        ("List all tools with their JSON Schemas", "ctx tool list --json"),
    ]))]
    List,
}

/// Run a tool's script as a server does, and print its result.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Run a tool with two parameters", "ctx tool test tools/echo.lua --param message=hello --param times=2"),
    ("Give all parameters as a JSON object", r#"ctx tool test tools/echo.lua --params '{"message": "hello"}'"#),
]))]
struct ToolTest {
    /// The tool's script.
    file: PathBuf,
    /// A parameter; its value is parsed as the type that the tool declares. Can be repeated.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_pair)]
    parameters: Vec<(String, String)>,
    /// All parameters as a JSON object.
    #[arg(long, value_name = "JSON")]
    params: Option<String>,
    /// The `[tools.script.NAME]` section of ctx.toml to use. By default the section with this file as its `path`.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

impl Tool {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        match self.action {
            ToolAction::Init { name } => template::write(&template::TOOL, &name, global),
            ToolAction::Test(test) => test.run(global).await,
            ToolAction::List => list(global).await,
        }
    }
}

impl ToolTest {
    async fn run(self, global: &GlobalOptions) -> CommandResult {
        let environment = TestEnvironment::open(global, "tools.")?;
        let mut report = TestReport::new("tool", global.output());
        let mut settings = environment.settings("tools", &self.file, self.source.as_deref())?;
        let scripts = environment.scripts()?;
        let Some(declared) = report.load_script(scripts, &mut settings).await? else {
            return report.fail();
        };
        let tool = match scripts.tool(&settings).await {
            Ok(tool) => tool,
            Err(problem) => return report.fail_with(&problem.message),
        };
        report.report_step("tool.execute defined")?;
        report.report_step(&format!("{} declared", count(declared.parameters as u64, "parameter")))?;
        let arguments =
            parse_arguments(self.params.as_deref(), self.parameters, &tool.spec().input_schema.get())?;
        report.report_call("execute", &arguments)?;
        let name = Identifier::sanitize(&settings.name).to_string();
        let provider = Arc::new(ScriptProvider { tools: vec![tool], agents: Vec::new() });
        let call = environment.call(provider, global.output());
        report
            .run("result", async {
                let output = Catalog::call(&format!("tools.{name}"), arguments, call).await?;
                Ok(output.value)
            })
            .await
    }
}

async fn list(global: &GlobalOptions) -> CommandResult {
    let workspace = global.open_for(&["tools."])?;
    let scripts = workspace.load_scripts().await;
    let catalog = workspace.catalog.current();
    let script = |entry: &CatalogEntry| script_of(&scripts, entry);
    // Only exposed tools: clients do not call the others, such as agents, by name.
    let listed = || catalog.entries().filter(|entry| entry.exposed);
    let tools: Vec<Value> = listed()
        .map(|entry| {
            json!({
                "name": entry.name.outward(),
                "full_name": entry.name.to_string(),
                "description": entry.spec.description,
                "builtin": entry.builtin,
                "script": script(entry),
                "parameters": entry.spec.input_schema,
            })
        })
        .collect();
    let problems = scripts.problems();
    let answer = json!({ "tools": tools, "problems": problems });
    global
        .output()
        .print_result(&answer, || listed().map(|entry| tool_text(entry, script(entry))).collect())?;
    problems.iter().for_each(|problem| global.output().warn(problem));
    Ok(())
}

/// The path of a tool's script, as in the configuration; `None` if the tool is no script.
fn script_of(scripts: &ScriptSet, entry: &CatalogEntry) -> Option<String> {
    let script = scripts.iter().find(|script| {
        let configured = &script.configured;
        configured.kind == CallableKind::Tool
            && !entry.builtin
            && Identifier::sanitize(&configured.settings.name) == *entry.name.tool()
    })?;
    Some(script.configured.settings.display_path.clone())
}

fn tool_text(entry: &CatalogEntry, script: Option<String>) -> String {
    let schema = &entry.spec.input_schema.get();
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let origin = match script {
        _ if entry.builtin => "  (built in)".to_owned(),
        Some(script) => format!("  ({script})"),
        None => String::new(),
    };
    let mut text =
        format!("{}{origin}\n    {}\n", entry.name.outward(), summary_line(&entry.spec.description));
    for (name, parameter) in schema["properties"].as_object().into_iter().flatten() {
        let mark = if required.contains(&name.as_str()) { "*" } else { " " };
        let description = parameter["description"].as_str().unwrap_or_default().replace('\n', " ");
        text.push_str(&format!("    {mark} {name:<10} {description}\n"));
    }
    text
}
