//! `ctx connect`: prints or writes the entry of a workspace's server in the settings of an MCP client.

mod clients;
pub(super) mod edit;
mod entry;
pub(super) mod settings_file;

use crate::cli::{GlobalOptions, examples};
use crate::config::Config;
use crate::error::{CommandError, CommandResult};
use crate::output::CommandOutput;
use crate::trust;
use clap::builder::PossibleValuesParser;
use clients::{
    CLIENTS, ClientCommand, EnvironmentPassing, HttpEntryFormat, McpClient, TokenPlacement, find_client,
};
use edit::{EditOutcome, NewEntry, edit};
use entry::{ServerConnection, ServerToken, TokenVisibility, WorkspaceServer};
use serde_json::{Value, json};
use settings_file::{EntryChange, WriteOutcome};
use std::path::{Path, PathBuf};

/// Connect an MCP client to this workspace.
///
/// Prints the client's own command that adds the server, if it has one, else the entry for its settings file. With
/// `--write`, adds the entry to the settings file, leaves the rest of the file unchanged, and keeps the previous
/// version as FILE.ctx-backup.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Show how to connect Claude Code", "ctx connect claude"),
    ("Add the server to Cursor's settings, for this project only", "ctx connect cursor --project --write"),
    ("Connect VS Code to a server that is already running", "ctx connect vscode --http --write"),
]))]
pub(crate) struct Connect {
    /// The client; `generic` for any other MCP client.
    #[arg(value_parser = PossibleValuesParser::new(CLIENTS.iter().map(|client| client.name)))]
    client: String,
    /// Write the entry to the client's settings file.
    #[arg(long)]
    write: bool,
    /// Connect to the running server of `ctx serve mcp` or `ctx up`, instead of letting the client start one.
    #[arg(long)]
    http: bool,
    /// Name of the server in the client. By default `ctx-` and the name of the workspace's folder.
    #[arg(long)]
    name: Option<String>,
    /// Connect only for the workspace's folder, by the client's settings for that project.
    #[arg(long, conflicts_with = "file")]
    project: bool,
    /// The settings file, if it is not the client's usual one.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

impl Connect {
    pub(crate) fn run(self, global: &GlobalOptions) -> CommandResult {
        let output = global.output();
        let client = find_client(&self.client).ok_or_else(|| CommandError::usage("no such client"))?;
        let config = global.load_with_trust_prompt(trust::ALL_GROUPS, || global.load())?;
        config.warnings.iter().for_each(|warning| output.warn(warning));
        let server = self.server(&config)?;
        let file = self.settings_file(client, &config)?;
        let entry_with = |visibility| {
            entry::settings_entry(client, &server, visibility).ok_or_else(|| {
                CommandError::usage(format!(
                    "{} supports only servers that it starts itself (stdio)",
                    client.title
                ))
                .hint("connect without `--http`")
            })
        };
        let shown = entry_with(TokenVisibility::Placeholder)?;
        let command = client.command.filter(|_| self.file.is_none());
        let command = command.and_then(|command| entry::add_command(command, &server, self.project));
        let mut answer = json!({
            "client": client.name,
            "name": server.name,
            "transport": if self.http { "http" } else { "stdio" },
            "file": file,
            "entry": shown,
            "command": command,
        });
        if !self.write {
            print_location(&output, client, file.as_deref());
            self.print_requirements(&output, client, &server);
            print_check(&output, client, &server);
            let snippet = snippet(client, &server, &shown)?;
            return output.print_result(&answer, || command.unwrap_or(snippet));
        }
        let file = file.ok_or_else(|| {
            CommandError::usage("the location of the client's settings file is unknown")
                .hint("name it with `--file PATH`")
        })?;
        let entry = entry_with(TokenVisibility::Revealed)?;
        let secret = entry != shown;
        if secret && self.project {
            return Err(CommandError::usage(format!(
                "{} does not expand environment variables, and a project's file must not contain the token",
                client.title
            ))
            .hint("connect without `--http`, or without `--project`"));
        }
        let new_entry = NewEntry { key: client.key, name: &server.name, entry: &entry };
        let written = settings_file::write(&file, client.format, &[new_entry], secret)?;
        answer["change"] = json!(written.change);
        answer["backup"] = json!(written.backup);
        self.print_requirements(&output, client, &server);
        if written.change != EntryChange::Unchanged {
            print_check(&output, client, &server);
        }
        output.print_result(&answer, || self.outcome(client, &server, &file, &written))
    }

    fn server(&self, config: &Config) -> CommandResult<WorkspaceServer> {
        let name = self.name.clone().unwrap_or_else(|| entry::default_name(&config.root));
        entry::check_name(&name)?;
        if self.http {
            return Ok(WorkspaceServer { name, connection: ServerConnection::http(config)? });
        }
        Ok(WorkspaceServer { name, connection: ServerConnection::stdio(config)? })
    }

    /// The settings file for the entry; `None` if the client has no usual one.
    fn settings_file(&self, client: &McpClient, config: &Config) -> CommandResult<Option<PathBuf>> {
        if let Some(file) = &self.file {
            return entry::absolute_path(file).map(Some);
        }
        if self.project {
            let none = || CommandError::usage(format!("{} has no project-level settings", client.title));
            let path = client.project.ok_or_else(none)?;
            return entry::absolute_path(&config.root.join(path)).map(Some);
        }
        let Some(location) = &client.user else { return Ok(None) };
        let no_home = || {
            CommandError::new(format!("cannot determine where {} stores its settings", client.title))
                .hint("set HOME, or name the file with `--file PATH`")
        };
        location.path().ok_or_else(no_home).map(Some)
    }

