//! The command line: global options, the configuration that a command uses, and the entry points of the program.

mod help;

pub(crate) use help::examples;

use crate::commands::{self, Command};
use crate::config::{CliOverrides, Config, ConfigLocation, LoadContext, is_inside, locate, locate_in};
use crate::error::{CommandError, CommandResult};
use crate::harness::Additions;
use crate::output::CommandOutput;
use crate::workspace::Workspace;
use crate::{log, memory, style, trust};
use clap::{CommandFactory, Parser};
use ctx_core::ErrorKind;
use ctx_store::STORE_FILE;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Search over your documents, and tools, APIs and MCP servers, for AI agents, from one local binary.
#[derive(Parser)]
#[command(name = "ctx", version, propagate_version = true, max_term_width = 100)]
#[command(disable_help_flag = true, disable_version_flag = true)]
#[command(after_help = examples(&[
    ("Index a folder and serve it to MCP clients", "ctx up ./notes"),
    ("Search the documents of the workspace", "ctx search how do I roll back a release"),
    ("Connect Claude Code to the workspace", "ctx connect claude"),
]))]
pub(crate) struct Cli {
    #[command(flatten, next_help_heading = "Global options")]
    pub(crate) global: GlobalOptions,
    #[command(subcommand)]
    command: Command,
}

/// The options that every command has.
#[derive(Clone, clap::Args)]
pub(crate) struct GlobalOptions {
    /// Use this configuration file instead of the ctx.toml of the working directory or a folder above it.
    #[arg(short, long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Trust all sections of the workspace's configuration file (programs, scripts, hosts, credentials …), from now on.
    #[arg(long, global = true)]
    trust: bool,
    /// Print results and errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Log more; `-vv` logs everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// When to use colour; `auto` means in a terminal, unless `NO_COLOR` is set.
    // Applied by `style::apply_color_option` before the arguments are parsed; declared here for validation and help.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = clap::ColorChoice::Auto)]
    color: clap::ColorChoice,
    /// Print help (`-h`: a summary).
    // Declared, like `version`, instead of clap's own option, which would stand among the options of the command.
    #[arg(short, long, global = true, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Print version.
    #[arg(short = 'V', long, global = true, action = clap::ArgAction::Version)]
    version: Option<bool>,
    /// Tools, connectors and agents that a program built on this library adds.
    #[arg(skip)]
    pub(crate) additions: Additions,
}

impl GlobalOptions {
    pub(crate) fn output(&self) -> CommandOutput {
        CommandOutput { json: self.json, quiet: self.quiet }
    }

    /// These options without `--trust`, which covers the files at the start of the command, not later edits.
    pub(crate) fn without_trust(&self) -> Self {
        Self { trust: false, ..self.clone() }
    }

    /// Whether the user named a configuration file on the command line.
    pub(crate) fn names_config(&self) -> bool {
        self.config.is_some()
    }

