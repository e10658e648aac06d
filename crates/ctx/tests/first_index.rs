//! `ctx up` in the home folder or a very large folder asks before anything is indexed.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestWorkspace, ctx_snapshot};
use std::fs::{self, File};
use std::path::Path;

fn with_home() -> TestWorkspace {
    let w = TestWorkspace::empty();
    fs::write(w.home().join("notes.md"), "harbour").unwrap();
    w
}

fn has_config(w: &TestWorkspace) -> bool {
    w.home().join("ctx.toml").exists()
}

#[test]
fn the_home_folder_is_not_indexed_unasked_however_it_is_named() {
    let w = with_home();
    std::os::unix::fs::symlink(w.home(), w.path("link")).unwrap();
    let mut refused = w.shell("ctx up ~ --port 0");
    refused.stderr = refused.stderr.replace(&w.home().display().to_string(), "[HOME]");
    ctx_snapshot!(refused, @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: [HOME] is your home folder: 1 file with [SIZE] would be indexed, which takes about a second until it can be searched, and about [SIZE] of disk
    hint: `--yes` indexes it anyway
    hint: to index less, name a folder inside it, or write ctx.toml with `ctx init` and set `root`, `include_globs` and `exclude_globs`
    ");
    for script in [
        "ctx up $HOME/ --port 0",
        "cd ~ && ctx up --port 0",
        "cd ~ && ctx up . --port 0",
        "ctx up link --port 0",
        "ctx up ../home/../home --port 0",
    ] {
        w.shell(script).code(2).stderr_contains("is your home folder").stderr_contains("`--yes`");
    }
    w.shell("ctx up .. --port 0").code(2).stderr_contains("contains your home folder");
    w.shell("ctx up / --port 0").code(2).stderr_contains("is the whole file system");
    assert!(!has_config(&w) && !w.path("../ctx.toml").exists() && !Path::new("/ctx.toml").exists());

    // Folders below the home folder are indexed without asking.
    fs::create_dir(w.home().join("notes")).unwrap();
    w.spawn(["up", "../home/notes", "--port", "0"]).stop().success();
}

#[test]
fn whoever_has_agreed_once_is_not_asked_again() {
    let w = with_home();
    let home = w.home().display().to_string();
    let server = w.spawn(["up", &home, "--port", "0", "--yes"]);
    server
        .stop()
        .success()
        .stderr_contains("1 file with 7 B would be indexed")
        .stderr_contains("1 document in 1 chunk");
    assert!(has_config(&w));
    let again = w.spawn(["up", &home, "--port", "0"]).stop().success();
    assert!(!again.stderr.contains("home folder"), "{}", again.stderr);
}

#[test]
fn a_source_of_a_written_configuration_is_asked_about_before_its_first_sync() {
    let w = with_home().config("[connectors.filesystem.all]\nroot = \"${HOME}\"\n");
    w.ctx("up --port 0").code(2).stderr_contains("is your home folder");
    w.ctx("sync").success();
    w.spawn(["up", "--port", "0"]).stop().success();
}

#[test]
fn a_folder_with_too_many_files_is_not_indexed_unasked() {
    let w = TestWorkspace::empty();
    fs::create_dir_all(w.path("many/sub")).unwrap();
    fs::create_dir_all(w.path("many/ignored")).unwrap();
    fs::write(w.path("many/.gitignore"), "ignored/\n").unwrap();
    for number in 0..50_000 {
        File::create(w.path(&format!("many/sub/{number}.md"))).unwrap();
    }
    for number in 0..100 {
        File::create(w.path(&format!("many/ignored/{number}.md"))).unwrap();
        File::create(w.path(&format!("many/sub/{number}.png"))).unwrap();
    }
    // Exactly the limit: the next check fails instead.
    w.ctx("up many --bind no.such.host.invalid").code(2).stderr_contains("is not an address and port");
    w.remove("many/ctx.toml");
    File::create(w.path("many/one-more.md")).unwrap();
    w.ctx("up many --port 0").code(2).stderr_contains("many is large: more than 50,000 files");
    assert!(!w.path("many/ctx.toml").exists());
}

#[test]
fn a_folder_with_too_many_bytes_is_not_indexed_unasked() {
    let w = TestWorkspace::empty();
    fs::create_dir(w.path("big")).unwrap();
    // Sparse: uses no disk space. A file over the size limit of a document is not read, and does not count.
    let make = |name: &str, bytes| File::create(w.path(name)).unwrap().set_len(bytes).unwrap();
    make("big/huge.md", 3_000_000_000);
    (0..41).for_each(|number| make(&format!("big/{number}.md"), 50_000_000));
    let refused = w.ctx("up big --port 0").code(2);
    refused
        .stderr_contains("big is large: more than 41 files with 1.9 GiB")
        .stderr_contains("about")
        .stderr_contains("`--yes`");
}

/// Answers the prompt in a pseudo-terminal.
#[cfg(target_os = "linux")]
#[test]
fn in_a_terminal_it_is_a_question() {
    let w = with_home();
    // The address is invalid, so that the command also ends after consent.
    let answered = |answer: &str| {
        let command = "ctx up ~ --bind no.such.host.invalid";
        w.shell(&format!("printf '{answer}\\n' | script -qec '{command}' /dev/null"))
    };
    let refused =
        answered("n").code(1).stdout_contains("is your home folder").stdout_contains("index it? [y/N]");
    refused.stdout_contains("nothing was indexed");
    assert!(!has_config(&w));
    answered("y").code(2).stdout_contains("is not an address and port");
    assert!(has_config(&w));
}