    fn outcome(
        &self,
        client: &McpClient,
        server: &WorkspaceServer,
        file: &Path,
        written: &WriteOutcome,
    ) -> String {
        let (name, path) = (&server.name, file.display());
        let mut lines = match written.change {
            EntryChange::Unchanged => vec![format!("{path} has `{name}` already; nothing was changed")],
            EntryChange::Added => vec![format!("added `{name}` to {path}")],
            EntryChange::Replaced => vec![format!("replaced `{name}` in {path}, which was different")],
        };
        if let Some(backup) = &written.backup {
            lines.push(format!("the previous version is in {}", backup.display()));
        }
        if let Some(created_folder) = &written.created_folder {
            let is_default_file = !self.project && self.file.is_none();
            let doubt =
                if is_default_file { format!(": is {} installed?", client.title) } else { String::new() };
            lines.push(format!("created the folder {}{doubt}", created_folder.display()));
        }
        lines.join("\n")
    }

    /// Prints what the user has to provide: variables, a token, a running server.
    fn print_requirements(&self, output: &CommandOutput, client: &McpClient, server: &WorkspaceServer) {
        let title = client.title;
        match &server.connection {
            ServerConnection::Stdio { variables, .. } => {
                if self.project {
                    output.say("the entry contains paths of this machine: do not share the file");
                }
                let names = variables.join(", ");
                match client.environment {
                    _ if variables.is_empty() => {}
                    EnvironmentPassing::Minimal => output.say(&format!(
                        "the configuration uses environment variables that {title} does not pass on: add them to the \
                         entry's `env` with their values ({names})"
                    )),
                    _ => output.say(&format!(
                        "the configuration uses environment variables: start {title} where they are set ({names})"
                    )),
                }
            }
            ServerConnection::Http { token, .. } => {
                output.say("the server must be running: start it with `ctx serve mcp` or `ctx up`");
                let Some(ServerToken { variable, .. }) = token else { return };
                let literal =
                    matches!(client.http, Some(HttpEntryFormat { token: TokenPlacement::Literal, .. }));
                match (literal, self.write) {
                    (false, _) => {
                        output.say(&format!("start {title} where {variable} is set to the server's token"));
                    }
                    (true, true) => {
                        output.warn(&format!(
                            "{title} does not expand environment variables: its file contains the token itself"
                        ));
                    }
                    (true, false) => output.say(&format!(
                        "{title} does not expand environment variables: replace <{variable}> with \
                         the token; `--write` does so"
                    )),
                }
            }
        }
    }
}

/// The text of a settings file that contains only this entry.
fn snippet(client: &McpClient, server: &WorkspaceServer, entry: &Value) -> CommandResult<String> {
    let new_entry = NewEntry { key: client.key, name: &server.name, entry };
    match edit(client.format, "", &new_entry) {
        Ok(EditOutcome::Added(text)) => Ok(text),
        _ => Err(CommandError::new("cannot serialize the entry")),
    }
}

fn print_location(output: &CommandOutput, client: &McpClient, file: Option<&Path>) {
    let title = client.title;
    match file {
        Some(file) => {
            output.say(&format!("for {title}, in {}; `--write` puts it there", file.display()));
        }
        None => output.say(&format!("for {title}; `--write --file PATH` puts it into a file")),
    }
}

fn print_check(output: &CommandOutput, client: &McpClient, server: &WorkspaceServer) {
    output.say(&format!("to check: {}", client.check.replace('@', &server.name)));
}

/// The environment variable from which a client takes the server's token.
pub(super) fn token_variable(config: &Config) -> String {
    entry::token_variable(config)
}

/// The URL of the workspace's MCP server for clients on this machine.
pub(super) fn own_url(config: &Config) -> Option<String> {
    match ServerConnection::http(config) {
        Ok(ServerConnection::Http { url, .. }) => Some(url),
        _ => None,
    }
}

/// How to connect the two most common clients to a server at this address: the client's name and a command.
pub(super) fn connect_commands(config: &Config, url: &str) -> CommandResult<Vec<(&'static str, String)>> {
    let trusted = trust::is_fully_granted(config);
    let connection = match trusted {
        true => ServerConnection::stdio(config)?,
        // Trusted by `CTX_TRUST=1`, which applies to this process only: a server that a client starts would leave the
        // untrusted sections out.
        false => ServerConnection::at_url(config, url),
    };
    let server = WorkspaceServer { name: entry::default_name(&config.root), connection };
    let claude = entry::add_command(ClientCommand::Claude, &server, false).unwrap_or_default();
    let program = entry::program_path()?;
    let program = match entry::find_on_path(&program) {
        Some(_) => program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        None => program.display().to_string(),
    };
    let path = config.path.as_deref().map(entry::absolute_path).transpose()?.unwrap_or_default();
    let http = if trusted { "" } else { " --http" };
    let cursor = format!(
        "{} connect cursor --write{http} -c {}",
        entry::shell_quote(&program),
        entry::shell_quote(&path.display().to_string())
    );
    Ok(vec![("Claude Code", claude), ("Cursor", cursor)])
}
