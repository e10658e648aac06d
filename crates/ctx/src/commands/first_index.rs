//! The confirmation prompt before `ctx up` first indexes the home folder, a whole file system, or a very large folder.
//!
//! Only folders are counted: the size of a git repository or a bucket is unknown before it is fetched.

use super::init::{DOCUMENT_BYTES_MAX, NewWorkspace};
use crate::error::{CommandError, CommandResult};
use crate::output::{CommandOutput, bytes, count};
use crate::workspace::Workspace;
use ctx_core::SourceName;
use ctx_knowledge::{FolderSurvey, OpenOptions, SurveyLimits};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Folders beyond these sizes are indexed only after confirmation.
const LIMITS: SurveyLimits = SurveyLimits { files: 50_000, bytes: 2_000_000_000, entries: 500_000 };

/// Indexing speed until documents can be searched, measured with 7,000 Markdown files of 79 MB on two cores
/// (docs/performance.md).
const FILES_PER_SECOND: u64 = 740;
const BYTES_PER_SECOND: u64 = 8_400_000;
/// Disk space of the index per byte of the files, measured with 2,149 pages and source files of 13 MB
/// (docs/performance.md): store and keyword index take 4.1 times the size of the files, and the vectors about once.
const INDEX_BYTES_PER_BYTE: u64 = 5;

/// A folder source that has never been indexed.
struct NewSource {
    root: PathBuf,
    settings: Value,
}

/// Asks for confirmation before a workspace is created in a large or special folder.
pub(super) fn confirm_new(new: &NewWorkspace, yes: bool, output: &CommandOutput) -> CommandResult {
    let source = NewSource { root: new.root.clone(), settings: new.settings() };
    confirm(&new.root, &[&new.root], &[source], DOCUMENT_BYTES_MAX, yes, output)
}

/// Asks for confirmation before large or special sources of a workspace are first synced. An earlier sync, even an
/// incomplete one, counts as confirmation.
pub(super) fn confirm_sources(workspace: &Workspace, yes: bool, output: &CommandOutput) -> CommandResult {
    let config = &workspace.config;
    let knowledge = &workspace.knowledge;
    let mut new = Vec::new();
    for (name, settings) in config.settings.connectors.get("filesystem").into_iter().flatten() {
        let name = SourceName::new("filesystem", name);
        let is_configured = knowledge.source_names().any(|known| *known == name);
        if is_configured && knowledge.last_sync(&name)?.is_none() {
            let root = config.root.join(settings.get("root").and_then(Value::as_str).unwrap_or_default());
            new.push((name.to_string(), NewSource { root, settings: Value::Object(settings.clone()) }));
        }
    }
    if new.is_empty() {
        return Ok(());
    }
    let known = knowledge.stats()?.sources;
    let has_documents = |name: &str| known.iter().any(|source| source.name == name && source.documents > 0);
    let new: Vec<NewSource> =
        new.into_iter().filter(|(name, _)| !has_documents(name)).map(|(_, source)| source).collect();
    let roots: Vec<&Path> = new.iter().map(|source| source.root.as_path()).collect();
    let document_bytes_max = config.settings.limits.document_bytes.get();
    confirm(&config.root, &roots, &new, document_bytes_max, yes, output)
}

fn confirm(
    workspace_root: &Path,
    roots: &[&Path],
    sources: &[NewSource],
    document_bytes_max: u64,
    yes: bool,
    output: &CommandOutput,
) -> CommandResult {
    let options = OpenOptions {
        workspace_root,
        cache: workspace_root,
        environment: &|_| None,
        document_bytes_max,
        own_files: &[],
    };
    let mut survey = FolderSurvey::default();
    for source in sources {
        // Invalid settings are reported when the source is opened.
        if !survey.is_truncated && survey.add_folder(&source.settings, options, LIMITS).is_err() {
            tracing::debug!("{} cannot be counted", source.root.display());
        }
    }
    let special = roots.iter().find_map(|root| Some(((*root).to_owned(), special_folder(root)?)));
    let (root, reason) = match special {
        Some(special) => special,
        None if survey.is_truncated => (workspace_root.to_owned(), "is large"),
        None => return Ok(()),
    };
    let description = format!("{} {reason}: {}", root.display(), describe(&survey));
    if yes {
        output.say(&description);
        return Ok(());
    }
    match output.confirm(&format!("{description}\nindex it? [y/N] ")) {
        Some(true) => Ok(()),
        Some(false) => Err(CommandError::new("nothing was indexed").hint(NARROW_HINT)),
        None => Err(CommandError::usage(description).hint("`--yes` indexes it anyway").hint(NARROW_HINT)),
    }
}

