//! `ctx init`

use crate::cli::{Global, working_directory};
use crate::config::{FILE_NAMES, Typed, locate_in};
use crate::error::{CommandError, CommandResult};
use crate::output::count;
use ctx_core::{is_example_environment, is_secret_file};
use ctx_knowledge::{KINDS, document_endings, readable_endings};
use ignore::WalkBuilder;
use serde_json::{Value, json};
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
/// The glob for environments without values, which are documents although they are hidden.
const EXAMPLE_ENVIRONMENTS: &str = "**/.env.{example,sample,template}";
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
        let new = NewWorkspace::fit(&directory)?;
        let created = new.is_some();
        if let Some(new) = &new {
            new.write()?;
        }
        let config = global.load_in(&directory, &Typed::default())?;
        let file = config.path.clone();
        global.open_config(config)?;
        let shown = file.as_deref().unwrap_or(&directory).display().to_string();
        output.answer(&json!({"config": shown, "created": created}), || match &new {
            Some(new) => format!(
                "created {shown}\n{}next: `ctx sync`, then `ctx search WORDS` or `ctx serve mcp`",
                new.contents.left_out_line().map_or_else(String::new, |line| format!("{line}\n"))
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
    /// Files that usually hold secrets, whatever their endings.
    secret_files: usize,
    has_example_environment: bool,
}

impl FolderContents {
    fn of(directory: &Path) -> Self {
        let mut contents = Self::default();
        let is_hidden = |entry: &ignore::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
        let is_file = |entry: &ignore::DirEntry| entry.file_type().is_some_and(|kind| kind.is_file());
        let mut walk = WalkBuilder::new(directory);
        walk.require_git(false).hidden(false);
        walk.filter_entry(move |entry| entry.depth() == 0 || is_file(entry) || !is_hidden(entry));
        for file in walk.build().flatten().filter(is_file).take(LOOKED_AT_MAX) {
            let path = file.path().strip_prefix(directory).unwrap_or(file.path());
            if is_secret_file(path) {
                contents.secret_files += 1;
                continue;
            }
            contents.has_example_environment |= is_example_environment(path);
            let ending = path.extension().and_then(|ending| ending.to_str()).filter(|_| !is_hidden(&file));
            let Some(ending) = ending else { continue };
            let lower = ending.to_ascii_lowercase();
            let is_read =
                !LEFT_OUT.contains(&lower.as_str()) && readable_endings().any(|known| known == lower);
            let kinds = if is_read { &mut contents.read } else { &mut contents.left_out };
            *kinds.entry(ending.to_owned()).or_default() += 1;
        }
        contents
    }

    /// The globs for what is read: `**/*.{md,pdf}`. Every format of documents, since files of another one may come
    /// tomorrow, and of source code what is there.
    fn globs(&self) -> Vec<String> {
        let found = self.read.keys().map(String::as_str);
        let further = found.filter(|ending| !document_endings().any(|known| known == *ending));
        let endings: Vec<&str> = document_endings().map(|ending| -> &str { ending }).chain(further).collect();
        let documents = format!("**/*.{{{}}}", endings.join(","));
        let environments = self.has_example_environment.then(|| EXAMPLE_ENVIRONMENTS.to_owned());
        std::iter::once(documents).chain(environments).collect()
    }

    /// One line on the files that are not read, the most frequent kinds first; none where all are.
    pub(crate) fn left_out_line(&self) -> Option<String> {
        let mut kinds: Vec<(&String, &usize)> = self.left_out.iter().collect();
        kinds.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
        let more = if kinds.len() > KINDS_SHOWN { ", …" } else { "" };
        let shown: Vec<String> =
            kinds.iter().take(KINDS_SHOWN).map(|(ending, count)| format!("{count} .{ending}")).collect();
        let mut reasons = Vec::new();
        if !kinds.is_empty() {
            reasons.push(format!("{}{more} (`include_globs` in ctx.toml decides)", shown.join(", ")));
        }
        if self.secret_files > 0 {
            let files = count(self.secret_files as u64, "secret file");
            reasons.push(format!("{files} (`include_sensitive_globs` decides)"));
        }
        (!reasons.is_empty()).then(|| format!("not indexed: {}", reasons.join(", ")))
    }
}

/// A configuration for a folder that has none, not written yet.
pub(super) struct NewWorkspace {
    /// The folder.
    pub(super) root: PathBuf,
    /// Where its one source is, relative to that.
    pub(super) source_root: &'static str,
    source_name: &'static str,
    pub(super) contents: FolderContents,
}

impl NewWorkspace {
    /// Fits a configuration to what is in the folder; none if it has one.
    pub(super) fn fit(directory: &Path) -> CommandResult<Option<Self>> {
        if !directory.is_dir() {
            return Err(no_folder(directory));
        }
        if locate_in(directory, None).workspace.is_some() {
            return Ok(None);
        }
        // A whole repository: its README matters as much as its docs folder.
        let documents = DOCUMENT_FOLDERS.iter().find(|name| directory.join(name).is_dir());
        let documents = documents.filter(|_| !directory.join("README.md").is_file());
        let (source_name, source_root) = documents.map_or(("files", "."), |name| (*name, *name));
        let contents = FolderContents::of(&directory.join(source_root));
        Ok(Some(Self { root: directory.to_owned(), source_root, source_name, contents }))
    }

    /// The settings of its source.
    pub(super) fn settings(&self) -> Value {
        json!({ "root": self.source_root, "include_globs": self.contents.globs() })
    }

    /// Writes the file, and returns its path.
    pub(super) fn write(&self) -> CommandResult<PathBuf> {
        let path = self.root.join(FILE_NAMES[0]);
        fs::write(&path, fitted(self.source_name, self.source_root, &self.contents))
            .map_err(|error| CommandError::new(format!("cannot write {}: {error}", path.display())))?;
        Ok(path)
    }
}

fn no_folder(path: &Path) -> CommandError {
    let shown = path.display();
    if !path.is_file() {
        return CommandError::usage(format!("there is no folder {shown}"))
            .hint("name one that is there; without a name it is the folder that you are in");
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    CommandError::usage(format!("{shown} is a file, and a workspace is a folder")).hint(format!(
        "name the folder that it is in, {}, or a configuration with `--config`",
        folder.display()
    ))
}

/// A configuration for what the folder holds.
fn fitted(name: &str, root: &str, contents: &FolderContents) -> String {
    format!(
        r#"# A Context Harness workspace. Every setting has a default: `ctx config show` lists them.

# Where documents come from. Paths are relative to this file.
[connectors.filesystem.{name}]
root = "{root}"
# Which files are read. Ignore files (.gitignore) are honoured as well.
include_globs = [{globs}]
# exclude_globs = ["**/drafts/**"]
# Files that usually hold secrets (.env, private keys …) are never read, unless they are named here.
# include_sensitive_globs = ["certs/*.pem"]
# tags = ["docs"]
{others}
# What agents can do: `ctx tool init NAME` writes a tool in Lua and its section here.

[server]
# bind = "127.0.0.1:7331"
# To serve others than this machine, bind another address and set a token:
# token = "${{CTX_TOKEN}}"
"#,
        globs = contents.globs().iter().map(|glob| format!("\"{glob}\"")).collect::<Vec<_>>().join(", "),
        others = other_kinds(),
    )
}

/// What else documents can come from, as comments.
fn other_kinds() -> String {
    let others = KINDS.iter().filter(|kind| kind.name != "filesystem");
    let lines = others.map(|kind| format!("# [connectors.{}.NAME]    {}\n", kind.name, kind.summary));
    format!("\n# Other places that documents can come from:\n{}", lines.collect::<String>())
}
