//! Runs the binary as an unprivileged user, since file permissions do not apply to root.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user id of `nobody`.
const NOBODY: u32 = 65_534;

/// An unprivileged user, and the binary at a path that this user can reach.
pub(crate) struct UnprivilegedUser {
    binary: PathBuf,
}

impl UnprivilegedUser {
    /// The user `nobody` if the tests run as root, which the owner of this new folder shows; else `None`.
    pub(crate) fn instead_of_root(folder: &Path, binary: &Path) -> Option<Self> {
        if fs::metadata(folder).unwrap().uid() != 0 {
            return None;
        }
        let linked = folder.join("bin").join("ctx");
        fs::create_dir(linked.parent().unwrap()).unwrap();
        // A hard link is cheap; it fails only across file systems.
        if fs::hard_link(binary, &linked).is_err() {
            fs::copy(binary, &linked).unwrap();
        }
        lchown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        Some(Self { binary: linked })
    }

    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// Runs the command as this user, and gives the user everything below `owned`.
    pub(crate) fn run_as_user(&self, command: &mut Command, owned: &[&Path]) {
        for path in owned {
            change_owner(path);
        }
        command.uid(NOBODY).gid(NOBODY);
    }
}

fn change_owner(path: &Path) {
    let metadata = fs::symlink_metadata(path).unwrap();
    // Only if necessary: a change of owner changes the file's ctime, which a sync would notice.
    if metadata.uid() != NOBODY {
        lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            change_owner(&entry.unwrap().path());
        }
    }
}
