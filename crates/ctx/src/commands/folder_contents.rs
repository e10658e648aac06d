//! Which files of a new workspace's folder are indexed, which are left out, and why.
//!
//! Decides by names and sizes only and opens no file. The reasons for the choices are in docs/decisions.

use super::first_index::group_digits;
use crate::output::count;
use ctx_core::{is_example_environment, is_secret_file};
use ctx_knowledge::{document_extensions, readable_extensions};
use ignore::{DirEntry, WalkBuilder};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of files examined in a folder.
pub(super) const FILES_EXAMINED_MAX: usize = 20_000;
/// File extensions of readable formats that are left out: such files are long and generated, and would crowd out
/// documents in search results.
const LOGS_AND_DATA: [&str; 8] = ["diff", "geojson", "jsonl", "log", "ndjson", "patch", "plist", "svg"];
/// File extensions of configuration and data formats, of which only small files are indexed.
const SETTINGS: [&str; 16] = [
    "cfg",
    "conf",
    "edn",
    "hcl",
    "ini",
    "json",
    "json5",
    "properties",
    "tf",
    "toml",
    "xml",
    "xsd",
    "xsl",
    "xslt",
    "yaml",
    "yml",
];
/// Maximum size of a file with one of the extensions in [`SETTINGS`].
const SETTINGS_BYTES_MAX: u64 = 256 << 10;
/// Maximum number of large files named in `exclude_globs`; if there are more, their extensions are left out.
const LARGE_FILES_NAMED_MAX: usize = 20;
/// Names of files that package managers write.
const LOCK_FILES: [&str; 4] =
    ["npm-shrinkwrap.json", "package-lock.json", "packages.lock.json", "pnpm-lock.yaml"];
/// File name endings of minified scripts and style sheets.
const MINIFIED: [&str; 3] = [".min.css", ".min.js", ".min.mjs"];
/// The folder of installed packages.
const PACKAGES_FOLDER: &str = "node_modules";
/// Names of text files without an extension, in lower case.
const TEXT_NAMES: [&str; 27] = [
    "authors",
    "brewfile",
    "changelog",
    "changes",
    "codeowners",
    "containerfile",
    "contributing",
    "contributors",
    "copying",
    "dockerfile",
    "gemfile",
    "gnumakefile",
    "history",
    "install",
    "jenkinsfile",
    "justfile",
    "licence",
    "license",
    "maintainers",
    "makefile",
    "news",
    "notice",
    "procfile",
    "rakefile",
    "readme",
    "todo",
    "vagrantfile",
];
/// The glob for example `.env` files, which contain no secrets and are indexed although they are hidden.
const EXAMPLE_ENVIRONMENTS: &str = "**/.env.{example,sample,template}";
/// Maximum number of kinds of files listed per reason.
const KINDS_SHOWN: usize = 6;

/// A reason to leave files out, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SkipReason {
    UnknownFormat,
    LogOrData,
    Large,
    Generated,
    NoEnding,
    OverLimit,
}

impl SkipReason {
    fn text(self) -> &'static str {
        match self {
            Self::UnknownFormat => "no known text format",
            Self::LogOrData => "logs and data",
            Self::Large => "large data",
            Self::Generated => "generated",
            Self::NoEnding => "unknown format",
            Self::OverLimit => "larger than `limits.document_bytes`",
        }
    }
}

/// The files of a folder, counted by extension. Extensions keep their case.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FolderContents {
    /// Extensions that a new workspace indexes.
    read: BTreeMap<String, usize>,
    /// Names without an extension that it indexes.
    text_names: BTreeMap<String, usize>,
    /// Kinds of files that it leaves out, such as `.png`.
    left_out: BTreeMap<SkipReason, BTreeMap<String, usize>>,
    /// Configuration and data files that are too large, as extension and path.
    large: Vec<(String, String)>,
    /// Number of files that usually hold secrets.
    secret_files: usize,
    has_example_environment: bool,
    /// The number of examined files, if the folder has more.
    cut_at: Option<usize>,
}

impl FolderContents {
    /// Examines a folder, at most `files_max` of its files. Files larger than `document_bytes_max` are counted as
    /// left out, since no sync can read them.
    pub(super) fn of(directory: &Path, files_max: usize, document_bytes_max: u64) -> Self {
        let mut contents = Self::default();
        let is_file = |entry: &DirEntry| entry.file_type().is_some_and(|kind| kind.is_file());
        let mut walk = WalkBuilder::new(directory);
        walk.require_git(false).hidden(false);
        // Package folders are skipped: they may contain more files than the rest of the folder.
        let packages_folders = Arc::new(AtomicUsize::new(0));
        let counted = packages_folders.clone();
        walk.filter_entry(move |entry| {
            let is_packages_folder = entry.file_name() == PACKAGES_FOLDER && !is_file(entry);
            counted.fetch_add(usize::from(is_packages_folder), Ordering::Relaxed);
            !is_packages_folder && (entry.depth() == 0 || is_file(entry) || !is_hidden(entry))
        });
        let mut files = walk.build().flatten().filter(is_file);
        for file in files.by_ref().take(files_max) {
            let path = file.path().strip_prefix(directory).unwrap_or(file.path());
            if is_secret_file(path) {
                contents.secret_files += 1;
                continue;
            }
            contents.has_example_environment |= is_example_environment(path);
            if !is_hidden(&file) {
                let bytes = file.metadata().map_or(0, |metadata| metadata.len());
                contents.add(path, bytes, document_bytes_max);
            }
        }
        contents.cut_at = files.next().map(|_| files_max);
        let packages_folders = packages_folders.load(Ordering::Relaxed);
        if packages_folders > 0 {
            let kinds = contents.left_out.entry(SkipReason::Generated).or_default();
            kinds.insert(format!("{PACKAGES_FOLDER}/"), packages_folders);
        }
        contents.leave_out_endings_of_many_large_files();
        contents
    }

