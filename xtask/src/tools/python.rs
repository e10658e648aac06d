//! Python environments with packages, under `target/tools`.

use crate::run::{succeed, target};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;

/// The Python interpreter of the environment `target/tools/<name>`. Installs `requirement` unless the program
/// `check` succeeds.
pub(super) fn python_environment(name: &str, requirement: &str, check: &str) -> Result<PathBuf> {
    let folder = target().join("tools").join(name);
    let python = folder.join("bin/python");
    let works =
        || Command::new(&python).args(["-c", check]).output().is_ok_and(|output| output.status.success());
    if works() {
        return Ok(python);
    }
    let install = || {
        succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        succeed(Command::new(&python).args(["-m", "pip", "install", "--quiet", requirement]))
    };
    install().with_context(|| {
        format!("{requirement} could not be installed; install Python 3 with venv and pip")
    })?;
    Ok(python)
}
