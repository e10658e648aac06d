//! `ctx init`

use crate::cli::{Global, working_directory};
use crate::config::{FILE_NAMES, locate_in};
use crate::error::{CommandError, CommandResult};
use ctx_knowledge::KINDS;
use ignore::WalkBuilder;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Files looked at to see what a folder holds.
const LOOKED_AT_MAX: usize = 20_000;
/// Folders that usually hold what is worth knowing, best first.
const DOCUMENT_FOLDERS: [&str; 6] = ["docs", "doc", "documentation", "handbook", "notes", "wiki"];
/// Endings that are text worth searching, in the order they are written.
const TEXT_ENDINGS: [&str; 6] = ["md", "markdown", "mdx", "txt", "rst", "adoc"];

/// Make a workspace of a folder: a commented ctx.toml and an empty store.
#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// The folder; the working directory when absent.
    directory: Option<PathBuf>,
}

impl Init {
    pub(crate) fn run(self, global: &Global) -> CommandResult {
        let output = global.output();
        if global.names_config() {
            return Err(CommandError::usage(
                "`ctx init` makes a configuration; it takes a folder, not `--config`",
            ));
        }
        let directory = match self.directory {
            Some(directory) => directory,
            None => working_directory()?,
        };
        let created = ensure(&directory)?;
        let config = global.load_in(&directory)?;
        let file = config.path.clone();
        global.open_config(config)?;
        let shown = file.as_deref().unwrap_or(&directory).display().to_string();
        output.answer(&json!({"config": shown, "created": created}), || {
            if created {
                format!("created {shown}\nnext: `ctx sync`, then `ctx search WORDS` or `ctx serve mcp`")
            } else {
                format!("{shown} is there already; nothing was changed")
            }
        })
    }
}

/// Writes a configuration if the folder has none; tells whether it did.
pub(crate) fn ensure(directory: &Path) -> CommandResult<bool> {
    if !directory.is_dir() {
        return Err(CommandError::usage(format!("there is no folder {}", directory.display())));
    }
    if locate_in(directory, None).workspace.is_some() {
        return Ok(false);
    }
    let path = directory.join(FILE_NAMES[0]);
    fs::write(&path, fitted(directory))
        .map_err(|error| CommandError::new(format!("cannot write {}: {error}", path.display())))?;
    Ok(true)
}

/// A configuration for what the folder holds.
fn fitted(directory: &Path) -> String {
    let endings = endings_in(directory);
    let root = DOCUMENT_FOLDERS
        .iter()
        .find(|name| directory.join(name).is_dir())
        .filter(|_| endings.is_empty() || !directory.join("README.md").is_file());
    // A whole repository: its README matters as much as its docs folder.
    let (name, root) = root.map_or(("files", "."), |name| (*name, *name));
    let globs: Vec<String> = TEXT_ENDINGS
        .iter()
        .filter(|ending| endings.is_empty() || endings.contains(**ending))
        .map(|ending| format!("\"**/*.{ending}\""))
        .collect();
    format!(
        r#"# A Context Harness workspace. Every setting has a default: `ctx config show` lists them.

# Where documents come from. Paths are relative to this file.
[connectors.filesystem.{name}]
root = "{root}"
# Which files are read. Ignore files (.gitignore) are honoured as well.
include_globs = [{globs}]
# exclude_globs = ["**/drafts/**"]
# tags = ["docs"]
{others}
# What agents can do: `ctx tool init NAME` writes a tool in Lua and its section here.

[server]
# bind = "127.0.0.1:7331"
# To serve others than this machine, bind another address and set a token:
# token = "${{CTX_TOKEN}}"
"#,
        globs = globs.join(", "),
        others = other_kinds(),
    )
}

/// What else documents can come from, as comments.
fn other_kinds() -> String {
    let others = KINDS.iter().filter(|kind| kind.name != "filesystem");
    let lines = others.map(|kind| format!("# [connectors.{}.NAME]    {}\n", kind.name, kind.summary));
    format!("\n# Other places that documents can come from:\n{}", lines.collect::<String>())
}

/// Which kinds of text the folder holds.
fn endings_in(directory: &Path) -> BTreeSet<String> {
    WalkBuilder::new(directory)
        .require_git(false)
        .build()
        .flatten()
        .take(LOOKED_AT_MAX)
        .filter_map(|entry| Some(entry.path().extension()?.to_str()?.to_ascii_lowercase()))
        .filter(|ending| TEXT_ENDINGS.contains(&ending.as_str()))
        .collect()
}
