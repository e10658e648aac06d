//! `ctx connect`: prints or writes the entry of a workspace's server in the settings of an MCP client.

mod clients;
pub(super) mod edit;
mod entry;
pub(super) mod file;

use crate::cli::{Global, examples};
use crate::config::Config;
use crate::error::{CommandError, CommandResult};
use crate::output::Output;
use crate::trust;
use clap::builder::PossibleValuesParser;
use clients::{CLIENTS, Client, Environment, Http, Own, TokenWay, client};
use edit::{Addition, Edit, edit};
use entry::{Reveal, Server, Token, Way};
use file::{Change, Written};
use serde_json::{Value, json};
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
    pub(crate) fn run(self, global: &Global) -> CommandResult {
        let output = global.output();
        let client = client(&self.client).ok_or_else(|| CommandError::usage("no such client"))?;
        let config = global.load_and_settle(trust::ALL_GROUPS, || global.load())?;
        config.warnings.iter().for_each(|warning| output.warn(warning));
        let server = self.server(&config)?;
        let file = self.file_of(client, &config)?;
        let told = |reveal| {
            entry::entry(client, &server, reveal).ok_or_else(|| {
                CommandError::usage(format!("{} only knows servers that it starts itself", client.title))
                    .hint("connect without `--http`")
            })
        };
        let shown = told(Reveal::No)?;
        let command = client.own.filter(|_| self.file.is_none());
        let command = command.and_then(|own| entry::own_command(own, &server, self.project));
        let mut answer = json!({
            "client": client.name,
            "name": server.name,
            "transport": if self.http { "http" } else { "stdio" },
            "file": file,
            "entry": shown,
            "command": command,
        });
        if !self.write {
            say_where(&output, client, file.as_deref());
            self.say_needs(&output, client, &server);
            say_check(&output, client, &server);
            let snippet = snippet(client, &server, &shown)?;
            return output.answer(&answer, || command.unwrap_or(snippet));
        }
        let file = file.ok_or_else(|| {
            CommandError::usage("which file is not known").hint("name it with `--file PATH`")
        })?;
        let entry = told(Reveal::Yes)?;
        let secret = entry != shown;
        if secret && self.project {
            return Err(CommandError::usage(format!(
                "{} reads no variables, and the token does not belong into a project's file",
                client.title
            ))
            .hint("connect without `--http`, or without `--project`"));
        }
        let addition = Addition { key: client.key, name: &server.name, entry: &entry };
        let written = file::write(&file, client.format, &[addition], secret)?;
        answer["change"] = json!(written.change);
        answer["backup"] = json!(written.backup);
        self.say_needs(&output, client, &server);
        if written.change != Change::Unchanged {
            say_check(&output, client, &server);
        }
        output.answer(&answer, || self.outcome(client, &server, &file, &written))
    }

    fn server(&self, config: &Config) -> CommandResult<Server> {
        let name = self.name.clone().unwrap_or_else(|| entry::default_name(&config.root));
        entry::check_name(&name)?;
        if self.http {
            return Ok(Server { name, way: Way::http(config)? });
        }
        Ok(Server { name, way: Way::stdio(config)? })
    }

    /// The settings file for the entry; `None` if the client has no usual one.
    fn file_of(&self, client: &Client, config: &Config) -> CommandResult<Option<PathBuf>> {
        if let Some(file) = &self.file {
            return entry::settled(file).map(Some);
        }
        if self.project {
            let none = || CommandError::usage(format!("{} has no settings for one project", client.title));
            let path = client.project.ok_or_else(none)?;
            return entry::settled(&config.root.join(path)).map(Some);
        }
        let Some(place) = &client.user else { return Ok(None) };
        let homeless = || {
            CommandError::new(format!("cannot tell where {} keeps its settings", client.title))
                .hint("set HOME, or name the file with `--file PATH`")
        };
        place.path().ok_or_else(homeless).map(Some)
    }

    fn outcome(&self, client: &Client, server: &Server, file: &Path, written: &Written) -> String {
        let (name, path) = (&server.name, file.display());
        let mut lines = match written.change {
            Change::Unchanged => vec![format!("{path} has `{name}` already; nothing was changed")],
            Change::Added => vec![format!("added `{name}` to {path}")],
            Change::Replaced => vec![format!("replaced `{name}` in {path}, which was something else")],
        };
        if let Some(backup) = &written.backup {
            lines.push(format!("what it was is in {}", backup.display()));
        }
        if let Some(made) = &written.made {
            let usual = !self.project && self.file.is_none();
            let doubt = if usual { format!(": is {} installed?", client.title) } else { String::new() };
            lines.push(format!("made the folder {}{doubt}", made.display()));
        }
        lines.join("\n")
    }

    /// Prints what the user has to provide: variables, a token, a running server.
    fn say_needs(&self, output: &Output, client: &Client, server: &Server) {
        let title = client.title;
        match &server.way {
            Way::Stdio { variables, .. } => {
                if self.project {
                    output.say("it names paths of this machine: do not share the file with others");
                }
                let names = variables.join(", ");
                match client.environment {
                    _ if variables.is_empty() => {}
                    Environment::Little => output.say(&format!(
                        "the configuration reads variables that {title} does not pass on: add them to the \
                         entry's `env` with their values ({names})"
                    )),
                    _ => output.say(&format!(
                        "the configuration reads variables: start {title} where they are set ({names})"
                    )),
                }
            }
            Way::Http { token, .. } => {
                output.say("the server has to run: `ctx serve mcp`, or `ctx up`");
                let Some(Token { variable, .. }) = token else { return };
                let literal = matches!(client.http, Some(Http { token: TokenWay::Literal, .. }));
                match (literal, self.write) {
                    (false, _) => {
                        output.say(&format!("start {title} where {variable} is set to the server's token"));
                    }
                    (true, true) => {
                        output.warn(&format!("{title} reads no variables: the token itself is in its file"));
                    }
                    (true, false) => output.say(&format!(
                        "{title} reads no variables: put the token in place of <{variable}>; `--write` does so"
                    )),
                }
            }
        }
    }
}