const NARROW_HINT: &str = "to index less, name a folder inside it, or write ctx.toml with `ctx init` and set `root`, \
     `include_globs` and `exclude_globs`";

/// The reason why a folder should hardly be indexed as a whole: it is the file system, or contains the home folder.
fn special_folder(path: &Path) -> Option<&'static str> {
    let canonical = |path: PathBuf| path.canonicalize().unwrap_or(path);
    let path = canonical(path.to_owned());
    if path.parent().is_none() {
        return Some("is the whole file system");
    }
    let home = canonical(std::env::home_dir().filter(|home| home.is_absolute())?);
    match home.strip_prefix(&path) {
        Ok(rest) if rest.as_os_str().is_empty() => Some("is your home folder"),
        Ok(_) => Some("contains your home folder"),
        Err(_) => None,
    }
}

/// Describes how much would be indexed, and the time and disk space that this takes.
fn describe(survey: &FolderSurvey) -> String {
    let FolderSurvey { files, bytes: size, entries, is_truncated: is_cut } = *survey;
    let space = bytes(size.saturating_mul(INDEX_BYTES_PER_BYTE));
    let time = duration((files / FILES_PER_SECOND).max(size / BYTES_PER_SECOND));
    let counted = match files > LIMITS.files {
        true => format!("{} files", group_digits(LIMITS.files)),
        false if files == 1 => count(files, "file"),
        false => format!("{} files", group_digits(files)),
    };
    let at_least = if is_cut { "at least " } else { "" };
    let cost = format!(
        "which takes {at_least}about {time} until it can be searched, and {at_least}about {space} of disk"
    );
    if entries > LIMITS.entries {
        let entries = group_digits(LIMITS.entries);
        return format!(
            "more than {entries} files and folders; of the first, {counted} with {} would be indexed, {cost}",
            bytes(size)
        );
    }
    let more = if is_cut { "more than " } else { "" };
    format!("{more}{counted} with {} would be indexed, {cost}", bytes(size))
}

/// A duration in words, rounded up to whole seconds, minutes or hours.
fn duration(seconds: u64) -> String {
    match seconds {
        0..=1 => "a second".to_owned(),
        2..=90 => format!("{seconds} seconds"),
        91..=5_400 => count(seconds.div_ceil(60), "minute"),
        _ => count(seconds.div_ceil(3_600), "hour"),
    }
}

/// A number with commas: 50,000.
pub(super) fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_says_how_much_and_how_long() {
        let survey = |files, bytes, entries, is_cut| {
            describe(&FolderSurvey { files, bytes, entries, is_truncated: is_cut })
        };
        assert_eq!(
            survey(7_000, 79_000_000, 7_100, false),
            "7,000 files with 75.3 MiB would be indexed, which takes about 9 seconds until it can be searched, and about \
             376.7 MiB of disk"
        );
        assert_eq!(
            survey(50_001, 400_000_000, 60_000, true),
            "more than 50,000 files with 381.5 MiB would be indexed, which takes at least about 67 seconds until it can \
             be searched, and at least about 1.9 GiB of disk"
        );
        assert_eq!(
            survey(1, 10, 500_001, true),
            "more than 500,000 files and folders; of the first, 1 file with 10 B would be indexed, which takes at least \
             about a second until it can be searched, and at least about 50 B of disk"
        );
        assert_eq!((duration(600), duration(20_000)), ("10 minutes".to_owned(), "6 hours".to_owned()));
        assert_eq!((group_digits(999), group_digits(1_234_567)), ("999".to_owned(), "1,234,567".to_owned()));
    }
}
