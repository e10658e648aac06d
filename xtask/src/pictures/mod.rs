//! `cargo xtask pictures`: generates the pictures of the documentation from the release binary and the repository, and
//! checks that the committed ones are current.

mod ansi;
mod concepts;
mod crates;
mod diagram;
mod layers;
mod normalise;
mod session;
mod svg;
mod terminal;

use crate::run::{release_binary, root};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "docs/images";

/// Maximum size of a picture; the README loads some.
const BYTES_MAX: usize = 60_000;

/// Runs the task with its options: `--check`, and `--binary PATH` for a program that is already built.
pub(crate) fn run(options: &[&str]) -> Result<()> {
    let (options, binary) = match options {
        [rest @ .., "--binary", path] | ["--binary", path, rest @ ..] => (rest, Some(path)),
        rest => (rest, None),
    };
    let is_check = match options {
        [] => false,
        ["--check"] => true,
        _ => bail!("usage: cargo xtask pictures [--check] [--binary PATH]"),
    };
    let binary = match binary {
        Some(path) => PathBuf::from(path).canonicalize().with_context(|| format!("no binary {path}"))?,
        None => release_binary()?,
    };
    if is_check { check_with(&binary) } else { write(&binary) }
}

fn write(binary: &Path) -> Result<()> {
    for (name, picture) in pictures(binary)? {
        fs::write(root().join(FOLDER).join(name), picture)?;
    }
    Ok(())
}

/// Generates the pictures with this binary, and fails if a committed one differs.
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
        ("concepts.svg", concepts::draw_concepts()?),
        ("crates.svg", crates::draw_crates()?),
        ("session.svg", session::draw_session(binary)?),
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
