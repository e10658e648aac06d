//! Clones, pulls and edits in repositories of the real git.

use super::*;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// Runs the real git, without user or system configuration.
fn git(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=x", "-c", "user.email=x@y", "-c", "commit.gpgsign=false"]);
    command
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    let done = command.output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Edits a file, with a modification time after the checkout.
fn edit(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    let later = SystemTime::now() + Duration::from_secs(5);
    fs::File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
}

/// A foreign repository with scripts, and a clone of it.
fn clone_repository(init: &[&str]) -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (theirs, mine) = (folder.path().join("theirs"), folder.path().join("mine"));
    fs::create_dir_all(theirs.join("tools")).unwrap();
    git(&theirs, &[&["init", "-q", "-b", "main"], init].concat());
    for name in ["tools/a.lua", "tools/ab.lua", "z.lua"] {
        fs::write(theirs.join(name), "return 1").unwrap();
    }
    git(&theirs, &["add", "."]);
    git(&theirs, &["commit", "-q", "-m", "x"]);
    git(folder.path(), &["clone", "-q", "theirs", "mine"]);
    (folder, theirs, mine)
}

#[test]
fn a_pull_comes_from_elsewhere_and_an_edit_does_not() {
    let (_folder, theirs, mine) = clone_repository(&[]);
    let script = mine.join("tools/a.lua");
    assert!(!is_edited_here(&script), "as it was cloned");
    edit(&script, "return 2");
    assert!(is_edited_here(&script));
    assert!(!is_edited_here(&mine.join("z.lua")), "the others are still theirs");
    git(&mine, &["checkout", "-q", "."]);
    assert!(!is_edited_here(&script), "git wrote it again");
    fs::write(theirs.join("tools/a.lua"), "evil()").unwrap();
    git(&theirs, &["commit", "-q", "-a", "-m", "y"]);
    git(&mine, &["pull", "-q"]);
    assert_eq!(fs::read_to_string(&script).unwrap(), "evil()");
    assert!(!is_edited_here(&script));
    let new = mine.join("tools/mine.lua");
    edit(&new, "return 3");
    assert!(is_edited_here(&new), "git does not know it");
}

#[test]
fn a_merge_that_conflicts_comes_from_elsewhere() {
    let (_folder, theirs, mine) = clone_repository(&[]);
    for (folder, text) in [(&theirs, "theirs()"), (&mine, "mine()")] {
        fs::write(folder.join("z.lua"), text).unwrap();
        git(folder, &["commit", "-q", "-a", "-m", "y"]);
    }
    let pull = ["-c", "pull.rebase=false", "-c", "user.name=x", "-c", "user.email=x@y", "pull", "-q"];
    let pulled = Command::new("git").args(pull).current_dir(&mine).output().unwrap();
    assert!(!pulled.status.success());
    assert!(fs::read_to_string(mine.join("z.lua")).unwrap().contains("theirs()"));
    assert!(!is_edited_here(&mine.join("z.lua")));
}

#[test]
fn line_endings_that_git_changes_do_not_make_it_an_edit() {
    let (_folder, theirs, mine) = clone_repository(&[]);
    fs::write(theirs.join(".gitattributes"), "*.lua text eol=crlf\n").unwrap();
    fs::write(theirs.join("tools/a.lua"), "evil()\nmore()\n").unwrap();
    git(&theirs, &["add", "."]);
    git(&theirs, &["commit", "-q", "-m", "y"]);
    git(&mine, &["pull", "-q"]);
    assert!(fs::read_to_string(mine.join("tools/a.lua")).unwrap().contains("\r\n"));
    assert!(!is_edited_here(&mine.join("tools/a.lua")));
}

