//! Writes a settings file atomically, with a backup of the previous version.

use super::edit::{EditError, EditOutcome, NewEntry, SettingsFormat, edit_all};
use crate::error::{CommandError, CommandResult};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Maximum size of a settings file.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Maximum number of backups of a file.
const BACKUPS_MAX: u32 = 1000;
/// Maximum number of attempts, if the client changes its file between our reading and writing it.
const TRIES_MAX: u32 = 5;

/// The result of writing a settings file.
#[derive(Debug)]
pub(in crate::commands) struct WriteOutcome {
    pub(in crate::commands) change: EntryChange,
    /// The backup of the previous version, if a file existed and was changed.
    pub(in crate::commands) backup: Option<PathBuf>,
    /// The folder that was created for the file.
    pub(in crate::commands) created_folder: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::commands) enum EntryChange {
    Unchanged,
    Added,
    Replaced,
}

/// Adds the entries to the file at this path, and creates the file if it does not exist. With `secret`, a new file is
/// readable by its owner only.
pub(in crate::commands) fn write(
    path: &Path,
    format: SettingsFormat,
    new_entries: &[NewEntry<'_>],
    secret: bool,
) -> CommandResult<WriteOutcome> {
    let target = resolve_symlink(path)?;
    for _ in 0..TRIES_MAX {
        let before = read(&target).map_err(|error| not_written(path, &error))?;
        let text = before.as_ref().map_or("", |before| &before.text);
        let edited = edit_all(format, text, new_entries).map_err(|error| not_editable(path, &error))?;
        let (change, text) = match edited {
            EditOutcome::Unchanged => {
                return Ok(WriteOutcome {
                    change: EntryChange::Unchanged,
                    backup: None,
                    created_folder: None,
                });
            }
            EditOutcome::Added(text) => (EntryChange::Added, text),
            EditOutcome::Replaced(text) => (EntryChange::Replaced, text),
        };
        if before.as_ref().is_some_and(|before| before.permissions.readonly()) {
            let error = io::Error::from(ErrorKind::ReadOnlyFilesystem);
            return Err(not_written(path, &error).hint("it may be managed by another program"));
        }
        let created_folder = create_folder(&target).map_err(|error| not_written(path, &error))?;
        let outcome = replace(path, &target, before.as_ref(), &text, secret);
        match outcome.map_err(|error| not_written(path, &error))? {
            ReplaceOutcome::Replaced(backup) => {
                return Ok(WriteOutcome { change, backup, created_folder });
            }
            ReplaceOutcome::ChangedMeanwhile => {}
        }
    }
    Err(CommandError::new(format!("{} keeps changing; it was not edited", path.display()))
        .hint("quit the client, then run the command again"))
}

/// The content and permissions of a file before a change.
pub(in crate::commands) struct PreviousFile {
    pub(in crate::commands) text: String,
    permissions: Permissions,
}

enum ReplaceOutcome {
    Replaced(Option<PathBuf>),
    ChangedMeanwhile,
}

/// The file to write: the target of the path if it is a symlink.
fn resolve_symlink(path: &Path) -> CommandResult<PathBuf> {
    match (path.canonicalize(), path.symlink_metadata()) {
        (Ok(target), _) => Ok(target),
        (Err(_), Err(_)) => Ok(path.to_owned()),
        (Err(error), Ok(_)) => {
            Err(CommandError::new(format!("{} is a broken symbolic link: {error}", path.display())))
        }
    }
}

/// Reads a file; `None` if it does not exist.
pub(in crate::commands) fn read(path: &Path) -> io::Result<Option<PreviousFile>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(io::Error::from(ErrorKind::FileTooLarge));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(Some(PreviousFile { text, permissions: metadata.permissions() }))
}

/// Creates the folder of the file, and returns it if it did not exist.
fn create_folder(target: &Path) -> io::Result<Option<PathBuf>> {
    match target.parent() {
        Some(folder) if !folder.is_dir() => {
            fs::create_dir_all(folder)?;
            Ok(Some(folder.to_owned()))
        }
        _ => Ok(None),
    }
}

fn replace(
    path: &Path,
    target: &Path,
    before: Option<&PreviousFile>,
    text: &str,
    secret: bool,
) -> io::Result<ReplaceOutcome> {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".ctx-{}", std::process::id()));
    let temporary = target.with_file_name(name);
    let written =
        write_new(&temporary, text, before.map(|before| &before.permissions), secret).and_then(|()| {
            let backup = before.map(|before| back_up(path, before)).transpose()?;
            let now = read(target)?;
            if now.as_ref().map(|now| &now.text) != before.map(|before| &before.text) {
                backup.map(fs::remove_file).transpose()?;
                return Ok(ReplaceOutcome::ChangedMeanwhile);
            }
            fs::rename(&temporary, target)?;
            Ok(ReplaceOutcome::Replaced(backup))
        });
    if !matches!(written, Ok(ReplaceOutcome::Replaced(_))) && fs::remove_file(&temporary).is_err() {
        // Most likely the temporary file was never created.
    }
    written
}

/// Writes the previous content to `FILE.ctx-backup`, or to the next free number (`FILE.ctx-backup-2`).
fn back_up(path: &Path, before: &PreviousFile) -> io::Result<PathBuf> {
    for number in 1..=BACKUPS_MAX {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(if number == 1 { ".ctx-backup".to_owned() } else { format!(".ctx-backup-{number}") });
        let backup = path.with_file_name(name);
        match write_new(&backup, &before.text, Some(&before.permissions), false) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            written => return written.map(|()| backup),
        }
    }
    Err(io::Error::other("there are too many backups of it"))
}

fn write_new(path: &Path, text: &str, permissions: Option<&Permissions>, secret: bool) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    // Private until the permissions of the original file are set below.
    if secret || permissions.is_some() {
        owner_only(&mut options);
    }
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    if let Some(permissions) = permissions {
        file.set_permissions(permissions.clone())?;
    }
    file.sync_all()
}

fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

fn not_written(path: &Path, error: &io::Error) -> CommandError {
    let why = match error.kind() {
        ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
        ErrorKind::ReadOnlyFilesystem => "it is read-only".to_owned(),
        ErrorKind::FileTooLarge => format!("it has more than {FILE_BYTES_MAX} bytes"),
        _ => error.to_string(),
    };
    CommandError::new(format!("{} was not changed: {why}", path.display()))
}

fn not_editable(path: &Path, error: &EditError) -> CommandError {
    let path = path.display();
    match error {
        EditError::Syntax { .. } => CommandError::new(format!("{path}:{error}"))
            .hint("the file was not changed; correct the error, or paste the entry by hand"),
        _ => CommandError::new(format!("{path} was not changed: {error}")).hint("paste the entry by hand"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_changes_of_the_client_are_not_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.json");
        fs::write(&path, "{}").unwrap();
        let before = read(&path).unwrap();
        fs::write(&path, "{\"new\": 1}").unwrap();
        let outcome = replace(&path, &path, before.as_ref(), "{\"ctx\": 1}", false).unwrap();
        assert!(matches!(outcome, ReplaceOutcome::ChangedMeanwhile));
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"new\": 1}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    }
}
