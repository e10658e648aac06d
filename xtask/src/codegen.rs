//! `cargo xtask codegen`: writes the reference pages that the program generates about itself.

use crate::run::{cargo, root, succeed, target};
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: &str = "docs/reference";

/// Writes the pages.
pub(crate) fn write_pages() -> Result<()> {
    generate(&build_program()?, &root().join(FOLDER))
}

/// Fails if a committed page differs from the generated one.
pub(crate) fn check_pages() -> Result<()> {
    check_pages_with(&build_program()?)
}

/// Checks the pages against a program that is already built.
pub(crate) fn check_pages_with(binary: &Path) -> Result<()> {
    let fresh = tempfile::tempdir()?;
    generate(binary, fresh.path())?;
    let mut stale = Vec::new();
    for entry in fs::read_dir(fresh.path())? {
        let entry = entry?;
        let committed = root().join(FOLDER).join(entry.file_name());
        if fs::read(entry.path())? != fs::read(committed).unwrap_or_default() {
            stale.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    stale.sort();
    bail!("{FOLDER} is not current: {}; run `cargo xtask codegen`", stale.join(", "))
}

fn build_program() -> Result<PathBuf> {
    succeed(&mut cargo(&["build", "--quiet", "--package", "ctx"]))?;
    Ok(target().join("debug/ctx"))
}

fn generate(binary: &Path, folder: &Path) -> Result<()> {
    succeed(Command::new(binary).arg("__reference").arg(folder))
}
