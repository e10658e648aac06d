//! Runs other programs from the repository's root.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The build folder, for tools and measurements; ignored by git, and removed by `cargo clean`.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A cargo command at the repository's root.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    // Set by `cargo run`; some build scripts (ring's) would rebuild because of these variables.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command
}

/// Runs a command that must succeed.
pub fn succeed(command: &mut Command) -> Result<()> {
    let command_line = command_line(command);
    let status = command.status().with_context(|| format!("cannot run {command_line}"))?;
    if !status.success() {
        bail!("{command_line} failed ({status})");
    }
    Ok(())
}

/// Runs a command that must succeed; returns its stdout.
pub fn output(command: &mut Command) -> Result<String> {
    let command_line = command_line(command);
    let output = command.output().with_context(|| format!("cannot run {command_line}"))?;
    if !output.status.success() {
        bail!("{command_line} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Builds `ctx` for release; returns its path.
pub fn release_binary() -> Result<PathBuf> {
    succeed(&mut cargo(&["build", "--release", "--package", "ctx"]))?;
    Ok(target().join("release/ctx"))
}

/// Sets the environment of a `ctx` process: it trusts generated workspaces, and its user state is below `target`.
pub fn with_test_env(command: &mut Command) -> &mut Command {
    command.env("CTX_TRUST", "1").env("XDG_STATE_HOME", target().join("state"))
}

/// Copies a workspace without its `.ctx` folder.
pub(crate) fn copy_workspace(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_name() == ".ctx" {
            continue;
        }
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_workspace(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once(name).chain(arguments).collect::<Vec<_>>().join(" ")
}
