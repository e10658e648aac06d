//! `ctx agent`: lists agents, tests them, and writes new ones.

use super::script_test::{TestEnvironment, TestReport, parse_arguments, parse_pair};
use super::template;
use crate::cli::{GlobalOptions, examples};
use crate::error::CommandResult;
use crate::output::count;
use crate::scripts::ScriptProvider;
use clap::Subcommand;
use ctx_core::{AgentSpec, Call, Caller, Catalog, summary_line};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// List, test and create agents: prompts with instructions and tools.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("List all agents", "ctx agent list"),
    ("Create an agent and its section in ctx.toml", "ctx agent init incident-responder"),
    ("Print the prompt of an agent", "ctx agent test incident-responder --arg service=billing"),
]))]
pub(crate) struct Agent {
    #[command(subcommand)]
    action: AgentAction,
}

#[derive(Debug, Subcommand)]
enum AgentAction {
    /// Create an agent: agents/NAME.lua and its section in ctx.toml.
    #[command(after_help = examples(&[
        ("Create agents/incident-responder.lua", "ctx agent init incident-responder"),
        ("Create an agent, and print its path and section as JSON", "ctx agent init reviewer --json"),
    ]))]
    Init {
        /// The agent's name, such as `incident-responder`.
        name: String,
    },
    Test(AgentTest),
    /// List all agents with their arguments, and report those that cannot be loaded.
    #[command(after_help = examples(&[
        ("List all agents", "ctx agent list"),
        ("List all agents as JSON", "ctx agent list --json"),
    ]))]
    List,
}

/// Resolve an agent as a server does, and print its prompt.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Resolve the agent of a script", "ctx agent test agents/incident-responder.lua --arg service=billing"),
    ("Resolve an agent by name, with arguments as JSON", r#"ctx agent test incident-responder --args '{"service": "billing"}'"#),
]))]
struct AgentTest {
    /// The agent's script, or the name of an agent in ctx.toml.
    #[arg(value_name = "FILE|NAME")]
    agent: PathBuf,
    /// An argument of the agent. Can be repeated.
    #[arg(long = "arg", visible_alias = "param", value_name = "NAME=VALUE", value_parser = parse_pair)]
    arguments: Vec<(String, String)>,
    /// All arguments as a JSON object.
    #[arg(long, visible_alias = "params", value_name = "JSON")]
    args: Option<String>,
    /// The `[agents.script.NAME]` section of ctx.toml to use. By default the section with this file as its `path`.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

impl Agent {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        match self.action {
            AgentAction::Init { name } => template::write(&template::AGENT, &name, global),
            AgentAction::Test(test) => test.run(global).await,
            AgentAction::List => list(global).await,
        }
    }
}

impl AgentTest {
    async fn run(self, global: &GlobalOptions) -> CommandResult {
        let environment = TestEnvironment::open(global, "agents.")?;
        let arguments = parse_arguments(self.args.as_deref(), self.arguments, &Value::Null)?;
        if let (false, Some(workspace)) = (self.agent.exists(), environment.workspace()) {
            let catalog = workspace.catalog.current();
            let name = self.agent.to_string_lossy();
            if catalog.agents().any(|agent| agent.name == name) {
                let prompt = Catalog::prompt(&name, arguments, Call::new(catalog, Caller::Cli)).await?;
                return global.output().print_content(&prompt, || prompt.system.clone());
            }
        }
        let mut report = TestReport::new("agent", global.output());
        let mut settings = environment.settings("agents", &self.agent, self.source.as_deref())?;
        let scripts = environment.scripts()?;
        let Some(declared) = report.load_script(scripts, &mut settings).await? else {
            return report.fail();
        };
        let agent = match scripts.agent(&settings).await {
            Ok(agent) => agent,
            Err(problem) => return report.fail_with(&problem.message),
        };
        report.report_step("agent.resolve defined")?;
        report.report_step(&format!("{} declared", count(declared.parameters as u64, "argument")))?;
        report.report_call("resolve", &arguments)?;
        let provider = Arc::new(ScriptProvider { tools: Vec::new(), agents: vec![agent] });
        let call = environment.call(provider, global.output());
        let prompting = async {
            let prompt = Catalog::prompt(&settings.name, arguments, call).await?;
            Ok(json!(prompt))
        };
        report.run("prompt", prompting).await
    }
}

async fn list(global: &GlobalOptions) -> CommandResult {
    let workspace = global.open_for(&["agents.", "apis.", "frozen_params", "mcp_servers."])?;
    let scripts = workspace.load_scripts().await;
    // The prompts of MCP servers are agents as well.
    workspace.connect_upstreams().await;
    workspace.end_processes().await;
    let catalog = workspace.catalog.current();
    let agents: Vec<&AgentSpec> = catalog.agents().collect();
    let problems = scripts.problems();
    let answer = json!({ "agents": agents, "problems": problems });
    global.output().print_result(&answer, || agents.iter().map(|agent| agent_text(agent)).collect())?;
    problems.iter().for_each(|problem| global.output().warn(problem));
    Ok(())
}

fn agent_text(agent: &AgentSpec) -> String {
    let tools =
        if agent.tools.is_empty() { String::new() } else { format!("  ({})", agent.tools.join(", ")) };
    let mut text = format!("{}{tools}\n    {}\n", agent.name, summary_line(&agent.description));
    for argument in &agent.arguments {
        let mark = if argument.required { "*" } else { " " };
        text.push_str(&format!("    {mark} {:<10} {}\n", argument.name, argument.description));
    }
    text
}