    /// The configuration files of the workspace that this command uses.
    pub(crate) fn locate(&self) -> CommandResult<ConfigLocation> {
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

    /// The configuration of the workspace if there is one, else the user-level one or the defaults.
    pub(crate) fn load_any(&self) -> CommandResult<Config> {
        self.load_located(&self.locate()?, &CliOverrides::default())
    }

    /// The configuration of the workspace that this command uses, without its untrusted sections.
    pub(crate) fn load(&self) -> CommandResult<Config> {
        self.load_with(&CliOverrides::default())
    }

    /// The configuration of the workspace, overridden by command line options.
    pub(crate) fn load_with(&self, overrides: &CliOverrides) -> CommandResult<Config> {
        let located = self.locate()?;
        if located.workspace.is_none() {
            let error = CommandError::usage("there is no workspace here");
            return Err(CommandError { kind: Some(ErrorKind::NotConfigured), ..error }.hint(
                "`ctx init` creates one in this folder; `ctx up DIR` creates one in DIR and serves it",
            ));
        }
        self.load_located(&located, overrides)
    }

    /// The user-level configuration and a file named with `--config`, overridden by command line options. No other
    /// file is looked for, and the store is in the user's state folder.
    pub(crate) fn load_without_workspace(&self, overrides: &CliOverrides) -> CommandResult<Config> {
        let mut located = self.locate()?;
        let mut overrides = overrides.clone();
        if !located.named {
            located = ConfigLocation {
                user: located.user,
                root: working_directory()?,
                ..ConfigLocation::default()
            };
            overrides.store = state_folder().map(|folder| folder.join("run").join(STORE_FILE));
        }
        let mut config = self.load_located(&located, &overrides)?;
        config.without_knowledge = config.settings.connectors.is_empty();
        Ok(config)
    }

    /// The configuration of the workspace in exactly this folder.
    pub(crate) fn load_in(&self, directory: &Path, overrides: &CliOverrides) -> CommandResult<Config> {
        self.load_located(&locate_in(directory, user_config()), overrides)
    }

    /// The configuration in exactly this file.
    pub(crate) fn load_at(&self, path: &Path, overrides: &CliOverrides) -> CommandResult<Config> {
        self.load_located(&locate(Some(path), &working_directory()?, user_config()), overrides)
    }

    fn load_located(&self, located: &ConfigLocation, overrides: &CliOverrides) -> CommandResult<Config> {
        self.refuse_foreign_symlink(located)?;
        let context =
            LoadContext { variables: &variable, data_folder: &data_folder, is_trusted: &trust::evaluate };
        let config = Config::load(located, overrides, context)?;
        match &config.path {
            Some(path) if self.trust && !config.untrusted.is_empty() => {
                let list = trust::list_requests(&config.untrusted);
                self.output().say(&format!("trusting {} with:\n{}", path.display(), list.trim_end()));
                trust::grant(path, &config.untrusted)?;
                Ok(Config::load(located, overrides, context)?)
            }
            _ => Ok(config),
        }
    }

    /// Refuses an untrusted configuration file that is a symlink out of the workspace: reading it would read, and
    /// quote in error messages, any file of the user's that the link points to.
    fn refuse_foreign_symlink(&self, located: &ConfigLocation) -> CommandResult {
        let Some(path) = located.workspace.as_deref().filter(|path| !is_inside(&located.root, path)) else {
            return Ok(());
        };
        if self.trust {
            return trust::grant(path, &[]);
        }
        if trust::trusts_all() || trust::has_record(path) {
            return Ok(());
        }
        Err(CommandError::usage(format!(
            "{} is a symbolic link to a file outside its folder",
            path.display()
        ))
        .hint("if it is yours, run the command once with `--trust`"))
    }

    /// Loads the configuration for a command that uses these groups of sections. If some of them are untrusted, it
    /// prompts in a terminal, and warns elsewhere.
    pub(crate) fn load_with_trust_prompt(
        &self,
        groups: &[&str],
        load: impl Fn() -> CommandResult<Config>,
    ) -> CommandResult<Config> {
        let config = load()?;
        if trust::prompt_or_warn(&config, groups, &self.output())? { load() } else { Ok(config) }
    }

    /// Opens the workspace for a search, and prints its warnings.
    pub(crate) fn open(&self) -> CommandResult<Workspace> {
        self.open_for(trust::SEARCH_GROUPS)
    }

    /// Opens the workspace for a command that uses these groups of sections; trust is settled first.
    pub(crate) fn open_for(&self, groups: &[&str]) -> CommandResult<Workspace> {
        self.open_config(self.load_with_trust_prompt(groups, || self.load())?)
    }

    /// Opens the workspace of this configuration, and prints its warnings.
    pub(crate) fn open_config(&self, config: Config) -> CommandResult<Workspace> {
        let workspace = Workspace::open(config, &self.additions)?;
        let output = self.output();
        workspace.warnings.iter().for_each(|warning| output.warn(warning));
        Ok(workspace)
    }
}

/// The working directory.
pub(crate) fn working_directory() -> CommandResult<PathBuf> {
    std::env::current_dir()
        .map_err(|error| CommandError::new(format!("cannot determine the working directory: {error}")))
}

/// The definition of the command line.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
}

