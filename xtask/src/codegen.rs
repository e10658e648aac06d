//! Reference pages that the program writes about itself.

use crate::run::{cargo, root, succeed};
use anyhow::{Result, bail};
use std::fs;
use std::path::Path;

const FOLDER: &str = "docs/reference";

/// Writes them.
pub(crate) fn write() -> Result<()> {
    generate(&root().join(FOLDER))
}

/// Fails if any would come out different.
pub(crate) fn check() -> Result<()> {
    let fresh = tempfile::tempdir()?;
    generate(fresh.path())?;
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

fn generate(folder: &Path) -> Result<()> {
    succeed(cargo(&["run", "--quiet", "--package", "ctx", "--", "__reference"]).arg(folder))
}
