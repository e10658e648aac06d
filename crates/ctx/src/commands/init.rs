//! `ctx init`: writes a `ctx.toml` that fits the contents of a folder.

use super::folder_contents::{FILES_EXAMINED_MAX, FolderContents};
use crate::cli::{GlobalOptions, examples, working_directory};
use crate::config::{CliOverrides, FILE_NAMES, locate_in};
use crate::error::{CommandError, CommandResult};
use ctx_knowledge::KINDS;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum document size in a workspace without settings: the default of `limits.document_bytes`.
pub(super) const DOCUMENT_BYTES_MAX: u64 = 50_000_000;

/// Create a workspace in a folder: a commented ctx.toml and an empty store.
///
/// The file globs in ctx.toml fit what the folder contains. An existing ctx.toml is left as it is.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Create a workspace in the working directory", "ctx init"),
    ("Create one in another folder", "ctx init ./notes"),
]))]
pub(crate) struct Init {
    /// The folder. By default the working directory.
    directory: Option<PathBuf>,
}

impl Init {
    pub(crate) fn run(self, global: &GlobalOptions) -> CommandResult {
        let output = global.output();
        if global.names_config() {
            return Err(CommandError::usage(
                "`ctx init` creates a configuration file; it takes a folder, not `--config`",
            ));
        }
        let directory = match self.directory {
            Some(directory) => directory,
            None => working_directory()?,
        };
        let new = NewWorkspace::for_folder(&directory)?;
        let created = new.is_some();
        if let Some(new) = &new {
            new.write()?;
        }
        let config = global.load_in(&directory, &CliOverrides::default())?;
        let file = config.path.clone();
        global.open_config(config)?;
        let shown = file.as_deref().unwrap_or(&directory).display().to_string();
        output.print_result(&json!({"config": shown, "created": created}), || match &new {
            Some(new) => format!(
                "created {shown}\n{}next: `ctx sync`, then `ctx search WORDS` or `ctx serve mcp`",
                new.contents.left_out_line().map_or_else(String::new, |line| format!("{line}\n"))
            ),
            None => format!("{shown} already exists; nothing was changed"),
        })
    }
}

/// A configuration for a folder without one, not yet written.
pub(super) struct NewWorkspace {
    /// The folder, which is also the root of the workspace's only source.
    pub(super) root: PathBuf,
    pub(super) contents: FolderContents,
}

impl NewWorkspace {
    /// Derives a configuration from the contents of the folder; `None` if the folder has one already.
    pub(super) fn for_folder(directory: &Path) -> CommandResult<Option<Self>> {
        if !directory.is_dir() {
            return Err(not_a_folder(directory));
        }
        if locate_in(directory, None).workspace.is_some() {
            return Ok(None);
        }
        let contents = FolderContents::of(directory, FILES_EXAMINED_MAX, DOCUMENT_BYTES_MAX);
        Ok(Some(Self { root: directory.to_owned(), contents }))
    }

    /// The settings of the workspace's only source.
    pub(super) fn settings(&self) -> Value {
        json!({
            "root": ".",
            "include_globs": self.contents.include_globs(),
            "exclude_globs": self.contents.exclude_globs(),
        })
    }

    /// Writes the configuration file and returns its path.
    pub(super) fn write(&self) -> CommandResult<PathBuf> {
        let path = self.root.join(FILE_NAMES[0]);
        fs::write(&path, config_text(&self.contents))
            .map_err(|error| CommandError::new(format!("cannot write {}: {error}", path.display())))?;
        Ok(path)
    }
}

fn not_a_folder(path: &Path) -> CommandError {
    let shown = path.display();
    if !path.is_file() {
        return CommandError::usage(format!("there is no folder {shown}"))
            .hint("name an existing folder; the default is the working directory");
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    CommandError::usage(format!("{shown} is a file, and a workspace is a folder"))
        .hint(format!("name its folder, {}, or a configuration with `--config`", folder.display()))
}

/// The text of a configuration file for these folder contents.
fn config_text(contents: &FolderContents) -> String {
    format!(
        r#"# A Context Harness workspace. Every setting has a default: `ctx config show` lists them.

# Where documents come from. Paths are relative to this file.
[connectors.filesystem.files]
root = "."
# Which files are read. Ignore files (.gitignore) are honoured as well.
include_globs = [{include}]
# Which of those are not: generated files and large data files.
exclude_globs = [{exclude}]
# Files that usually hold secrets (.env, private keys …) are never read, unless they are named here.
# include_sensitive_globs = ["certs/*.pem"]
# tags = ["docs"]
{others}
# What agents can do: `ctx tool init NAME` writes a tool in Lua and its section here.

[server]
# bind = "127.0.0.1:7331"
# To accept connections from other machines, bind another address and set a token:
# token = "${{CTX_TOKEN}}"
"#,
        include = string_list(&contents.include_globs()),
        exclude = string_list(&contents.exclude_globs()),
        others = other_kinds(),
    )
}

/// The elements of a TOML array of strings.
fn string_list(strings: &[String]) -> String {
    // A JSON string without control characters is also a TOML string; globs contain none.
    strings.iter().map(|string| Value::from(string.as_str()).to_string()).collect::<Vec<_>>().join(", ")
}

/// The other kinds of sources, as TOML comments.
fn other_kinds() -> String {
    let others = KINDS.iter().filter(|kind| kind.name != "filesystem");
    let lines = others.map(|kind| format!("# [connectors.{}.NAME]    {}\n", kind.name, kind.summary));
    format!("\n# Other places that documents can come from:\n{}", lines.collect::<String>())
}
