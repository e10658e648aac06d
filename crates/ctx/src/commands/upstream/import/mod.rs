//! `ctx upstream import`: copies MCP servers from a client's settings to ctx.toml.

mod codex;
mod entry;
mod variables;

use super::super::connect::edit::{EditError, EditOutcome, NewEntry, SettingsFormat, edit_all};
use super::super::connect::{own_url, settings_file};
use crate::cli::{GlobalOptions, examples, variable};
use crate::config::{Config, check_upstream};
use crate::error::{CommandError, CommandResult};
use crate::output::CommandOutput;
use ctx_core::Identifier;
use entry::SettingsDialect;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The table of MCP servers in ctx.toml.
const SERVERS_KEY: &str = "mcp_servers";
/// The paths of keys under which clients keep their servers.
const SERVER_KEY_PATHS: [&[&str]; 4] = [&["mcpServers"], &["servers"], &["mcp", "servers"], &["mcp_servers"]];
/// Loopback and wildcard hosts that stand for this machine, as they occur in a URL.
const LOCAL_HOSTS: [&str; 3] = ["://localhost:", "://[::1]:", "://0.0.0.0:"];

/// Import MCP servers from the settings of a client.
///
/// Reads the JSON settings of Claude, Cursor, VS Code and others, or the TOML settings of Codex, and appends a
/// `[mcp_servers.<name>]` section to ctx.toml for each server that is not there yet. The rest of ctx.toml is
/// unchanged; its previous version is kept as ctx.toml.ctx-backup.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Import the servers of VS Code", "ctx upstream import .vscode/mcp.json"),
    ("Show what an import from Codex would add", "ctx upstream import ~/.codex/config.toml --dry-run"),
]))]
pub(crate) struct Import {
    /// The settings file, such as .mcp.json, .cursor/mcp.json, .vscode/mcp.json or ~/.codex/config.toml.
    file: PathBuf,
    /// Print the sections that would be added, without writing them.
    #[arg(long)]
    dry_run: bool,
}

/// The servers of a file: those to add, those to leave out, and messages about them.
#[derive(Default)]
struct ImportPlan {
    /// Names and sections of the servers to add.
    added: Vec<(String, Value)>,
    /// Names of the servers to leave out, with the reasons.
    skipped: Vec<(String, String)>,
    notes: Vec<String>,
    hints: Vec<String>,
}

impl Import {
    pub(crate) fn run(self, global: &GlobalOptions) -> CommandResult {
        let output = global.output();
        let config = global.load()?;
        config.warnings.iter().for_each(|warning| output.warn(warning));
        let Some(target) = &config.path else {
            return Err(CommandError::usage("there is no workspace here"));
        };
        let is_toml = self.file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
        let (format, dialect) = if is_toml {
            (SettingsFormat::Toml, codex::CODEX)
        } else {
            (SettingsFormat::Json, entry::EDITORS)
        };
        let source = read(&self.file, format)?;
        let servers = servers(&source).ok_or_else(|| {
            CommandError::usage(format!("{} has no servers", self.file.display()))
                .hint("they are looked for under `mcpServers`, `servers` and `mcp_servers`")
        })?;
        let plan = ImportPlan::new(servers, &dialect, &config, &read(target, SettingsFormat::Toml)?);
        plan.print_notes(&output);
        let new_entries: Vec<NewEntry<'_>> =
            plan.added.iter().map(|(name, entry)| NewEntry { key: SERVERS_KEY, name, entry }).collect();
        let text = match edit_all(SettingsFormat::Toml, "", &new_entries) {
            Ok(EditOutcome::Added(text) | EditOutcome::Replaced(text)) => text,
            Ok(EditOutcome::Unchanged) => String::new(),
            Err(error) => return Err(CommandError::new(format!("cannot serialize the sections: {error}"))),
        };
        let names: Vec<&str> = plan.added.iter().map(|(name, _)| name.as_str()).collect();
        let skipped: Vec<Value> =
            plan.skipped.iter().map(|(name, reason)| json!({ "name": name, "reason": reason })).collect();
        let mut answer = json!({
            "file": target,
            "added": names,
            "left_out": skipped,
            "notes": plan.notes,
            "hints": plan.hints,
            "sections": text,
        });
        if self.dry_run {
            return output.print_result(&answer, || text);
        }
        let written = settings_file::write(target, SettingsFormat::Toml, &new_entries, true)?;
        answer["backup"] = json!(written.backup);
        let shown = target.display();
        output.print_result(&answer, || match &written.backup {
            None => format!("nothing was added to {shown}"),
            Some(backup) => {
                format!(
                    "added {} to {shown}\nthe previous version is in {}",
                    names.join(", "),
                    backup.display()
                )
            }
        })?;
        if !names.is_empty() {
            output.say("review them; `ctx trust` allows them to run, `ctx upstream list` connects to them");
        }
        Ok(())
    }
}

