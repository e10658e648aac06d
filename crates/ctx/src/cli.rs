//! The command line: what was typed, and the command that does it.

use crate::commands::{self, Command};
use crate::config::{Config, Located, Typed, locate, locate_in};
use crate::error::{CommandError, CommandResult};
use crate::harness::Additions;
use crate::output::Output;
use crate::trust;
use crate::workspace::Workspace;
use clap::{CommandFactory, Parser};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Everything you know and everything you can do, for AI agents, from one local binary.
#[derive(Parser)]
#[command(name = "ctx", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options every command has.
#[derive(Clone, clap::Args)]
pub(crate) struct Global {
    /// The configuration file to use.
    #[arg(short, long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Print the answer as JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Say less: answers and errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Say more; twice for everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// What the program adds to what is configured.
    #[arg(skip)]
    pub(crate) additions: Additions,
}

impl Global {
    pub(crate) fn output(&self) -> Output {
        Output { json: self.json, quiet: self.quiet }
    }

    /// Whether the user named a configuration file on the command line.
    pub(crate) fn names_config(&self) -> bool {
        self.config.is_some()
    }

    /// The files of the workspace that this command is about.
    pub(crate) fn locate(&self) -> CommandResult<Located> {
        let from_environment =
            || std::env::var_os("CTX_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        let named = self.config.clone().or_else(from_environment);
        let located = locate(named.as_deref(), &working_directory()?, user_config());
        match (&named, &located.workspace) {
            (Some(named), Some(path)) if !path.is_file() => {
                Err(CommandError::usage(format!("there is no configuration file {}", named.display())))
            }
            _ => Ok(located),
        }
    }

    /// The same where there need not be a workspace: then it is that of the user, or the defaults.
    pub(crate) fn load_any(&self) -> CommandResult<Config> {
        Ok(Config::load(&self.locate()?, &Typed::default(), &variable)?)
    }

    /// The configuration of the workspace that this command is about.
    pub(crate) fn load(&self) -> CommandResult<Config> {
        self.load_with(&Typed::default())
    }

    /// The same with what was typed.
    pub(crate) fn load_with(&self, typed: &Typed) -> CommandResult<Config> {
        let located = self.locate()?;
        if located.workspace.is_none() {
            return Err(CommandError::usage("there is no workspace here")
                .hint("`ctx init` makes one of this folder; `ctx up DIR` makes one of DIR and serves it"));
        }
        Ok(Config::load(&located, typed, &variable)?)
    }

    /// What was typed, over the user's own file and one that was named; no other is looked for, and the store
    /// is the user's, not the working directory's.
    pub(crate) fn load_without_workspace(&self, mut typed: Typed) -> CommandResult<Config> {
        let mut located = self.locate()?;
        if !located.named {
            located = Located { user: located.user, root: working_directory()?, ..Located::default() };
            typed.store = state_folder().map(|folder| folder.join("run/ctx.sqlite"));
        }
        let mut config = Config::load(&located, &typed, &variable)?;
        config.without_knowledge = config.settings.connectors.is_empty();
        Ok(config)
    }

    /// The workspace that this command is about, opened; its warnings are told.
    pub(crate) fn open(&self) -> CommandResult<Workspace> {
        self.open_config(self.load()?)
    }

    /// The same for a command that runs scripts of these groups: whether they may is settled first.
    pub(crate) fn open_for_scripts(&self, groups: &[&str]) -> CommandResult<Workspace> {
        let config = self.load()?;
        trust::settle(&config, groups, &self.output())?;
        self.open_config(config)
    }

    /// The workspace of this configuration, opened; its warnings are told.
    pub(crate) fn open_config(&self, config: Config) -> CommandResult<Workspace> {
        let workspace = Workspace::open(config, &self.additions)?;
        let output = self.output();
        workspace.warnings.iter().for_each(|warning| output.warn(warning));
        Ok(workspace)
    }
}

/// The configuration of the workspace in exactly this folder.
pub(crate) fn load_in(directory: &Path) -> CommandResult<Config> {
    Ok(Config::load(&locate_in(directory, user_config()), &Typed::default(), &variable)?)
}

/// The configuration in exactly this file.
pub(crate) fn load_at(path: &Path) -> CommandResult<Config> {
    let located = locate(Some(path), &working_directory()?, user_config());
    Ok(Config::load(&located, &Typed::default(), &variable)?)
}

/// Where the user is.
pub(crate) fn working_directory() -> CommandResult<PathBuf> {
    std::env::current_dir()
        .map_err(|error| CommandError::new(format!("cannot tell the working directory: {error}")))
}

/// The command line as clap knows it.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
}

/// A variable of the environment.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn user_config() -> Option<PathBuf> {
    Some(user_folder("XDG_CONFIG_HOME", ".config")?.join("config.toml"))
}

/// Where what is remembered by user, not by workspace, lies: a repository cannot bring its own.
pub(crate) fn state_folder() -> Option<PathBuf> {
    user_folder("XDG_STATE_HOME", ".local/state")
}

/// Our folder in one of the user's: the variable's, else this one of the home folder.
fn user_folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(in_home)))?;
    Some(folder.join("ctx"))
}

/// What the program is told to be a worker for scripts by. No command: a worker reads no settings,
/// starts no threads and prints nothing.
pub(crate) const WORKER: &str = "__worker";

/// The same for what ends the processes of upstream servers when the program is gone.
pub(crate) const REAPER: &str = "__reaper";

/// Runs the command that was typed, in a runtime of its own.
pub(crate) fn main(additions: Additions) -> ExitCode {
    let cli = read(additions);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            cli.global.output().fail(&CommandError::new(format!("cannot start: {error}")));
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(obey(cli));
    // What still blocks a thread (a folder on a dead network drive) must not hold up the end.
    runtime.shutdown_background();
    ended
}

/// The same in the runtime of whoever calls.
pub(crate) async fn run(additions: Additions) -> ExitCode {
    obey(read(additions)).await
}

fn read(additions: Additions) -> Cli {
    let mut cli = Cli::parse();
    cli.global.additions = additions;
    start_log(cli.global.verbose, cli.global.quiet);
    cli
}

async fn obey(cli: Cli) -> ExitCode {
    match commands::run(cli.command, &cli.global).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cli.global.output().fail(&error);
            ExitCode::from(error.exit as u8)
        }
    }
}

/// The log goes to stderr; `CTX_LOG` overrides the flags.
fn start_log(verbose: u8, quiet: bool) {
    let level = match (quiet, verbose) {
        (true, _) => "error,rmcp=off",
        // What goes wrong between a client and rmcp is the client's to know.
        (false, 0) => "warn,rmcp=off",
        (false, 1) => {
            "warn,ctx=debug,ctx_core=debug,ctx_http=debug,ctx_knowledge=debug,ctx_luau=debug,ctx_mcp=debug,ctx_openapi=debug,ctx_state=debug,script=debug"
        }
        // Requests as rmcp would show them have credentials in them.
        (false, _) => "debug,rmcp=info",
    };
    let filter = EnvFilter::try_from_env("CTX_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr()) && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi);
    // Otherwise a log that cannot be written is told on stderr, which panics.
    let log = log.log_internal_errors(false);
    if log.without_time().with_target(false).try_init().is_err() {
        // Only in a process that has a log already, which then is the one to use.
    }
}
