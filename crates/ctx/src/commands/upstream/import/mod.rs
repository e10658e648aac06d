//! `ctx upstream import`

mod codex;
mod entry;
mod variables;

use super::super::connect::edit::{Addition, Edit, EditError, Format, edit_all};
use super::super::connect::{file, own_url};
use crate::cli::{Global, variable};
use crate::config::{Config, check_upstream};
use crate::error::{CommandError, CommandResult};
use crate::output::Output;
use ctx_core::Identifier;
use entry::Dialect;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The table of ctx.toml that servers are in.
const KEY: &str = "mcp_servers";
/// Where clients have their servers: each a path of keys.
const PLACES: [&[&str]; 4] = [&["mcpServers"], &["servers"], &["mcp", "servers"], &["mcp_servers"]];
/// Names of this machine.
const LOCAL_HOSTS: [&str; 3] = ["://localhost:", "://[::1]:", "://0.0.0.0:"];

/// Take over MCP servers from a client's file.
///
/// Reads the JSON that Claude, Cursor, VS Code and others keep their servers in, or the TOML of Codex, and adds a
/// `[mcp_servers.<name>]` section to the end of ctx.toml for each that is not there yet. Everything else in ctx.toml
/// stays as it is; what it was is kept in ctx.toml.ctx-backup.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// The file, like .mcp.json, .cursor/mcp.json, .vscode/mcp.json or ~/.codex/config.toml.
    file: PathBuf,
    /// Only print what would be added.
    #[arg(long)]
    dry_run: bool,
}

/// What becomes of the servers of a file.
#[derive(Default)]
struct Plan {
    /// Names and sections to add.
    added: Vec<(String, Value)>,
    /// Names, and why they are left out.
    left: Vec<(String, String)>,
    notes: Vec<String>,
    hints: Vec<String>,
}

impl Import {
    pub(crate) fn run(self, global: &Global) -> CommandResult {
        let output = global.output();
        let config = global.load()?;
        config.warnings.iter().for_each(|warning| output.warn(warning));
        let Some(target) = &config.path else {
            return Err(CommandError::usage("there is no workspace here"));
        };
        let is_toml = self.file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
        let (format, dialect) =
            if is_toml { (Format::Toml, codex::CODEX) } else { (Format::Json, entry::EDITORS) };
        let source = read(&self.file, format)?;
        let servers = servers(&source).ok_or_else(|| {
            CommandError::usage(format!("{} has no servers", self.file.display()))
                .hint("they are looked for under `mcpServers`, `servers` and `mcp_servers`")
        })?;
        let plan = Plan::make(servers, &dialect, &config, &read(target, Format::Toml)?);
        plan.tell(&output);
        let additions: Vec<Addition<'_>> =
            plan.added.iter().map(|(name, entry)| Addition { key: KEY, name, entry }).collect();
        let text = match edit_all(Format::Toml, "", &additions) {
            Ok(Edit::Added(text) | Edit::Replaced(text)) => text,
            Ok(Edit::None) => String::new(),
            Err(error) => return Err(CommandError::new(format!("the sections cannot be written: {error}"))),
        };
        let names: Vec<&str> = plan.added.iter().map(|(name, _)| name.as_str()).collect();
        let left: Vec<Value> =
            plan.left.iter().map(|(name, reason)| json!({ "name": name, "reason": reason })).collect();
        let mut answer = json!({
            "file": target,
            "added": names,
            "left_out": left,
            "notes": plan.notes,
            "hints": plan.hints,
            "sections": text,
        });
        if self.dry_run {
            return output.answer(&answer, || text);
        }
        let written = file::write(target, Format::Toml, &additions, true)?;
        answer["backup"] = json!(written.backup);
        let shown = target.display();
        output.answer(&answer, || match &written.backup {
            None => format!("nothing was added to {shown}"),
            Some(backup) => {
                format!("added {} to {shown}\nwhat it was is in {}", names.join(", "), backup.display())
            }
        })?;
        if !names.is_empty() {
            output.say("look at them; `ctx trust` lets them run, `ctx upstream list` tries them");
        }
        Ok(())
    }
}

