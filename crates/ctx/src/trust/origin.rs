//! The origin of a file's content: edited by the user, or checked out by version control.
//!
//! The user's own edit of a trusted script must not prompt again; a `git pull` that changes it must. Git's index
//! records the modification time of each file that it checked out. A file with another modification time was edited by
//! the user; so was an untracked file, or one outside of any repository. In doubt (a file of another user, another
//! version control system, an unknown index format) the content counts as foreign.

use std::fs::{self, Metadata};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// The largest index that is read; enough for some hundred thousand files.
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// The largest repository configuration that is read.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Git's metadata folder.
const GIT: &str = ".git";
/// Git holds this file while it changes the work tree and has not yet written the index.
const INDEX_LOCK: &str = "index.lock";
/// Metadata folders of other version control systems, whose formats are not parsed.
const OTHER_SYSTEMS: [&str; 8] = [".bzr", ".hg", ".jj", ".pijul", ".sl", ".svn", "CVS", "_darcs"];

/// Whether the file was last written by the user, and not by version control.
pub(super) fn is_edited_here(file: &Path) -> bool {
    if has_tracked_symlink(file) {
        return false;
    }
    let Ok(file) = file.canonicalize() else { return false };
    let Ok(metadata) = fs::metadata(&file) else { return false };
    is_own(&metadata) && !is_from_version_control(&file, &metadata)
}

/// Whether the path leads through a symlink that version control may have written: a pull can point it at a file that is
/// not tracked, such as one of git's own, whose content a remote chooses.
fn has_tracked_symlink(file: &Path) -> bool {
    file.ancestors().filter(|path| path.is_symlink()).any(|link| {
        let folder = link.parent().and_then(|folder| folder.canonicalize().ok());
        folder.is_none_or(|folder| folder.ancestors().any(is_repository))
    })
}

fn is_repository(folder: &Path) -> bool {
    OTHER_SYSTEMS.iter().chain(&[GIT]).any(|name| fs::symlink_metadata(folder.join(name)).is_ok())
}

/// Whether the file is owned by this user or root, and is not world-writable.
#[cfg(unix)]
fn is_own(metadata: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::geteuid().as_raw();
    let (owner, others_write) = (metadata.uid(), metadata.mode() & 0o002 != 0);
    (owner == own || owner == 0) && !others_write
}

#[cfg(not(unix))]
fn is_own(_: &Metadata) -> bool {
    true
}

fn is_from_version_control(file: &Path, metadata: &Metadata) -> bool {
    for folder in file.ancestors().skip(1) {
        if OTHER_SYSTEMS.iter().any(|name| folder.join(name).is_dir()) {
            return true;
        }
        let git = folder.join(GIT);
        let Ok(found) = fs::symlink_metadata(&git) else { continue };
        // A worktree, a submodule or a symlink: the index is elsewhere.
        if !found.is_dir() {
            return true;
        }
        let Some(name) = file.strip_prefix(folder).ok().and_then(index_name) else { return true };
        if fs::symlink_metadata(git.join(INDEX_LOCK)).is_ok() {
            return true;
        }
        return match checkout_time(&git, &name) {
            Ok(Some(time)) => time.matches(metadata),
            Ok(None) => false,
            Err(UnreadableIndex) => true,
        };
    }
    false
}

/// The name of a file in git's index; none inside of git's own folder, where git writes what a remote sends.
fn index_name(relative: &Path) -> Option<Vec<u8>> {
    let parts = relative.components().map(|part| part.as_os_str().as_encoded_bytes());
    let parts: Vec<&[u8]> = parts.collect();
    let is_work_tree = !parts.iter().any(|part| part.eq_ignore_ascii_case(GIT.as_bytes()));
    is_work_tree.then(|| parts.join(&b'/'))
}

/// A file's modification time as git's index records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CheckoutTime {
    seconds: u32,
    nanoseconds: u32,
}

