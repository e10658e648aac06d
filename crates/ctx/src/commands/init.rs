//! `ctx init`

use crate::cli::{Global, working_directory};
use crate::config::{FILE_NAMES, locate_in};
use crate::error::{CommandError, CommandResult};
use ctx_knowledge::{KINDS, readable_endings};
use ignore::WalkBuilder;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Files looked at to see what a folder holds.
const LOOKED_AT_MAX: usize = 20_000;
/// Folders that usually hold what is worth knowing, best first.
const DOCUMENT_FOLDERS: [&str; 6] = ["docs", "doc", "documentation", "handbook", "notes", "wiki"];
/// Endings that can be read and are left out of a new workspace: settings, which often hold secrets, and data and logs,
/// which would crowd out documents.
const LEFT_OUT: [&str; 28] = [
    "cfg",
    "conf",
    "diff",
    "edn",
    "env",
    "geojson",
    "ini",
    "json",
    "json5",
    "jsonl",
    "log",
    "ndjson",
    "patch",
    "plist",
    "properties",
    "s",
    "sbt",
    "svg",
    "tf",
    "tfvars",
    "toml",
    "xml",
    "xsd",
    "xsl",
    "xslt",
    "yaml",
    "yml",
    "hcl",
];
/// Endings that are written for a folder without documents.
const USUAL_ENDINGS: [&str; 6] = ["md", "txt", "pdf", "docx", "html", "ipynb"];
/// Kinds of files that are named when they are left out.
const KINDS_SHOWN: usize = 6;

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
        let written = ensure(&directory)?;
        let created = written.is_some();
        let config = global.load_in(&directory)?;
        let file = config.path.clone();
        global.open_config(config)?;
        let shown = file.as_deref().unwrap_or(&directory).display().to_string();
        output.answer(&json!({"config": shown, "created": created}), || match &written {
            Some(folder) => format!(
                "created {shown}\n{}next: `ctx sync`, then `ctx search WORDS` or `ctx serve mcp`",
                folder.left_out_line().map_or_else(String::new, |line| format!("{line}\n"))
            ),
            None => format!("{shown} is there already; nothing was changed"),
        })
    }
}

/// The files of a folder by their endings, as they are written.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FolderContents {
    /// Endings that a new workspace reads.
    read: BTreeMap<String, usize>,
    /// Endings that it does not.
    left_out: BTreeMap<String, usize>,
}

impl FolderContents {
    fn of(directory: &Path) -> Self {
        let mut contents = Self::default();
        let is_file = |entry: &ignore::DirEntry| entry.file_type().is_some_and(|kind| kind.is_file());
        let files = WalkBuilder::new(directory).require_git(false).build().flatten().filter(is_file);
        for file in files.take(LOOKED_AT_MAX) {
            let Some(ending) = file.path().extension().and_then(|ending| ending.to_str()) else { continue };
            let lower = ending.to_ascii_lowercase();
            let is_read =
                !LEFT_OUT.contains(&lower.as_str()) && readable_endings().any(|known| known == lower);
            let kinds = if is_read { &mut contents.read } else { &mut contents.left_out };
            *kinds.entry(ending.to_owned()).or_default() += 1;
        }
        contents
    }

    /// The glob for what is read: `**/*.{md,pdf}`.
    fn glob(&self) -> String {
        let endings: Vec<&str> = match self.read.is_empty() {
            true => USUAL_ENDINGS.to_vec(),
            false => self.read.keys().map(String::as_str).collect(),
        };
        match &endings[..] {
            [ending] => format!("**/*.{ending}"),
            endings => format!("**/*.{{{}}}", endings.join(",")),
        }
    }

    /// One line on the files that are not read, the most frequent kinds first; none where all are.
    pub(crate) fn left_out_line(&self) -> Option<String> {
        let mut kinds: Vec<(&String, &usize)> = self.left_out.iter().collect();
        kinds.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
        let more = if kinds.len() > KINDS_SHOWN { ", …" } else { "" };
        let shown: Vec<String> =
            kinds.iter().take(KINDS_SHOWN).map(|(ending, count)| format!("{count} .{ending}")).collect();
        let line = format!("not indexed: {}{more} (`include_globs` in ctx.toml decides)", shown.join(", "));
        (!kinds.is_empty()).then_some(line)
    }
}

/// Writes a configuration if the folder has none; returns what it found in the folder then.
pub(crate) fn ensure(directory: &Path) -> CommandResult<Option<FolderContents>> {
    if !directory.is_dir() {
        let error = CommandError::usage(format!("there is no folder {}", directory.display()));
        return Err(match directory.is_file() {
            true => error.hint("a workspace is a folder; name the one that the file is in"),
            false => error,
        });
    }
    if locate_in(directory, None).workspace.is_some() {
        return Ok(None);
    }
    let path = directory.join(FILE_NAMES[0]);
    // A whole repository: its README matters as much as its docs folder.
    let documents = DOCUMENT_FOLDERS.iter().find(|name| directory.join(name).is_dir());
    let documents = documents.filter(|_| !directory.join("README.md").is_file());
    let (name, root) = documents.map_or(("files", "."), |name| (*name, *name));
    let contents = FolderContents::of(&directory.join(root));
    fs::write(&path, fitted(name, root, &contents))
        .map_err(|error| CommandError::new(format!("cannot write {}: {error}", path.display())))?;
    Ok(Some(contents))
}

/// A configuration for what the folder holds.
fn fitted(name: &str, root: &str, contents: &FolderContents) -> String {
    format!(
        r#"# A Context Harness workspace. Every setting has a default: `ctx config show` lists them.

# Where documents come from. Paths are relative to this file.
[connectors.filesystem.{name}]
root = "{root}"
# Which files are read. Ignore files (.gitignore) are honoured as well.
include_globs = ["{glob}"]
# exclude_globs = ["**/drafts/**"]
# tags = ["docs"]
{others}
# What agents can do: `ctx tool init NAME` writes a tool in Lua and its section here.

[server]
# bind = "127.0.0.1:7331"
# To serve others than this machine, bind another address and set a token:
# token = "${{CTX_TOKEN}}"
"#,
        glob = contents.glob(),
        others = other_kinds(),
    )
}

/// What else documents can come from, as comments.
fn other_kinds() -> String {
    let others = KINDS.iter().filter(|kind| kind.name != "filesystem");
    let lines = others.map(|kind| format!("# [connectors.{}.NAME]    {}\n", kind.name, kind.summary));
    format!("\n# Other places that documents can come from:\n{}", lines.collect::<String>())
}