impl Plan {
    fn make(
        servers: &Map<String, Value>,
        dialect: &Dialect,
        config: &Config,
        written: &Map<String, Value>,
    ) -> Self {
        let mut plan = Self::default();
        let there = written.get(KEY).and_then(Value::as_object).into_iter().flat_map(Map::keys);
        // Also those of the user's own file: two sections of a name would become one.
        let known = there.chain(config.settings.mcp_servers.keys());
        let mut taken: Vec<String> = known.cloned().collect();
        for (name, entry) in servers {
            if let Err(reason) = plan.consider(name, entry, dialect, &mut taken, config) {
                plan.left.push((name.clone(), reason));
            }
        }
        plan
    }

    fn consider(
        &mut self,
        name: &str,
        entry: &Value,
        dialect: &Dialect,
        taken: &mut Vec<String>,
        config: &Config,
    ) -> Result<(), String> {
        if name.is_empty() {
            return Err("it has no name".to_owned());
        }
        if taken.iter().any(|taken| taken == name) {
            return Err(format!("there is a [{KEY}.{name}] already, which stays as it is"));
        }
        if let Some(alike) =
            taken.iter().find(|taken| Identifier::sanitize(taken) == Identifier::sanitize(name))
        {
            return Err(format!("scripts could not tell it from `{alike}`"));
        }
        if is_ours(entry, config) {
            return Err("it is ctx itself".to_owned());
        }
        let entry::Taken { section, notes, hints } = entry::taken(name, entry, dialect)?;
        let unset = check_upstream(name, &section, &variable).map_err(|problems| problems.join("; "))?;
        let unset =
            unset.into_iter().map(|variable| format!("needs the variable {variable}, which is not set"));
        let told = |line: String| format!("{name}: {line}");
        self.notes.extend(notes.into_iter().chain(unset).map(told));
        self.hints.extend(hints.into_iter().map(told));
        self.added.push((name.to_owned(), section));
        taken.push(name.to_owned());
        Ok(())
    }

    fn tell(&self, output: &Output) {
        for (name, reason) in &self.left {
            output.say(&format!("{name} is left out: {reason}"));
        }
        self.notes.iter().for_each(|note| output.warn(note));
        self.hints.iter().for_each(|hint| output.hint(hint));
    }
}

/// What a file says.
fn read(path: &Path, format: Format) -> CommandResult<Map<String, Value>> {
    let shown = path.display();
    let before =
        file::read(path).map_err(|error| CommandError::usage(format!("cannot read {shown}: {error}")))?;
    let before = before.ok_or_else(|| CommandError::usage(format!("there is no file {shown}")))?;
    format.read(&before.text).map_err(|error| {
        CommandError::usage(match error {
            EditError::Syntax { .. } => format!("{shown}:{error}"),
            other => format!("{shown}: {other}"),
        })
    })
}

fn servers(source: &Map<String, Value>) -> Option<&Map<String, Value>> {
    PLACES.iter().find_map(|path| {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(source.get(*first)?, |value, key| value.get(key))?.as_object()
    })
}

/// Whether an entry is this program: as an upstream of its own it would call itself.
fn is_ours(entry: &Value, config: &Config) -> bool {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    if let Some(url) = text("url") {
        let plain = |url: &str| {
            let local =
                LOCAL_HOSTS.iter().fold(url.to_owned(), |url, host| url.replace(host, "://127.0.0.1:"));
            local.trim_end_matches('/').to_owned()
        };
        return own_url(config).is_some_and(|own| plain(&own) == plain(url));
    }
    let Some(command) = text("command") else { return false };
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().to_lowercase());
    // A path of another system may be in it.
    let called = stem(Path::new(command.rsplit(['/', '\\']).next().unwrap_or_default()));
    let running = std::env::current_exe().ok().and_then(|program| stem(&program));
    let is_program = called.as_deref() == Some("ctx") || (called.is_some() && called == running);
    let arguments: Vec<&str> =
        entry.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    is_program && arguments.windows(2).any(|pair| pair == ["serve", "mcp"])
}