impl CheckoutTime {
    /// Whether the file still has this modification time, and so is as git wrote it.
    fn matches(self, metadata: &Metadata) -> bool {
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let Some(modified) = modified else { return true };
        // The index holds the low 32 bits of the seconds, and no nanoseconds if git was built without them.
        self.seconds == modified.as_secs() as u32
            && (self.nanoseconds == 0 || self.nanoseconds == modified.subsec_nanos())
    }
}

/// An index that cannot be read, or whose format is not supported.
#[derive(Debug, PartialEq, Eq)]
struct UnreadableIndex;

/// The time that a repository's index records for a file; none for an untracked file.
fn checkout_time(git: &Path, name: &[u8]) -> Result<Option<CheckoutTime>, UnreadableIndex> {
    let read = |file: &str, bytes_max: u64| match fs::symlink_metadata(git.join(file)) {
        Err(_) => Ok(None),
        Ok(metadata) if !metadata.is_file() || metadata.len() > bytes_max => Err(UnreadableIndex),
        Ok(_) => fs::read(git.join(file)).map(Some).map_err(|_| UnreadableIndex),
    };
    let config = read("config", CONFIG_BYTES_MAX)?.unwrap_or_default().to_ascii_lowercase();
    if memchr::memmem::find(&config, b"sha256").is_some() {
        return Err(UnreadableIndex);
    }
    // Without an index nothing was ever checked out or staged.
    read("index", INDEX_BYTES_MAX)?.map_or(Ok(None), |index| find_entry(&index, name))
}

/// Finds the entry of a path in an index of version 2 or 3 with SHA-1 object names; see git's `index-format`.
fn find_entry(bytes: &[u8], name: &[u8]) -> Result<Option<CheckoutTime>, UnreadableIndex> {
    const HEADER: usize = 12;
    const FIXED: usize = 62;
    const EXTENDED: u16 = 0x4000;
    const CONFLICT: u16 = 0x3000;
    // Object types: sparse directory, regular file, symlink, gitlink.
    const KINDS: [u32; 4] = [0o04, 0o10, 0o12, 0o16];
    let word = |at: usize| -> Result<u32, UnreadableIndex> {
        let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_be_bytes).ok_or(UnreadableIndex)
    };
    if bytes.get(..4) != Some(b"DIRC") || !matches!(word(4)?, 2 | 3) {
        return Err(UnreadableIndex);
    }
    let mut at = HEADER;
    for _ in 0..word(8)? {
        let flags = bytes.get(at + 60..at + FIXED).and_then(|bytes| bytes.try_into().ok());
        let flags = flags.map(u16::from_be_bytes).ok_or(UnreadableIndex)?;
        let start = at + FIXED + if flags & EXTENDED != 0 { 2 } else { 0 };
        let rest = bytes.get(start..).ok_or(UnreadableIndex)?;
        let length = memchr::memchr(0, rest).ok_or(UnreadableIndex)?;
        let found = &rest[..length];
        if !KINDS.contains(&(word(at + 24)? >> 12)) {
            return Err(UnreadableIndex);
        }
        if found != name && found.eq_ignore_ascii_case(name) {
            // The same file where names are case-insensitive.
            return Err(UnreadableIndex);
        }
        if found == name && flags & CONFLICT != 0 {
            // A conflict: git wrote both sides into the file, and recorded no time.
            return Err(UnreadableIndex);
        }
        if found == name {
            return Ok(Some(CheckoutTime { seconds: word(at + 8)?, nanoseconds: word(at + 12)? }));
        }
        // A sparse directory: its files are not listed.
        if found.ends_with(b"/") {
            return Err(UnreadableIndex);
        }
        // Entries are padded with one to eight NUL bytes to a multiple of eight.
        at += (start - at + length) / 8 * 8 + 8;
    }
    // The `link` extension marks a split index: shared entries are in another file.
    match memchr::memmem::find(&bytes[at.min(bytes.len())..], b"link") {
        Some(_) => Err(UnreadableIndex),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests;
