//! `cargo xtask pictures`: writes the pictures of the documentation from what they show, so that none goes stale.

mod ansi;
mod concepts;
mod crates;
mod diagram;
mod layers;
mod normal;
mod session;
mod svg;
mod terminal;

use crate::run::{release_binary, root};
use anyhow::{Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "docs/images";

/// Maximum size of a picture; the README loads some.
const BYTES_MAX: usize = 60_000;

/// Runs the task with its options: `--check`, and `--binary PATH` for a program that is already built.
pub(crate) fn run(options: &[&str]) -> Result<()> {
    let (options, binary) = match options {
        [rest @ .., "--binary", path] => (rest, PathBuf::from(path).canonicalize()?),
        ["--binary", path, rest @ ..] => (rest, PathBuf::from(path).canonicalize()?),
        rest => (rest, release_binary()?),
    };
    match options {
        [] => write(&binary),
        ["--check"] => check_with(&binary),
        _ => bail!("usage: cargo xtask pictures [--check] [--binary PATH]"),
    }
}

fn write(binary: &Path) -> Result<()> {
    for (name, picture) in pictures(binary)? {
        fs::write(root().join(FOLDER).join(name), picture)?;
    }
    Ok(())
}

/// Fails if a committed picture differs from what the program prints and the repository contains now.
pub(crate) fn check_with(binary: &Path) -> Result<()> {
    let mut stale = Vec::new();
    for (name, picture) in pictures(binary)? {
        let committed = fs::read_to_string(root().join(FOLDER).join(name)).unwrap_or_default();
        if let Some(difference) = first_difference(&committed, &picture) {
            stale.push(format!("{FOLDER}/{name} is not current:\n{difference}"));
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    bail!("{}\nrun `cargo xtask pictures`", stale.join("\n"))
}

fn pictures(binary: &Path) -> Result<Vec<(&'static str, String)>> {
    let pictures = vec![
        ("concepts.svg", concepts::picture()?),
        ("crates.svg", crates::picture()?),
        ("session.svg", session::picture(binary)?),
    ];
    for (name, picture) in &pictures {
        let size = picture.len();
        ensure!(size <= BYTES_MAX, "{name} has {size} bytes, more than {BYTES_MAX}");
    }
    Ok(pictures)
}

/// The first lines that differ.
fn first_difference(committed: &str, current: &str) -> Option<String> {
    if committed == current {
        return None;
    }
    let (mut old, mut new) = (committed.lines(), current.lines());
    loop {
        match (old.next(), new.next()) {
            (Some(old), Some(new)) if old == new => {}
            (None, None) => return Some("only line breaks differ".to_owned()),
            (old, new) => {
                return Some(format!("- {}\n+ {}", old.unwrap_or_default(), new.unwrap_or_default()));
            }
        }
    }
}