    fn add(&mut self, path: &Path, bytes: u64, document_bytes_max: u64) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
        if let Some(kind) = generated_kind(&name.to_ascii_lowercase()) {
            return self.leave_out(SkipReason::Generated, kind.to_owned());
        }
        let Some(ending) = path.extension().and_then(|ending| ending.to_str()) else {
            return match TEXT_NAMES.contains(&name.to_ascii_lowercase().as_str()) {
                true => *self.text_names.entry(name.to_owned()).or_default() += 1,
                false => self.leave_out(SkipReason::NoEnding, String::new()),
            };
        };
        let lower = ending.to_ascii_lowercase();
        let kind = format!(".{ending}");
        if !readable_extensions().any(|known| known == lower) {
            self.leave_out(SkipReason::UnknownFormat, kind);
        } else if LOGS_AND_DATA.contains(&lower.as_str()) {
            self.leave_out(SkipReason::LogOrData, kind);
        } else if bytes > document_bytes_max {
            self.leave_out(SkipReason::OverLimit, kind);
        } else if SETTINGS.contains(&lower.as_str()) && bytes > SETTINGS_BYTES_MAX {
            self.large.push((ending.to_owned(), slashed(path)));
            self.leave_out(SkipReason::Large, kind);
        } else {
            *self.read.entry(ending.to_owned()).or_default() += 1;
        }
    }

    fn leave_out(&mut self, reason: SkipReason, kind: String) {
        *self.left_out.entry(reason).or_default().entry(kind).or_default() += 1;
    }

    /// Leaves out extensions with many large files. A few large files are excluded by name; many are a data set,
    /// whose small files are not worth indexing either.
    fn leave_out_endings_of_many_large_files(&mut self) {
        if self.large.len() <= LARGE_FILES_NAMED_MAX {
            return;
        }
        for (ending, _) in std::mem::take(&mut self.large) {
            let small = self.read.remove(&ending).unwrap_or_default();
            *self.left_out.entry(SkipReason::Large).or_default().entry(format!(".{ending}")).or_default() +=
                small;
        }
    }

    /// The globs for the files to index, such as `**/*.{md,pdf}`: all document formats, since files of other formats
    /// may be added later, but only those kinds of source code, configuration and extensionless files that the folder
    /// contains.
    pub(super) fn include_globs(&self) -> Vec<String> {
        let found = self.read.keys().map(String::as_str);
        let further = found.filter(|ending| !document_extensions().any(|known| known == *ending));
        let endings: Vec<&str> =
            document_extensions().map(|ending| -> &str { ending }).chain(further).collect();
        let mut globs = vec![format!("**/*.{{{}}}", endings.join(","))];
        let names: Vec<&str> = self.text_names.keys().map(String::as_str).collect();
        match names.as_slice() {
            [] => {}
            [name] => globs.push(format!("**/{name}")),
            names => globs.push(format!("**/{{{}}}", names.join(","))),
        }
        globs.extend(self.has_example_environment.then(|| EXAMPLE_ENVIRONMENTS.to_owned()));
        globs
    }

    /// The globs for files to exclude: generated files, and large data files.
    pub(super) fn exclude_globs(&self) -> Vec<String> {
        let minified: Vec<&str> = MINIFIED.iter().map(|ending| ending.trim_start_matches(".min.")).collect();
        let mut globs = vec![
            format!("**/{{{}}}", LOCK_FILES.join(",")),
            format!("**/*.min.{{{}}}", minified.join(",")),
            format!("**/{PACKAGES_FOLDER}/**"),
        ];
        let paths = self.large.iter().map(|(_, path)| path);
        globs.extend(paths.filter(|path| !path.chars().any(char::is_control)).map(|path| escaped(path)));
        globs
    }

    /// One line about the files that are left out, by reason, the most frequent kinds first; `None` if all are indexed.
    pub(crate) fn left_out_line(&self) -> Option<String> {
        let mut parts: Vec<String> = self
            .left_out
            .iter()
            .map(|(reason, kinds)| format!("{} ({})", shown_kinds(kinds), reason.text()))
            .collect();
        if !parts.is_empty() {
            let last = parts.pop().unwrap_or_default();
            parts.push(format!("{last}: `include_globs` and `exclude_globs` in ctx.toml decide"));
        }
        if self.secret_files > 0 {
            let files = count(self.secret_files as u64, "secret file");
            parts.push(format!("{files} (`include_sensitive_globs` decides)"));
        }
        let line = (!parts.is_empty()).then(|| format!("not indexed: {}", parts.join("; ")));
        let Some(examined) = self.cut_at else { return line };
        let examined = group_digits(examined as u64);
        let cut = format!("more than {examined} files: only the first {examined} were examined");
        Some(line.map_or_else(|| cut.clone(), |line| format!("{cut}; of those {line}")))
    }
}

