//! Who runs the binary: root can read and write everything, which would make permissions untestable.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `nobody`, by number.
const NOBODY: u32 = 65_534;

/// Somebody who is not root, and the binary where they can reach it.
pub(crate) struct Unprivileged {
    binary: PathBuf,
}

impl Unprivileged {
    /// Nobody, if the owner of this just created folder is root; else nothing needs to be done.
    pub(crate) fn in_place_of_root(folder: &Path, binary: &Path) -> Option<Self> {
        if fs::metadata(folder).unwrap().uid() != 0 {
            return None;
        }
        let linked = folder.join("bin").join("ctx");
        fs::create_dir(linked.parent().unwrap()).unwrap();
        // A link costs nothing; it fails only across file systems.
        if fs::hard_link(binary, &linked).is_err() {
            fs::copy(binary, &linked).unwrap();
        }
        lchown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        Some(Self { binary: linked })
    }

    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// Makes the command theirs, and everything below `owned` that is not yet.
    pub(crate) fn take_over(&self, command: &mut Command, owned: &[&Path]) {
        for path in owned {
            give(path);
        }
        command.uid(NOBODY).gid(NOBODY);
    }
}

fn give(path: &Path) {
    let metadata = fs::symlink_metadata(path).unwrap();
    // Only what is root's: a change of owner is a change to the file, which a sync would notice.
    if metadata.uid() != NOBODY {
        lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path());
        }
    }
}