#[test]
fn what_cannot_be_told_comes_from_elsewhere() {
    let (_folder, _, mine) = clone_repository(&["--object-format=sha256"]);
    edit(&mine.join("z.lua"), "return 2");
    assert!(!is_edited_here(&mine.join("z.lua")), "another format of names");
    let (_folder, _, mine) = clone_repository(&[]);
    edit(&mine.join("z.lua"), "return 2");
    assert!(is_edited_here(&mine.join("z.lua")));
    git(&mine, &["update-index", "--index-version", "4"]);
    assert!(!is_edited_here(&mine.join("z.lua")), "another format of the index");
    git(&mine, &["update-index", "--index-version", "2"]);
    git(&mine, &["update-index", "--split-index"]);
    assert!(!is_edited_here(&mine.join("z.lua")), "an index in two parts");
    git(&mine, &["update-index", "--no-split-index"]);
    git(&mine, &["worktree", "add", "-q", "../other"]);
    let other = mine.join("../other/z.lua");
    edit(&other, "return 2");
    assert!(!is_edited_here(&other), "an index somewhere else");
    fs::create_dir(mine.join("tools/.hg")).unwrap();
    edit(&mine.join("tools/a.lua"), "return 2");
    assert!(!is_edited_here(&mine.join("tools/a.lua")), "another system");
    fs::write(mine.join(".git/index"), b"DIRC\0\0\0\x02\xff\xff\xff\xff").unwrap();
    assert!(!is_edited_here(&mine.join("z.lua")), "a damaged index");
}

#[test]
fn a_file_outside_of_any_repository_is_the_users() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("a.lua");
    fs::write(&script, "").unwrap();
    assert!(is_edited_here(&script));
    assert!(!is_edited_here(&folder.path().join("missing.lua")));
}

#[test]
#[cfg(unix)]
fn a_file_that_others_can_write_is_not() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("a.lua");
    fs::write(&script, "").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!is_edited_here(&script));
}

#[test]
fn no_bytes_are_an_index_that_panics() {
    let mut index = b"DIRC\0\0\0\x02\0\0\0\x02".to_vec();
    index.extend([0; 60]);
    for length in 0..index.len() {
        assert!(find_entry(&index[..length], b"a").is_err(), "{length}");
    }
}

#[cfg(unix)]
#[test]
fn a_symlink_that_a_pull_wrote_comes_from_elsewhere_whatever_it_points_to() {
    let (folder, _, mine) = clone_repository(&[]);
    let fetched = mine.join(".git/FETCH_HEAD");
    fs::write(&fetched, "evil()").unwrap();
    assert!(!is_edited_here(&fetched), "git writes it");
    let untracked = folder.path().join("untracked.lua");
    edit(&untracked, "evil()");
    assert!(is_edited_here(&untracked));
    for (link, target) in [("x.lua", "z.lua"), ("y.lua", ".git/FETCH_HEAD"), ("out.lua", "../untracked.lua")]
    {
        std::os::unix::fs::symlink(target, mine.join(link)).unwrap();
        assert!(!is_edited_here(&mine.join(link)), "{link}");
    }
    std::os::unix::fs::symlink("..", mine.join("up")).unwrap();
    assert!(!is_edited_here(&mine.join("up/untracked.lua")));
    // A symlink above the repository is the user's own.
    std::os::unix::fs::symlink("mine", folder.path().join("other")).unwrap();
    edit(&mine.join("z.lua"), "return 2");
    assert!(is_edited_here(&folder.path().join("other/z.lua")));
}

#[test]
fn while_git_changes_the_work_tree_every_change_comes_from_elsewhere() {
    let (_folder, _, mine) = clone_repository(&[]);
    edit(&mine.join("z.lua"), "evil()");
    assert!(is_edited_here(&mine.join("z.lua")));
    fs::write(mine.join(".git/index.lock"), "").unwrap();
    assert!(!is_edited_here(&mine.join("z.lua")));
}

#[test]
fn a_name_that_differs_in_case_may_be_the_tracked_file() {
    let (_folder, _, mine) = clone_repository(&[]);
    edit(&mine.join("Z.lua"), "evil()");
    assert!(!is_edited_here(&mine.join("Z.lua")));
}