/// `12 .png, 3 .mp4, …`
fn shown_kinds(kinds: &BTreeMap<String, usize>) -> String {
    let mut sorted: Vec<(&String, &usize)> = kinds.iter().collect();
    sorted.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
    let more = if sorted.len() > KINDS_SHOWN { ", …" } else { "" };
    let shown = sorted.iter().take(KINDS_SHOWN).map(|(kind, files)| match kind.as_str() {
        "" => format!("{} without an extension", count(**files as u64, "file")),
        kind => format!("{files} {kind}"),
    });
    format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
}

/// The kind of a generated file, recognised by its name.
fn generated_kind(name: &str) -> Option<&'static str> {
    let lock_file = LOCK_FILES.into_iter().find(|known| *known == name);
    lock_file.or_else(|| MINIFIED.into_iter().find(|ending| name.ends_with(ending)))
}

fn is_hidden(entry: &DirEntry) -> bool {
    entry.file_name().as_encoded_bytes().starts_with(b".")
}

/// A relative path with `/` as separator, for globs.
fn slashed(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

/// A glob that matches this path only.
fn escaped(path: &str) -> String {
    let is_special = |char: char| "?*[]{}!\\".contains(char);
    path.chars().map(|char| if is_special(char) { format!("[{char}]") } else { char.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn contents(files: &[(&str, usize)], files_max: usize) -> FolderContents {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x".repeat(*bytes)).unwrap();
        }
        FolderContents::of(folder.path(), files_max, 1 << 20)
    }

    #[test]
    fn every_file_is_read_or_left_out_for_a_reason() {
        let files = [
            ("a.md", 1),
            ("deploy.yaml", 1),
            ("src/main.rs", 1),
            ("Makefile", 1),
            ("sub/README", 1),
            ("binary", 1),
            ("photo.png", 1),
            ("server.log", 1),
            ("package-lock.json", 1),
            ("app.min.js", 1),
            ("node_modules/left-pad/index.js", 1),
            ("data[1].json", (256 << 10) + 1),
            ("huge.txt", (1 << 20) + 1),
            (".hidden", 1),
            ("id_rsa", 1),
        ];
        let contents = contents(&files, 100);
        let globs = contents.include_globs();
        assert!(globs[0].ends_with(",org,rs,yaml}"), "{globs:?}");
        assert_eq!(globs[1..], ["**/{Makefile,README}"]);
        assert_eq!(
            contents.exclude_globs(),
            [
                "**/{npm-shrinkwrap.json,package-lock.json,packages.lock.json,pnpm-lock.yaml}",
                "**/*.min.{css,js,mjs}",
                "**/node_modules/**",
                "data[[]1[]].json",
            ]
        );
        assert_eq!(
            contents.left_out_line().unwrap(),
            "not indexed: 1 .png (no known text format); 1 .log (logs and data); 1 .json (large data); 1 .min.js, 1 \
             node_modules/, 1 package-lock.json (generated); 1 file without an extension (unknown format); 1 .txt \
             (larger than `limits.document_bytes`): `include_globs` and `exclude_globs` in ctx.toml decide; 1 secret file \
             (`include_sensitive_globs` decides)"
        );
    }

    #[test]
    fn many_large_files_of_an_ending_are_a_data_set() {
        let names: Vec<String> = (0..=LARGE_FILES_NAMED_MAX).map(|number| format!("{number}.json")).collect();
        let mut files: Vec<(&str, usize)> =
            names.iter().map(|name| (name.as_str(), (256 << 10) + 1)).collect();
        files.extend([("small.json", 1), ("small.yaml", 1)]);
        let contents = contents(&files, 100);
        assert!(contents.include_globs()[0].ends_with(",org,yaml}"));
        assert_eq!(contents.exclude_globs().len(), 3);
        assert!(contents.left_out_line().unwrap().starts_with("not indexed: 22 .json (large data):"));
    }

    #[test]
    fn a_count_that_ended_early_says_so() {
        let files = [("a.png", 1), ("b.png", 1), ("c.png", 1)];
        assert_eq!(
            contents(&files, 2).left_out_line().unwrap(),
            "more than 2 files: only the first 2 were examined; of those not indexed: 2 .png (no known text \
             format): `include_globs` and `exclude_globs` in ctx.toml decide"
        );
        assert!(contents(&files, 3).left_out_line().unwrap().starts_with("not indexed: 3 .png"));
        assert_eq!(contents(&[("a.md", 1)], 3).left_out_line(), None);
    }
}