impl ImportPlan {
    fn new(
        servers: &Map<String, Value>,
        dialect: &SettingsDialect,
        config: &Config,
        current: &Map<String, Value>,
    ) -> Self {
        let mut plan = Self::default();
        let configured = current.get(SERVERS_KEY).and_then(Value::as_object).into_iter().flat_map(Map::keys);
        // Includes servers of the user-level file: two sections with the same name would be merged.
        let known = configured.chain(config.settings.mcp_servers.keys());
        let mut known_names: Vec<String> = known.cloned().collect();
        for (name, entry) in servers {
            if let Err(reason) = plan.add_server(name, entry, dialect, &mut known_names, config) {
                plan.skipped.push((name.clone(), reason));
            }
        }
        plan
    }

    fn add_server(
        &mut self,
        name: &str,
        entry: &Value,
        dialect: &SettingsDialect,
        known_names: &mut Vec<String>,
        config: &Config,
    ) -> Result<(), String> {
        if name.is_empty() {
            return Err("it has no name".to_owned());
        }
        if known_names.iter().any(|known| known == name) {
            return Err(format!("there is a [{SERVERS_KEY}.{name}] already, which is not changed"));
        }
        if let Some(similar) =
            known_names.iter().find(|known| Identifier::sanitize(known) == Identifier::sanitize(name))
        {
            return Err(format!("in scripts it would have the same name as `{similar}`"));
        }
        if is_this_program(entry, config) {
            return Err("it is ctx itself".to_owned());
        }
        let entry::ConvertedServer { section, notes, hints } = entry::convert_server(name, entry, dialect)?;
        let unset = check_upstream(name, &section, &variable).map_err(|problems| problems.join("; "))?;
        let unset =
            unset.into_iter().map(|variable| format!("needs the variable {variable}, which is not set"));
        let with_name = |line: String| format!("{name}: {line}");
        self.notes.extend(notes.into_iter().chain(unset).map(with_name));
        self.hints.extend(hints.into_iter().map(with_name));
        self.added.push((name.to_owned(), section));
        known_names.push(name.to_owned());
        Ok(())
    }

    fn print_notes(&self, output: &CommandOutput) {
        for (name, reason) in &self.skipped {
            output.say(&format!("{name} is left out: {reason}"));
        }
        self.notes.iter().for_each(|note| output.warn(note));
        self.hints.iter().for_each(|hint| output.hint(hint));
    }
}

/// Parses a file.
fn read(path: &Path, format: SettingsFormat) -> CommandResult<Map<String, Value>> {
    let shown = path.display();
    let before = settings_file::read(path)
        .map_err(|error| CommandError::usage(format!("cannot read {shown}: {error}")))?;
    let before = before.ok_or_else(|| CommandError::usage(format!("there is no file {shown}")))?;
    format.parse(&before.text).map_err(|error| {
        CommandError::usage(match error {
            EditError::Syntax { .. } => format!("{shown}:{error}"),
            other => format!("{shown}: {other}"),
        })
    })
}

fn servers(source: &Map<String, Value>) -> Option<&Map<String, Value>> {
    SERVER_KEY_PATHS.iter().find_map(|path| {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(source.get(*first)?, |value, key| value.get(key))?.as_object()
    })
}

/// Whether an entry is this program itself: as its own upstream it would call itself.
fn is_this_program(entry: &Value, config: &Config) -> bool {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    if let Some(url) = text("url") {
        let normalized = |url: &str| {
            let local =
                LOCAL_HOSTS.iter().fold(url.to_owned(), |url, host| url.replace(host, "://127.0.0.1:"));
            local.trim_end_matches('/').to_owned()
        };
        return own_url(config).is_some_and(|own| normalized(&own) == normalized(url));
    }
    let Some(command) = text("command") else { return false };
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().to_lowercase());
    // The path may be one of another operating system, so it is split at both separators.
    let command_stem = stem(Path::new(command.rsplit(['/', '\\']).next().unwrap_or_default()));
    let program_stem = std::env::current_exe().ok().and_then(|program| stem(&program));
    let is_program =
        command_stem.as_deref() == Some("ctx") || (command_stem.is_some() && command_stem == program_stem);
    let arguments: Vec<&str> =
        entry.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    is_program && arguments.windows(2).any(|pair| pair == ["serve", "mcp"])
}