/// An environment variable.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn user_config() -> Option<PathBuf> {
    Some(user_folder("XDG_CONFIG_HOME", ".config")?.join("config.toml"))
}

/// The folder for state of the user, such as trust, and for the data of workspaces: a repository cannot bring its own.
pub(crate) fn state_folder() -> Option<PathBuf> {
    user_folder("XDG_STATE_HOME", ".local/state")
}

/// The folder for a workspace's store, indexes and git mirrors. It is below the user's state folder, never in the
/// workspace, where a repository could plant its own database or mirror.
fn data_folder(root: &Path) -> Option<PathBuf> {
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().filter(is_plain).take(DATA_NAME_CHARS_MAX).collect();
    let hash = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
    Some(data_folders()?.join(format!("{name}-{}", &hash[..DATA_HASH_CHARS])))
}

/// The folder that holds the data folders of all workspaces.
pub(crate) fn data_folders() -> Option<PathBuf> {
    Some(state_folder()?.join("workspaces"))
}

/// The folder `ctx` in a base folder of the user: that of the environment variable, else `in_home` in the home folder.
fn user_folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(in_home)))?;
    Some(folder.join("ctx"))
}

/// Maximum length of the parts of a data folder's name: the name of the workspace's folder, and the hash of its path.
const DATA_NAME_CHARS_MAX: usize = 40;
const DATA_HASH_CHARS: usize = 16;

/// The argument that makes the program a worker for scripts. Not a command, since a worker reads no settings, starts no
/// threads and prints nothing.
pub(crate) const WORKER: &str = "__worker";

/// The argument that makes the program a worker that extracts the text of documents.
pub(crate) const EXTRACTOR: &str = "__extract";

/// The argument that makes the program a reaper, which kills the processes of upstream servers after the program has
/// ended.
pub(crate) const REAPER: &str = "__reaper";

/// Runs the command line in a new async runtime.
pub(crate) fn main(additions: Additions) -> ExitCode {
    memory::bound_arenas();
    let cli = match parse_arguments(additions) {
        Ok(cli) => cli,
        Err(exit) => return exit,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            cli.global.output().fail(&CommandError::new(format!("cannot start: {error}")));
            return ExitCode::FAILURE;
        }
    };
    let exit_code = runtime.block_on(run_command(cli));
    // Does not wait for threads that are still blocked, for example by a dead network drive.
    runtime.shutdown_background();
    exit_code
}

/// Runs the command line in the caller's async runtime.
pub(crate) async fn run(additions: Additions) -> ExitCode {
    match parse_arguments(additions) {
        Ok(cli) => run_command(cli).await,
        Err(exit) => exit,
    }
}

/// Parses the arguments. Invalid ones end the process with clap's message, or return an exit code after a JSON error.
fn parse_arguments(additions: Additions) -> Result<Cli, ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    style::apply_color_option(&arguments);
    let mut cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && wants_json(&arguments) => {
            let usage = CommandError::from(error);
            CommandOutput { json: true, quiet: false }.fail(&usage);
            return Err(ExitCode::from(usage.exit as u8));
        }
        Err(error) => error.exit(),
    };
    cli.global.additions = additions;
    log::start(cli.global.verbose, cli.global.quiet);
    Ok(cli)
}

/// Whether `--json` is among arguments that cannot be parsed.
fn wants_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

async fn run_command(cli: Cli) -> ExitCode {
    match commands::run(cli.command, &cli.global).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cli.global.output().fail(&error);
            ExitCode::from(error.exit as u8)
        }
    }
}
