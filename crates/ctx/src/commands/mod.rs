//! The commands, one per file: each parses its arguments, calls the workspace or a tool, and prints the result.

mod agent;
mod completions;
mod config;
mod connect;
mod connector;
mod docs;
mod doctor;
mod embed;
mod embedding_thread;
mod eval;
mod exec;
mod export;
mod first_index;
mod folder_contents;
mod generate;
mod get;
mod init;
mod low_priority;
mod man;
mod reference;
mod refresh;
mod run;
mod runs;
mod script_test;
mod search;
mod serve;
mod sources;
mod stats;
mod sync;
mod template;
mod tool;
mod trust;
mod up;
mod upstream;

use crate::cli::GlobalOptions;
use crate::error::CommandResult;
use clap::Subcommand;

/// The commands of `ctx`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Up(up::Up),
    Init(init::Init),
    Sync(sync::Sync),
    Search(search::Search),
    Eval(eval::Eval),
    Get(get::Get),
    Sources(sources::Sources),
    Stats(stats::Stats),
    Export(export::Export),
    Embed(embed::Embed),
    Serve(serve::Serve),
    Run(run::Run),
    Connect(connect::Connect),
    Exec(exec::Exec),
    Docs(docs::Docs),
    Generate(generate::Generate),
    Tool(tool::Tool),
    Connector(connector::Connector),
    Agent(agent::Agent),
    Upstream(upstream::Upstream),
    Runs(runs::Runs),
    Config(config::Config),
    Doctor(doctor::Doctor),
    Trust(trust::Trust),
    Completions(completions::Completions),
    Man(man::Man),
    #[command(name = "__reference", hide = true)]
    Reference(reference::Reference),
}

/// Runs a command.
pub(crate) async fn run(command: Command, global: &GlobalOptions) -> CommandResult {
    match command {
        Command::Up(up) => up.run(global).await,
        Command::Init(init) => init.run(global),
        Command::Sync(sync) => sync.run(global).await,
        Command::Search(search) => search.run(global).await,
        Command::Eval(eval) => eval.run(global).await,
        Command::Get(get) => get.run(global).await,
        Command::Sources(sources) => sources.run(global).await,
        Command::Stats(stats) => stats.run(global).await,
        Command::Export(export) => export.run(global),
        Command::Embed(embed) => embed.run(global).await,
        Command::Serve(serve) => serve.run(global).await,
        Command::Run(run) => run.run(global).await,
        Command::Connect(connect) => connect.run(global),
        Command::Exec(exec) => exec.run(global).await,
        Command::Docs(docs) => docs.run(global).await,
        Command::Generate(generate) => generate.run(global).await,
        Command::Tool(tool) => tool.run(global).await,
        Command::Connector(connector) => connector.run(global).await,
        Command::Agent(agent) => agent.run(global).await,
        Command::Upstream(upstream) => upstream.run(global).await,
        Command::Runs(runs) => runs.run(global).await,
        Command::Config(config) => config.run(global).await,
        Command::Doctor(doctor) => doctor.run(global).await,
        Command::Trust(trust) => trust.run(global),
        Command::Completions(completions) => completions.run(global),
        Command::Man(man) => man.run(global),
        Command::Reference(reference) => reference.run(),
    }
}