/// The text of a settings file that contains only this entry.
fn snippet(client: &Client, server: &Server, entry: &Value) -> CommandResult<String> {
    let addition = Addition { key: client.key, name: &server.name, entry };
    match edit(client.format, "", &addition) {
        Ok(Edit::Added(text)) => Ok(text),
        _ => Err(CommandError::new("the entry cannot be written")),
    }
}

fn say_where(output: &Output, client: &Client, file: Option<&Path>) {
    let title = client.title;
    match file {
        Some(file) => {
            output.say(&format!("for {title}, in {}; `--write` puts it there", file.display()));
        }
        None => output.say(&format!("for {title}; `--write --file PATH` puts it into a file")),
    }
}

fn say_check(output: &Output, client: &Client, server: &Server) {
    output.say(&format!("to check: {}", client.check.replace('@', &server.name)));
}

/// The environment variable from which a client takes the server's token.
pub(super) fn token_variable(config: &Config) -> String {
    entry::token_variable(config)
}

/// The URL of the workspace's MCP server for clients on this machine.
pub(super) fn own_url(config: &Config) -> Option<String> {
    match Way::http(config) {
        Ok(Way::Http { url, .. }) => Some(url),
        _ => None,
    }
}

/// How to connect the two most common clients to a server at this address: the client's name and a command.
pub(super) fn ways(config: &Config, url: &str) -> CommandResult<Vec<(&'static str, String)>> {
    let trusted = trust::is_remembered(config);
    let way = match trusted {
        true => Way::stdio(config)?,
        // Trusted by `CTX_TRUST=1`, which applies to this process only: a server that a client starts would leave the
        // untrusted sections out.
        false => Way::running(config, url),
    };
    let server = Server { name: entry::default_name(&config.root), way };
    let claude = entry::own_command(Own::Claude, &server, false).unwrap_or_default();
    let program = entry::program()?;
    let program = match entry::found_by_name(&program) {
        Some(_) => program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        None => program.display().to_string(),
    };
    let path = config.path.as_deref().map(entry::settled).transpose()?.unwrap_or_default();
    let http = if trusted { "" } else { " --http" };
    let cursor = format!(
        "{} connect cursor --write{http} -c {}",
        entry::quoted(&program),
        entry::quoted(&path.display().to_string())
    );
    Ok(vec![("Claude Code", claude), ("Cursor", cursor)])
}
